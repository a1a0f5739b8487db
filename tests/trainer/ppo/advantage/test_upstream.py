"""Upstream's estimators on the fused scalar: what a missing, a failed and a padding row do to them."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from tests.trainer.ppo.advantage.upstream import ALGORITHM, THEIRS
from verl.classmate.algorithm_config import AdvantageConfig
from verl.trainer.ppo.advantage import AdvantageInputs, AdvantageResult, compute_advantage
from verl.trainer.ppo.core_algos import compute_gae_advantage_return, compute_rloo_outcome_advantage
from verl.utils import torch_functional

MASK = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 1], [1, 1, 0]])
R = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0, 0.0])
W = torch.tensor([1.0, 0.0, 0.0, 0.5, 1.0, 1.0])
VALUES = torch.linspace(-1, 1, 18).view(6, 3) * MASK


def inputs(**changes) -> AdvantageInputs:
    values = {
        "base_reward_B": R,
        "classmate_reward_B": W,
        "final_reward_B": R + 0.5 * W,
        "main_valid_B": torch.ones(6, dtype=torch.bool),
        "classmate_valid_B": torch.ones(6, dtype=torch.bool),
        "response_mask_BR": MASK,
        "classmate_mask_BR": MASK * torch.tensor([1, 0, 0]),
        "group_B": np.array(list("aaabbb"), dtype=object),
        "values_BR": VALUES,
        "greedy_base_B": torch.tensor([0.0] * 3 + [0.125] * 3),
        "greedy_final_B": torch.tensor([0.5] * 3 + [0.25] * 3),
    }
    return AdvantageInputs(**values | changes)


def run(given: AdvantageInputs, estimator: str, **options) -> AdvantageResult:
    if estimator != "gae":
        given = dataclasses.replace(given, values_BR=None)
    if estimator != "remax":
        given = dataclasses.replace(given, greedy_base_B=None, greedy_final_B=None)
    config = AdvantageConfig(
        adv_estimator=estimator,  # type: ignore[arg-type]
        classmate_reward_weight=0.5,
        min_classmate_valid_fraction=0.0,
        **options,
    )
    return compute_advantage(given, config, ALGORITHM)


def flag(*rows: int) -> torch.Tensor:
    return torch.tensor([i in rows for i in range(6)])


@pytest.mark.parametrize("estimator", THEIRS)
def test_classmates_move_it_and_only_within_the_response(estimator: str) -> None:
    result = run(inputs(), estimator)
    assert result.advantages_BR.abs().sum() > 0
    assert torch.equal(result.advantages_BR * (1 - MASK), torch.zeros(6, 3))
    silent = run(inputs(final_reward_B=R), estimator)
    assert not torch.allclose(result.advantages_BR, silent.advantages_BR)


@pytest.mark.parametrize("estimator", THEIRS)
@pytest.mark.parametrize("kind", ["failed", "padding"])
def test_rows_that_are_left_out_say_nothing(estimator: str, kind: str) -> None:
    out = flag(2, 5)
    changes = {"main_valid_B": ~out} if kind == "failed" else {"padding_B": out}
    garbage = torch.where(out, torch.tensor(math.nan), R + 0.5 * W)
    result = run(inputs(**changes, final_reward_B=garbage), estimator)
    assert torch.equal(result.advantages_BR[out], torch.zeros(2, 3))
    kept = [0, 1, 3, 4]
    alone = AdvantageInputs(
        **{
            name: value[kept] if isinstance(value, torch.Tensor | np.ndarray) else value
            for name in inputs().__dataclass_fields__
            for value in [getattr(inputs(), name)]
        }
    )
    torch.testing.assert_close(result.advantages_BR[kept], run(alone, estimator).advantages_BR)


@pytest.mark.parametrize("estimator", [one for one in THEIRS if one != "remax"])
def test_an_unscored_row_takes_part_with_its_main_reward(estimator: str) -> None:
    valid, garbage = ~flag(1, 4), torch.where(flag(1, 4), torch.tensor(math.nan), R + 0.5 * W)
    result = run(inputs(classmate_valid_B=valid, final_reward_B=garbage), estimator)
    expected = run(inputs(final_reward_B=torch.where(valid, R + 0.5 * W, R)), estimator)
    assert torch.equal(result.advantages_BR, expected.advantages_BR)
    main_only = run(inputs(classmate_valid_B=torch.zeros(6, dtype=torch.bool)), estimator)
    assert torch.equal(main_only.advantages_BR, run(inputs(final_reward_B=R), estimator).advantages_BR)


@pytest.mark.parametrize("estimator", THEIRS)
def test_nothing_valid_gives_zero(estimator: str) -> None:
    result = run(inputs(main_valid_B=torch.zeros(6, dtype=torch.bool)), estimator)
    assert torch.equal(result.advantages_BR, torch.zeros(6, 3))


def test_rloo_compares_with_the_others_of_the_prompt() -> None:
    fused = (R + 0.5 * W).tolist()
    result = run(inputs(), "rloo").advantages_BR[:, 0]
    others = [(sum(fused[:3]) - f) / 2 for f in fused[:3]] + [(sum(fused[3:]) - f) / 2 for f in fused[3:]]
    assert result.tolist() == pytest.approx([f - o for f, o in zip(fused, others, strict=True)], abs=1e-6)


def test_remax_subtracts_the_greedy_rows_reward() -> None:
    result = run(inputs(), "remax").advantages_BR[:, 0]
    expected = R + 0.5 * W - torch.tensor([0.5] * 3 + [0.25] * 3)
    assert result.tolist() == pytest.approx(expected.tolist())
    nan = math.nan
    lost = {
        "greedy_base_B": torch.tensor([nan] * 3 + [0.125] * 3),
        "greedy_final_B": torch.tensor([nan] * 3 + [0.25] * 3),
    }
    without = run(inputs(**lost), "remax")
    assert torch.equal(without.advantages_BR[:3], torch.zeros(3, 3))
    assert without.advantages_BR[3:, 0].tolist() == pytest.approx(expected[3:].tolist())
    assert without.metrics["classmate/groups_without_greedy"] == 1


def test_remax_compares_like_with_like() -> None:
    """A row without a classmate score, all rows of a step without them, or of a prompt whose greedy one has none: r."""
    base = (R - torch.tensor([0.0] * 3 + [0.125] * 3)).tolist()
    fused = (R + 0.5 * W - torch.tensor([0.5] * 3 + [0.25] * 3)).tolist()
    one = run(inputs(classmate_valid_B=~flag(1)), "remax").advantages_BR[:, 0]
    assert one.tolist() == pytest.approx([fused[0], base[1], *fused[2:]])
    none = run(inputs(classmate_valid_B=torch.zeros(6, dtype=torch.bool)), "remax").advantages_BR[:, 0]
    assert none.tolist() == pytest.approx(base)
    greedy_final = torch.tensor([math.nan] * 3 + [0.25] * 3)
    first = run(inputs(greedy_final_B=greedy_final), "remax").advantages_BR[:, 0]
    assert first.tolist() == pytest.approx([*base[:3], *fused[3:]])


def test_gae_and_what_the_critic_learns() -> None:
    rewards = torch.zeros(6, 3)
    rewards[torch.arange(6), MASK.sum(-1) - 1] = R + 0.5 * W
    advantages, returns = compute_gae_advantage_return(rewards, VALUES, MASK, gamma=1.0, lam=0.95)
    result = run(inputs(), "gae")
    torch.testing.assert_close(result.advantages_BR, advantages * MASK)
    torch.testing.assert_close(result.returns_BR * MASK, returns * MASK)
    whitened = torch_functional.masked_mean(result.advantages_BR, MASK)
    assert whitened.item() == pytest.approx(0.0, abs=1e-6)
    failed = run(inputs(main_valid_B=~flag(3)), "gae")
    assert torch.equal(failed.returns_BR[3], VALUES[3]), "nothing to learn from a row that was not scored"


def test_single_rows_of_a_group() -> None:
    """The other two of the second prompt failed: as with our estimators, the option decides."""
    lonely = inputs(main_valid_B=~flag(3, 4))
    assert torch.equal(run(lonely, "rloo").advantages_BR[5], torch.zeros(3))
    raw = run(lonely, "rloo", singleton_group="raw").advantages_BR
    rewards = torch.zeros(4, 3)
    rewards[torch.arange(4), MASK[[0, 1, 2, 5]].sum(-1) - 1] = (R + 0.5 * W)[[0, 1, 2, 5]]
    expected, _ = compute_rloo_outcome_advantage(rewards, MASK[[0, 1, 2, 5]], np.array(list("aaab"), dtype=object))
    torch.testing.assert_close(raw[[0, 1, 2, 5]], expected)
    for singleton in ("zero", "raw"):
        assert torch.isfinite(run(lonely, "grpo_passk", singleton_group=singleton).advantages_BR).all()
