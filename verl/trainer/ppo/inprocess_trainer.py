"""Debug mode: policy, classmates, reward and update in one process and one thread, where a breakpoint works anywhere.

One decision: what happens to a row or to a batch is the Ray run's own code (agent loop, row pipeline, advantages,
upstream's training worker, dump); ours here is only the order, as a loop to read from top to bottom. With
`trainer.deterministic=true` both ways write the same numbers.

    python -m verl.trainer.classmate_cot_main_ppo ... debug=true

    >>> trainer = InProcessTrainer(config, trains_with_classmates=True)
    >>> trainer.init_workers()
    >>> trainer.fit()
"""

import asyncio
from collections import defaultdict
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict

from verl.classmate.record import RowRecord
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.protocol import DataProto
from verl.trainer.ppo import start_up
from verl.trainer.ppo.batch_advantages import batch_advantages, needed_fields
from verl.trainer.ppo.classmate_cot_ray_trainer import ClassmateCoTRayPPOTrainer
from verl.trainer.ppo.core_algos import agg_loss
from verl.trainer.ppo.greedy import split_greedy
from verl.trainer.ppo.inprocess_batch import as_batch, for_worker, upstream_metrics
from verl.trainer.ppo.inprocess_rows import RowMaker
from verl.trainer.ppo.masks import narrowed_masks
from verl.trainer.ppo.one_update import ENTROPY_COEFF, take_agreement
from verl.trainer.ppo.process_guard import ProcessGuard
from verl.trainer.ppo.ref_mix import MovingReference, RankHere
from verl.trainer.ppo.scheduled import Scheduled
from verl.trainer.ppo.validation import make_up_for_validation
from verl.utils import tensordict_utils as tu
from verl.utils.debug import marked_timer
from verl.utils.debug.metrics import calculate_debug_metrics
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict
from verl.utils.tracking import Tracking
from verl.workers.engine.fsdp.policy_engine import ENTROPY_ASIDE
from verl.workers.inprocess import (
    InProcessClient,
    classmate_servers,
    critic_worker,
    join_alone,
    load_weights,
    rollout_server,
    training_worker,
)
from verl.workers.pipelines import pipeline_of
from verl.workers.utils.padding import response_from_nested


