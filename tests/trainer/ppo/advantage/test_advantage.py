"""Estimators against the numbers of the specification (4.4), upstream's own, and every kind of missing row."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.classmate.algorithm_config import AdvantageConfig
from verl.classmate.errors import ConfigError
from verl.trainer.ppo.advantage import AdvantageInputs, AdvantageResult, compute_advantage, group_normalise
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, get_adv_estimator_fn

R = torch.tensor([1.0, 0.0, 1.0, 0.0])
C = torch.tensor([1.0, 0.0, 0.0, 0.5])
GAMMA = {
    "always": torch.ones(4),
    "no_classmate_when_main_incorrect": (R >= 0.5).float(),
    "neg_classmate_when_main_incorrect": torch.where(R >= 0.5, 1.0, -1.0),
}
# Three response tokens: one that was handed over, one of the output, one of padding.
RESPONSE_MASK = torch.tensor([[1, 1, 0]])
CLASSMATE_MASK = torch.tensor([[1, 0, 0]])


def inputs(
    base: torch.Tensor = R, classmate: torch.Tensor = C, weight: float = 0.5, groups: list | None = None, **changes
) -> AdvantageInputs:
    rows = len(base)
    values = {
        "base_reward_B": base,
        "classmate_reward_B": classmate,
        "final_reward_B": base + weight * classmate,
        "main_valid_B": torch.ones(rows, dtype=torch.bool),
        "classmate_valid_B": torch.ones(rows, dtype=torch.bool),
        "response_mask_BR": RESPONSE_MASK.repeat(rows, 1),
        "classmate_mask_BR": CLASSMATE_MASK.repeat(rows, 1),
        "group_B": np.array(groups or ["a"] * rows, dtype=object),
    }
    return AdvantageInputs(**values | changes)


def run(given_inputs: AdvantageInputs, **options) -> AdvantageResult:
    config = AdvantageConfig(**{"classmate_reward_weight": 0.5, "min_classmate_valid_fraction": 0.0} | options)
    return compute_advantage(given_inputs, config)


def columns(result: AdvantageResult) -> tuple[list[float], list[float]]:
    """Advantages on the CoT token and on the output token."""
    assert torch.equal(result.advantages_BR[:, 2], torch.zeros(len(result.advantages_BR)))
    assert result.returns_BR is result.advantages_BR
    return result.advantages_BR[:, 0].tolist(), result.advantages_BR[:, 1].tolist()


def near(*values: float):
    return pytest.approx(list(values), abs=6e-5)


@pytest.mark.guards("two scales in one sequence")
@pytest.mark.parametrize(
    ("condition", "on_cot", "elsewhere", "summed"),
    [
        ("always", (1.2193, -1.0097, 0.3808, -0.5905), 0.6953, (1.5188, -1.2577, 0.4743, -0.7355)),
        (
            "no_classmate_when_main_incorrect",
            (1.1955, -0.8256, 0.4557, -0.8256), 0.6406, (1.6160, -1.1160, 0.6160, -1.1160),
        ),
        (
            "neg_classmate_when_main_incorrect",
            (1.1215, -0.6934, 0.5507, -0.9788), 0.6221, (1.5614, -0.9654, 0.7667, -1.3627),
        ),
    ],
)  # fmt: skip
def test_gdpo_of_the_worked_example(condition: str, on_cot: tuple, elsewhere: float, summed: tuple) -> None:
    given_inputs = inputs(classmate=GAMMA[condition] * C)
    z, z_main = columns(run(given_inputs))
    assert z == near(*on_cot)
    assert z_main == near(elsewhere, -elsewhere, elsewhere, -elsewhere)
    z_all, same = columns(run(given_inputs, token_level_classmate_reward_mode="all"))
    assert z_all == same == near(*on_cot)
    raw, raw_main = columns(run(given_inputs, gdpo_batch_norm="none"))
    assert raw == near(*summed)
    assert raw_main == near(0.8660, -0.8660, 0.8660, -0.8660)


def test_gdpo_with_a_missing_classmate_score() -> None:
    """Row 4 has none: left out of A(W), its classmate part is 0. Whatever stands in its place is never read."""
    for garbage in (0.0, 100.0, float("nan")):
        classmate = torch.tensor([1.0, 0.0, 0.0, garbage])
        valid = torch.tensor([True, True, True, False])
        result = run(inputs(classmate=classmate, classmate_valid_B=valid))
        z, z_main = columns(result)
        assert z == near(1.1785, -0.9428, 0.4714, -0.7071)
        assert z_main == near(0.7071, -0.7071, 0.7071, -0.7071)


def test_grpo_of_the_worked_example() -> None:
    fused, same = columns(run(inputs(), adv_estimator="grpo"))
    assert fused == same == near(1.1802, -0.9986, 0.4539, -0.6355)
    centred, _ = columns(run(inputs(), adv_estimator="grpo", norm_adv_by_std_in_grpo=False))
    assert centred == near(0.8125, -0.6875, 0.3125, -0.4375)


def test_grpo_with_classmates_of_the_worked_example() -> None:
    """A(F) where classmates read, A(r) elsewhere; centred only, it is what Dr.GRPO makes of it."""
    on_cot, elsewhere = columns(run(inputs(), adv_estimator="grpo_w_classmate"))
    assert on_cot == near(1.1802, -0.9986, 0.4539, -0.6355)
    assert elsewhere == near(0.8660, -0.8660, 0.8660, -0.8660)
    all_cot, all_elsewhere = columns(
        run(inputs(), adv_estimator="grpo_w_classmate", token_level_classmate_reward_mode="all")
    )
    assert all_cot == all_elsewhere == near(1.1802, -0.9986, 0.4539, -0.6355)
    centred = run(inputs(), adv_estimator="grpo_w_classmate", norm_adv_by_std_in_grpo=False)
    on_cot, elsewhere = columns(centred)
    assert on_cot == near(0.8125, -0.6875, 0.3125, -0.4375)
    assert elsewhere == near(0.5, -0.5, 0.5, -0.5)


@pytest.mark.parametrize(
    ("condition", "classmate"),
    [
        ("always", (1.3056, -0.7833, -0.7833, 0.2611)),
        ("no_classmate_when_main_incorrect", (1.5, -0.5, -0.5, -0.5)),
        ("neg_classmate_when_main_incorrect", (1.3908, -0.1987, -0.1987, -0.9934)),
    ],
)
def test_separated_parts_of_the_worked_example(condition: str, classmate: tuple) -> None:
    given_inputs = inputs(classmate=GAMMA[condition] * C)
    main = [0.8660, -0.8660, 0.8660, -0.8660]
    both = [a + 0.5 * b for a, b in zip(main, classmate, strict=True)]
    for estimator in ("grpo_main_classmate_separated", "gdpo_wo_bn"):
        on_cot, elsewhere = columns(run(given_inputs, adv_estimator=estimator))
        assert on_cot == near(*both)
        assert elsewhere == near(*main)
        on_cot, elsewhere = columns(run(given_inputs, adv_estimator=estimator, token_level_classmate_reward_mode="all"))
        assert on_cot == elsewhere == near(*both)


def test_clamps_of_the_worked_example() -> None:
    correct = R >= 0.5
    for estimator in ("grpo_main_classmate_separated", "gdpo_wo_bn"):
        on_cot, elsewhere = columns(run(inputs(), adv_estimator=estimator, classmate_advantage_clamp="non_neg_cl"))
        assert on_cot == near(0.8660 + 0.6528, -0.8660, 0.8660, -0.73547)
        assert elsewhere == near(0.8660, -0.8660, 0.8660, -0.8660)
    harsh = inputs(weight=4.0, main_correct_B=correct)
    on_cot, elsewhere = columns(
        run(
            harsh,
            adv_estimator="grpo_main_classmate_separated",
            classmate_reward_weight=4.0,
            classmate_advantage_clamp="non_neg_adv_when_main_correct",
        )
    )
    expected = [0.8660 + 4 * 1.3056, -0.8660 - 4 * 0.7833, 0.0, -0.8660 + 4 * 0.2611]
    assert on_cot == pytest.approx(expected, abs=3e-4)
    assert elsewhere == near(0.8660, -0.8660, 0.8660, -0.8660)


def test_segments_of_a_row_have_advantages_of_their_own() -> None:
    """Two rows with two segments each: u = [1, 0], [0.5, missing]; the group of segments is 1, 0, 0.5."""
    nan = float("nan")
    given_inputs = inputs(
        base=torch.tensor([1.0, 0.0]),
        classmate=torch.tensor([1.0, 0.5]),
        segment_BR=torch.tensor([[1, 2, 0]] * 2),
        segment_reward_BK=torch.tensor([[1.0, 0.0], [0.5, nan]]),
        response_mask_BR=torch.ones(2, 3, dtype=torch.int64),
    )
    first, second = run(given_inputs, adv_estimator="grpo_main_classmate_separated").advantages_BR.tolist()
    assert first == near(0.7071 + 0.5, 0.7071 - 0.5, 0.7071)
    assert second == near(-0.7071, -0.7071, -0.7071)
    fused = torch.tensor([1.5, 1.0, 0.25])
    z = ((fused - fused.mean()) / fused.std()).tolist()
    first, second = run(given_inputs, adv_estimator="grpo_w_classmate").advantages_BR.tolist()
    assert first == near(z[0], z[1], 0.7071)
    assert second == near(z[2], -0.7071, -0.7071)
    with pytest.raises(ConfigError, match="cannot tell the segments"):
        run(given_inputs, token_level_classmate_reward_mode="all")


def test_parts_that_cancel_leave_no_noise_behind() -> None:
    """S is 0 in every row; a batch normalisation of rounding errors would make something of it."""
    base, classmate = torch.tensor([0.0, 0.0, 1.0]), torch.tensor([1.0, 1.0, 0.0])
    for batch_norm in ("sequence", "token"):
        result = run(
            inputs(base=base, classmate=classmate),
            classmate_reward_weight=1.0,
            gdpo_batch_norm=batch_norm,
            token_level_classmate_reward_mode="all",
        )
        assert result.advantages_BR.abs().max() < 1e-6


@pytest.mark.parametrize("batch_norm", ["sequence", "token"])
@pytest.mark.parametrize("opposed", [[0.0, 1.0, 0.0, 1.0], [0.001, 1.0, 0.0, 1.001]])
def test_parts_that_cancel_do_not_blow_up_the_other_tokens(batch_norm: str, opposed: list[float]) -> None:
    """Where the classmates say the opposite, the CoT gets nothing, the rest no more than ten times the main part."""
    base, classmate = torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.tensor(opposed)
    result = run(
        inputs(
            base=base,
            classmate=classmate,
            response_mask_BR=torch.ones(4, 4, dtype=torch.int64),
            classmate_mask_BR=torch.tensor([[1, 1, 1, 0]] * 4),
        ),
        classmate_reward_weight=1.0,
        gdpo_batch_norm=batch_norm,
    ).advantages_BR
    assert result[:, 0].abs().max() < 0.02
    assert (result[:, 3].sign() == torch.tensor([1, -1, 1, -1])).all()
    assert result[:, 3].abs().max() < 10


def test_grpo_normalises_unscored_rows_on_the_main_reward() -> None:
    valid = torch.tensor([True, True, True, False])
    z, _ = columns(run(inputs(classmate_valid_B=valid), adv_estimator="grpo"))
    fused = torch.tensor([1.5, 0.0, 1.0])
    expected = (fused - fused.mean()) / fused.std()
    assert z == near(*expected.tolist(), -0.8660)


def test_token_batch_norm_counts_tokens() -> None:
    """mu and sigma over S on CoT tokens and v A(r) on output tokens; here one row has three output tokens."""
    masks = {
        "response_mask_BR": torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0]]),
        "classmate_mask_BR": torch.tensor([[1, 0, 0, 0]] * 4),
    }
    result = run(inputs(**masks), gdpo_batch_norm="token").advantages_BR
    s, main = torch.tensor([1.5188, -1.2577, 0.4743, -0.7355]), torch.tensor([0.8660, -0.8660, 0.8660, -0.8660])
    tokens = torch.cat([s, main, main[2:3], main[2:3]])
    assert result[:, 0].tolist() == near(*((s - tokens.mean()) / tokens.std()).tolist())
    assert result[:, 1].tolist() == near(*((main - tokens.mean()) / tokens.std()).tolist())
    assert result[2, 1] == result[2, 2] == result[2, 3]


@pytest.mark.guards("weight or condition ignored")
def test_doubling_the_weight_doubles_the_classmate_share() -> None:
    def share(weight: float) -> torch.Tensor:
        result = run(inputs(), classmate_reward_weight=weight, gdpo_batch_norm="none").advantages_BR
        return result[:, 0] - result[:, 1]

    torch.testing.assert_close(share(1.0), 2 * share(0.5))
    assert share(0.5).abs().min() > 0.1
    assert torch.equal(share(0.0), torch.zeros(4))
    scaled = run(inputs(classmate=10 * C), gdpo_batch_norm="none").advantages_BR
    torch.testing.assert_close(scaled, run(inputs(), gdpo_batch_norm="none").advantages_BR, atol=1e-4, rtol=1e-4)


def test_main_weight() -> None:
    result = run(inputs(), main_reward_weight=0.0, classmate_reward_weight=1.0, gdpo_batch_norm="none")
    z, z_main = columns(result)
    assert z == near(1.3056, -0.7833, -0.7833, 0.2611)
    assert z_main == near(0, 0, 0, 0)


@pytest.mark.guards("CoT mask zeroing all other tokens")
def test_classmate_advantage_only_where_tokens_were_handed_over() -> None:
    """Changing the classmate's scores moves CoT tokens; others only by the common scale, not at all without it."""
    other = inputs(classmate=torch.tensor([0.0, 1.0, 0.3, 0.0]))
    for batch_norm in ("none", "sequence"):
        first, second = (run(i, gdpo_batch_norm=batch_norm).advantages_BR for i in (inputs(), other))
        assert not torch.allclose(first[:, 0], second[:, 0])
        ratio = second[:, 1] / first[:, 1]
        torch.testing.assert_close(ratio, ratio[:1].expand(4), rtol=1e-3, atol=1e-3)
        if batch_norm == "none":
            assert torch.equal(first[:, 1], second[:, 1])


