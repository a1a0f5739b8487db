"""What scores steps: likelihood, a judge in words, both signals; and the evaluator on top of any of them."""

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.reasoning.prm.toy import toy_base
from verl.reasoning.backends import Completion
from verl.reasoning.prm.both import SmallerOfBoth
from verl.reasoning.prm.config import PRMConfig
from verl.reasoning.prm.evaluator import ProcessRewardEvaluator, last_answer
from verl.reasoning.prm.generative import GenerativeStepScorer, verdict_of
from verl.reasoning.prm.likelihood import LikelihoodScorer, least_likely
from verl.stepwise.first_error import NONE, first_error, found_errors
from verl.stepwise.processbench import bench_row
from verl.workers.prm.model import ProcessRewardModel

STEPS = ["3 + 4 = 7.\n", "7 + 1 = 9.\n", "So it is 9."]


class Table:
    """A `StepScorer` of what a table says of a step; a step that is not in it has no score."""

    def __init__(self, scores: dict[str, float]) -> None:
        self.scores = scores

    def score_steps(self, problems: Sequence[str], steps: Sequence[Sequence[str]]) -> list[list[float | None]]:
        return [[self.scores.get(step.strip()) for step in one] for one in steps]


class Reads:
    """A backend whose tokens are pieces of two letters, as likely as their digits say."""

    model, revision = "reads", "1"

    def __init__(self, fails: bool = False) -> None:
        self.fails, self.asked = fails, list[str]()

    def log_probs(self, prompts: Sequence[str], texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        self.asked += texts
        if self.fails:
            return [[] for _ in texts]
        pieces = [[text[at : at + 2] for at in range(0, len(text), 2)] for text in texts]
        return [[(piece, -5.0 if "9" in piece else -0.1) for piece in one] for one in pieces]


def test_the_least_likely_token_of_each_step() -> None:
    backend = Reads()
    scorer = LikelihoodScorer(backend, opening="<think>\n")  # type: ignore[arg-type]
    (scores,) = scorer.score_steps(["p"], [STEPS])
    assert scores == [pytest.approx(math.exp(-0.1)), pytest.approx(math.exp(-5)), pytest.approx(math.exp(-5))]
    assert backend.asked == ["<think>\n" + "".join(STEPS)]
    assert scorer.tokens > 0


def test_steps_without_blanks_do_not_run_together() -> None:
    backend = Reads()
    LikelihoodScorer(backend).score_steps(["p"], [["a", "b\n", "c"]])  # type: ignore[arg-type]
    assert backend.asked == ["a\n\nb\nc"]


def test_a_token_over_an_edge_belongs_to_its_first_sign() -> None:
    tokens = [("ab", -1.0), ("\nc", -7.0), ("d", -2.0)]
    assert least_likely(tokens, 0, ["ab\n", "cd"]) == [-1.0, -7.0]
    assert least_likely([("x", -9.0), ("a", -1.0)], 1, ["a"]) == [-1.0], "what stands before is not scored"
    assert least_likely([("  ", -9.0)], 0, ["  "]) == [None], "blanks claim nothing"
    assert least_likely([], 0, ["a"]) == [None]


def test_an_engine_that_fails_gives_no_score() -> None:
    assert LikelihoodScorer(Reads(fails=True)).score_steps(["p"], [STEPS, []]) == [[None] * 3, []]  # type: ignore[arg-type]


class Judges:
    """A backend that judges: says no to steps with "9", and fails or mumbles where it is told to."""

    model, revision = "judges", "1"

    def __init__(self, *, mumbles: int = 0) -> None:
        self.mumbles, self.prompts = mumbles, list[str]()

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def generate(self, prompts, *, n=1, sampling=None):  # type: ignore[no-untyped-def]
        self.prompts += prompts
        return [[self._one(prompt, k) for k in range(n)] for prompt in prompts]

    def log_probs(self, prompts: Sequence[str], texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        wrong = ["9" in prompt.split("Last step:")[1] for prompt in prompts]
        return [[(text, -3.0 if ("yes" in text) == bad else -0.5)] for text, bad in zip(texts, wrong, strict=True)]

    def _one(self, prompt: str, k: int) -> Completion:
        if k < self.mumbles:
            return Completion(text="Hm.", token_ids=(1,))
        said = "no" if "9" in prompt.split("Last step:")[1] else "yes"
        return Completion(text=f"Let me see.\nVerdict: {said}", token_ids=(1, 2, 3))


def test_a_judge_in_words_sees_no_later_step() -> None:
    backend = Judges()
    scorer = GenerativeStepScorer(backend)  # type: ignore[arg-type]
    assert scorer.score_steps(["What is {step}?"], [STEPS]) == [[1.0, 0.0, 0.0]]
    first = backend.prompts[0]
    assert "What is {step}?" in first
    assert "(none)" in first
    assert "7 + 1" not in first, "later steps are not shown"
    assert scorer.tokens == 9


def test_unreadable_verdicts_are_no_zero() -> None:
    half = GenerativeStepScorer(Judges(mumbles=1), n=4)  # type: ignore[arg-type]
    assert half.score_steps(["p"], [STEPS[:1]]) == [[1.0]]
    assert half.unreadable == 1
    assert GenerativeStepScorer(Judges(mumbles=9), n=2).score_steps(["p"], [STEPS[:1]]) == [[None]]  # type: ignore[arg-type]
    assert [verdict_of(text) for text in ("Verdict: **No**", "verdict is yes... Verdict: no", "no")] == [False] * 2 + [
        None
    ]


def test_the_likelihood_of_a_verdict_needs_no_words() -> None:
    (scores,) = GenerativeStepScorer(Judges(), words=False).score_steps(["p"], [STEPS])  # type: ignore[arg-type]
    right, wrong = 1 / (1 + math.exp(-2.5)), 1 / (1 + math.exp(2.5))
    assert scores == [pytest.approx(right), pytest.approx(wrong), pytest.approx(wrong)]


def test_a_judge_may_stop_at_the_first_error() -> None:
    backend = Judges()
    scorer = GenerativeStepScorer(backend, stop_below=0.5)  # type: ignore[arg-type]
    assert scorer.score_steps(["p", "q"], [STEPS, STEPS[:1]]) == [[1.0, 0.0, None], [1.0]]
    assert len(backend.prompts) == 3


def test_either_signal_is_enough() -> None:
    """Each of two signals finds one kind of error; only both find both."""
    rng = random.Random(0)
    problems, steps, truths, first, second = [], [], [], {}, {}
    for number in range(60):
        texts = [f"{number}-{place}" for place in range(3)]
        truth = rng.choice([NONE, 0, 1, 2])
        kind = rng.random() < 0.5
        for place, text in enumerate(texts):
            wrong = place == truth
            first[text] = rng.uniform(0.0, 0.2) if wrong and kind else rng.uniform(0.5, 1)
            # On a scale of its own: all small, and wrong ones smaller.
            second[text] = rng.uniform(0.0, 0.001) if wrong and not kind else rng.uniform(0.01, 0.1)
        problems.append("p")
        steps.append(texts)
        truths.append(truth)
    both = SmallerOfBoth([Table(first), Table(second)])
    both.calibrate(problems, steps, truths)
    found = [first_error(row) for row in both.score_steps(problems, steps)]
    assert found_errors(found, truths).f1 == 1.0
    for table in (Table(first), Table(second)):
        alone = ProcessRewardEvaluator(table)
        alone.calibrate(problems, steps, truths)
        rows = [first_error(row, alone.threshold) for row in table.score_steps(problems, steps)]
        assert (found_errors(rows, truths).f1 or 0) < 0.8


def test_scales_are_kept(tmp_path: Path) -> None:
    both = SmallerOfBoth([Table({"a": 0.3, "b": 0.9})])
    both.calibrate(["p", "p"], [["b", "a"], ["b"]], [1, NONE])
    both.save(tmp_path / "both.json")
    again = SmallerOfBoth.load([Table({"a": 0.3, "b": 0.9})], tmp_path / "both.json")
    assert again.score_steps(["p"], [["b", "a", "c"]]) == both.score_steps(["p"], [["b", "a", "c"]])
    assert again.score_steps(["p"], [["c"]]) == [[None]]
    with pytest.raises(ValueError, match="one for each scorer"):
        SmallerOfBoth.load([Table({}), Table({})], tmp_path / "both.json")


EVALUATOR = ProcessRewardEvaluator(
    Table({"3 + 4 = 7.": 0.9, "7 + 1 = 9.": 0.3, "So it is 9.": 0.1, "7 + 1 = 8.": 0.8, "So it is 8.": 0.8}),
    min_step_words=1,
)


def test_a_result_has_the_documented_keys() -> None:
    result = EVALUATOR.evaluate_solution("p", "".join(STEPS))
    assert set(result) == {
        "overall_score",
        "step_scores",
        "step_details",
        "weakest_step",
        "strongest_step",
        "num_steps",
        "first_error",
        "aggregates",
        "truncated",
    }
    assert result["step_scores"] == [0.9, 0.3, 0.1]
    assert (result["overall_score"], result["first_error"], result["num_steps"]) == (0.1, 1, 3)
    assert result["weakest_step"] == {"step_index": 2, "step_text": "So it is 9.", "score": 0.1}
    assert result["strongest_step"]["step_index"] == 0
    assert result["aggregates"]["prod"] == pytest.approx(0.027)
    assert not result["truncated"]


def test_an_empty_solution() -> None:
    for nothing in ("", " \n "):
        result = EVALUATOR.evaluate_solution("p", nothing)
        named = [result[key] for key in ("overall_score", "step_scores", "weakest_step", "strongest_step", "num_steps")]
        assert named == [0.0, [], None, None, 0]


def test_what_is_not_scored_is_said() -> None:
    result = EVALUATOR.evaluate_solution("p", "3 + 4 = 7.\nI have no idea.")
    assert result["truncated"]
    assert result["first_error"] is None
    assert result["overall_score"] == 0.9
    unknown = EVALUATOR.evaluate_solution("p", "I have no idea.")
    assert (unknown["overall_score"], unknown["weakest_step"]) == (None, None)


def test_solutions_are_ranked() -> None:
    wrong, right = "".join(STEPS), "3 + 4 = 7.\n7 + 1 = 8.\nSo it is 8."
    ranked = EVALUATOR.compare_solutions("p", [wrong, right, "No idea at all.", wrong])
    assert [one["solution_index"] for one in ranked] == [1, 0, 3, 2]
    assert [one["rank"] for one in ranked] == [1, 2, 3, 4]
    assert [one["answer"] for one in ranked] == ["8", "9", "9", None]
    assert [one["in_majority"] for one in ranked] == [False, True, True, False]
    assert ranked[0]["margin"] == pytest.approx(0.7)
    assert ranked[-1]["margin"] is None
    voted = EVALUATOR.compare_solutions("p", [right] + [wrong] * 9, group_vote=True)
    assert voted[0]["answer"] == "9", "nine times 0.1 is more than 0.8"
    assert voted[0]["group_score"] == pytest.approx(0.9)


def test_last_answers() -> None:
    assert last_answer("so \\boxed{\\frac{1}{2}} of 3") == "\\frac{1}{2}"
    assert last_answer("It costs 1,200 dollars.") == "1200"
    assert last_answer("none") is None


def test_processbench_numbers() -> None:
    rows = [
        {"id": "a-0", "problem": "p", "steps": STEPS, "label": 1, "final_answer_correct": False},
        {"id": "a-1", "problem": "p", "steps": ["3 + 4 = 7."], "label": -1, "final_answer_correct": True},
        {"id": "a-2", "problem": "p", "steps": ["So it is 9."], "label": 0, "final_answer_correct": True},
        {"id": "a-3", "problem": "p", "steps": ["3 + 4 = 7.", "What?"], "label": 0, "final_answer_correct": True},
    ]
    told = EVALUATOR.evaluate_processbench(rows)
    assert (told["error_acc"], told["correct_acc"], told["f1"], told["n_unscored"]) == (1.0, 1.0, 1.0, 1)
    assert told["right_answer_wrong_process"] == 1.0
    strict = ProcessRewardEvaluator(EVALUATOR.scorer, threshold=0.95)
    assert strict.evaluate_processbench(rows[:2])["f1"] == 0.0
    assert strict.evaluate_processbench([bench_row(row) for row in rows[:2]], tune=True)["f1"] == 1.0


def test_prmbench_numbers() -> None:
    row = {"modified_question": "p", "modified_process": STEPS, "error_steps": [2], "classification": "confidence"}
    told = EVALUATOR.evaluate_processbench([row])
    assert told["kinds"] == {"confidence": told["prm_score"]}
    # One right step is called right, one wrong; the wrong one is found: F1 2/3 both ways.
    assert told["prm_score"] == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_the_command_prints_a_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from verl.reasoning.prm import processbench

    file = tmp_path / "rows.jsonl"
    rows = [
        {"id": "x-0", "problem": "p", "steps": STEPS, "label": 1},
        {"id": "x-1", "problem": "p", "steps": ["1 + 1 = 2."], "label": -1},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert processbench.main(["--data", str(file), "--scorer", "rules"]) == 0
    said = capsys.readouterr().out
    assert "F1          100.0" in said
    assert json.loads(said.splitlines()[-1])["f1"] == 1.0
    assert processbench.main(["--data", str(file), "--scorer", "head"]) == 2
    assert "needs --model" in capsys.readouterr().err
    file.write_text('{"problem": "p"}\n')
    assert processbench.main(["--data", str(file), "--scorer", "rules"]) == 2
    assert "row 1" in capsys.readouterr().err


def test_the_command_runs_with_both_kinds_of_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from verl.reasoning.prm import processbench

    model, tokenizer = toy_base()
    model.save_pretrained(tmp_path / "lm")
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}"
    tokenizer.save_pretrained(tmp_path / "lm")
    config = PRMConfig(base_model_name=str(tmp_path / "lm"), max_length=128)
    ProcessRewardModel.from_base(config)[0].save(tmp_path / "prm", tokenizer)
    file = tmp_path / "rows.jsonl"
    rows = [{"id": f"x-{i}", "problem": "3 + 4 ?", "steps": STEPS, "label": -1 if i > 2 else 1} for i in range(6)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = {}
    for scorer, name, more in (("head", "prm", []), ("generative", "lm", ["--at_once"])):
        asked = ["--data", str(file), "--scorer", scorer, "--model", str(tmp_path / name), "--limit", "2", *more]
        assert processbench.main(asked) == 0
        found[scorer] = json.loads(capsys.readouterr().out.splitlines()[-1])
    for told in found.values():
        # Evenly taken: one row from the wrong solutions, which stand first, and one from the right ones.
        assert (told["n_error"], told["n_correct"], told["n_unscored"]) == (1, 1, 0)
        assert told["tokens"] > 0
    # It is asked of each step and its verdicts are read too.
    assert found["generative"]["tokens"] > found["head"]["tokens"]


def test_a_card_says_why_rows_have_no_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from verl.reasoning.prm import processbench

    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"problem": "p", "steps": STEPS, "label": 1}) + "\n")
    model, tokenizer = toy_base()
    tokenizer.save_pretrained(tmp_path / "lm")
    model.save_pretrained(tmp_path / "lm")
    config = PRMConfig(base_model_name=str(tmp_path / "lm"), max_length=2)
    ProcessRewardModel.from_base(config)[0].save(tmp_path / "prm", tokenizer)
    assert processbench.main(["--data", str(file), "--scorer", "head", "--model", str(tmp_path / "prm")]) == 0
    assert "max_length" in capsys.readouterr().out
    assert processbench.main(["--data", str(file), "--scorer", "rules", "--limit", "0"]) == 2
    assert "--limit 0" in capsys.readouterr().err