class InProcessTrainer(ClassmateCoTRayPPOTrainer):
    """Baseline and classmate training without Ray, asyncio threads or a queue."""

    def __init__(self, config: DictConfig, *, trains_with_classmates: bool, **kwargs: Any) -> None:
        """As `ClassmateCoTRayPPOTrainer`, for either kind of training.

        Raises:
            ConfigError: for impossible settings.
        """
        self.trains_with_classmates = trains_with_classmates
        super().__init__(config, **kwargs)

    def init_workers(self) -> None:
        """Loads data, models and, when the run resumes, its checkpoint."""
        join_alone(self.config.trainer.device)
        self._init_tokenizer()
        self._init_dataloader()
        self._load_models()
        self._load_checkpoint()
        self._reference = MovingReference(self, RankHere(self.actor_rollout_wg, self.ref_policy_wg))
        self._scheduled, self._process_guard = Scheduled(self), ProcessGuard(self)
        self._frozen_policy = start_up.frozen_policy(self.reward_config, self.folder, self.console)
        load_weights(self.server, self.actor_rollout_wg, self.global_steps)
        client = InProcessClient(self.config, self.reward_config, self.classmate_servers, self.server)
        asyncio.run(self._process_guard.refuse_junk(client))
        loop_parts = {
            "trainer_config": DictConfigWrap(config=self.config),
            "server_manager": self.server,
            "tokenizer": self.tokenizer,
            "processor": self.processor,
            "dataset_cls": type(self.train_dataset),
            "data_config": DictConfigWrap(self.config.data),
            "hf_model_type": self.actor_rollout_wg.actor.model_config.hf_config.model_type,
        }
        pipeline = pipeline_of(self.config, self.tokenizer, client)
        self._row_maker = RowMaker(
            self.config, self.reward_config, loop_parts, pipeline, steps_per_epoch=self.steps_per_epoch
        )

    def _load_models(self) -> None:
        """The policy as it is trained and as it answers, its frozen copy, the critic, and the classmates."""
        # Upstream's names: what saves and loads checkpoints calls the same methods on them.
        self.actor_rollout_wg = training_worker(self.config, "actor")
        self.ref_policy_wg = training_worker(self.config, "ref") if self.use_reference_policy else None
        self.critic_wg = critic_worker(self.config) if self.use_critic else None
        self.server = rollout_server(self.config)
        self.classmate_servers = classmate_servers(self.config, self.reward_config)

    def fit(self, agent_loop_manager: Any = None) -> None:
        """Trains to the end."""
        assert agent_loop_manager is None, "there is no manager of agent loops in debug mode"
        self._startup.models_are_there()
        config = self.config.trainer
        make_up_for_validation(self.config, self.folder, total_steps=self.total_training_steps)
        self.logger = Tracking(
            project_name=config.project_name,
            experiment_name=config.experiment_name,
            default_backend=config.logger,
            config=OmegaConf.to_container(self.config, resolve=True),
        )
        if config.val_before_train:
            self.logger.log(data=self._validate(), step=self.global_steps)
        if not config.val_only:
            self.global_steps += 1
            self.on_train_begin()
            while self.global_steps <= self.total_training_steps:
                self.logger.log(data=self._train_one_step(), step=self.global_steps)
                self.global_steps += 1
        self.folder.finish()

    def _train_one_step(self) -> dict[str, Any]:
        """One step of training, from prompts to the written dump; returns its metrics."""
        config, step = self.config.trainer, self.global_steps
        is_last = step == self.total_training_steps
        metrics: dict[str, Any] = {}
        timing: dict[str, float] = {}
        self.on_step_begin()
        with marked_timer("step", timing):
            prompts = self._fetch_one_gen_batch()
            with marked_timer("gen", timing):
                rows = self._answer(prompts, validate=False)
            batch = as_batch(self._without_greedy(rows))
            with marked_timer("old_log_prob", timing):
                self._add_old_log_probs(batch, metrics)
            if self.ref_policy_wg is not None:
                with marked_timer("ref", timing):
                    batch["ref_log_prob"] = self._log_probs(self.ref_policy_wg.compute_ref_log_prob, batch)
            if self.critic_wg is not None:
                with marked_timer("values", timing):
                    values = self._infer(self.critic_wg.infer_batch, batch)["values"]
                    batch["values"] = response_from_nested(values, batch["response_mask"])
            with marked_timer("adv", timing):
                self._add_advantages(batch, metrics)
            if self.critic_wg is not None:
                with marked_timer("update_critic", timing):
                    metrics |= self._train("critic", batch)
            if config.critic_warmup <= step:
                with marked_timer("update_actor", timing):
                    metrics |= self._train("actor", self._counted(batch))
                    self._reference.follow()
            self._scheduled.after(step, metrics)
            self._process_guard.after(metrics)
            self._trained, self.timing_raw = (batch, metrics), timing
            if config.save_freq > 0 and (is_last or step % config.save_freq == 0):
                with marked_timer("save_checkpoint", timing):
                    self._save_checkpoint()
            with marked_timer("update_weights", timing):
                load_weights(self.server, self.actor_rollout_wg, step)
        if config.test_freq > 0 and (is_last or step % config.test_freq == 0):
            with marked_timer("testing", timing):
                metrics |= self._validate()
        records = self._records(batch, metrics, timing)
        self._recorder.leave(records, metrics, self.classmates, step, self.total_training_steps)
        return metrics

    def _records(self, batch: Any, metrics: dict, timing_raw: dict) -> list[RowRecord]:
        step = self.global_steps
        metrics |= {"training/global_step": step, "training/epoch": (step - 1) // self.steps_per_epoch}
        metrics |= upstream_metrics(batch, metrics, timing_raw, use_critic=self.use_critic)
        return self._recorder.records(batch.select(*self._recorder.fields), metrics, self.classmates)

    # Rows.

    def _answer(self, prompts: TensorDict, *, validate: bool) -> list[dict[str, Any]]:
        greedy = self.advantage_config.adv_estimator == "remax" and not validate
        return self._row_maker.make(prompts, step=self.global_steps, validate=validate, greedy=greedy)

    def _without_greedy(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows to train on; `remax` keeps the rewards of its greedy ones as baselines."""
        sampled, self._greedy = split_greedy(rows, self.advantage_config)
        return [rows[i] for i in sampled]

    def _validate(self) -> dict[str, float]:
        """Validates, writes `val_preds/step_N.jsonl` and returns the metrics."""
        self._startup.show()
        data_sources: list[str] = []
        columns: dict[str, list[Any]] = defaultdict(list)
        for prompts in self.val_dataloader:
            for row in self._answer(tu.get_tensordict(prompts), validate=True):
                data_sources.append(row["data_source"])
                for name, value in row["extra_fields"]["reward_extra_info"].items():
                    columns[name].append(value)
        return self._val_metrics_update(data_sources, [], columns, [])

    # Models.

    def _infer(self, method: Any, batch: TensorDict, *, entropy: bool = False) -> TensorDict:
        data = for_worker(batch)
        temperature = self.config.actor_rollout_ref.rollout.temperature
        tu.assign_non_tensor(data, calculate_entropy=entropy, compute_loss=False, temperature=temperature)
        return method(data)

    def _log_probs(self, method: Any, batch: TensorDict) -> torch.Tensor:
        return response_from_nested(self._infer(method, batch)["log_probs"], batch["response_mask"])

    def _add_old_log_probs(self, batch: TensorDict, metrics: dict[str, Any]) -> None:
        """`old_log_probs` where the update's own do not stand for them, and the policy's entropy in the metrics."""
        if not self._passes.needs_old_log_probs(len(batch), step=self.global_steps):
            return
        correction = self.config.algorithm.rollout_correction
        if correction is not None and correction.get("bypass_mode", False):
            batch["old_log_probs"] = batch["rollout_log_probs"]
            return
        output = self._infer(self.actor_rollout_wg.compute_log_prob, batch, entropy=True)
        mask = batch["response_mask"]
        batch["old_log_probs"] = response_from_nested(output["log_probs"], mask)
        entropy = response_from_nested(output["entropy"], mask)
        actor = self.config.actor_rollout_ref.actor
        metrics["actor/entropy"] = float(
            agg_loss(
                loss_mat=entropy.to_padded_tensor(0.0),
                loss_mask=mask.to_padded_tensor(0),
                loss_agg_mode=actor.loss_agg_mode,
                loss_scale_factor=actor.loss_scale_factor,
            )
        )
        if self.config.actor_rollout_ref.rollout.calculate_log_probs:
            names = ("old_log_probs", "rollout_log_probs", "response_mask", "responses")
            metrics |= calculate_debug_metrics(DataProto(batch=batch.select(*names).to_padded_tensor()))

    def _add_advantages(self, batch: TensorDict, metrics: dict[str, Any]) -> None:
        rows = batch.select(*(set(needed_fields(self.advantage_config, self.config)) & set(batch.keys())))
        padding_B = torch.zeros(len(batch), dtype=torch.bool)
        config, advantage = self.config, self.advantage_config
        kl, guard = self._scheduled.kl, self._process_guard
        batch.update(batch_advantages(rows, padding_B, config, advantage, self._greedy, metrics, kl, guard))

    def _counted(self, batch: TensorDict) -> TensorDict:
        """The batch with the masks of `token_level_main_reward_mode`; metrics count all tokens."""
        if self.reward_config.token_level_main_reward_mode == "all_tokens":
            return batch
        return batch.copy().update(narrowed_masks(batch, self.config))

    def _train(self, role: str, batch: TensorDict) -> dict[str, Any]:
        """One PPO update of `actor` or `critic`; its metrics, under its name."""
        rollout = self.config.actor_rollout_ref.rollout
        if role == "actor":
            node, method = self.config.actor_rollout_ref.actor, self.actor_rollout_wg.update_actor
        else:
            node, method = self.config.critic, self.critic_wg.train_mini_batch
        data = for_worker(batch)
        rows = node.ppo_mini_batch_size * rollout.n
        tu.assign_non_tensor(
            data,
            calculate_entropy=role == "actor" and (node.calculate_entropy or node.entropy_coeff != 0),
            distillation_use_topk=False,
            distillation_only=False,
            global_batch_size=rows,
            mini_batch_size=rows,
            epochs=node.ppo_epochs,
            seed=node.data_loader_seed,
            dataloader_kwargs={"shuffle": node.shuffle},
            temperature=rollout.temperature,
            **{ENTROPY_ASIDE: role == "actor" and "old_log_probs" not in batch},
            **({ENTROPY_COEFF: self._scheduled.entropy_coeff(self.global_steps)} if role == "actor" else {}),
        )
        metrics = rename_dict(method(data)["metrics"], f"{role}/")
        metrics[f"perf/mfu/{role}"] = metrics.pop(f"{role}/mfu")
        reduced = reduce_metrics(metrics)
        take_agreement(reduced, prefix="actor/")
        return reduced