def test_zero_variance_gives_zero() -> None:
    for value in (0.0, 1.0, 0.1):
        constant = torch.full((3,), value)
        for batch_norm in ("sequence", "token", "none"):
            result = run(inputs(base=constant, classmate=constant), gdpo_batch_norm=batch_norm)
            assert result.advantages_BR.abs().max() == 0
    z, z_main = columns(run(inputs(base=torch.ones(4)), gdpo_batch_norm="none"))
    assert z == near(0.6528, -0.3917, -0.3917, 0.1306)
    assert z_main == near(0, 0, 0, 0)


@pytest.mark.parametrize("batch_norm", ["none", "sequence", "token"])
def test_singleton_groups(batch_norm: str) -> None:
    base, groups = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0]), ["a", "a", "a", "a", "b"]
    classmate = torch.cat([C, torch.ones(1)])
    alone = inputs(base=base, classmate=classmate, groups=groups)
    result = run(alone, gdpo_batch_norm=batch_norm)
    if batch_norm == "none":
        assert result.advantages_BR[4].abs().max() == 0
        raw = run(alone, gdpo_batch_norm="none", singleton_group="raw").advantages_BR[4]
        assert raw.tolist() == near(1.5, 1.0, 0.0)
    assert torch.isfinite(result.advantages_BR).all()
    assert result.metrics["classmate/excluded_groups"] == 1
    grpo = run(alone, adv_estimator="grpo")
    assert grpo.advantages_BR[4].abs().max() == 0
    only = run(inputs(base=base[4:], classmate=classmate[4:], groups=["b"]), gdpo_batch_norm=batch_norm)
    assert only.advantages_BR.abs().max() == 0


