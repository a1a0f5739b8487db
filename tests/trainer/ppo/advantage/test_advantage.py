"""What holds of our estimators whatever the rewards: what moves which tokens, and what a missing row must not move."""

import dataclasses

import pytest
import torch

from tests.trainer.ppo.advantage.worked_example import C, R, columns, inputs, near, run


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
