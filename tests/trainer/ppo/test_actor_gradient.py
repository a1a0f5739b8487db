"""The classmates' reward reaches the actor: its gradient depends on their weight, and only through CoT tokens."""

import numpy as np
import pytest
import torch
from transformers import Qwen3ForCausalLM

from tests.tiny_qwen3 import tiny_qwen3
from verl.classmate.algorithm_config import AdvantageConfig
from verl.trainer.ppo.advantage import AdvantageInputs, compute_advantage
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.workers.config import ActorConfig

ROWS, TOKENS, VOCABULARY = 4, 6, 32


@pytest.fixture(scope="module")
def model() -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(tiny_qwen3(VOCABULARY, width=16, layers=1))


def advantages_BR(weight: float, mode: str, estimator: str = "gdpo_classmate") -> torch.Tensor:
    """One group of four rows whose classmates disagree with the verifier; the first three tokens are the CoT."""
    mask_BR = torch.ones(ROWS, TOKENS, dtype=torch.int64)
    cot_BR = torch.zeros(ROWS, TOKENS, dtype=torch.int64)
    cot_BR[:, :3] = 1
    base_B, classmate_B = torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.tensor([1.0, 0.0, 0.0, 0.5])
    every_B = torch.ones(ROWS, dtype=torch.bool)
    inputs = AdvantageInputs(
        base_reward_B=base_B,
        classmate_reward_B=classmate_B,
        final_reward_B=base_B + weight * classmate_B,
        main_valid_B=every_B,
        classmate_valid_B=every_B,
        response_mask_BR=mask_BR,
        classmate_mask_BR=cot_BR,
        group_B=np.array(["g"] * ROWS, dtype=object),
    )
    config = AdvantageConfig(
        adv_estimator=estimator,
        classmate_reward_weight=weight,
        token_level_classmate_reward_mode=mode,
        gdpo_batch_norm="none",
    )
    return compute_advantage(inputs, config).advantages_BR


def gradient(
    model: Qwen3ForCausalLM, advantage_BR: torch.Tensor, tokens_BR: torch.Tensor | None = None
) -> torch.Tensor:
    """Flat gradient of upstream's PPO loss, over all tokens or those of `tokens_BR` only."""
    torch.manual_seed(1)
    ids = torch.randint(VOCABULARY, (ROWS, TOKENS + 1))
    model.zero_grad()
    log_probs = torch.log_softmax(model(ids).logits[:, :-1], dim=-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    mask_BR = torch.ones(ROWS, TOKENS) if tokens_BR is None else tokens_BR
    actor = ActorConfig(strategy="fsdp2", rollout_n=ROWS, ppo_micro_batch_size_per_gpu=ROWS)
    loss, _ = get_policy_loss_fn("vanilla")(
        old_log_prob=log_probs.detach(),
        log_prob=log_probs,
        advantages=advantage_BR,
        response_mask=mask_BR,
        loss_agg_mode="token-mean",
        config=actor,
    )
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.guards("classmate term without gradient")
@pytest.mark.parametrize("estimator", ["gdpo_classmate", "grpo"])
def test_the_classmates_weight_changes_the_actors_gradient(model: Qwen3ForCausalLM, estimator: str) -> None:
    without = gradient(model, advantages_BR(0.0, "classmate_partial", estimator))
    with_classmates = gradient(model, advantages_BR(1.0, "classmate_partial", estimator))
    cosine = torch.nn.functional.cosine_similarity(without, with_classmates, dim=0)
    assert with_classmates.norm() > 0
    assert cosine < 0.999


@pytest.mark.guards("CoT mask zeroing all other tokens")
def test_in_partial_mode_only_cot_tokens_carry_their_advantage(model: Qwen3ForCausalLM) -> None:
    without, with_classmates = advantages_BR(0.0, "classmate_partial"), advantages_BR(1.0, "classmate_partial")
    assert torch.equal(without[:, 3:], with_classmates[:, 3:])
    assert not torch.allclose(without[:, :3], with_classmates[:, :3])

    answer_BR = torch.zeros(ROWS, TOKENS)
    answer_BR[:, 3:] = 1
    on_answer = gradient(model, without, answer_BR), gradient(model, with_classmates, answer_BR)
    assert torch.equal(*on_answer)
    cot_BR = 1 - answer_BR
    assert not torch.allclose(gradient(model, without, cot_BR), gradient(model, with_classmates, cot_BR))


def test_in_all_mode_every_token_carries_it() -> None:
    without, with_classmates = advantages_BR(0.0, "all"), advantages_BR(1.0, "all")
    assert (without != with_classmates).all()
