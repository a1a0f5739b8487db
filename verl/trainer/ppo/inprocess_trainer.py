"""Debug mode: policy, classmates, reward and update in one process and one thread, where a breakpoint works anywhere.

One decision: what happens to a row or to a batch is the Ray run's own code (agent loop, judge, advantages, upstream's
training worker, dump); ours here is only the order, as a loop to read from top to bottom. With
`trainer.deterministic=true` both ways write the same numbers.

    python -m verl.trainer.classmate_cot_main_ppo ... debug=true

    >>> trainer = InProcessTrainer(config, trains_with_classmates=True)
    >>> trainer.init_workers()
    >>> trainer.fit()
"""

import asyncio
import bdb
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import hydra
import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from tensordict import NonTensorData, TensorDict

from verl.classmate.record import RowRecord
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
from verl.experimental.agent_loop.classmate_agent_loop import (
    GREEDY_SESSION,
    SINGLE_TURN,
    ClassmateAgentLoop,
    partners,
    read_by_classmates,
    registered_loops,
)
from verl.protocol import DataProto
from verl.tools.tool_registry import load_all_tools
from verl.trainer.ppo.advantage import row_fields
from verl.trainer.ppo.advantage.rows import Greedy
from verl.trainer.ppo.baseline_ray_trainer import BaselineRayPPOTrainer, narrow_masks
from verl.trainer.ppo.core_algos import agg_loss
from verl.trainer.ppo.metric_utils import (
    compute_data_metrics,
    compute_throughout_metrics,
    compute_timing_metrics,
    compute_variance_proxy_metrics,
)
from verl.trainer.ppo.one_update import take_agreement
from verl.utils import tensordict_utils as tu
from verl.utils.debug import marked_timer
from verl.utils.debug.metrics import calculate_debug_metrics
from verl.utils.import_utils import resolve_config_path
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict
from verl.utils.tracking import Tracking
from verl.workers.classmates.shared_draws import shared_draws
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
from verl.workers.row_pipeline import RowPipeline
from verl.workers.utils.padding import response_from_nested

_NESTED = frozenset(
    {
        *("prompts", "responses", "response_mask", "loss_mask", "input_ids", "position_ids", "rollout_log_probs"),
        *("rm_scores", "classmate_mask", "classmate_segments", "actor_mask"),
    }
)
"""Fields of a row with one number per token: nested (B, R), (B, P) or (B, P + R) in a batch."""

_WORKER_FIELDS = _NESTED | {"old_log_probs", "ref_log_prob", "advantages", "returns", "values", "rollout_is_weights"}
"""What training workers are given."""


