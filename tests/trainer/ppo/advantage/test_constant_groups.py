"""A group whose rewards are all the same says nothing: not one bit of rounding becomes an advantage."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.classmate.rows import asked, read_row
from tests.trainer.ppo.advantage.upstream import ALGORITHM, THEIRS
from verl.classmate.algorithm_config import AdvantageConfig
from verl.classmate.config import ClassmateCotRewardConfig
from verl.classmate.estimators import DECOUPLED_ESTIMATORS, ESTIMATORS, OUR_ESTIMATORS
from verl.classmate.outcome import Outcome
from verl.classmate.reward_scale import RewardScale
from verl.classmate.row import Continuation, Verdict
from verl.classmate.scoring import RewardRules, score_row
from verl.trainer.ppo.advantage import AdvantageInputs, compute_advantage, group_normalise

COMPARE_GROUPS = [name for name in THEIRS if ESTIMATORS[name].compares_group]


SIZES = st.integers(2, 64)
# In steps of 0.1, as rewards often are, at every scale, and whatever else a custom reward may give.
VALUES = st.builds(lambda tenths, scale: tenths / 10 * scale, st.integers(-100, 100), st.sampled_from(
    [1e-6, 1e-3, 1.0, 10.0, 1e3, 1e6])) | st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-6)  # fmt: skip
DTYPES = st.sampled_from([torch.float32, torch.float64])


def step(
    r: torch.Tensor, w: torch.Tensor, groups: list[str], *, f: torch.Tensor | None = None, **more: Any
) -> AdvantageInputs:
    """Rows of three tokens: two that were handed over, one of the output; every other row is one token shorter."""
    rows = len(r)
    length = torch.tensor([3 - i % 2 for i in range(rows)])
    values: dict[str, Any] = {
        "base_reward_B": r,
        "classmate_reward_B": w,
        "final_reward_B": r + 0.5 * w if f is None else f,
        "main_valid_B": torch.ones(rows, dtype=torch.bool),
        "classmate_valid_B": torch.ones(rows, dtype=torch.bool),
        "response_mask_BR": (torch.arange(3) < length.unsqueeze(-1)).long(),
        "classmate_mask_BR": torch.tensor([[1, 1, 0]]).repeat(rows, 1),
        "group_B": np.array(groups, dtype=object),
    }
    return AdvantageInputs(**values | more)


def advantages(inputs: AdvantageInputs, estimator: str, **options: Any) -> torch.Tensor:
    config = AdvantageConfig(
        adv_estimator=estimator,
        **{"classmate_reward_weight": 0.5, "min_classmate_valid_fraction": 0.0} | options,
    )
    return compute_advantage(inputs, config, ALGORITHM).advantages_BR


def every_option() -> list[dict[str, Any]]:
    """What an estimator of ours can be told, as far as it moves a constant group by no mean of the batch."""
    options: list[dict[str, Any]] = [
        {"adv_estimator": name, "token_level_classmate_reward_mode": mode, "norm_adv_by_std_in_grpo": divide}
        for name, mode, divide in itertools.product(OUR_ESTIMATORS, ("classmate_partial", "all"), (True, False))
    ]
    options += [{"adv_estimator": name, "gdpo_group_norm": "mean_only"} for name in ("gdpo_classmate", "gdpo_wo_bn")]
    options += [{"adv_estimator": name, "classmate_advantage_clamp": "non_neg_cl"} for name in DECOUPLED_ESTIMATORS[1:]]
    return options


@pytest.mark.parametrize("estimator", OUR_ESTIMATORS)
def test_the_cases_of_the_report(estimator: str) -> None:
    """Equal rewards of 1.3 gave -0.11 with eight rows, 8.1 gave 0.47, two parts 0.94."""
    for value, n in itertools.product((0.1, 0.3, 1.1, 1.3, 2.7, 8.1, 99.9, 1e5 + 0.1, 1e-6), range(2, 65)):
        constant = torch.full((n,), value)
        result = advantages(step(constant, 0.7 * constant, ["a"] * n), estimator)
        assert torch.count_nonzero(result) == 0, (value, n, result.abs().max())


@given(r=VALUES, w=VALUES, n=SIZES, dtype=DTYPES, others=st.booleans(), data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_constant_group_gets_exactly_nothing(
    r: float, w: float, n: int, dtype: torch.dtype, others: bool, data: st.DataObject
) -> None:
    """Alone in its batch or beside a group that varies, under every estimator and option."""
    base, classmate = torch.full((n,), r, dtype=dtype), torch.full((n,), w, dtype=dtype)
    groups = ["a"] * n
    if others:
        base = torch.cat([base, torch.tensor([r, r + 1, r, r - 1], dtype=dtype)])
        classmate = torch.cat([classmate, torch.tensor([w, w, w + 1, w - 1], dtype=dtype)])
        groups += ["b"] * 4
    inputs = step(base, classmate, groups)
    for options in every_option():
        result = advantages(
            inputs, options["adv_estimator"], **{k: v for k, v in options.items() if k != "adv_estimator"}
        )
        assert torch.count_nonzero(result[:n]) == 0, (options, result[:n].abs().max())


@given(r=VALUES, w=VALUES, n=SIZES)
@settings(max_examples=60, deadline=None)
def test_a_batch_of_constant_groups_gets_exactly_nothing(r: float, w: float, n: int) -> None:
    """Whatever the batch normalisation goes over, and whatever is clamped."""
    base = torch.tensor([r] * n + [w] * n + [r + w] * 2)
    classmate = torch.tensor([w] * n + [r] * n + [r] * 2)
    inputs = step(base, classmate, ["a"] * n + ["b"] * n + ["c"] * 2)
    for norm, group, clamp in itertools.product(
        ("sequence", "token", "none"), ("std", "mean_only"), ("none", "non_neg_cl", "non_neg_adv_when_main_correct")
    ):
        result = advantages(
            inputs, "gdpo_classmate", gdpo_batch_norm=norm, gdpo_group_norm=group, classmate_advantage_clamp=clamp
        )
        assert torch.count_nonzero(result) == 0, (norm, group, clamp, result.abs().max())


@given(n=SIZES, data=st.data())
@settings(max_examples=150, deadline=None)
def test_rewards_that_differ_by_rounding_are_the_same(n: int, data: st.DataObject) -> None:
    """The same classmates' scores in another order, with equal weights, and F as the sum of its parts."""
    tenths = data.draw(st.lists(st.integers(-50, 100), min_size=2, max_size=6))
    scale = data.draw(st.sampled_from([1e-6, 1.0, 10.0, 1e6]))
    scores = [t / 10 * scale for t in tenths]
    rows = [
        _row(data.draw(st.permutations(scores)), main=scale * 0.3 if i % 2 else scale * (0.1 + 0.2)) for i in range(n)
    ]
    r, w, f = (torch.tensor([row[k] for row in rows]) for k in range(3))
    inputs = step(r, w, ["a"] * n, f=f)
    for estimator in OUR_ESTIMATORS:
        result = advantages(inputs, estimator)
        assert torch.count_nonzero(result) == 0, (estimator, scores, r, w, f)


