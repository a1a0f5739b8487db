"""Estimators with rewards of steps: against loops in plain Python, by hand, and what the guards hold back."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.classmate.algorithm_config import AdvantageConfig
from verl.classmate.estimators import PROCESS_ESTIMATORS
from verl.classmate.process_config import ProcessRewardConfig
from verl.trainer.ppo.advantage import AdvantageInputs, compute_advantage
from verl.trainer.ppo.advantage.base import AdvantageResult

FREE: dict[str, Any] = {"outcome_gate": False, "max_share_of_variance": None}

Row = dict[str, Any]
"""group, outcome (0 or 1), steps: pairs of tokens and reward, scored."""


def row(group: str, outcome: float, *steps: tuple[int, float], scored: bool = True) -> Row:
    return {"group": group, "outcome": outcome, "steps": steps, "scored": scored}


def inputs_of(rows: list[Row]) -> AdvantageInputs:
    width = max(sum(tokens for tokens, _ in one["steps"]) for one in rows)
    mask, ends, rewards = (torch.zeros(len(rows), width) for _ in range(3))
    for i, one in enumerate(rows):
        at = 0
        for tokens, reward in one["steps"]:
            at += tokens
            ends[i, at - 1], rewards[i, at - 1] = 1, reward
        mask[i, :at] = 1
    outcome = torch.tensor([one["outcome"] for one in rows])
    none = torch.zeros(len(rows), dtype=torch.bool)
    return AdvantageInputs(
        base_reward_B=outcome,
        classmate_reward_B=torch.zeros(len(rows)),
        final_reward_B=outcome,
        main_valid_B=~none,
        classmate_valid_B=none,
        classmate_asked_B=none,
        response_mask_BR=mask.long(),
        classmate_mask_BR=torch.zeros(len(rows), width, dtype=torch.int64),
        group_B=np.array([one["group"] for one in rows], dtype=object),
        main_correct_B=outcome >= 0.5,
        step_end_BR=ends.long(),
        process_reward_BR=rewards,
        process_valid_B=torch.tensor([one["scored"] for one in rows]),
    )


def run(rows: list[Row], estimator: str = "process_grpo", **process: Any) -> AdvantageResult:
    config = AdvantageConfig(adv_estimator=estimator, process=ProcessRewardConfig(**process))
    return compute_advantage(inputs_of(rows), config)


def plain(rows: list[Row], estimator: str, temperature: float = 0.1) -> list[list[float]]:
    """The formulas of the papers once more, without guards: per row, an advantage for each token."""
    result = []
    for one in rows:
        peers = [other for other in rows if other["group"] == one["group"]]
        outcomes = [other["outcome"] for other in peers]
        scored = [other for other in peers if other["scored"]]
        values = [0.0] * len(one["steps"])
        mean = sum(outcomes) / len(outcomes)
        if estimator == "process_grpo":
            std = math.sqrt(sum((x - mean) ** 2 for x in outcomes) / max(1, len(outcomes) - 1))
            base = (one["outcome"] - mean) / (std + 1e-6)
            all_steps = [reward for other in scored for _, reward in other["steps"]]
            if len(all_steps) > 1 and len(set(all_steps)) > 1:
                centre = sum(all_steps) / len(all_steps)
                spread = math.sqrt(sum((x - centre) ** 2 for x in all_steps) / (len(all_steps) - 1))
                values = [(reward - centre) / (spread + 1e-6) for _, reward in one["steps"]]
        else:
            others = [other for other in peers if other is not one]
            base = one["outcome"] - sum(other["outcome"] for other in others) / len(others) if others else 0.0
            earned = {id(other): _earned(other, estimator, temperature) for other in scored}
            rest = [other for other in scored if other is not one]
            if rest and one["scored"]:
                rate = sum(sum(earned[id(o)]) / sum(t for t, _ in o["steps"]) for o in rest) / len(rest)
                pairs = zip(earned[id(one)], one["steps"], strict=True)
                values = [reward - rate * tokens for reward, (tokens, _) in pairs]
        values = values if one["scored"] else [0.0] * len(values)
        per_token = []
        for k, (tokens, _) in enumerate(one["steps"]):
            per_token += [base + sum(values[k:])] * tokens
        result.append(per_token)
    return result


def _earned(one: Row, estimator: str, temperature: float) -> list[float]:
    rewards = [reward for _, reward in one["steps"]]
    if estimator == "prime":
        return rewards
    weights = [math.exp(-(reward - min(rewards)) / temperature) for reward in rewards]
    return [w / sum(weights) * reward for w, reward in zip(weights, rewards, strict=True)]


STEPS = st.lists(st.tuples(st.integers(1, 3), st.sampled_from([0.0, 0.125, 0.5, 0.75, 1.0])), min_size=1, max_size=4)
ROWS = st.lists(
    st.builds(
        lambda group, outcome, steps, scored: row(group, outcome, *steps, scored=scored),
        st.sampled_from("ab"),
        st.sampled_from([0.0, 1.0]),
        STEPS,
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("estimator", PROCESS_ESTIMATORS)
@given(rows=ROWS)
@settings(max_examples=80, deadline=None)
def test_without_guards_they_are_the_papers(estimator: str, rows: list[Row]) -> None:
    expected = plain(rows, estimator)
    if estimator == "prime":
        flat = torch.tensor([x for one in expected for x in one], dtype=torch.float64)
        spread = float(flat.std(unbiased=False)) + 1e-6
        expected = [[x / spread for x in one] for one in expected]
    found = run(rows, estimator, **FREE).advantages_BR
    for one, tokens in zip(found, expected, strict=True):
        padded = tokens + [0.0] * (len(one) - len(tokens))
        torch.testing.assert_close(one, torch.tensor(padded), atol=1e-4, rtol=1e-4)


def test_a_small_group_by_hand() -> None:
    """Two answers, both right; one has a doubtful second step. Rewards 1, 0, 1, 1: mean .75, deviation .5."""
    found = run([row("a", 1.0, (2, 1.0), (1, 0.0)), row("a", 1.0, (1, 1.0), (1, 1.0))], **FREE).advantages_BR
    torch.testing.assert_close(found, torch.tensor([[-1.0, -1.0, -1.5], [1.0, 0.5, 0.0]]), atol=1e-5, rtol=0)


MIXED = [
    row("a", 1.0, (2, 0.9), (2, 0.2), (1, 0.8)),
    row("a", 1.0, (1, 0.7), (2, 0.6)),
    row("a", 0.0, (3, 0.9), (1, 0.1)),
    row("a", 0.0, (1, 0.3), (1, 0.2), (1, 0.9)),
]


def test_advantages_differ_within_an_answer() -> None:
    for estimator in PROCESS_ESTIMATORS:
        found = run(MIXED, estimator).advantages_BR
        assert len(set(found[0, :5].tolist())) > 1, estimator


@given(rows=ROWS, reward=st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=60, deadline=None)
def test_equal_steps_or_no_coefficient_leave_grpo(rows: list[Row], reward: float) -> None:
    grpo = run(rows, "grpo").advantages_BR
    assert torch.equal(run(rows, coef=0.0).advantages_BR, grpo)
    equal = [{**one, "steps": tuple((tokens, reward) for tokens, _ in one["steps"])} for one in rows]
    assert torch.equal(run(equal).advantages_BR, grpo)


@pytest.mark.guards("a failed process reward counts as 0")
@pytest.mark.parametrize("estimator", PROCESS_ESTIMATORS)
def test_an_answer_without_scores_has_its_outcome_alone(estimator: str) -> None:
    """And what stands in its place moves nobody else's advantage."""
    rows = [*MIXED, row("a", 1.0, (2, 0.0), (1, 0.0), scored=False)]
    other = [*MIXED, row("a", 1.0, (2, 123.0), (1, math.nan), scored=False)]
    found = run(rows, estimator).advantages_BR
    torch.testing.assert_close(run(other, estimator).advantages_BR, found)
    assert len(set(found[4, :3].tolist())) == 1
    assert found[4, 0] > 0


