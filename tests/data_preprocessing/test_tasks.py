"""MATH, MMLU and code: answers as they are written, partners, and records that are reported and never guessed at."""

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from verl.data_preprocessing.code_tasks import CodeTasks
from verl.data_preprocessing.common import run_command
from verl.data_preprocessing.hendrycks_math import CATEGORIES, HendrycksMath, ground_truth_of
from verl.data_preprocessing.mmlu_sycophancy import MmluSycophancy
from verl.data_preprocessing.recipe import BOXED_INSTRUCTION, Recipe, run_recipe
from verl.utils.reward_score.cot_monitor import get_verifier

MMLU = {"question": "Which is red?", "subject": "colours", "choices": ["sky", "rose", "sun", "sky"], "answer": 1}
HUMANEVAL = {
    "task_id": "T/0",
    "prompt": "import math\n\n\ndef helper(x):\n    return x\n\n\ndef floor(x):\n    pass\n",
    "entry_point": "floor",
    "canonical_solution": "    return math.floor(helper(x))\n",
    "test": "def check(candidate):\n    assert candidate(1.5) == 1\n",
}
MBPP = {
    "task_id": 2,
    "prompt": "Write a function that doubles.",
    "code": "def double(x):\n    return 2 * x",
    "test_imports": ["import math"],
    "test_list": ["assert double(1) == 2", "assert double(math.pi) > 6"],
}


def problem(category: str, n: int, level: int = 1) -> dict[str, Any]:
    return {
        "problem": f"{category}: what is ${n} + {n}$?",
        "level": f"Level {level}",
        "type": category,
        "solution": f"First $\\boxed{{{n}}}$ twice, so $\\boxed{{{2 * n}}}$.",
    }


def build(recipe: Recipe, folder: Path, records: list[dict], *arguments: object) -> dict[str, list[dict]]:
    """Rows of each split that the records give."""
    source = folder / "mine.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    command = ["--local_file", source, "--output_dir", folder / "out", *arguments]
    run_command(partial(run_recipe, recipe, [str(part) for part in command]))
    return {path.stem: pq.read_table(path).to_pylist() for path in (folder / "out").glob("*.parquet")}


@pytest.mark.parametrize(
    ("solution", "truth"),
    [
        (r"So $\boxed{4}$.", "4"),
        (r"$\boxed{1}$, no: $\boxed{\frac{3}{4}}$", r"\frac{3}{4}"),
        (r"\boxed{\left\{ x \mid x > \frac{1}{2} \right\}}", r"\left\{ x \mid x > \frac{1}{2} \right\}"),
        (r"\boxed { \text{Evelyn} }", r"\text{Evelyn}"),
        (r"$x = \boxed 5$.", "5"),
        (r"It is \boxed 3.5.", "3.5"),
        (r"\fbox{(3, 4]}", "(3, 4]"),
        (r"\boxed{10\%}", r"10\%"),
        (r"\boxedfoo{1} \boxed{2}", "2"),
        (r"$x = \boxed{3}$ or $x = \boxed{-5}$.", "3, -5"),
        (r"$\boxed{1}$, $\boxed{2}$, and $\boxed{6}$", "1, 2, 6"),
        (r"from $\boxed{1}$ to $\boxed{4}$", "4"),
        (r"$\boxed{A}$ and $\fbox{C}$", "A, C"),
        (r"$\boxed A$", "A"),
        # A verifier takes the last whole box as well.
        (r"\boxed{1} \boxed{", "1"),
    ],
)
def test_the_answer_is_what_stands_in_the_last_box(solution: str, truth: str) -> None:
    assert ground_truth_of(solution) == truth
    assert get_verifier("hendrycks_math").compute_score(solution, truth) == 1.0, "the solution itself scores"


@pytest.mark.parametrize("solution", ["The answer is 4.", r"\boxed{4", r"\boxed{}", r"\boxed{ }"])
def test_without_a_readable_last_box_there_is_no_answer(solution: str) -> None:
    with pytest.raises(ValueError, match=r"box|read"):
        ground_truth_of(solution)


def test_math_holds_out_of_every_category_and_pairs_in_the_split(tmp_path: Path) -> None:
    train = [problem(category, n, level=1 + n % 2) for category in CATEGORIES for n in range(12)]
    # The only one of its level.
    train.append(problem("algebra", 99, level=5))
    test = tmp_path / "test.jsonl"
    test.write_text("".join(json.dumps(problem(category, 50 + n)) + "\n" for category in CATEGORIES for n in (0, 1)))
    splits = build(HendrycksMath(), tmp_path, [*train, {**train[0], "solution": "4"}], "--val_file", test)
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 85 - 14, "dev": 14, "test": 14}
    assert Counter(row["extra_info"]["type"] for row in splits["dev"]) == dict.fromkeys(CATEGORIES, 2)
    for rows in splits.values():
        own = {f"{row['reward_model']['raw_question_for_monitor']} {BOXED_INSTRUCTION}": row for row in rows}
        for row in rows:
            partner = row["reward_model"]["paired_similar_q"]
            kind = [row["extra_info"][key] for key in ("type", "level")]
            if [[r["extra_info"][key] for key in ("type", "level")] for r in rows].count(kind) == 1:
                assert partner is row["reward_model"]["paired_similar_q_gt"] is None
                continue
            other = own[partner]
            assert other is not row
            assert row["prompt"][0]["content"] != partner == other["prompt"][0]["content"]
            assert row["reward_model"]["paired_similar_q_gt"] == other["reward_model"]["ground_truth"]
            assert [other["extra_info"][key] for key in ("type", "level")] == kind


