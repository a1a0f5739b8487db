"""Numbers of judges whose every score is known, and the choice among solutions."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from verl.data_preprocessing.reasoning_world.problems import make_problem
from verl.data_preprocessing.reasoning_world.rows import labelled_line
from verl.evaluation.step_judges.choosing import Once
from verl.evaluation.step_judges.labelled import Labelled, read_labelled, spread
from verl.evaluation.step_judges.numbers import judge_numbers
from verl.evaluation.step_judges.words import lessons, words_scorer
from verl.reasoning.prm.both import SmallerOfBoth
from verl.reasoning.prm.rows import LabelledSolution


class Told:
    """Gives a step the number that it ends with; a token for each letter."""

    def __init__(self) -> None:
        self.tokens = 0

    def score_steps(self, problems: Sequence[str], steps: Sequence[Sequence[str]]) -> list[list[float | None]]:
        self.tokens += sum(len(step) for one in steps for step in one)
        return [[float(step.split()[-1]) for step in one] for one in steps]


def solution(scores: Sequence[float], first_error: int, kind: str, planted: bool = True) -> Labelled:
    """With these scores."""
    labels = tuple(None if -1 < first_error < at else at != first_error for at in range(len(scores)))
    steps = tuple(f"s {score}" for score in scores)
    return Labelled(
        row=LabelledSolution(prompt="p", completions=steps, labels=labels), kind=kind, text="", planted=planted
    )


ROWS = [
    solution([0.9, 0.8], -1, ""),
    solution([0.9, 0.4], -1, ""),
    solution([0.9, 0.2, 0.1], 1, "slip", planted=False),
    solution([0.3, 0.4], 0, "copy"),
    solution([0.9, 0.8], 1, "copy"),
]


def test_the_f1_of_a_kind_has_all_right_solutions() -> None:
    found = judge_numbers(Told(), ROWS)
    assert found["correct_acc"] == 0.5
    assert found["error_acc"] == {
        "all": pytest.approx(2 / 3),
        "copy": 0.5,
        "slip": 1.0,
        "arithmetic": None,
        "combining": None,
    }
    assert found["f1"]["all"] == pytest.approx(2 * 0.5 * (2 / 3) / (0.5 + 2 / 3))
    assert found["f1"]["slip"] == pytest.approx(2 / 3)
    assert found["f1"]["arithmetic"] is None


def test_the_weakest_step_of_planted_errors_alone() -> None:
    found = judge_numbers(Told(), ROWS)
    assert found["weakest_step"]["all"] == pytest.approx(2 / 3)
    assert found["weakest_planted"] == 1.0


def test_tokens_of_all_parts_of_a_judge_count() -> None:
    letters = sum(len(step) for one in ROWS for step in one.row.completions)
    assert judge_numbers(SmallerOfBoth([Told(), Told()]), ROWS)["tokens"] == pytest.approx(2 * letters / len(ROWS))


def test_steps_behind_a_first_error_keep_their_labels(tmp_path: Path) -> None:
    problem = make_problem(seed=0, split="train", index=0)
    text = "<think>\n1 + 1 = 3\n2 + 2 = 5\n</think>\nThe answer is 5."
    file = tmp_path / "labelled.jsonl"
    lines = [labelled_line(problem, text, origin=origin) for origin in ("planted", "base")]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    planted, own = read_labelled(file)
    assert (planted.row.labels, planted.row.first_error) == ((False, False), 0)
    assert (planted.planted, own.planted) == (True, False)


def test_a_part_of_the_rows_is_taken_evenly() -> None:
    assert spread(ROWS, 2) == [ROWS[0], ROWS[2]]
    assert spread(ROWS, 9) == ROWS


def test_a_solution_is_judged_once() -> None:
    judge = Told()
    once = Once(judge)
    assert once.score_steps(["p", "p", "q"], [["a 1"], ["a 1"], ["a 1"]]) == [[1.0]] * 3
    assert once.score_steps(["p"], [["a 1"]]) == [[1.0]]
    assert judge.tokens == 2 * len("a 1")


class Spoken:
    """A backend that finds a yes likelier behind a question with a 7."""

    model, revision = "spoken", "1"

    def count_tokens(self, text: str) -> int:
        return len(text)

    def log_probs(self, prompts: Sequence[str], texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        return [
            [(text, -1.0 if text.endswith("yes") == ("7" in prompt.splitlines()[-1]) else -3.0)]
            for prompt, text in zip(prompts, texts, strict=True)
        ]


def test_the_judge_in_words_is_asked_as_it_was_taught() -> None:
    row = LabelledSolution(prompt="3 + 4 + 1 = ?", completions=("3 + 4 = 7\n", "7 + 1 = 9"), labels=(True, False))
    backend = Spoken()
    pairs = lessons([row], backend)  # type: ignore[arg-type]
    assert pairs == [
        ("3 + 4 + 1 = ?\n(none)\n? 3 + 4 = 7", "Verdict: yes"),
        ("3 + 4 + 1 = ?\n3 + 4 = 7\n? 7 + 1 = 9", "Verdict: no"),
    ]
    scorer = words_scorer(backend)  # type: ignore[arg-type]
    (scores,) = scorer.score_steps([row.prompt], [row.completions])
    assert scores[0] is not None
    assert scores[0] > 0.5
    assert scorer.read == 2 * sum(len(asked) for asked, _ in pairs)
