"""The RLT reward of a row, by hand-computed numbers."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.teaching.rows import DIVERGENCES, SOLUTION, STUDENT, TEACHER, rlt_row
from verl.classmate.outcome import Outcome
from verl.teaching.alignment import ScoredTokens
from verl.teaching.reward_config import RltConfig
from verl.teaching.rlt import REDUCTIONS, RltReward, rlt_reward, weighted

DEFAULT = RltConfig()


def reward(config: RltConfig = DEFAULT, **more) -> RltReward:
    return rlt_reward(rlt_row(**more), config)


def value(config: RltConfig = DEFAULT, **more) -> float:
    found = reward(config, **more).reward
    assert found is not None
    return found


@pytest.mark.acceptance("T6")
def test_the_worked_example() -> None:
    assert weighted(SOLUTION, ("mean", "min"), (1, 0.01)) == pytest.approx(-0.203)
    assert weighted(DIVERGENCES, ("mean", "max"), (1, 0.01)) == pytest.approx(0.36)
    found = reward()
    assert found.reward == pytest.approx(-1.283)
    assert found.terms is not None
    assert dataclasses.asdict(found.terms) == pytest.approx(
        {"solution": -0.203, "divergence": -1.08, "not_matched": 0, "empty": 0}
    )
    assert found.solution_log_prob == pytest.approx(-0.2)
    assert found.divergence == pytest.approx(0.35)
    assert (found.teacher_log_prob, found.student_log_prob) == pytest.approx((-1.0, -1.35))


def test_tensors_give_the_same() -> None:
    tensors = {name: torch.tensor(numbers) for name, numbers in (("solution", SOLUTION), ("student", STUDENT))}
    assert value(**tensors) == pytest.approx(-1.283)


def test_the_class_defaults() -> None:
    config = RltConfig(preset="rlt_class_defaults")
    assert value(config) == pytest.approx(5 * -0.203 - 5 * 0.36)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("mean", 2.5), ("sum", 10.0), ("min", 1.0), ("max", 4.0), ("median", 2.5), ("q25", 1.75), ("q75", 3.25)],
)
def test_reductions(name: str, expected: float) -> None:
    assert REDUCTIONS[name]([4.0, 1.0, 3.0, 2.0]) == expected
    assert REDUCTIONS[name]([7.0]) == 7.0


def test_lists_of_reductions() -> None:
    config = RltConfig(
        reduction_log_prob_fn=("sum",),
        answer_log_prob_coeff=(2.0,),
        reduction_kl_fn=("mean", "max", "min"),
        kl_penalty_reward_coeff=(1.0, 0.5, 0.25),
    )
    assert value(config) == pytest.approx(2 * -0.6 - (0.35 + 0.5 - 0.05))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"normalize_log_prob_fn": "exp"}, sum(map(math.exp, SOLUTION)) / 3 + 0.01 * math.exp(-0.3) - 1.08),
        (
            {"normalize_kl_fn": "exp_norm"},
            -0.203 - 3 * sum(1 - math.exp(-d) for d in DIVERGENCES) / 4 - 0.03 * (1 - math.exp(-1)),
        ),
        ({"clip_log_prob": 0.15}, -(0.1 + 0.15 + 0.15) / 3 - 0.0015 - 1.08),
        ({"clip_kl": 0.4}, -0.203 - 3 * (0.4 + 0.1 - 0.2 + 0.4) / 4 - 0.012),
        (
            {"use_schulman_kl_estimation": True},
            -0.203 - 3 * sum(d - 1 + math.exp(-d) for d in DIVERGENCES) / 4 - 0.03 * math.exp(-1),
        ),
        ({"include_teacher_think_entropy": False}, -0.203 - 3 * 1.35 - 0.03 * 2.0),
        ({"r_max": -1.3}, -1.3),
        ({"r_min": -1.2}, -1.2),
    ],
)
def test_options(options: dict, expected: float) -> None:
    assert value(RltConfig(**options)) == pytest.approx(expected)


def test_a_teacher_that_does_not_count_is_not_needed() -> None:
    config = RltConfig(include_teacher_think_entropy=False)
    for teacher in ([], TEACHER, [math.nan] * 4):
        assert value(config, teacher=teacher) == pytest.approx(-0.203 - 3 * 1.35 - 0.03 * 2)


def test_an_explanation_that_is_not_closed() -> None:
    assert value(closed=False) == pytest.approx(-2.283)
    assert value(RltConfig(not_matched_penalty=0), closed=False) == pytest.approx(-1.283)


@pytest.mark.guards("empty mask reduced to the largest float")
@pytest.mark.parametrize("text", ["", " ", "\n\n", "\u200b"])
@pytest.mark.parametrize("closed", [True, False])
def test_an_empty_explanation_is_the_policys_fault(text: str, closed: bool) -> None:
    """Also where nothing was scored for it."""
    for more in ({}, {"teacher": [], "student": [], "solution": []}, {"outcome": Outcome.timeout}):
        found = reward(explanation=text, closed=closed, **more)
        assert (found.outcome, found.reward) == (Outcome.ok, -20.0)
        assert found.terms is not None
        assert found.terms.total == -20.0
    with pytest.raises(ValueError, match="nothing can be reduced over no tokens"):
        weighted([], ("mean",), (1.0,))


def test_a_solution_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="leave out such rows when data is read"):
        reward(solution=[])


@pytest.mark.guards("NaN replaced with the wrong sign")
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["solution", "teacher", "student"])
def test_numbers_that_are_not_finite_exclude_the_row(place: str, bad: float) -> None:
    numbers = {"solution": SOLUTION, "teacher": TEACHER, "student": STUDENT}[place]
    for how in ("token", "mean_per_char"):
        found = reward(**{place: [bad, *numbers[1:]]}, alignment=how)
        assert (found.outcome, found.reward, found.terms) == (Outcome.engine_error, None, None)


def test_an_alignment_that_was_not_settled_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'auto' is not settled; give what RltConfig\.alignment says"):
        rlt_row(alignment="auto")


def test_a_scorer_that_failed_excludes_the_row() -> None:
    assert reward(outcome=Outcome.timeout) == RltReward(outcome=Outcome.timeout)


@pytest.mark.guards("tokens that do not match end the run")
def test_other_tokens_exclude_the_row() -> None:
    assert reward(student=STUDENT[1:]).outcome is Outcome.engine_error
    assert reward(student=[]).outcome is Outcome.engine_error
    assert reward(student=STUDENT[1:], alignment="mean_per_char").outcome is Outcome.ok


def test_two_tokenizers() -> None:
    teacher = ScoredTokens(log_probs=TEACHER, spans=[(0, 1), (1, 2), (2, 3), (3, 4)])
    student = ScoredTokens(log_probs=[-1.6, -2.8], spans=[(0, 2), (2, 4)])
    both = rlt_row()
    by_span = rlt_reward(dataclasses.replace(both, teacher=teacher, student=student, alignment="span"), DEFAULT)
    # d = -2 + 1.6 and -2 + 2.8
    assert by_span.reward == pytest.approx(-0.203 - 3 * 0.2 - 0.03 * 0.8)
    by_char = rlt_reward(
        dataclasses.replace(both, teacher=teacher, student=student, alignment="mean_per_char"), DEFAULT
    )
    assert by_char.reward == pytest.approx(-0.203 - 3.03 * 0.1)
    cut = dataclasses.replace(student, log_probs=[-1.6], spans=[(0, 2)])
    missing = rlt_reward(dataclasses.replace(both, teacher=teacher, student=cut, alignment="span"), DEFAULT)
    assert missing.outcome is Outcome.engine_error


def test_the_least_likely_token_counts_as_minus_fifty() -> None:
    config = RltConfig(r_min=-1000)
    assert value(config, solution=[-1e4, 0.0]) == pytest.approx(-25 - 0.5 - 1.08)


@pytest.mark.parametrize("normalize", ["none", "exp", "exp_norm"])
@pytest.mark.parametrize("schulman", [False, True])
@pytest.mark.parametrize("d", [-1e4, -800.0, 800.0, 1e4, 1e6])
def test_extreme_divergences_are_clipped_not_excluded(normalize: str, schulman: bool, d: float) -> None:
    """A policy could else leave the group by writing what nobody would."""
    config = RltConfig(normalize_kl_fn=normalize, use_schulman_kl_estimation=schulman)
    found = reward(config, teacher=[0.0] * 4, student=[-d] * 4)
    assert found.outcome is Outcome.ok
    assert found.reward is not None
    assert -20 <= found.reward <= 5


LOG_PROBS = st.lists(st.floats(-1e4, 0), min_size=1, max_size=20)
CONFIGS = st.builds(
    RltConfig,
    preset=st.sampled_from(["rlt", "rlt_class_defaults"]),
    normalize_log_prob_fn=st.sampled_from(["none", "exp", "exp_norm"]),
    normalize_kl_fn=st.sampled_from(["none", "exp", "exp_norm"]),
    use_schulman_kl_estimation=st.booleans(),
    include_teacher_think_entropy=st.booleans(),
)


@settings(deadline=None)
@given(LOG_PROBS, st.lists(st.tuples(st.floats(-1e4, 0), st.floats(-1e4, 0)), min_size=1), st.booleans(), CONFIGS)
def test_there_is_always_a_reward_in_its_range(
    solution: list[float], scores: list[tuple[float, float]], closed: bool, config: RltConfig
) -> None:
    teacher, student = zip(*scores, strict=True)
    found = reward(config, solution=solution, teacher=teacher, student=student, closed=closed)
    assert found.outcome is Outcome.ok
    assert found.reward is not None
    assert found.terms is not None
    assert found.reward == min(max(found.terms.total, config.r_min), config.r_max)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-100, 0), st.floats(-100, 0)), min_size=1))
def test_schulmans_divergence_is_never_negative(scores: list[tuple[float, float]]) -> None:
    teacher, student = zip(*scores, strict=True)
    found = reward(RltConfig(use_schulman_kl_estimation=True), teacher=teacher, student=student)
    assert found.divergence >= 0


@pytest.mark.guards("reward parameters unused")
@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("preset", "rlt_class_defaults"),
        ("reduction_log_prob_fn", ("mean", "max")),
        ("answer_log_prob_coeff", (1.0, 1.0)),
        ("reduction_kl_fn", ("mean", "min")),
        ("kl_penalty_reward_coeff", (1.0, 1.0)),
        ("normalize_log_prob_fn", "exp"),
        ("normalize_kl_fn", "exp"),
        ("clip_log_prob", 0.2),
        ("clip_kl", 0.2),
        ("use_schulman_kl_estimation", True),
        ("include_teacher_think_entropy", False),
        ("not_matched_penalty", -0.5),
        ("r_min", -0.5),
        ("r_max", -3.0),
    ],
)
def test_each_option_moves_the_reward(name: str, other: object) -> None:
    assert value(RltConfig(**{name: other}), closed=False) != value(closed=False)
