"""Our GRPO against upstream's, bit for bit, our estimators as upstream calls them, and their normaliser alone."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.ppo.advantage.worked_example import C, R, inputs, run
from verl.trainer.ppo.advantage import group_normalise
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, get_adv_estimator_fn

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
