"""Rows on their way through the real pipeline, read by classmates whose answers are scripted.

>>> row, client = run(models, f"{KIND}=remove_wo_cot", say=lambda prompt: "It is 7.")
>>> line_of(row)["final_reward"], client.requests[0]["prompt"]
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.classmate.toy_tokenizers import TOKENIZERS, byte_bpe
from tests.run_config import run_config
from verl.classmate.outcome import Outcome
from verl.classmate.record import RowRecord
from verl.classmate.reply import Reply
from verl.classmate.row import Answer, ScoredRow, Task
from verl.workers.row_pipeline import RowPipeline

CLASSMATES = ("text_bpe", "byte_bpe")
QUESTION = "Tom has three apples and gets four."
THOUGHT = "\nTom has 3 apples and gets 4, so 3 + 4 = 7."
RESPONSE = f"<think>{THOUGHT}</think>\n\nThe answer is 7."
KIND = "reward_model.classmate_cot_reward_configs.classmate_reward_type"
SEGMENTS = "reward_model.classmate_cot_reward_configs.step_wise_segments"
MODE = "reward_model.classmate_cot_reward_configs.classmate_continue_mode"
PARTNER = Task(
    question="And five pears and five plums?",
    data_source="hinted_arithmetic",
    reward_model={"ground_truth": "10"},
    extra_info={"index": 9},
)

Say = Callable[[str], str | Outcome]
"""What a classmate answers to a prompt."""


class Client:
    """Readers that answer what a function says."""

    def __init__(self, say: Say, readers: Sequence[str] = CLASSMATES) -> None:
        """`readers`: names of their tokenizers."""
        self.say = say
        self.readers = readers
        self.requests: list[dict[str, Any]] = []

    async def sample(self, classmate: int, prompt_ids: list[int], *, seeds: Sequence[int], **more: Any) -> list[Reply]:
        tokenizer = TOKENIZERS[self.readers[classmate]]()
        prompt = tokenizer.decode(prompt_ids)
        self.requests.append({"classmate": classmate, "prompt": prompt, "seeds": list(seeds), **more})
        said = self.say(prompt)
        if isinstance(said, Outcome):
            return [Reply(outcome=said) for _ in seeds]
        ids = tuple(tokenizer.encode(said, add_special_tokens=False))
        return [Reply(outcome=Outcome.ok, token_ids=ids, finish_reason="stop") for _ in seeds]

    @property
    def seeds(self) -> list[int]:
        """Of all requests so far."""
        return [seed for request in self.requests for seed in request["seeds"]]


class Awake:
    """A group whose classmates are all awake."""

    def awake(self, m: int) -> Any:
        return self

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *error: Any) -> None: ...


def answer_of(text: str = RESPONSE, **changes: Any) -> Answer:
    task = Task(
        question=QUESTION,
        data_source="hinted_arithmetic",
        reward_model={"ground_truth": "7"},
        extra_info={"index": 3, "split": "train"},
    )
    arguments: dict[str, Any] = {
        "messages": [{"role": "user", "content": QUESTION}],
        "prompt_ids": [5, 6],
        "response_ids": byte_bpe().encode(text, add_special_tokens=False),
        "task": task,
        "uid": "0-5-key",
        "step": 5,
        "rollout": 2,
        "validate": False,
    }
    return Answer(**arguments | changes)


def run(
    models: Path, *overrides: str, say: Say = lambda _: "The answer is 7.", answer: Answer | None = None
) -> tuple[ScoredRow, Client]:
    client = Client(say)
    pipeline = RowPipeline.build(run_config(models, CLASSMATES, *overrides), byte_bpe(), client)
    return asyncio.run(pipeline.run(answer or answer_of())), client


def line_of(row: ScoredRow) -> dict[str, Any]:
    """Its line in the dump."""
    return RowRecord.of(row).as_dict()