@pytest.mark.parametrize("estimator", PROCESS_ESTIMATORS)
@given(rows=ROWS)
@settings(max_examples=80, deadline=None)
def test_no_wrong_answer_is_better_than_a_right_one(estimator: str, rows: list[Row]) -> None:
    found = run(rows, estimator, max_share_of_variance=None, coef=7.0).advantages_BR
    for group in "ab":
        tokens: dict[bool, list[float]] = {True: [], False: []}
        for one, values in zip(rows, found, strict=True):
            if one["group"] == group:
                tokens[one["outcome"] == 1.0] += values[: sum(t for t, _ in one["steps"])].tolist()
        if tokens[True] and tokens[False]:
            assert min(tokens[True]) >= max(tokens[False]) - 1e-5


@given(rows=ROWS)
@settings(max_examples=80, deadline=None)
def test_steps_add_at_most_their_share_of_the_variance(rows: list[Row]) -> None:
    grpo, result = run(rows, "grpo").advantages_BR.double(), run(rows, coef=50.0)
    mask = inputs_of(rows).response_mask_BR.bool()
    added = (result.advantages_BR.double() - grpo)[mask]
    assert added.var(unbiased=False) <= 0.3 * grpo[mask].var(unbiased=False) + 1e-5
    assert result.metrics.get("reasoning/process_share_of_variance", 0.0) <= 0.3 + 1e-6


@pytest.mark.guards("wrong answers are rewarded for their steps")
def test_a_wrong_answer_earns_nothing_by_its_steps() -> None:
    """A planted hack: answers that are all wrong, with steps that the model loves. Their advantage stays 0."""
    hacked = [row("a", 0.0, (2, 0.99), (2, 0.99)), row("a", 0.0, (2, 0.1), (2, 0.1))]
    free = run(hacked, **FREE).advantages_BR
    assert free[0].min() > 0.5
    assert run(hacked).advantages_BR.max() <= 0
    assert run(hacked, max_share_of_variance=None).advantages_BR.max() <= 0


def test_a_single_answer_has_no_baseline() -> None:
    for estimator in ("min_form", "prime"):
        assert not run([row("a", 1.0, (1, 0.9), (2, 0.1))], estimator, **FREE).advantages_BR.any()


@given(rewards=st.lists(st.floats(0, 1), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_min_form_is_the_smallest_at_a_low_temperature(rewards: list[float]) -> None:
    from verl.trainer.ppo.advantage.min_form import min_form_rewards

    values = torch.tensor([[*rewards, 0.0]], dtype=torch.float64)
    ends = torch.tensor([[True] * len(rewards) + [False]])
    assert min_form_rewards(values, ends, 1e-3).sum() == pytest.approx(min(rewards), abs=5e-3)


@pytest.mark.parametrize(("estimator", "grows"), [("process_grpo", True), ("min_form", False)])
def test_cutting_steps_up_pays_under_grpo_alone(estimator: str, grows: bool) -> None:
    """The same text in four good steps in place of one: what its first token gets."""
    rest = [row("a", 1.0, (4, 0.5)), row("a", 1.0, (4, 0.5))]
    one = run([row("a", 1.0, (4, 0.9)), *rest], estimator, **FREE).advantages_BR[0, 0]
    four = run([row("a", 1.0, *[(1, 0.9)] * 4), *rest], estimator, **FREE).advantages_BR[0, 0]
    assert (four > one + 0.01) == grows
