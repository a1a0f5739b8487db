"""Batches with one optimizer step: when the pass before it is left out, and that nothing else changes by it."""

from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict

from verl.classmate.algorithm_config import AlgorithmConfig
from verl.classmate.config import from_mapping
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import agg_loss
from verl.trainer.ppo.one_update import has_dropout, needs_old_log_probs, take_agreement, with_own_log_probs
from verl.utils import tensordict_utils as tu
from verl.utils.debug.metrics import calculate_debug_metrics
from verl.utils.metric import Metric, reduce_metrics
from verl.workers.config import ActorConfig
from verl.workers.engine.fsdp.policy_engine import ENTROPY_ASIDE
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding, response_from_nested, response_to_nested

UPSTREAM: Any = ppo_loss.__wrapped__  # type: ignore[attr-defined]


def config(**changes: Any) -> DictConfig:
    """Of a run with 4 prompts of 2 rows, all in one step."""
    made = OmegaConf.create(
        {
            "actor_rollout_ref": {
                "actor": {"ppo_epochs": 1, "ppo_mini_batch_size": 4, "strategy": "fsdp2"},
                "rollout": {"n": 2},
            },
            "algorithm": {
                "rollout_correction": {"rollout_is": None, "rollout_rs": None, "bypass_mode": False},
            },
            "trainer": {"device": "cpu"},
        }
    )
    for key, value in changes.items():
        OmegaConf.update(made, key.replace("__", "."), value, force_add=True)
    return made


def needs(
    made: DictConfig, *, rows: int = 8, dropout: bool = False, old_log_prob: Any = "auto", **reward_model: Any
) -> bool:
    reward = from_mapping(reward_model, require_classmates=False)
    return needs_old_log_probs(made, reward, AlgorithmConfig(old_log_prob=old_log_prob), rows=rows, dropout=dropout)


def test_one_step_needs_no_pass_before_it() -> None:
    assert not needs(config())
    assert not needs(config(actor_rollout_ref__actor__strategy="fsdp", trainer__device="cuda"))


@pytest.mark.parametrize(
    "change",
    [
        {"actor_rollout_ref__actor__ppo_epochs": 2},
        {"actor_rollout_ref__actor__ppo_mini_batch_size": 2},
        {"actor_rollout_ref__actor__strategy": "megatron"},
        {"trainer__device": "npu"},
        {"algorithm__rollout_correction__rollout_is": "token"},
        {"algorithm__rollout_correction__rollout_rs": "token_k1"},
        {"algorithm__rollout_correction__bypass_mode": True},
        {"distillation__enabled": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_reads_them_earlier_or_later_has_them_computed(change: dict[str, Any]) -> None:
    assert needs(config(**change))


def test_two_steps_dropout_corrections_and_masks_need_them() -> None:
    assert needs(config(), old_log_prob="always")
    assert needs(config(), rows=16)
    assert needs(config(), dropout=True)
    assert needs(config(), rollout_is_threshold=2.0)
    assert needs(config(), token_level_main_reward_mode="cot_only")


def test_a_run_without_a_correction_node_needs_none() -> None:
    assert not needs(config(algorithm__rollout_correction=None))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"attention_dropout": 0.0, "hidden_size": 8}, False),
        ({"attention_dropout": 0.1}, True),
        ({"resid_pdrop": 0.1}, True),
        ({"attn_pdrop": 0, "embd_pdrop": None}, False),
        ({"hidden_dropout_prob": 0.5}, True),
        ({"layerdrop": 0.1}, True),
        ({"text_config": {"attention_dropout": 0.1}}, True),
        ({"text_config": {"attention_dropout": 0.0}, "rope_parameters": {"rope_theta": 1e4}}, False),
        ({"classifier_dropout": 0.1}, False),
    ],
)
def test_dropout_is_read_from_the_models_config(given: dict[str, Any], expected: bool) -> None:
    assert has_dropout(given) is expected