@pytest.mark.guards("failed judge averaged as 0 or -1")
@pytest.mark.parametrize("options", [{}, {"gdpo_batch_norm": "token"}, {"gdpo_batch_norm": "none"},
                                     {"adv_estimator": "grpo"}])  # fmt: skip
@pytest.mark.parametrize("kind", ["failed", "padding"])
def test_failed_and_padding_rows_touch_nothing(options: dict, kind: str) -> None:
    """The other rows' advantages are what they are without the row; the row itself gets none."""
    rows = 5
    flags = torch.tensor([False] * 4 + [True])
    extra = {"main_valid_B": ~flags} if kind == "failed" else {"padding_B": flags}
    base, classmate = torch.cat([R, torch.tensor([7.0])]), torch.cat([C, torch.tensor([-9.0])])
    result = run(inputs(base=base, classmate=classmate, groups=["a"] * rows, **extra), **options)
    expected = run(inputs(), **options)
    assert torch.equal(result.advantages_BR[:4], expected.advantages_BR)
    assert result.advantages_BR[4].abs().max() == 0
    assert result.metrics == expected.metrics
    nan = torch.tensor([float("nan")])
    with_nan = run(
        inputs(base=torch.cat([R, nan]), classmate=torch.cat([C, nan]), groups=["a"] * rows, **extra), **options
    )
    assert torch.equal(with_nan.advantages_BR, result.advantages_BR)