@given(n=SIZES, data=st.data())
@settings(max_examples=100, deadline=None)
def test_parts_that_cancel_up_to_rounding(n: int, data: st.DataObject) -> None:
    """F is 0 in every row, as a sum of parts of any size, and so is what the thought adds."""
    scale = data.draw(st.sampled_from([1e-6, 1.0, 10.0, 1e6]))
    tenths = data.draw(st.lists(st.integers(-100, 100), min_size=n, max_size=n))
    r = torch.tensor([scale * t / 10 for t in tenths])
    w = torch.tensor([-2 * scale * (t / 10) for t in tenths])
    f = torch.tensor([scale * t / 10 - 0.5 * (2 * scale * 0.1 * t) for t in tenths])
    assert torch.count_nonzero(advantages(step(r, w, ["a"] * n, f=f), "grpo")) == 0
    three = [scale * t / 10 for t in (1, 2, -3)]
    added = [_row(data.draw(st.permutations(three)), alone=data.draw(st.permutations(three))) for _ in range(n)]
    added[0] = _row([scale, -scale], alone=[0.0, 0.0])
    w = torch.tensor([row[1] for row in added])
    assert torch.count_nonzero(advantages(step(r * 0, w, ["a"] * n), "gdpo_wo_bn")) == 0, w


def test_segments_of_a_prompt_are_one_group() -> None:
    """F of each segment is r + w u, in float32: mathematically 0.35 in all of them."""
    r = torch.tensor([0.1, 0.2, 0.3, 0.1])
    u = torch.stack([2 * (0.35 - r), 2 * (0.35 - r)], dim=-1)
    segments = torch.tensor([[1, 2, 0]]).repeat(4, 1)
    for scale in (1e-6, 1.0, 1e6):
        inputs = step(r * scale, u[:, 0] * scale, ["a"] * 4, segment_BR=segments, segment_reward_BK=u * scale)
        handed_over = advantages(inputs, "grpo_w_classmate")[:, :2]
        assert torch.count_nonzero(handed_over) == 0, handed_over
        constant = step(r, u[:, 0], ["a"] * 4, segment_BR=segments, segment_reward_BK=torch.full((4, 2), 8.1 * scale))
        apart = advantages(constant, "grpo_main_classmate_separated")
        assert torch.equal(apart[:, 0], apart[:, 2] + (1 - constant.response_mask_BR[:, 2]) * apart[:, 0])