def micro_batch(rows: int, *, seed: int = 0) -> tuple[TensorDict, torch.Tensor, torch.Tensor]:
    """Rows of ragged lengths; and for each token of prompt and response a log-prob with gradient, and an entropy."""
    generator = torch.Generator().manual_seed(seed)

    def ragged(low: int, high: int) -> list[int]:
        return torch.randint(low, high, (rows,), generator=generator).tolist()

    prompts, responses = ragged(1, 5), ragged(1, 7)
    totals = [p + r for p, r in zip(prompts, responses, strict=True)]

    def nested(lengths: list[int], kind: str) -> torch.Tensor:
        made = {
            "ids": lambda n: torch.randint(0, 9, (n,), generator=generator),
            "number": lambda n: torch.randn(n, generator=generator),
            "log_prob": lambda n: -torch.rand(n, generator=generator) * 3,
            "mask": lambda n: torch.ones(n, dtype=torch.long),
        }[kind]
        return torch.nested.as_nested_tensor([made(n) for n in lengths], layout=torch.jagged)

    mask = nested(responses, "mask")
    mask.values()[1] = 0
    data = TensorDict(
        {
            "prompts": nested(prompts, "ids"),
            "responses": nested(responses, "ids"),
            "response_mask": mask,
            "advantages": nested(responses, "number"),
            "rollout_log_probs": nested(responses, "log_prob"),
        },
        batch_size=rows,
    )
    tu.assign_non_tensor(data, dp_size=1, batch_num_tokens=float(mask.values().sum()), global_batch_size=rows)
    log_probs, entropy = nested(totals, "log_prob"), nested(totals, "log_prob").abs()
    return data, log_probs.detach().requires_grad_(), entropy


def actor_config(**changes: Any) -> ActorConfig:
    return ActorConfig(strategy="fsdp2", rollout_n=2, ppo_micro_batch_size_per_gpu=8, **changes)


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"])
def test_the_loss_is_upstreams_with_a_pass_of_the_same_numbers(mode: str) -> None:
    data, log_probs, _ = micro_batch(8)
    with_pass = data.copy()
    with_pass["old_log_probs"] = response_from_nested(log_probs.detach(), data["response_mask"])
    expected, expected_metrics = UPSTREAM(actor_config(loss_agg_mode=mode), {"log_probs": log_probs}, with_pass)
    (expected_gradient,) = torch.autograd.grad(expected, log_probs)
    found, metrics = ppo_loss(actor_config(loss_agg_mode=mode), {"log_probs": log_probs}, data)
    (gradient,) = torch.autograd.grad(found, log_probs)
    assert torch.equal(found, expected)
    assert torch.equal(gradient.values(), expected_gradient.values())
    assert gradient.values().abs().sum() > 0
    for name, metric in expected_metrics.items():
        assert metrics[name].aggregate() == metric.aggregate(), name
    assert metrics["actor/ppo_kl"].aggregate() == 0


def test_a_batch_with_old_log_probs_is_upstreams_alone() -> None:
    data, log_probs, entropy = micro_batch(4)
    data["old_log_probs"] = response_to_nested(torch.full((4, 6), -1.0), data["response_mask"])
    output = {"log_probs": log_probs, ENTROPY_ASIDE: entropy}
    expected, expected_metrics = UPSTREAM(actor_config(), {"log_probs": log_probs}, data.copy())
    found, metrics = ppo_loss(actor_config(), output, data)
    assert torch.equal(found, expected)
    assert metrics.keys() == expected_metrics.keys()


def updated(
    parts: list[int], *, ranks: int = 1, with_engine: bool = True, mode: str = "token-mean", filled: int = 0
) -> tuple[dict[str, Any], DataProto]:
    """Metrics of an update over 8 rows in micro-batches, some on each rank; and what upstream's function takes.

    The last `filled` rows have no tokens that count, as rows that only fill a batch.
    """
    data, log_probs, entropy = micro_batch(8)
    for mask in data["response_mask"].unbind()[8 - filled :]:
        mask.zero_()
    if not with_engine:
        del data["rollout_log_probs"]
    tu.assign_non_tensor(data, dp_size=ranks)
    of_parts: list[dict[str, Metric]] = []
    start = 0
    for size in parts:
        chosen = slice(start, start + size)
        part = TensorDict({}, batch_size=size)
        for key in ("prompts", "responses", "response_mask", "advantages", "rollout_log_probs"):
            if key in data:
                part[key] = nested_rows(data[key], chosen)
        for key in ("dp_size", "batch_num_tokens", "global_batch_size"):
            tu.assign_non_tensor(part, **{key: tu.get_non_tensor_data(data, key, None)})
        output = {"log_probs": nested_rows(log_probs.detach(), chosen), ENTROPY_ASIDE: nested_rows(entropy, chosen)}
        of_parts.append(ppo_loss(actor_config(loss_agg_mode=mode, loss_scale_factor=6), output, part)[1])
        start += size
    per_rank = len(parts) // ranks
    gathered: dict[str, Any] = {}
    for name in of_parts[0]:
        of_ranks = []
        for rank in range(ranks):
            metric = of_parts[rank * per_rank][name].init_list()
            for part_metrics in of_parts[rank * per_rank : (rank + 1) * per_rank]:
                metric.append(part_metrics[name])
            of_ranks.append(metric)
        gathered[f"actor/{name}"] = [Metric.aggregate_dp(of_ranks)]
    padded = {
        "old_log_probs": no_padding_2_padding(log_probs.detach(), data),
        "response_mask": data["response_mask"].to_padded_tensor(0),
        "responses": data["responses"].to_padded_tensor(0),
        "entropy": no_padding_2_padding(entropy, data),
    }
    if with_engine:
        padded["rollout_log_probs"] = data["rollout_log_probs"].to_padded_tensor(0)
    return reduce_metrics(gathered), DataProto(batch=TensorDict(padded, batch_size=8))