def test_nothing_valid_gives_zero() -> None:
    none = torch.zeros(4, dtype=torch.bool)
    for options in ({}, {"adv_estimator": "grpo"}, {"gdpo_batch_norm": "token"}):
        result = run(inputs(main_valid_B=none, classmate_valid_B=none), **options)
        assert result.advantages_BR.abs().max() == 0


def test_too_few_classmate_scores_leave_the_main_reward_alone(caplog: pytest.LogCaptureFixture) -> None:
    valid = torch.tensor([True, False, False, False])
    few = inputs(classmate_valid_B=valid)
    result = run(few, min_classmate_valid_fraction=0.5)
    assert result.metrics["classmate/main_only_steps"] == 1
    assert "trains on the main reward alone" in caplog.text
    main_only = run(inputs(classmate_valid_B=torch.zeros(4, dtype=torch.bool)))
    assert torch.equal(result.advantages_BR, main_only.advantages_BR)
    for options in ({"min_classmate_valid_fraction": 0.25}, {"min_classmate_valid_fraction": 0.0}):
        assert run(few, **options).metrics["classmate/main_only_steps"] == 0
    # Rows that were never asked, such as unfinished thoughts, say nothing about the classmates.
    asked = dataclasses.replace(few, classmate_asked_B=valid)
    assert run(asked, min_classmate_valid_fraction=0.5).metrics["classmate/main_only_steps"] == 0


