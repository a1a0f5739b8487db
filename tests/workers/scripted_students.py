"""A teacher's rows with real tokenizers and templates; students are scripted where their engines would answer.

A student solves "2 + 5" as its habit says: `weak` forgets, unless the advice holds the word carry, and fails if it is
told to guess; `strong` is right unless it is told to guess.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from tests.classmate.toy_tokenizers import TOKENIZERS
from verl.classmate.outcome import Outcome
from verl.classmate.reply import Reply
from verl.classmate.row import Answer, ScoredRow, Task
from verl.teaching.config import this_teaching
from verl.teaching.lesson import Lesson
from verl.trainer.run.command_line import CONFIG_FOLDER, prepare_overrides
from verl.trainer.run.unset import fill_in
from verl.workers.classmates.shared_draws import shared_draws
from verl.workers.teaching_pipeline import TeachingPipeline

STUDENTS = ("text_bpe", "merging_bpe")
"""Folders of weak and strong."""
QUESTION = "What is 2 + 5?"
TRUTH = "7"


class ScriptedEngines:
    """Answers in the place of the engines; keeps what it was asked."""

    def __init__(self, tokenizers: Sequence[Any]) -> None:
        self.tokenizers = {f"classmate/{m}": one for m, one in enumerate(tokenizers)}
        self.asked: list[tuple[str, str]] = []
        self.params: list[dict[str, Any]] = []
        self.failing: set[str] = set()
        """Models whose engine is dead."""
        self.says: dict[str, str] = {}
        """By model, what it answers to anything but a request for a plan."""

    async def complete(self, model: str, prompt_ids: list[int], params: dict[str, Any]) -> Reply:
        tokenizer = self.tokenizers[model]
        prompt = tokenizer.decode(prompt_ids)
        self.asked.append((model, prompt))
        self.params.append(params)
        await asyncio.sleep(0)
        if model in self.failing:
            return Reply(outcome=Outcome.engine_error, error="the engine died")
        ids = tokenizer.encode(self._answer(model, prompt), add_special_tokens=False)
        cut = len(ids) > params["max_tokens"]
        return Reply(
            outcome=Outcome.ok,
            token_ids=tuple(ids[: params["max_tokens"]]),
            finish_reason="length" if cut else "stop",
        )

    def _answer(self, model: str, prompt: str) -> str:
        if "Do not carry the steps out" in prompt:
            return f"I take {'the ones' if model.endswith('0') else 'both columns'}."
        if "your teacher asks you" in prompt:
            return "I forget the carry." if model.endswith("0") else "I do it all."
        if model in self.says:
            return self.says[model]
        right = model.endswith("1") or "carry" in prompt
        return f"<solution>{TRUTH if right and 'guess' not in prompt else '3'}</solution>"

    def count(self, part: str) -> Counter[str]:
        """Requests whose prompt holds a text, by model."""
        return Counter(model for model, prompt in self.asked if part in prompt)


def teaching_config(folder: Path, *overrides: str) -> DictConfig:
    """A teacher's run on the CPU whose students are toy tokenizers, and so is the teacher."""
    for name in (*STUDENTS, "byte_bpe"):
        TOKENIZERS[name]().save_pretrained(folder / name)
    students = ",".join(f"{{model: {folder / name}}}" for name in STUDENTS)
    given = [
        "hardware=cpu",
        f"actor_rollout_ref.model.path={folder / 'byte_bpe'}",
        f"rcl.students=[{students}]",
        "data.max_prompt_length=1024",
        "data.max_response_length=256",
        "reward_model.classmate_generation_configs.max_new_tokens=32",
        f"rcl.baseline_cache={folder / 'baselines.sqlite'}",
        "rcl.protocol.baseline_samples=4",
    ]
    with initialize_config_dir(str(CONFIG_FOLDER), version_base=None):
        config = compose("rcl_trainer", overrides=prepare_overrides([*given, *overrides]))
    fill_in(config)
    return config


def scripted_pipeline(folder: Path, *overrides: str) -> tuple[TeachingPipeline, ScriptedEngines]:
    """The pipeline of such a run, and its engines."""
    config = teaching_config(folder, *overrides)
    engines = ScriptedEngines([TOKENIZERS[name]() for name in STUDENTS])
    teaching = this_teaching(config)
    assert teaching is not None
    pipeline = TeachingPipeline.of_teacher(config, TOKENIZERS["byte_bpe"](), engines, teaching)  # type: ignore[arg-type]
    return pipeline, engines


def columns(*, index: int = 0, step: int = 1, validate: bool = False, student: int | None = None) -> dict[str, Any]:
    """A row as the agent loop gets it."""
    info = {"index": index} | ({} if student is None else {"student": student})
    return {
        "raw_prompt": [{"role": "user", "content": QUESTION}],
        "data_source": "sums",
        "reward_model": {"ground_truth": TRUTH},
        "extra_info": info,
        "global_steps": step,
        "epoch": 0,
        "is_validate": validate,
        "excluded_classmates": (),
    }


def answer_with(pipeline: TeachingPipeline, text: str, lesson: Lesson, *, rollout: int = 0, student: int = 0) -> Answer:
    """What the teacher wrote."""
    tokenizer = pipeline._tokenizer
    given = columns(student=student)
    return Answer(
        messages=given["raw_prompt"],
        prompt_ids=tokenizer.encode("?", add_special_tokens=False),
        response_ids=tokenizer.encode(text, add_special_tokens=False),
        task=Task(
            question=QUESTION,
            data_source="sums",
            reward_model=given["reward_model"],
            extra_info=given["extra_info"],
        ),
        uid="q",
        step=1,
        rollout=rollout,
        validate=False,
        lesson=lesson.to_json(),
    )


def taught(pipeline: TeachingPipeline, *texts: str, student: int = 0) -> list[ScoredRow]:
    """A group of rows, one for each text of the teacher."""

    async def go() -> list[ScoredRow]:
        with shared_draws():
            lesson = await pipeline.lesson(columns(student=student))
            rows = [answer_with(pipeline, text, lesson, rollout=i, student=student) for i, text in enumerate(texts)]
            return list(await asyncio.gather(*(pipeline.run(row) for row in rows)))

    return asyncio.run(go())
