"""Upstream's generative reward model: it reads what the policy wrote, and its own answer is scored.

One decision: this is a reward function as upstream asks for one, which is given the address of the reward model; each
row is asked about when it is written. Upstream loads the file by itself.
"""

import os
from typing import Any

import aiohttp

from scripts.bench.compare.ours import HELPER_SAMPLING, KEEP
from scripts.bench.compare.reward import compute_score as score
from scripts.bench.compare.workload import HELPER_TOKENS

MODEL = "COMPARE_REWARD_MODEL"
"""Environment variable: the model's name on its server."""


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Any,
    reward_router_address: str,
    reward_model_tokenizer: Any,
) -> float:
    """The mean of both scores; upstream's arguments."""
    question = [{"role": "user", "content": extra_info["question"]}]
    begin = reward_model_tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=True)
    body = {
        "model": os.environ[MODEL],
        "prompt": f"{begin}<think>{solution_str[: int(len(solution_str) * KEEP)]}</think>",
        "add_special_tokens": False,
        "max_tokens": HELPER_TOKENS,
        **HELPER_SAMPLING,
    }
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=300)) as session,
        session.post(f"http://{reward_router_address}/v1/completions", json=body) as reply,
    ):
        reply.raise_for_status()
        written = (await reply.json())["choices"][0]["text"]
    own, theirs = (score(data_source, text, ground_truth) for text in (solution_str, written))
    return (own + theirs) / 2