def test_metrics() -> None:
    metrics = run(inputs(base=torch.cat([R, R]), classmate=torch.cat([C, C]), groups=["a"] * 4 + ["b"] * 4)).metrics
    assert metrics["critic/batch_main_reward/mean"] == pytest.approx(0.5)
    assert metrics["critic/weighted_classmate_group_reward_mean/mean"] == pytest.approx(0.375 / 2)
    assert metrics["critic/main_group_reward_std/mean"] == pytest.approx(R.std().item())
    assert metrics["classmate/excluded_groups"] == 0


@pytest.mark.guards("statistics per micro-batch")
def test_row_order_does_not_matter() -> None:
    order = [2, 0, 3, 1]
    shuffled = run(inputs(base=R[order], classmate=C[order])).advantages_BR
    torch.testing.assert_close(shuffled, run(inputs()).advantages_BR[order])


rewards = st.floats(-10, 10, width=32) | st.sampled_from([0.0, 1.0, 0.1])


@given(rows=st.lists(st.tuples(rewards, st.integers(0, 3)), min_size=2, max_size=24), data=st.data())
@settings(max_examples=150, deadline=None)
def test_one_component_is_upstreams_grpo_bit_for_bit(rows: list[tuple[float, int]], data: st.DataObject) -> None:
    """But for groups of equal rewards, in which upstream leaves rounding noise; `gdpo_classmate` has the numbers that
    upstream computes in float64."""
    base = torch.tensor([value for value, _ in rows], dtype=torch.float32)
    groups = np.array([f"g{group}" for _, group in rows], dtype=object)
    lengths = torch.tensor(data.draw(st.lists(st.integers(1, 5), min_size=len(rows), max_size=len(rows))))
    mask = (torch.arange(5) < lengths.unsqueeze(-1)).long()
    token_rewards = torch.zeros(len(rows), 5)
    token_rewards[torch.arange(len(rows)), lengths - 1] = base
    base = token_rewards.sum(-1)  # as upstream does; it also turns -0.0 into 0.0
    expected, _ = compute_grpo_outcome_advantage(token_rewards.clone(), mask, groups)
    wide, _ = compute_grpo_outcome_advantage(token_rewards.double(), mask, groups)
    for group in set(groups):
        members = torch.from_numpy(groups == group)
        if members.sum() > 1 and base[members].max() - base[members].min() <= 2.0**-20 * base[members].abs().max():
            expected[members] = wide[members] = 0.0
    rounded = wide.float()

    none = torch.zeros(len(rows), dtype=torch.bool)
    for mode in ("all", "classmate_partial"):
        for estimator in ("gdpo_classmate", "grpo"):
            for variant in (
                {"classmate_valid_B": none},
                {"classmate": torch.rand(len(rows)), "weight": 0.0},
            ):
                ours = run(
                    inputs(base=base, **{"classmate": base, **variant}, groups=groups.tolist(), response_mask_BR=mask,
                           classmate_mask_BR=mask * (torch.arange(5) < 2)),
                    adv_estimator=estimator, gdpo_batch_norm="none", singleton_group="raw",
                    classmate_reward_weight=0.0, token_level_classmate_reward_mode=mode,
                )  # fmt: skip
                if estimator == "grpo":
                    assert torch.equal(ours.advantages_BR.view(torch.int32), expected.view(torch.int32))
                else:
                    torch.testing.assert_close(ours.advantages_BR, rounded)
    registered, _ = get_adv_estimator_fn("gdpo_classmate")(
        token_level_rewards=token_rewards,
        response_mask=mask,
        index=groups,
        config={"gdpo_batch_norm": "none", "singleton_group": "raw", "gamma": 1.0},
    )
    torch.testing.assert_close(registered, rounded)


