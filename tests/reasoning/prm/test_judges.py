"""Judges, consensus and the leak check: who agrees, and what words give away."""

import random

import pytest

from tests.reasoning.prm.standins import FAILED
from verl.reasoning.backend_replay import ReplayBackend
from verl.reasoning.backends import Completion
from verl.reasoning.prm.consensus import keep_agreed
from verl.reasoning.prm.judge import LLMJudge, RuleJudge
from verl.reasoning.prm.leak import bag_of_words_auc, leaking_kinds
from verl.reasoning.prm.rows import LabelledSolution

STEPS = ["3 + 4 = 7.\n", "7 + 1 = 9.\n", "So it is 9."]


class Says:
    """A backend that gives these texts to every prompt."""

    model, revision = "says", "1"

    def __init__(self, *texts: str | None) -> None:
        self.texts, self.prompts = texts, list[str]()

    def generate(self, prompts, *, n=1, sampling=None):  # type: ignore[no-untyped-def]
        self.prompts += prompts
        given = [FAILED if text is None else Completion(text=text, token_ids=(1, 2)) for text in self.texts[:n]]
        return [given for _ in prompts]


def test_rules_calculate_every_equation() -> None:
    (verdict,) = RuleJudge().judge(["p"], [STEPS])
    assert verdict.labels == (True, False, None), "the last step calculates nothing"
    assert verdict.first_error == 1
    assert verdict.note == "7 + 1 = 9 is false"
    assert RuleJudge().score_steps(["p"], [STEPS]) == [[1.0, 0.0, 0.5]]
    assert RuleJudge().judge(["p"], [[]])[0].first_error == -1


def test_a_model_judges_in_words() -> None:
    said = Says("Step 2 says 9, it is 8.\nFirst wrong step: 2")
    judge = LLMJudge(said)  # type: ignore[arg-type]
    (verdict,) = judge.judge(["What is 3 + 4 + 1? {steps}"], [STEPS])
    assert (verdict.first_error, verdict.labels) == (1, (True, False, None))
    assert "[2] 7 + 1 = 9." in said.prompts[0]
    assert judge.tokens == 2
    assert LLMJudge(Says("First wrong step: none")).judge(["p"], [STEPS])[0].labels == (True,) * 3  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["I do not know.", "First wrong step: 9", "First wrong step: 0", None])
def test_what_cannot_be_read_is_no_verdict(text: str | None) -> None:
    (verdict,) = LLMJudge(Says(text)).judge(["p"], [STEPS])  # type: ignore[arg-type]
    assert (verdict.first_error, verdict.labels) == (None, (None, None, None))


def test_the_most_frequent_verdict_counts() -> None:
    said = [f"First wrong step: {one}" for one in ("2", "none", "2")]
    assert LLMJudge(Says(*said), n=3).judge(["p"], [STEPS])[0].first_error == 1  # type: ignore[arg-type]
    assert LLMJudge(Says(None, said[0], "?"), n=3).judge(["p"], [STEPS])[0].first_error == 1  # type: ignore[arg-type]


def test_replayed_words_do_as_well() -> None:
    backend = ReplayBackend({}, cycle=True)
    assert LLMJudge(backend).judge(["p"], [STEPS])[0].first_error is None, "what was not recorded is a failure"


def test_consensus_keeps_what_both_say() -> None:
    def row(labels: tuple[bool | None, ...]) -> LabelledSolution:
        return LabelledSolution(prompt="p", completions=tuple(STEPS), labels=labels)

    rows = [row((True, False, None)), row((False, None, None)), row((True, True, True)), row((None, False, None))]
    kept, agreement = keep_agreed(rows, RuleJudge())
    assert kept == rows[:1]
    assert (agreement.kept, agreement.differ, agreement.unjudged) == (1, 2, 1)
    assert agreement.share == pytest.approx(1 / 3)


def natural_steps(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [f"{(a := rng.randrange(10, 50))} + {(b := rng.randrange(10, 50))} = {a + b}." for _ in range(count)]


@pytest.mark.guards("give-away phrases")
def test_give_away_words_are_found() -> None:
    natural = natural_steps(80, 0)
    assert (bag_of_words_auc(natural_steps(80, 1), natural) or 1) < 0.6
    told = [step.replace("=", "is wrongly") for step in natural_steps(80, 2)]
    assert (bag_of_words_auc(told, natural) or 0) > 0.95
    assert bag_of_words_auc(told[:5], natural) is None, "too few to say"


def test_kinds_that_give_themselves_away_go() -> None:
    natural = [(step, str(at)) for at, step in enumerate(natural_steps(120, 0))]
    clean = [("arithmetic_result", step, str(at)) for at, step in enumerate(natural_steps(80, 1))]
    loud = [("irrelevant", f"Bananas! {step}", str(at)) for at, step in enumerate(natural_steps(60, 2))]
    out, before, after = leaking_kinds([*clean, *loud], natural, 0.6)
    assert out == {"irrelevant"}
    assert before is not None
    assert after is not None
    assert after < 0.6 < before
