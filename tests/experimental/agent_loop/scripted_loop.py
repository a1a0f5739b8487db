"""One row through the agent loop, where a policy and classmates that answer by a script stand for the engines.

>>> row = run(config, RESPONSE, failing={0: Outcome.timeout})
>>> row.record["final_reward"], row.policy.requests, row.classmates.requests
"""

import asyncio
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from tests.classmate.toy_tokenizers import TOKENIZERS
from tests.run_config import run_config
from tests.workers.scripted_rows import QUESTION
from verl.classmate.outcome import Outcome
from verl.classmate.reply import Reply
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.experimental.agent_loop.row_loop import ClassmateAgentLoop
from verl.experimental.agent_loop.row_reading import ClassmateAgentLoopOutput, row_pipeline
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.classmate_workers import ClassmateClient
from verl.workers.rollout.replica import TokenOutput

CLASSMATES = ("text_bpe", "unigram")


class Policy:
    """Writes one text, whatever it is asked."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.requests: list[dict[str, Any]] = []

    async def generate(self, **request: Any) -> TokenOutput:
        self.requests.append(request)
        ids = TOKENIZERS["byte_bpe"]().encode(self.text, add_special_tokens=False)
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason="completed")


class Classmates:
    """Answer 7 for even samples and 8 for odd ones, in their own tokens, but for those that fail."""

    def __init__(self, failing: dict[int, Outcome]) -> None:
        self.failing = failing
        self.live: ClassmateClient | None = None
        self.requests: list[dict[str, Any]] = []

    async def sample(
        self,
        classmate: int,
        prompt_ids: list[int],
        *,
        seeds: Sequence[int],
        validate: bool,
        excluded: frozenset[int] = frozenset(),
        max_new_tokens: int | None = None,
    ) -> list[Reply]:
        if classmate == len(CLASSMATES):
            assert self.live is not None
            return await self.live.sample(classmate, prompt_ids, seeds=seeds, validate=validate)
        tokenizer = TOKENIZERS[CLASSMATES[classmate]]()
        self.requests.append(
            {"classmate": classmate, "prompt": tokenizer.decode(prompt_ids), "seeds": seeds, "validate": validate}
            | {"excluded": excluded}
        )
        if classmate in self.failing:
            return [Reply(outcome=self.failing[classmate]) for _ in seeds]
        return [
            Reply(
                outcome=Outcome.ok,
                token_ids=tuple(tokenizer.encode(f"The answer is {7 + s % 2}.", add_special_tokens=False)),
                finish_reason="stop",
            )
            for s in range(len(seeds))
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """What became of one row."""

    output: ClassmateAgentLoopOutput
    """For the trainer."""
    policy: Policy
    """With what it was asked."""
    classmates: Classmates
    """With what they were asked."""

    @property
    def record(self) -> dict[str, Any]:
        """For the dump."""
        return json.loads(self.output.extra_fields["reward_extra_info"]["record"])


def composed(folder: Path, *overrides: str) -> DictConfig:
    samples = "reward_model.classmate_generation_configs.num_return_sequences=2"
    return run_config(folder, CLASSMATES, samples, *overrides)


def loop_of(config: DictConfig, policy: Policy) -> ClassmateAgentLoop:
    """The loop as a worker makes it; within a running event loop."""
    tokenizer = TOKENIZERS["byte_bpe"]()
    return ClassmateAgentLoop(
        pipeline=row_pipeline(config, tokenizer, policy),
        trainer_config=DictConfigWrap(config),
        server_manager=policy,
        tokenizer=tokenizer,
        processor=None,
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(config.data),
    )


def prompt_columns(**more: Any) -> dict[str, Any]:
    """What the trainer hands a worker of one prompt, and `more`."""
    return {
        "raw_prompt": [{"role": "user", "content": QUESTION}],
        "data_source": "hinted_arithmetic",
        "reward_model": {"ground_truth": "7"},
        "extra_info": {"index": 3, "split": "train"},
        "global_steps": 5,
        "is_validate": False,
        "excluded_classmates": (),
        "read_later": (),
        "read_beside": False,
        "partner": "",
        **more,
    }


def run(
    config: DictConfig,
    text: str,
    *,
    failing: dict[int, Outcome] | None = None,
    live_client: bool = False,
    **columns: Any,
) -> Row:
    """One row through the loop; with `live_client` the policy's own client answers for the policy."""
    policy, classmates = Policy(text), Classmates(failing or {})
    row = prompt_columns(uid="0-1-key", session_id=2) | columns

    async def go() -> ClassmateAgentLoopOutput:
        loop = loop_of(config, policy)
        classmates.live = loop.pipeline.asker.client if live_client else None
        loop.pipeline.asker.client = classmates
        return await loop.run({"temperature": 1.0}, **row)

    return Row(output=asyncio.run(go()), policy=policy, classmates=classmates)
