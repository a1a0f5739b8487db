"""The classmate trainer: what frozen models make of a row's chain of thought is part of the row's reward.

Everything that a row goes through happens in the agent loop (`verl.experimental.agent_loop.classmate_agent_loop`);
what the trainer adds to the baseline is that training rows go through it too, and the programmatic form.

    >>> trainer = ClassmateCoTRayPPOTrainer(config, classmate_cot_reward_configs={"classmate_reward_weight": 0.3})
    >>> trainer.init_workers()
    >>> trainer.fit()
"""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from verl.classmate.aliases import rename_old_keys
from verl.single_controller.ray import ResourcePoolManager
from verl.trainer.ppo.baseline_ray_trainer import BaselineRayPPOTrainer
from verl.trainer.ppo.v1.trainer_base import register_trainer


@register_trainer("classmate_cot")
class ClassmateCoTRayPPOTrainer(BaselineRayPPOTrainer):
    """Trains on the verifier's reward and the classmates'."""

    trains_with_classmates = True

    def __init__(
        self,
        config: DictConfig,
        *,
        tokenizer: Any = None,
        role_worker_mapping: dict | None = None,
        resource_pool_manager: ResourcePoolManager | None = None,
        classmate_cot_reward_configs: Mapping[str, Any] | None = None,
        classmate_generation_configs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """As the baseline, plus what the original documents name; every keyword is optional.

        Args:
            config: config composed from `classmate_cot_ppo_trainer.yaml` or the Qwen preset.
            tokenizer: the policy's tokenizer; loaded from the model when not given.
            role_worker_mapping: replaces the mapping that the trainer would build.
            resource_pool_manager: replaces the pools that the trainer would build.
            classmate_cot_reward_configs: merged into `reward_model.classmate_cot_reward_configs`.
            classmate_generation_configs: merged into `reward_model.classmate_generation_configs`.

        Raises:
            ConfigError: for unknown keys or impossible settings.
        """
        with open_dict(config):
            for node, given in (
                ("classmate_cot_reward_configs", classmate_cot_reward_configs),
                ("classmate_generation_configs", classmate_generation_configs),
            ):
                if given:
                    config.reward_model[node] = OmegaConf.merge(
                        config.reward_model[node], OmegaConf.create(rename_old_keys(given, node))
                    )
        self._given_tokenizer = tokenizer
        super().__init__(
            config, role_worker_mapping=role_worker_mapping, resource_pool_manager=resource_pool_manager, **kwargs
        )

    def _init_tokenizer(self) -> None:
        super()._init_tokenizer()
        if self._given_tokenizer is not None:
            self.tokenizer = self._with_run_template(self._given_tokenizer)