class InProcessTrainer(BaselineRayPPOTrainer):
    """Baseline and classmate training without Ray, asyncio threads or a queue."""

    def __init__(self, config: DictConfig, *, trains_with_classmates: bool, **kwargs: Any) -> None:
        """As `BaselineRayPPOTrainer`, for either kind of training.

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
        self._guard_frozen_policy()
        load_weights(self.server, self.actor_rollout_wg, self.global_steps)
        client = InProcessClient(self.config, self.reward_config, self.classmate_servers, self.server)
        self._loop_parts = {
            "trainer_config": DictConfigWrap(config=self.config),
            "server_manager": self.server,
            "tokenizer": self.tokenizer,
            "processor": self.processor,
            "dataset_cls": type(self.train_dataset),
            "data_config": DictConfigWrap(self.config.data),
            "hf_model_type": self.actor_rollout_wg.actor.model_config.hf_config.model_type,
        }
        judge = RowPipeline.build(self.config, self.tokenizer, client)
        self.agent_loop = ClassmateAgentLoop(**self._loop_parts, judge=judge)
        self.agent_loop.loop = _OnTheSpot()
        self._other_loops: dict[str, Any] = {}

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
        if self.clock is not None:
            self.clock.lap("models and engines")
        config = self.config.trainer
        self._make_up_for_validation()
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
            self._trained, self.timing_raw = (batch, metrics), timing
            if config.save_freq > 0 and (is_last or step % config.save_freq == 0):
                with marked_timer("save_checkpoint", timing):
                    self._save_checkpoint()
            with marked_timer("update_weights", timing):
                load_weights(self.server, self.actor_rollout_wg, step)
        if config.test_freq > 0 and (is_last or step % config.test_freq == 0):
            with marked_timer("testing", timing):
                metrics |= self._validate()
        self._leave_step(self._records(batch, metrics, timing), metrics)
        return metrics

    def _records(self, batch: Any, metrics: dict, timing_raw: dict) -> list[RowRecord]:
        metrics |= self._upstream_metrics(batch, metrics, timing_raw)
        return self._described(batch.select(*self._dumped_fields), metrics)

    # Rows.

    def _account_for_rows(self, *, validation: bool = False) -> int:
        """None is lost here: what goes wrong is raised where it happens."""
        return 0

    def _answer(self, prompts: TensorDict, *, validate: bool) -> list[dict[str, Any]]:
        """The policy's answers to each prompt, judged: rows of fields, in the order of prompts and answers."""
        rollout = self.config.actor_rollout_ref.rollout
        sampling = rollout.val_kwargs if validate else rollout
        params = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
        greedy = rollout.n if self.advantage_config.adv_estimator == "remax" and not validate else None
        sessions = sampling.n + (greedy is not None)
        tu.assign_non_tensor_data(prompts, "global_steps", self.global_steps)
        partner_of = partners(prompts, self.reward_config, validate=validate)
        asked = []
        for i in range(len(prompts)):
            columns = {
                key: value.data if isinstance(value, NonTensorData) else value for key, value in prompts[i].items()
            }
            columns |= {"is_validate": validate, "excluded_classmates": (), "judged_later": False}
            columns |= {"judged_beside": False}
            columns |= {"partner": partner_of[i], GREEDY_SESSION: greedy}
            asked += [columns | {"session_id": session} for session in range(sessions)]

        async def answer_all() -> list[dict[str, Any]]:
            asyncio.get_running_loop().set_task_factory(_task_that_quits)  # type: ignore[arg-type]
            with shared_draws():
                return await asyncio.gather(*(self._answer_one(params, columns) for columns in asked))

        return asyncio.run(answer_all())

    async def _answer_one(self, params: dict[str, Any], columns: dict[str, Any]) -> dict[str, Any]:
        if columns["session_id"] == columns[GREEDY_SESSION]:
            params = {"temperature": 0, "top_p": 1.0, "top_k": -1}
        loop = self._agent_loop_of(columns)
        if loop is self.agent_loop:
            output = await loop.run(dict(params), **columns)
        else:
            seeded = self.agent_loop.seeded(params, columns)
            output = await read_by_classmates(self.agent_loop.judge, await loop.run(seeded, **columns), columns)
        row = output.as_dict() | columns
        input_ids = torch.cat([row["prompts"], row["responses"]])
        return row | {
            "loss_mask": row["response_mask"],
            "input_ids": input_ids,
            "position_ids": torch.arange(len(input_ids)),
        }

    def _agent_loop_of(self, columns: Mapping[str, Any]) -> Any:
        """The loop that a row names, or the run's own."""
        name = columns.get("agent_name") or self.config.actor_rollout_ref.rollout.agent.default_agent_loop
        if name in SINGLE_TURN:
            return self.agent_loop
        if name not in self._other_loops:
            rollout = self.config.actor_rollout_ref.rollout
            paths = {key: rollout.multi_turn[key] for key in ("tool_config_path", "function_tool_path")}
            tools = load_all_tools(**{key: path and resolve_config_path(path) for key, path in paths.items()})
            kind = registered_loops(rollout.agent.agent_loop_config_path)[name]
            self._other_loops[name] = hydra.utils.instantiate(kind, **self._loop_parts, tools=ToolListWrap(tools))
            self._other_loops[name].loop = _OnTheSpot()
        return self._other_loops[name]

    def _without_greedy(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows to train on; `remax` keeps the rewards of its greedy ones as baselines."""
        greedy = [row for row in rows if row["session_id"] == row[GREEDY_SESSION]]
        scored = {row["uid"]: Greedy.of_row(row, self.advantage_config) for row in greedy}
        self._greedy = {uid: one for uid, one in scored.items() if one is not None}
        return [row for row in rows if row["session_id"] != row[GREEDY_SESSION]]

    def _validate(self) -> dict[str, float]:
        """Validates, writes `val_preds/step_N.jsonl` and returns the metrics."""
        self._show_startup()
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
        data = batch.select(*(_WORKER_FIELDS & set(batch.keys())))
        temperature = self.config.actor_rollout_ref.rollout.temperature
        tu.assign_non_tensor(data, calculate_entropy=entropy, compute_loss=False, temperature=temperature)
        return method(data)

    def _log_probs(self, method: Any, batch: TensorDict) -> torch.Tensor:
        return response_from_nested(self._infer(method, batch)["log_probs"], batch["response_mask"])

    def _add_old_log_probs(self, batch: TensorDict, metrics: dict[str, Any]) -> None:
        """`old_log_probs` where the update's own do not stand for them, and the policy's entropy in the metrics."""
        if not self._needs_old_log_probs(len(batch)):
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
        fields = {"uid", "rm_scores", "rollout_log_probs", "old_log_probs", *row_fields(self.advantage_config)}
        padding_B = torch.zeros(len(batch), dtype=torch.bool)
        rows = batch.select(*(fields & set(batch.keys())))
        batch.update(self._advantages(rows, padding_B, metrics))

    def _counted(self, batch: TensorDict) -> TensorDict:
        """The batch with the masks of `token_level_main_reward_mode`; metrics count all tokens."""
        if self.reward_config.token_level_main_reward_mode == "all_tokens":
            return batch
        actor, rollout = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout
        narrowed = narrow_masks(
            batch["response_mask"].unbind(),
            batch["actor_mask"].unbind(),
            rows_of_update=actor.ppo_mini_batch_size * rollout.n,
        )
        return batch.copy().update({name: _nested(masks) for name, masks in narrowed.items()})

    def _train(self, role: str, batch: TensorDict) -> dict[str, Any]:
        """One PPO update of `actor` or `critic`; its metrics, under its name."""
        rollout = self.config.actor_rollout_ref.rollout
        if role == "actor":
            node, method = self.config.actor_rollout_ref.actor, self.actor_rollout_wg.update_actor
        else:
            node, method = self.config.critic, self.critic_wg.train_mini_batch
        data = batch.select(*(_WORKER_FIELDS & set(batch.keys())))
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
        )
        metrics = rename_dict(method(data)["metrics"], f"{role}/")
        metrics[f"perf/mfu/{role}"] = metrics.pop(f"{role}/mfu")
        reduced = reduce_metrics(metrics)
        take_agreement(reduced, prefix="actor/")
        return reduced

    def _upstream_metrics(self, batch: TensorDict, metrics: dict[str, Any], timing: dict[str, float]) -> dict[str, Any]:
        """Upstream's metrics of a step: rewards, lengths, times."""
        names = {"prompts", "responses", "response_mask", "advantages", "returns", "values"} & set(batch.keys())
        prompt_length, response_length = (batch[name].offsets().diff() for name in ("prompts", "responses"))
        data = batch.select(*names, "rm_scores").to_padded_tensor()
        data["token_level_scores"] = data["token_level_rewards"] = data.pop("rm_scores")
        data["prompt_length"], data["response_length"] = prompt_length.float(), response_length.float()
        turns = np.array(list(batch["num_turns"]), dtype=np.int32)
        proto = DataProto(
            batch=data,
            non_tensor_batch={"__num_turns__": turns},
            meta_info={"global_token_num": (prompt_length + response_length).tolist()},
        )
        step = self.global_steps
        return (
            {"training/global_step": step, "training/epoch": (step - 1) // self.steps_per_epoch}
            | compute_data_metrics(batch=proto, use_critic=self.use_critic)
            | compute_timing_metrics(batch=proto, timing_raw=timing)
            | compute_throughout_metrics(batch=proto, timing_raw=timing, n_gpus=1)
            | compute_variance_proxy_metrics(batch=proto, gradient_norm=metrics.get("actor/grad_norm"))  # type: ignore[arg-type]
        )


def _task_that_quits(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **kwargs: Any
) -> asyncio.Task:
    """A task in which `q` at a debugger's prompt ends the run at once, and not only the row where it was typed."""

    async def run() -> Any:
        try:
            return await coroutine
        except bdb.BdbQuit:
            # asyncio does not keep this one for the result of the task, but it would go on about the other tasks.
            logging.getLogger("asyncio").disabled = True
            raise KeyboardInterrupt from None

    task = asyncio.Task(run(), loop=loop, **kwargs)
    # Python complains about a coroutine that was not begun when its task was cancelled.
    task.add_done_callback(lambda _: coroutine.close())
    return task


class _OnTheSpot:
    """Stands for the event loop where upstream's agent loop would have a thread tokenize."""

    async def run_in_executor(self, executor: None, function: Callable[[], Any]) -> Any:
        return function()


def as_batch(rows: list[dict[str, Any]]) -> TensorDict:
    """Rows (B) of fields as upstream's workers take them: nested where a field has one number per token."""
    batch = tu.list_of_dict_to_tensordict(rows)
    for name in _NESTED & rows[0].keys():
        batch[name] = _nested([row[name] for row in rows])
    return batch


def _nested(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)