@given(
    n=SIZES,
    step_size=st.sampled_from([1e-3, 1e-2, 0.1]),
    scale=st.sampled_from([1e-6, 1e-3, 1.0, 1e3, 1e6]),
    sign=st.sampled_from([1, -1]),
    dtype=DTYPES,
)
@settings(max_examples=150, deadline=None)
def test_small_steps_still_count(n: int, step_size: float, scale: float, sign: int, dtype: torch.dtype) -> None:
    """A thousandth on a scale of ten is a difference: one row that is so much better is preferred, and only it."""
    values = torch.full((n,), 10.0, dtype=dtype)
    values[0] -= step_size
    values = sign * scale * values
    for exact in (False, True):
        result = group_normalise(
            values,
            torch.ones(n, dtype=torch.bool),
            np.array(["a"] * n, dtype=object),
            divide_by_std=True,
            singleton="zero",
            exact=exact,
        )
        assert result[0] * -sign > 0
        assert (result[1:] * sign > 0).all()


NEARLY = st.tuples(
    st.sampled_from([0.1, 0.3, 1.3, 8.1, 1e-3, 99.9, 1e5 + 0.1]),
    st.lists(st.floats(1.1e-6, 3e-5), min_size=1, max_size=3),
)
"""A value, and by which parts of it some rows lie above it."""


