"""Our estimators behind upstream's registry, for code that only knows `core_algos.get_adv_estimator_fn(name)`.

One decision: upstream's trainer passes the first four arguments only; then the given reward is the one component.

    >>> advantages, returns = get_adv_estimator_fn("gdpo_classmate")(rewards, mask, index, config, classmate_reward=w)
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from verl.classmate.algorithm_config import AdvantageConfig, algorithm_from_mapping
from verl.classmate.estimators import OUR_ESTIMATORS
from verl.trainer.ppo.advantage.base import AdvantageInputs
from verl.trainer.ppo.advantage.compute import compute_advantage
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est

_OF_ALGORITHM = ("norm_adv_by_std_in_grpo", "gdpo_batch_norm", "gdpo_group_norm", "singleton_group")


def _behind_upstream(name: str) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    def from_tokens(
        token_level_rewards: torch.Tensor,
        response_mask: torch.Tensor,
        index: np.ndarray,
        config: Mapping[str, Any] | None = None,
        *,
        classmate_reward: torch.Tensor | None = None,
        final_reward: torch.Tensor | None = None,
        classmate_mask: torch.Tensor | None = None,
        classmate_valid: torch.Tensor | None = None,
        main_valid: torch.Tensor | None = None,
        main_correct: torch.Tensor | None = None,
        reward_options: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Advantages and returns (B, R).

        Args:
            token_level_rewards: (B, R), summed per row to r.
            response_mask: (B, R).
            index: (B,) uid of each row.
            config: the node `algorithm`.
            classmate_reward: (B,) W; None: no classmate component.
            final_reward: (B,) F; None: r + w W.
            classmate_mask: (B, R) k; None: the whole response.
            classmate_valid, main_valid, main_correct: (B,) bool; None: all, all, none.
            reward_options: fields of `AdvantageConfig` from the node `reward_model`, such as classmate_reward_weight.
        """
        algorithm = algorithm_from_mapping(dict(config or {}) | {"adv_estimator": name})
        options = AdvantageConfig(
            adv_estimator=algorithm.adv_estimator,
            **{key: getattr(algorithm, key) for key in _OF_ALGORITHM},
            **dict(reward_options or {}),
        )
        reward_B = token_level_rewards.sum(dim=-1)
        all_B = torch.ones_like(reward_B, dtype=torch.bool)
        classmate_B = torch.zeros_like(reward_B) if classmate_reward is None else classmate_reward
        if final_reward is None:
            final_reward = reward_B + options.classmate_reward_weight * classmate_B
        asked_B = ~all_B if classmate_reward is None else all_B
        inputs = AdvantageInputs(
            base_reward_B=reward_B,
            classmate_reward_B=classmate_B,
            final_reward_B=final_reward,
            main_valid_B=all_B if main_valid is None else main_valid,
            classmate_valid_B=asked_B if classmate_valid is None else asked_B & classmate_valid,
            response_mask_BR=response_mask,
            classmate_mask_BR=response_mask if classmate_mask is None else classmate_mask,
            group_B=index,
            classmate_asked_B=asked_B,
            main_correct_B=main_correct,
        )
        result = compute_advantage(inputs, options)
        return result.advantages_BR, result.returns_BR

    return from_tokens


for _name in OUR_ESTIMATORS:
    # `grpo` is a name of upstream's, which means its own function there.
    if _name not in ADV_ESTIMATOR_REGISTRY:
        register_adv_est(_name)(_behind_upstream(_name))
