"""What is kept of a teacher's row: a row for each student, also where nobody answered."""

import math
from typing import Any

import pytest

from verl.classmate.cot import CotKind
from verl.classmate.outcome import Outcome
from verl.classmate.record import RowRecord
from verl.classmate.row import Answer, Asked, Continuation, Task, Verdict
from verl.teaching.baseline_cache import Baseline
from verl.teaching.collected import CollectedTeaching, as_collected, rows_of
from verl.teaching.leak import Leak
from verl.teaching.lesson import Probe, StudentLesson
from verl.teaching.rcl import RclReward, RclTerms
from verl.teaching.rlt import RltReward
from verl.teaching.row import SolveRate
from verl.teaching.tags import Teaching, TeachingState
from verl.teaching.taught import StudentResult, Taught

TASK = Task(
    question="What is 2 + 5?",
    data_source="sums",
    reward_model={"ground_truth": "7"},
    extra_info={"index": 4, "solution": "Two and five are seven."},
)


def record(taught: Taught, *asked: Asked) -> RowRecord:
    answer = Answer(
        messages=(), prompt_ids=(), response_ids=(1, 2, 3), task=TASK, uid="u", step=7, rollout=2, validate=False
    )
    numbers: dict[str, Any] = dict.fromkeys(
        ("base_reward", "classmate_score", "gamma", "classmate_reward", "final_reward", "consistency_reward"), 0.0
    )
    made = RowRecord(
        answer=answer,
        response="<teaching>Add.</teaching>",
        transcript=None,
        cot="Add.",
        cot_kind=CotKind.closed,
        kept_cot="Add.",
        keep_rate=1.0,
        handed_over_tokens=0,
        output="",
        main=Verdict(score=0.0),
        asked=asked,
        main_valid=True,
        classmate_valid=False,
        segment_rewards=(),
        follows_hint=None,
        teaching=taught.record(),
        **numbers,
    )
    return RowRecord.from_json(made.to_json())


def asked(model: str, *said: Continuation) -> Asked:
    return Asked(model=model, thinks=False, prompts=("?",), continuations=said)


def result(reader: int, rate: float, guided: SolveRate | None, reward: float | None) -> StudentResult:
    outcome = Outcome.ok if reward is not None else Outcome.timeout
    return StudentResult(
        lesson=StudentLesson(
            reader=reader,
            name=f"s{reader}",
            base=SolveRate(rate=rate, tokens=3.0),
            probe=Probe(text="I add.", tokens=2),
            baseline_key=f"k{reader}",
        ),
        length=1,
        guided=guided,
        reward=RclReward(outcome=outcome, reward=reward, terms=RclTerms() if reward is not None else None),
    )


def taught(state: TeachingState, *students: StudentResult, rlt: RltReward | None = None) -> Taught:
    shown = state is TeachingState.ok
    return Taught(
        group="u",
        teaching=Teaching(text="Add." if shown else "", state=state, tokens=1, written_tokens=1),
        leak=Leak(told=False, extracted=False),
        students=students,
        rcl=None if rlt else students[0].reward,
        rlt=rlt,
    )


def collected(one: Taught, *said: Asked) -> list[CollectedTeaching]:
    stored = {"k0": Baseline(scores=(0.0,), response_lengths=(9,), finish_reasons=("no_answer:length",), texts=("Hm",))}
    rows = rows_of(
        record(one, *said), run="r", teacher="r@6", seed=0, template_hash="h", temperature=1.0, baselines=stored.get
    )
    return [CollectedTeaching.from_json(row.to_json()) for row in rows]


def test_a_teaching_for_several_students_is_a_row_for_each() -> None:
    right = Continuation(sample=0, outcome=Outcome.ok, text="7", score=1.0, token_length=1, finish_reason="stop")
    lost = Continuation(sample=0, outcome=Outcome.timeout, error="no answer within 60 s")
    one, other = collected(
        taught(
            TeachingState.ok,
            result(0, 0.25, SolveRate(rate=1.0, tokens=1.0), 1.1),
            result(1, 0.5, SolveRate(outcome=Outcome.timeout, failed=1), None),
        ),
        asked("models/a", right),
        asked("models/b", lost),
    )
    assert (one.student, one.student_model, one.b, one.w, one.D, one.reward) == ("s0", "models/a", 0.25, 1.0, 0.75, 1.1)
    assert [(item.text, item.correct) for item in one.guided] == [("7", True)]
    assert [(item.text, item.outcome, item.complete) for item in one.baseline] == [("Hm", "no_answer", False)]
    assert one.finish_reasons == {"base": ["length"], "guided": ["stop"]}
    assert (other.outcome, other.b, other.w, other.D, other.reward) == ("timeout", 0.5, None, None, None)
    assert other.failed
    assert other.baseline == ()
    assert one.id != other.id


@pytest.mark.parametrize("state", [TeachingState.empty, TeachingState.missing, TeachingState.overlong])
def test_what_shows_nothing_changes_nothing(state: TeachingState) -> None:
    (one,) = collected(taught(state, result(0, 0.25, None, 0.0)), asked("models/a"))
    assert (one.state, one.teaching, one.b, one.w, one.D) == (state.value, "", 0.25, 0.25, 0.0)
    assert one.guided == ()


def test_an_explanation_scored_by_log_probabilities() -> None:
    """A row of an RLT run: nobody answers, so that there is no solve rate, and the explanation is learnt."""
    student = result(0, math.nan, None, None)
    stated = Continuation(sample=0, outcome=Outcome.ok, text="Two and five are seven.", log_probs=(-0.5,))
    (one,) = collected(
        taught(TeachingState.ok, student, rlt=RltReward(outcome=Outcome.ok, reward=-1.25)), asked("models/a", stated)
    )
    assert (one.b, one.w, one.D, one.reward, one.outcome) == (None, None, None, -1.25, "ok")
    assert one.terms == {"rlt": -1.25}
    (made,) = as_collected([one])
    assert (made.explanation, made.solution) == ("Add.", "Two and five are seven.")
    assert made.guided == ()


def test_another_run_of_the_same_questions_has_other_rows() -> None:
    one = record(taught(TeachingState.empty, result(0, 0.25, None, 0.0)), asked("models/a"))
    told = {"teacher": "t", "seed": 0, "template_hash": "h"}
    ids = {rows_of(one, run=run, **told)[0].id for run in ("a", "b", "a")}  # type: ignore[arg-type]
    assert len(ids) == 2