def nested_rows(tensor: torch.Tensor, chosen: slice) -> torch.Tensor:
    return torch.nested.as_nested_tensor(list(tensor.unbind())[chosen], layout=torch.jagged)


@pytest.mark.parametrize(("parts", "ranks"), [([8], 1), ([3, 5], 1), ([1] * 8, 1), ([5, 3], 2), ([1, 2, 4, 1], 2)])
def test_the_update_tells_what_the_pass_told(parts: list[int], ranks: int) -> None:
    metrics, whole = updated(parts, ranks=ranks)
    take_agreement(metrics, prefix="actor/")
    for name, expected in calculate_debug_metrics(whole).items():
        assert metrics[name] == pytest.approx(expected, rel=1e-4), name
    mask_BR = whole.batch["response_mask"].bool()
    assert metrics["actor/entropy"] == pytest.approx(float(whole.batch["entropy"][mask_BR].mean()), rel=1e-5)
    assert not [name for name in metrics if "engine_agreement" in name]


@pytest.mark.parametrize("mode", ["seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"])
@pytest.mark.parametrize(("parts", "ranks"), [([8], 1), ([3, 5], 1), ([4, 4], 2), ([5, 1, 1, 1], 2)])
def test_rows_that_fill_a_batch_have_no_part_in_the_entropy(parts: list[int], ranks: int, mode: str) -> None:
    metrics, whole = updated(parts, ranks=ranks, mode=mode, filled=2)
    take_agreement(metrics, prefix="actor/")
    expected = agg_loss(whole.batch["entropy"], whole.batch["response_mask"], mode, loss_scale_factor=6)
    assert metrics["actor/entropy"] == pytest.approx(float(expected), rel=1e-5)
    assert not [name for name in metrics if "rows" in name]


def test_without_engine_log_probs_there_is_nothing_to_compare() -> None:
    metrics, _ = updated([4, 4], with_engine=False)
    take_agreement(metrics, prefix="actor/")
    assert not [name for name in metrics if name.startswith("training/")]
    assert metrics["actor/entropy"] > 0


def test_an_engine_that_agrees_and_one_of_constant_probabilities() -> None:
    data, log_probs, _ = micro_batch(8)
    own = response_from_nested(log_probs.detach(), data["response_mask"])
    data["rollout_log_probs"] = own
    for given, expected in ((own, 1.0), (response_to_nested(torch.full((8, 6), -1.0), data["response_mask"]), None)):
        data["rollout_log_probs"] = given
        _, found = ppo_loss(actor_config(), {"log_probs": log_probs.detach()}, data.exclude("old_log_probs"))
        metrics = {name: metric.aggregate() for name, metric in found.items()}
        take_agreement(metrics, prefix="")
        correlation = metrics["training/rollout_actor_probs_pearson_corr"]
        if expected is None:
            assert correlation != correlation
        else:
            assert correlation == pytest.approx(1.0, abs=1e-9)
            assert metrics["training/rollout_probs_diff_max"] == 0


def test_wrapping_keeps_upstreams_name() -> None:
    assert with_own_log_probs(UPSTREAM).__name__ == "ppo_loss"