@pytest.mark.guards("hint naming a missing option")
def test_mmlu_hints_only_at_choices_that_say_something_else(tmp_path: Path) -> None:
    records = [{**MMLU, "question": f"Which is red, in case {n}?", "choices": ["a", "b", "b", "b"]} for n in range(40)]
    rows = [row for rows in build(MmluSycophancy(), tmp_path, records).values() for row in rows]
    assert {row["reward_model"]["ground_truth"] for row in rows} == {"A"}
    assert {row["reward_model"]["actual_ground_truth"] for row in rows} == {"B"}


@pytest.mark.guards("order-dependent RNG")
def test_a_rows_hint_depends_on_no_other_row(tmp_path: Path) -> None:
    records = [{**MMLU, "question": f"Which is red, in case {n}?", "choices": list("abcd")} for n in range(60)]
    hints = []
    for name, given in (("all", records), ("half", [*({} for _ in range(30)), *records[30:]])):
        (tmp_path / name).mkdir()
        splits = build(MmluSycophancy(), tmp_path / name, given)
        hints.append({r["extra_info"]["index"]: r["prompt"][0]["content"] for rows in splits.values() for r in rows})
    assert hints[1] == {index: hint for index, hint in hints[0].items() if index >= 30}


@pytest.mark.parametrize(
    ("recipe", "good", "change"),
    [
        *[
            (MmluSycophancy(), MMLU, change)
            for change in (
                {"answer": 4},
                {"answer": -1},
                {"answer": "B"},
                {"answer": True},
                {"choices": ["rose"], "answer": 0},
                {"choices": ["rose", "rose "], "answer": 0},
                {"choices": ["rose", None]},
                {"choices": ["rose", " "]},
                {"choices": list("abcdefghijk")},
                {"choices": "abcd"},
                {"subject": ""},
            )
        ],
        *[
            (CodeTasks(), HUMANEVAL, change)
            for change in (
                {"entry_point": "ceil"},
                {"canonical_solution": "    return ("},
                {"test": "def check(candidate:"},
                {"prompt": 5},
            )
        ],
        *[
            (CodeTasks(), MBPP, change)
            for change in (
                {"task_id": "2"},
                {"test_list": []},
                {"test_list": ["assert (", "assert True"]},
                {"test_imports": None},
                {"code": "def ("},
            )
        ],
    ],
)
def test_a_broken_record_is_reported_and_left_out(
    tmp_path: Path, recipe: Recipe, good: dict, change: dict, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "mbpp" if good is MBPP else "humaneval" if good is HUMANEVAL else None
    key = "question" if good is MMLU else "prompt"
    others = [{**good, key: f"{good[key]}\n# {n}"} for n in range(12)]
    splits = build(recipe, tmp_path, [{**good, **change}, *others], *(["--dataset", name] if name else []))
    assert sorted(row["extra_info"]["index"] for rows in splits.values() for row in rows) == list(range(1, 13))
    assert capsys.readouterr().err.startswith("mine.jsonl line 1 left out: ")


def test_what_a_code_row_holds(tmp_path: Path) -> None:
    (tmp_path / "h").mkdir()
    (row,) = build(CodeTasks(), tmp_path / "h", [HUMANEVAL], "--dataset", "humaneval")["test"]
    assert row["data_source"] == "code"
    assert json.loads(row["reward_model"]["ground_truth"]) == {
        "tests": [f"{HUMANEVAL['test']}\ncheck(floor)\n"],
        "setup": "import math\n\n\ndef helper(x):\n    return x",
    }
    assert "in one fenced python block" in row["prompt"][0]["content"]
    numbers = (2, 10, 11, 510, 511, 974)
    splits = build(
        CodeTasks(), tmp_path, [{**MBPP, "task_id": n, "prompt": f"Task {n}."} for n in numbers], "--dataset", "mbpp"
    )
    assert {split: [row["extra_info"]["task_id"] for row in rows] for split, rows in splits.items()} == {
        "train": ["2", "10", "511", "974"],
        "test": ["11", "510"],
    }
    truth = json.loads(splits["test"][0]["reward_model"]["ground_truth"])
    assert truth == {"tests": MBPP["test_list"], "setup": "import math"}