@given(n=SIZES, main=NEARLY, other=NEARLY)
@settings(max_examples=150, deadline=None)
def test_nearly_constant_groups_have_the_exact_advantage(
    n: int, main: tuple[float, list[float]], other: tuple[float, list[float]]
) -> None:
    """Just above what counts as the same, float32 gets the mean wrong by as much as the rows differ."""
    r, w = (
        torch.tensor([v * (1 + p) for p in parts[: n - 1]] + [v] * (n - len(parts[: n - 1])))
        for v, parts in (main, other)
    )
    f = r + 0.5 * w
    inputs = step(r, w, ["a"] * n, f=f)
    on_r, on_w, on_f = (exact_advantages(x) for x in (r, w, f))
    sums = f.double().abs() + r.double().abs()
    if (f.double().max() - f.double().min()) <= 2.0**-20 * sums.max():
        on_f = [0.0] * n
    expected = {
        "grpo_w_classmate": (on_f, on_r),
        "grpo_main_classmate_separated": ([a + 0.5 * b for a, b in zip(on_r, on_w, strict=True)], on_r),
        "gdpo_wo_bn": ([a + 0.5 * b for a, b in zip(on_r, on_w, strict=True)], on_r),
    }
    for estimator, (on_thought, off_thought) in expected.items():
        result = advantages(inputs, estimator)
        torch.testing.assert_close(result[:, 0], torch.tensor(on_thought), atol=1e-5, rtol=1e-5)
        full = inputs.response_mask_BR[:, 2].bool()
        torch.testing.assert_close(result[full, 2], torch.tensor(off_thought)[full], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("estimator", ["grpo_w_classmate", "grpo_main_classmate_separated", "gdpo_wo_bn"])
def test_one_row_that_is_a_millionth_off(estimator: str) -> None:
    """Wrong by up to 0.94 in float32, with 2 to 64 rows of every scale."""
    for value, n in itertools.product((0.1, 0.3, 1.3, 2.7, 8.1, 99.9, 1e5 + 0.1), range(2, 65)):
        r = torch.full((n,), value)
        # F counts as the same up to a millionth of its parts, here twice its own size.
        r[0] *= 1 + (2.2e-6 if estimator == "grpo_w_classmate" else 1.1e-6)
        result = advantages(step(r, 0 * r, ["a"] * n, f=r), estimator)
        expected = torch.tensor(exact_advantages(r))
        torch.testing.assert_close(result[:, 0], expected, atol=1e-5, rtol=1e-5)


def exact_advantages(values: torch.Tensor) -> list[float]:
    """(x - mean) / (deviation + 1e-6) with fractions; 0 where the values count as the same."""
    x = [Fraction(value) for value in values.tolist()]
    if max(x) - min(x) <= Fraction(1, 2**20) * max(map(abs, x)):
        return [0.0] * len(x)
    mean = sum(x) / len(x)
    variance = sum((one - mean) ** 2 for one in x) / (len(x) - 1)
    return [float(one - mean) / (math.sqrt(variance) + 1e-6) for one in x]


def test_counts_of_a_million_still_count() -> None:
    """Steps of one, as a reward that counts tokens has them."""
    values = torch.tensor([1e6, 1e6, 1e6 + 1, 1e6])
    result = advantages(step(values, torch.zeros(4), ["a"] * 4), "gdpo_classmate")
    assert result[2, 0] == pytest.approx(1.5, rel=1e-3)


def test_batch_normalisation_moves_all_groups_by_a_mean_or_none() -> None:
    """Over tokens, long answers count more than short ones: that mean is the batch's, not rounding, and is taken off
    every token; over sequences it is 0."""
    base, classmate = torch.tensor([8.1] * 4 + [1.0, 0.0]), torch.tensor([1.3] * 6)
    inputs = step(base, classmate, ["a"] * 4 + ["b"] * 2)
    assert torch.count_nonzero(advantages(inputs, "gdpo_classmate")[:4]) == 0
    moved = advantages(inputs, "gdpo_classmate", gdpo_batch_norm="token")[:4]
    assert (moved[inputs.response_mask_BR[:4].bool()] == moved[0, 0]).all()
    assert moved[0, 0] < 0


@pytest.mark.parametrize("estimator", [*COMPARE_GROUPS, "reinforce_plus_plus"])
def test_upstreams_estimators_are_guarded(estimator: str) -> None:
    noise = 0.0
    for value, n in itertools.product((0.1, 1.3, 8.1, 1e5 + 0.1), range(2, 65)):
        constant = torch.full((2 * n,), value)
        constant[n:] *= 3
        groups = ["a"] * n + ["b"] * n
        if estimator == "reinforce_plus_plus":
            constant = constant[:n].repeat(2)
        inputs = step(constant, constant * 0, groups)
        assert torch.count_nonzero(advantages(inputs, estimator)) == 0, (value, n)
        noise = max(noise, advantages(inputs, estimator, constant_group="raw").abs().max().item())
    # The best of k is less the second best, without rounding.
    assert (noise == 0) == (estimator == "grpo_passk"), noise


@pytest.mark.parametrize("estimator", COMPARE_GROUPS)
def test_the_guard_leaves_groups_that_vary_alone(estimator: str) -> None:
    values = torch.tensor([1.0, 0.0, 0.3, 8.1, 8.1, 8.1, 8.1, 0.25, 0.5, 0.0])
    groups = ["a"] * 3 + ["b"] * 4 + ["c"] * 3
    inputs = step(values, values * 0, groups)
    guarded, raw = (advantages(inputs, estimator, constant_group=guard) for guard in ("zero", "raw"))
    if ESTIMATORS[estimator].centres_batch:
        torch.testing.assert_close(guarded, raw, atol=1e-5, rtol=1e-5)
        constant = guarded[3:7][inputs.response_mask_BR[3:7].bool()]
        assert (constant == constant[0]).all(), "the batch's mean, and nothing else"
        return
    varies = torch.tensor([group != "b" for group in groups])
    assert torch.equal(guarded[varies], raw[varies])
    assert torch.count_nonzero(guarded[~varies]) == 0


@pytest.mark.parametrize("estimator", ["gae", "remax", "reinforce_plus_plus"])
def test_estimators_without_groups_are_shown_what_there_is(estimator: str) -> None:
    """The critic, a greedy answer or the batch is what a row is compared with, not the others of its prompt."""
    values = torch.tensor([8.1] * 4 + [1.0, 0.0])
    more: dict[str, Any] = {}
    if estimator == "gae":
        more["values_BR"] = torch.zeros(6, 3)
    if estimator == "remax":
        more["greedy_base_B"] = more["greedy_final_B"] = torch.tensor([8.0] * 4 + [0.5] * 2)
    inputs = step(values, values * 0, ["a"] * 4 + ["b"] * 2, **more)
    guarded, raw = (advantages(inputs, estimator, constant_group=guard) for guard in ("zero", "raw"))
    assert torch.equal(guarded, raw)
    assert guarded[:4].abs().max() > 0.05


def _row(scores: list[float], *, main: float = 1.0, alone: list[float] | None = None) -> tuple[float, float, float]:
    """r, W and F that `score_row` makes of classmates' scores, one sample each; `alone`: without the thought."""
    config = ClassmateCotRewardConfig(
        classmate_reward_type="vanilla_reward" if alone is None else "remove_wo_cot",
        use_classmate_main_cond="always",
        classmate_reward_weight=0.5,
        reward_fusion="sum",
    )
    views = [scores] if alone is None else [scores, alone]
    answers = [
        asked([Continuation(sample=0, view=v, outcome=Outcome.ok, score=view[m]) for v, view in enumerate(views)])
        for m in range(len(scores))
    ]
    scale = RewardScale(low=None, high=None)
    weights = (1 / len(scores),) * len(scores)
    rules = RewardRules(config=config, scale=scale, classmate_scale=scale, weights=weights)
    row = score_row(read_row(views=len(views)), Verdict(score=main), answers, rules).scores
    assert not math.isnan(row.classmate_score)
    return row.base_reward, row.classmate_reward, row.final_reward
