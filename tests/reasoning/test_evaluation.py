"""What an evaluation counts, against numbers worked out by hand."""

from collections.abc import Sequence

import pytest

from verl.reasoning.backends import Completion, SamplingParams
from verl.reasoning.evaluation import EvalReport, EvalSettings, chosen_less, compared, evaluate
from verl.reasoning.records import Problem

PROBLEMS = [Problem(id="a", problem="3 + 4?", answer="7"), Problem(id="b", problem="5 + 4?", answer="9")]
TEXTS = {
    "3 + 4?": [
        "First 3 + 4 = 7. The answer is 7",
        "First 3 + 4 = 8. The answer is 8",
        "Bad 3 + 4 = 8. The answer is 8",
    ],
    "5 + 4?": ["First 5 + 4 = 9. The answer is 9", "First 5 + 4 = 9. The answer is 9", ""],
}
"""An empty text stands for one that was not written."""
SETTINGS = EvalSettings(k=3, greedy=False)


class Written:
    """A backend that writes what is in `TEXTS`."""

    model = "models/tiny"
    revision = "1"

    def generate(
        self, prompts: Sequence[str], *, n: int = 1, sampling: SamplingParams | None = None
    ) -> list[list[Completion]]:
        return [
            [
                Completion(text=text, token_ids=(1, 2), finish_reason="stop")
                if text
                else Completion(text="", error="away")
                for text in TEXTS[prompt][:n]
            ]
            for prompt in prompts
        ]


class Suspicious:
    """Finds every step that holds an 8 wrong, and all others right."""

    def score_steps(self, problems: Sequence[str], steps: Sequence[Sequence[str]]) -> list[list[float | None]]:
        return [[0.1 if "8" in step else 0.9 for step in one] for one in steps]


def reward(problem: str, solution: str) -> float:
    answer = {"3 + 4?": "7", "5 + 4?": "9"}[problem]
    return float(solution.endswith(answer))


def report(**options: object) -> EvalReport:
    return evaluate("base", Written(), PROBLEMS, reward, SETTINGS, **options)  # type: ignore[arg-type]


def test_shares_by_hand() -> None:
    found = report()
    assert found.right == {"a": (True, False, False), "b": (True, True)}
    assert found.pass_at_1 is not None
    assert found.pass_at_1.value == pytest.approx((1 / 3 + 1) / 2)
    assert found.pass_at_k is not None
    assert found.pass_at_k.value == 1.0
    assert found.maj_at_k is not None
    assert found.maj_at_k.value == 0.5
    assert found.avg_score == pytest.approx(3 / 5)
    assert found.tokens_per_correct == pytest.approx(10 / 3)


def test_what_was_not_written_is_counted_and_no_zero() -> None:
    found = report()
    assert (found.num_evaluated, found.excluded) == (2, 1)


def test_a_reward_that_fails_is_excluded() -> None:
    def fails(problem: str, solution: str) -> float:
        raise RuntimeError("away")

    found = evaluate("base", Written(), PROBLEMS, fails, SETTINGS)
    assert found.excluded == 6
    assert found.pass_at_1 is found.maj_at_k is found.avg_score is None


def test_without_a_judge_of_steps_its_numbers_are_not_there() -> None:
    found = report()
    assert found.best_of_k is found.weighted_of_k is None
    assert "prm_score" not in found.reasoning


def test_a_judge_of_steps_outvotes_a_wrong_majority() -> None:
    found = report(scorer=Suspicious())
    assert found.best_of_k is not None
    assert found.best_of_k.value == 1.0
    assert found.weighted_of_k is not None
    assert found.weighted_of_k.value == 1.0
    gain = chosen_less(found, "weighted", "majority")
    assert gain is not None
    assert gain.value == 0.5
    assert found.reasoning["first_error_rate"] == pytest.approx(2 / 5)
    assert found.reasoning["right_answer_wrong_process"] == 0.0


def test_a_report_is_read_as_it_was_written() -> None:
    import json

    found = report(scorer=Suspicious())
    assert EvalReport.from_dict(json.loads(json.dumps(found.as_dict()))) == found


def test_a_model_gains_nothing_over_itself() -> None:
    gain = compared(report(), report())
    assert gain is not None
    assert (gain.value, gain.low, gain.high) == (0.0, 0.0, 0.0)


def test_no_problems_are_refused() -> None:
    with pytest.raises(ValueError, match="no problems"):
        evaluate("base", Written(), [], reward, SETTINGS)