def test_upstreams_registry_gives_the_same_numbers() -> None:
    token_rewards = torch.zeros(4, 3)
    token_rewards[:, 1] = R
    ours = inputs()
    advantages, returns = get_adv_estimator_fn("gdpo_classmate")(
        token_level_rewards=token_rewards,
        response_mask=ours.response_mask_BR,
        index=ours.group_B,
        config={"gdpo_batch_norm": "sequence", "adv_estimator": "gdpo_classmate"},
        classmate_reward=C,
        classmate_mask=ours.classmate_mask_BR,
        reward_options={"classmate_reward_weight": 0.5},
    )
    assert torch.equal(advantages, run(ours).advantages_BR)
    assert torch.equal(returns, advantages)


@given(values=st.lists(rewards, min_size=2, max_size=12))
@settings(max_examples=100, deadline=None)
def test_normaliser_is_centred_and_scale_free(values: list[float]) -> None:
    x = torch.tensor(values, dtype=torch.float32)
    valid, group = torch.ones(len(x), dtype=torch.bool), np.array(["a"] * len(x), dtype=object)
    result = group_normalise(x, valid, group, divide_by_std=True, singleton="zero", exact=True)
    assert abs(result.mean().item()) < 1e-2
    assert result.abs().max() <= len(x) ** 0.5 + 1e-3
