"""How well the policy and the readers of a world do before anything is trained by RL.

measure_policy(spec, folder)             # accuracy, and for each style its share, accuracy and tokens
measure_reader(spec, reader, folder)     # for each style the accuracy with its result stated, stripped, and with a slip
"""

import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from verl.data_preprocessing import embedded_models
from verl.data_preprocessing.embedded_tokenizers import THINK_END, THINK_START
from verl.data_preprocessing.worlds.lessons import prompt_text
from verl.data_preprocessing.worlds.spec import Reader, WorldSpec
from verl.data_preprocessing.worlds.tasks import TASKS, Problem

POLICY_MAX_TOKENS = 64
READER_MAX_TOKENS = 16
READ_PROBLEMS = 128
"""Held-out problems that readers are measured on."""


def measure_policy(spec: WorldSpec, folder: Path, temperature: float = 1.0) -> dict[str, Any]:
    """Sampled on held-out problems: accuracy, and `styles`: of each style that occurs share, accuracy and tokens.

    A style's tokens are the mean length of the whole response in the policy's own tokens.
    """
    task = TASKS[spec.task]
    model, tokenizer = embedded_models.load_model(folder)
    problems = [_val_problem(spec, spec.seed, i) for i in range(spec.val_rows)]
    written = embedded_models.generate(
        model,
        tokenizer,
        [prompt_text(p) for p in problems],
        max_new_tokens=POLICY_MAX_TOKENS,
        temperature=temperature,
        seed=spec.seed,
    )
    by_style: dict[str, list[tuple[bool, int]]] = {}
    for text, problem in zip(written, problems, strict=True):
        thought, _, answer = text.partition(THINK_END)
        style = task.style_of(thought.removeprefix(THINK_START).strip(), problem.question)
        row = last_number(answer) == problem.answer, len(tokenizer(text)["input_ids"])
        by_style.setdefault(style, []).append(row)
    return {
        "policy_accuracy": mean(right for rows in by_style.values() for right, _ in rows),
        "styles": {
            style: {
                "share": round(len(rows) / len(problems), 4),
                "accuracy": mean(right for right, _ in rows),
                "tokens": mean(length for _, length in rows),
            }
            for style, rows in sorted(by_style.items())
        },
    }


def measure_reader(spec: WorldSpec, reader: Reader, folder: Path) -> dict[str, Any]:
    """Greedy, on held-out problems: `alone` is the accuracy from the question, `styles` those from a given thought.

    For each style of the task: `right` from thoughts without a slip; `stripped` from the same without the statement of
    their result; `slipped` the share of thoughts with a slip from which the reader gives the wrong answer they lead to.
    """
    task = TASKS[spec.task]
    model, tokenizer = embedded_models.load_model(folder)

    def share(thoughts: Sequence[str], problems: Sequence[Problem], wanted: Sequence[int]) -> float:
        prompts = [
            f"{prompt_text(p)}{THINK_START}\n{thought}\n{THINK_END}"
            for p, thought in zip(problems, thoughts, strict=True)
        ]
        replies = embedded_models.generate(
            model, tokenizer, prompts, max_new_tokens=READER_MAX_TOKENS, temperature=0.0, seed=0
        )
        return mean(last_number(reply) == number for reply, number in zip(replies, wanted, strict=True))

    problems = [_val_problem(spec, spec.seed_of_readers, i) for i in range(READ_PROBLEMS)]
    answers = [p.answer for p in problems]
    styles = {}
    for style in task.styles:
        rng = random.Random(style)
        right, slipped = ([task.thought(p, style, rng, slip=slip) for p in problems] for slip in (False, True))
        thoughts = [text for text, _ in right]
        stripped = [task.without_answer(text, p.question) for text, p in zip(thoughts, problems, strict=True)]
        styles[style] = {
            "right": share(thoughts, problems, answers),
            "stripped": share(stripped, problems, answers),
            "slipped": share([text for text, _ in slipped], problems, [number for _, number in slipped]),
        }
    alone = embedded_models.generate(
        model,
        tokenizer,
        [prompt_text(p) for p in problems],
        max_new_tokens=POLICY_MAX_TOKENS + READER_MAX_TOKENS,
        temperature=0.0,
        seed=0,
    )
    said = [last_number(text.partition(THINK_END)[2]) for text in alone]
    return {"alone": mean(a == b for a, b in zip(said, answers, strict=True)), "styles": styles}


def _val_problem(spec: WorldSpec, seed: int, index: int) -> Any:
    return TASKS[spec.task].problem(seed=seed, split="val", index=index, hint_share=spec.hint_share)


def last_number(text: str) -> int | None:
    """The last number of a text."""
    found = re.findall(r"\d+", text)
    return int(found[-1]) if found else None


def mean(values: Iterable[float]) -> float:
    """With four digits; 0 of nothing."""
    found = [float(value) for value in values]
    return round(sum(found) / len(found), 4) if found else 0.0
