"""The trainer under every run: verl's synchronous PPO trainer plus our rows, metrics, dumps and terminal lines.

Decision: upstream's `fit` and `step` stay as they are. What differs hangs on methods that upstream calls anyway: rows
get stable ids where they are fetched, advantages see the reward's parts where they are computed, and a step is written
down before it is saved, while the engines sleep, so that a checkpoint never runs ahead of `metrics.jsonl`.

    >>> trainer = BaselineRayPPOTrainer(config)
    >>> trainer.init_workers()
    >>> trainer.fit()
"""

import asyncio
import contextlib
import dataclasses
import functools
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf, open_dict
from tensordict import NonTensorStack, TensorDict
from transfer_queue import KVBatchMeta

from verl.classmate import templates
from verl.classmate.algorithm_config import AdvantageConfig, check_training
from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.classmate.errors import ConfigError
from verl.classmate.frozen import classmate_name, frozen_models, judge_name
from verl.classmate.judgement import judge_metrics, judge_records
from verl.classmate.seeds import row_key
from verl.experimental.agent_loop.classmate_agent_loop import (
    ASKED_EARLY,
    GREEDY_SESSION,
    answer_of,
    reward_fields,
    row_judge,
)
from verl.experimental.reward_loop import RewardLoopManager
from verl.protocol import DataProto
from verl.single_controller.ray import ResourcePoolManager
from verl.trainer.frozen_weights import FrozenWeights
from verl.trainer.ppo.advantage import compute_advantage, inputs_from_rows, row_fields
from verl.trainer.ppo.advantage.rows import GREEDY_FIELDS, Greedy, recorded_advantages
from verl.trainer.ppo.one_update import has_dropout, needs_old_log_probs, take_agreement
from verl.trainer.ppo.queue_rows import accounted
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.trainer.ppo.row_metrics import main_model_lengths, row_metrics
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.trainer.preflight.data import count_rows
from verl.trainer.resources.model_sizes import model_config, with_defaults
from verl.trainer.run import checkpoints
from verl.trainer.run.console import Console
from verl.trainer.run.folder import RunFolder
from verl.trainer.run.session import settle, start_ray
from verl.trainer.run.untyped import fill_in
from verl.trainer.silent_classmates import SilenceWatch
from verl.utils.checkpoint.lora import merge_saved
from verl.utils.debug import marked_timer
from verl.utils.import_utils import load_class_from_fqn
from verl.utils.skip import SkipManager
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.utils.transferqueue_utils import kv_batch_meta2batch_meta
from verl.workers.classmate_workers import ClassmateGroup
from verl.workers.classmates.placement import (
    max_colocate_count,
    read_beside_log_probs,
    resolved_schedule,
    taking_turns,
)
from verl.workers.classmates.remote import with_hosted
from verl.workers.classmates.shared_draws import shared_draws
from verl.workers.engine.fsdp.policy_engine import ENTROPY_ASIDE
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.one_server import OneServerClient
from verl.workers.row_judge import Answer, Asked, JudgedRow, ReadRow, RowJudge, asked_from_json
from verl.workers.utils.padding import response_to_nested


class _RewardsComeLater(RewardLoopManager):
    """Tells upstream that no reward is computed while the policy is awake (it asks for these handles)."""

    reward_loop_worker_handles = None  # type: ignore[assignment]


@register_trainer("baseline")
class BaselineRayPPOTrainer(PPOTrainerSync):
    """Trains on the verifier's reward; classmates, when configured, read the validation rows only."""

    trains_with_classmates = False

    replay_buffer: Any
    """Upstream's, with `AccountedRows` in front."""
    agent_loop_manager: Any
    """`ClassmateAgentLoopManager`, or what the caller has given."""

    def __init__(
        self,
        config: DictConfig,
        *,
        folder: RunFolder | None = None,
        console: Console | None = None,
        clock: Any = None,
        classmates: ClassmateGroup | None = None,
        role_worker_mapping: dict | None = None,
        resource_pool_manager: ResourcePoolManager | None = None,
    ) -> None:
        """Reads the typed config; nothing is started before `init_workers`.

        Args:
            config: resolved config composed from one of our primary YAML files.
            folder: the run folder; opened from the config when not given.
            console: where lines for a person go; standard output when not given.
            clock: `launch.StartupClock` of the process, whose parts are shown before the first generation.
            classmates: group whose unplaced engines the caller has started; made here when not given.
            role_worker_mapping: replaces the mapping of roles to Ray actor classes that the trainer would build.
            resource_pool_manager: replaces the resource pools that the trainer would build.

        Raises:
            ConfigError: for impossible settings.
        """
        filled = fill_in(config)
        filled.refuse()
        container: Any = OmegaConf.to_container(config, resolve=True)
        self.reward_config: ClassmateRewardModelConfig = with_hosted(
            from_mapping(container["reward_model"], require_classmates=self.trains_with_classmates)
        )
        self.advantage_config = check_training(container, self.reward_config)
        self.folder = folder or RunFolder.open(container)
        trainer_name = "classmate_cot" if self.trains_with_classmates else "baseline"
        settle(config, self.reward_config, self.folder, trainer_name)
        self.console = console or Console(sys.stdout, config.trainer.console)
        if folder is None:
            # Otherwise whoever opened the folder has told it.
            for line in filled.lines:
                self.console.line(line)
        self.clock = clock
        self.classmates = classmates
        self._frozen_policy: FrozenWeights | None = None
        self._given_role_worker_mapping = role_worker_mapping
        self._given_resource_pool_manager = resource_pool_manager
        self._fetched_prompts = 0
        self._next_under_way = False
        self._greedy: dict[str, Greedy] = {}
        # The batch of the last step and its metrics so far; None before the first.
        self._trained: tuple[Any, dict[str, Any]] | None = None
        self._step_began = time.time()
        self._rows_lost = 0
        self._silence = SilenceWatch(
            [spec.model for spec in self.reward_config.classmates], steps=self.reward_config.classmate_silence_steps
        )
        super().__init__(config)

    # Start.

    def init_workers(self) -> None:
        """Starts Ray and the queue where the caller has not, then models, engines and classmates.

        Raises:
            ConfigError: with debug=true, which is for another trainer.
        """
        if self.config.debug:
            raise ConfigError("debug=true is for verl.trainer.ppo.inprocess_trainer.InProcessTrainer; write false")
        if not ray.is_initialized():
            self._ray_session = start_ray(self.config, self.reward_config)
        # The queue's actors start while the data is read; `_init_resource_pool_mgr` waits for them.
        with ThreadPoolExecutor(1, thread_name_prefix="queue") as pool:
            self._queue = pool.submit(tq.init, self.config.transfer_queue)
            self.init()

    def fit(self, agent_loop_manager: Any = None) -> None:
        """Trains to the end; builds the agent-loop manager when none is given."""
        if self.clock is not None:
            self.clock.lap("models and engines")
        manager = agent_loop_manager or self._build_agent_loop_manager()
        self._make_up_for_validation()
        super().fit(manager)
        if self.classmates is not None:
            self.classmates.shutdown()
        self.folder.finish()

    def _make_up_for_validation(self) -> None:
        """Validates before the first step where the run that is resumed ended between a save and its validation."""
        step, every = self.folder.resumed_from or 0, self.config.trainer.test_freq
        due = step > 0 and every > 0 and (step % every == 0 or step >= self.total_training_steps)
        if due and not any(key.startswith("val-core/") for key in self.folder.metrics_of(step)):
            self.config.trainer.val_before_train = True

    def _build_agent_loop_manager(self) -> Any:
        manager_cls: Any = load_class_from_fqn(
            self.config.actor_rollout_ref.rollout.agent.agent_loop_manager_class, "AgentLoopManager"
        )
        manager = manager_cls.create(
            config=self.config,
            llm_client=self.get_llm_client(),
            teacher_client=self.get_teacher_client(),
            # Upstream's reward workers would score rows that come without a reward.
            reward_loop_worker_handles=None if self.judges_beside else self.get_reward_handles(),
        )
        ray.get([worker.__ray_ready__.remote() for worker in manager.agent_loop_workers])
        self.replay_buffer.wait_for_rows = manager.wait_for_rows
        if self.classmates is not None:
            classmates = self.classmates
            manager.excluded_classmates = lambda: classmates.excluded
            manager.judged_later = self.judges_batches
            manager.judged_beside = self.judges_beside
        return manager

    def get_llm_client(self) -> LLMServerClient:
        """Upstream's client of the policy's engines."""
        alone = len(self.llm_server_manager.get_replicas()) == 1
        return self.llm_server_manager.get_client(OneServerClient if alone else None)

    def _setup(self) -> None:
        self._init_classmate_workers()
        super()._setup()
        # The reference model may be the actor's own group.
        groups = [getattr(self, name, None) for name in ("actor_rollout_wg", "ref_policy_wg", "critic_wg")]
        for group in {id(group): group for group in groups if group is not None}.values():
            fetch_for_models(group, self._read_by_no_model)
        if self.judges_batches:
            self.reward_loop_manager.__class__ = _RewardsComeLater

    @property
    def _read_by_no_model(self) -> set[str]:
        """Tensors of a row that the trainer makes advantages of; ranks train on those."""
        return {"rm_scores", *row_fields(self.advantage_config)} - {"response_mask", "values"}

    def _init_classmate_workers(self) -> None:
        """Starts the classmates and judges that need no GPU pool, which load while the policy's own models do."""
        if frozen_models(self.reward_config) and self.classmates is None:
            self.classmates = ClassmateGroup(self.config, self.reward_config, on_event=self.console.line)
            self.classmates.start_unplaced()

    def on_init_end(self) -> None:
        # The policy's engines sleep until their weights are updated: the classmates' start meanwhile.
        if self.classmates is not None:
            self.classmates.start_placed(self.resource_pool_manager)
            self.classmates.wait_until_ready()
        self._guard_frozen_policy()
        super().on_init_end()

    def _guard_frozen_policy(self) -> None:
        """In frozen self-play: the hash of the classmate's weights, which every save compares."""
        for one in frozen_models(self.reward_config):
            if one.weights == "policy_start":
                self._frozen_policy = FrozenWeights(one.model, record=self.folder.path / "self_play_weights.json")
                if not self._frozen_policy.known:
                    self.console.line(f"self-play    the files of {one.model} are not here: their hash is not checked")

    def _build_replay_buffer(self) -> ReplayBuffer:
        # Upstream compares this string for everything that distinguishes the synchronous trainer.
        self.trainer_mode = "sync"
        return accounted(super()._build_replay_buffer())

    def _init_resource_pool_mgr(self) -> None:
        self._queue.result()
        super()._init_resource_pool_mgr()
        if self._given_role_worker_mapping is not None:
            self.role_worker_mapping = self._given_role_worker_mapping
        if self._given_resource_pool_manager is not None:
            self.resource_pool_manager = self._given_resource_pool_manager
        elif frozen_models(self.reward_config):
            self.resource_pool_manager = ResourcePoolManager(
                resource_pool_spec=self.resource_pool_manager.resource_pool_spec,
                mapping=self.resource_pool_manager.mapping,
                max_colocate_count=max_colocate_count(self.config, self.reward_config),
            )

    def _init_tokenizer(self) -> None:
        super()._init_tokenizer()
        self.tokenizer = self._with_run_template(self.tokenizer)

    def _with_run_template(self, tokenizer: Any) -> Any:
        """The tokenizer with which prompts are made and counted; checkpoints keep the model's own."""
        settings = self.config.reward_model
        return templates.for_run(tokenizer, date=settings.chat_date, system_as_user=settings.system_as_user)

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        for key, dataset in (("train_files", self.train_dataset), ("val_files", self.val_dataset)):
            total = count_rows(self.config.data, key)
            if total is not None and len(dataset) < total:
                self.console.line(
                    f"data.{key}: {total - len(dataset)} of {total} prompts left out, longer than "
                    f"data.max_prompt_length={self.config.data.max_prompt_length}"
                )
        if self.steps_per_epoch == 0:
            raise ConfigError(
                f"data.train_files has {len(self.train_dataset)} usable rows, fewer than "
                f"data.train_batch_size={self.config.data.train_batch_size}; write a smaller batch, or raise "
                "data.max_prompt_length if rows were left out as overlong"
            )
        # total_training_steps is the promise; upstream would also stop after total_epochs.
        needed = -(-self.total_training_steps // self.steps_per_epoch) + 1
        if self.config.trainer.total_training_steps is not None and self.config.trainer.total_epochs < needed:
            with open_dict(self.config):
                self.config.trainer.total_epochs = needed

    # Rows.

    def _fetch_one_gen_batch(self) -> TensorDict:
        """Upstream's batch with ids that are the same in every run: position, step, row."""
        batch = super()._fetch_one_gen_batch()
        uids = []
        for data_source, extra_info in zip(batch["data_source"], batch["extra_info"], strict=True):
            key = row_key(str(data_source), extra_info["index"])
            uids.append(f"{self._fetched_prompts}-{self.global_steps}-{key}")
            self._fetched_prompts += 1
        batch["uid"] = NonTensorStack(*uids)
        return batch

    def on_validate_begin(self) -> None:
        super().on_validate_begin()
        self._show_startup()

    def on_step_begin(self) -> None:
        super().on_step_begin()
        self._step_began = time.time()
        self._rows_lost = 0
        self._show_startup()

    def _show_startup(self) -> None:
        """Shows, once, how long it took from the command to the first generation."""
        if self.clock is not None:
            self.clock.lap("agent loop")
            self.console.line(self.clock.line())
            self.clock = None

    def on_sample_end(self) -> None:
        self._rows_lost += self._account_for_rows()
        super().on_sample_end()
        if self.classmates is not None:
            self.classmates.sleep()

    def _account_for_rows(self, *, validation: bool = False) -> int:
        """How many of the rows just fetched could not be made; says so, and keeps their reasons in the logs.

        Raises:
            RuntimeError: they are too many.
        """
        lost, fetched = self.replay_buffer.take_lost()
        if not lost:
            return 0
        told = {"step": self.global_steps, "validation": validation}
        path = self.folder.path / "logs" / "lost_rows.jsonl"
        with path.open("a") as f:
            f.writelines(json.dumps(told | dataclasses.asdict(row)) + "\n" for row in lost)
        message = f"{len(lost)} of {fetched} rows could not be made (last: {lost[-1].error[:200]}; all: {path})"
        if fetched - len(lost) < self.reward_config.min_made_fraction * fetched:
            raise RuntimeError(message)
        self.console.line(f"warning: {message}; they are left out")
        return len(lost)

    def on_step_end(self) -> None:
        if self.classmates is not None:
            self.classmates.heal()
        super().on_step_end()
        if self.classmates is not None:
            self.classmates.wake_up()
        if self._goes_straight_on:
            self._hand_out_next_prompts()

    @property
    def _goes_straight_on(self) -> bool:
        """Whether nothing but writing this step down comes before the next one."""
        trainer = self.config.trainer
        validates = trainer.test_freq > 0 and self.global_steps % trainer.test_freq == 0
        is_last = self.global_steps >= self.total_training_steps
        # A profile of some steps begins with a step, and would miss what is under way by then.
        return not (validates or is_last or self.config.global_profiler.steps)

    def _hand_out_next_prompts(self) -> None:
        """The policy has its new weights: answers of the next step are written while this one is written down."""
        self.global_steps += 1
        SkipManager.set_step(self.global_steps)
        try:
            super().prepare_step()
        finally:
            self.global_steps -= 1
            SkipManager.set_step(self.global_steps)
        self._next_under_way = True

    def prepare_step(self) -> dict:
        """Hands out the step's prompts, unless the step before has done so."""
        under_way, self._next_under_way = self._next_under_way, False
        return {} if under_way else super().prepare_step()

    # Schedule `batched`.

    @property
    def judges_batches(self) -> bool:
        """Whether rows are judged here, all at once while the policy sleeps, and not where they are made."""
        return bool(taking_turns(self.reward_config, resolved_schedule(self.config, self.reward_config)))

    @functools.cached_property
    def judges_beside(self) -> bool:
        """Whether training rows are judged while log-probs of the policy or the reference are computed, if any are."""
        rows = self.config.data.train_batch_size * self.config.actor_rollout_ref.rollout.n
        passes = needs_old_log_probs(self.config, self.reward_config, rows=rows, dropout=self._has_dropout)
        computed = self.use_reference_policy or passes
        return self.trains_with_classmates and computed and read_beside_log_probs(self.config, self.reward_config)

    def _compute_reward_colocate(self, batch: KVBatchMeta, metrics: dict | None = None) -> KVBatchMeta:
        """Upstream's place for helpers that share the policy's GPU: it has just put the policy to sleep."""
        tokens = ("prompts", "responses", "response_mask")
        fields = [
            *("raw_prompt", "data_source", "reward_model", "extra_info", "extra_fields", "uid"),
            *("global_steps", "session_id", "is_validate", "excluded_classmates", "partner"),
        ]
        rows = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=[*tokens, *fields])
        prompts, responses, masks = (rows.pop(name).unbind() for name in tokens)
        columns = {name: _as_list(rows[name]) for name in fields}
        answers = [
            answer_of(
                prompts[i].tolist(),
                responses[i].tolist(),
                masks[i].tolist(),
                {name: column[i] for name, column in columns.items()},
            )
            for i in range(len(batch))
        ]
        early = [
            {int(m): asked_from_json(text) for m, text in given.pop(ASKED_EARLY).items()}
            for given in columns["extra_fields"]
        ]
        judged = asyncio.run(self._judge_batch(answers, early, frozenset(columns["excluded_classmates"][0])))
        given = zip(judged, columns["extra_fields"], responses, strict=True)
        self._put_rows(batch, [reward_fields(row, extra, len(response)) for row, extra, response in given])
        return batch

    def _put_rows(self, batch: KVBatchMeta, rows: Sequence[dict[str, Any]]) -> None:
        """Adds fields to the rows of a batch, given row by row."""
        fields = list_of_dict_to_tensordict(list(rows))
        tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)

    async def _judge_batch(
        self, answers: Sequence[Answer], early: Sequence[Mapping[int, Asked]], excluded: frozenset[int]
    ) -> list[JudgedRow]:
        judge = row_judge(self.config, self.tokenizer)
        rows = [judge.read(answer) for answer in answers]
        mains, needed = zip(*await asyncio.gather(*(judge.weigh(row) for row in rows)), strict=True)
        asked = await self._generate_classmate_continuations(judge, rows, early, excluded, needed=needed)
        assert self.classmates is not None, "rows are judged here only where engines take turns"
        async with contextlib.AsyncExitStack() as stack:
            judge_of_rows = self.reward_config.judge(validate=answers[0].validate)
            if judge_of_rows is not None and judge_of_rows.in_run:
                await stack.enter_async_context(self.classmates.awake(judge_name(judge_of_rows)))
            scored = (judge.score(row, one, main=main) for row, one, main in zip(rows, asked, mains, strict=True))
            return list(await asyncio.gather(*scored))

    async def _generate_classmate_continuations(
        self,
        judge: RowJudge,
        rows: Sequence[ReadRow],
        early: Sequence[Mapping[int, Asked]],
        excluded: frozenset[int],
        *,
        needed: Sequence[bool] | None = None,
    ) -> list[list[Asked]]:
        """Shows all rows to one classmate after the other, each awake only while it is asked; per row, M entries.

        Args:
            judge: of this process.
            rows: of the step.
            early: by row, what the classmates that need not wait have said already.
            excluded: classmates that are out of the run.
            needed: by row, whether an answer can count; None: in all.
        """
        needed = [True] * len(rows) if needed is None else needed
        assert self.classmates is not None, "rows are judged here only where there are classmates"
        asked: list[list[Asked]] = [[] for _ in rows]
        for m in range(judge.classmates):
            chosen = [i for i, row in enumerate(rows) if m in judge.asks(row) and m not in early[i]]
            replies: dict[int, Asked] = {}
            if chosen:
                async with self.classmates.awake(classmate_name(m)):
                    with shared_draws():
                        found = await asyncio.gather(
                            *(judge.ask(rows[i], m, excluded=excluded, needed=needed[i]) for i in chosen)
                        )
                replies = dict(zip(chosen, found, strict=True))
            for i, row in enumerate(rows):
                if m in judge.asks(row):
                    asked[i].append(early[i][m] if m in early[i] else replies[i])
        return asked

    # Advantage.

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """For `remax`, takes the greedy rows out first: they are baselines, and nothing trains on them."""
        if self.advantage_config.adv_estimator == "remax":
            batch, self._greedy = take_out_greedy(batch, self.advantage_config)
        return super()._balance_batch(batch, metrics, *args, **kwargs)

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Advantages from the reward's parts, or from the fused scalar by upstream's estimators.

        Writes `advantages` and `returns`, nested (B, R), and with rollout correction its masks and weights.
        """
        if self.judges_beside:
            self._take_rewards(batch)
        fields = ["uid", "rm_scores", "rollout_log_probs", "old_log_probs", *row_fields(self.advantage_config)]
        rows = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
        padding_B = torch.tensor([bool(tag.get("is_padding", False)) for tag in batch.tags])
        return self._put(batch, self._advantages(rows, padding_B, metrics))

    def _take_rewards(self, batch: KVBatchMeta) -> None:
        """Puts rewards to their rows, when the last classmate has answered."""
        with marked_timer("classmate_cot", self.timing_raw):
            found = self.agent_loop_manager.rewards()
        # Rows that only fill the batch have a token and no part in anything; their fields are some row's.
        some = next(iter(found.values())) | {"rm_scores": torch.zeros(1)}
        self._put_rows(batch, [found.get(key, some) for key in batch.keys])

    def _advantages(self, rows: TensorDict, padding_B: torch.Tensor, metrics: dict) -> dict[str, torch.Tensor]:
        """`advantages` and `returns`, nested (B, R), and with rollout correction its masks and weights.

        Args:
            rows: `uid`, log-probs, `rm_scores` and `row_fields`, nested.
            padding_B: rows that only fill the batch.
            metrics: gets statistics of rewards and of the correction.
        """
        nested_mask = rows["response_mask"]
        uids = np.array(rows.pop("uid").tolist(), dtype=object)
        data = DataProto(batch=rows.to_padded_tensor())

        output_fields = ["advantages", "returns"]
        correction = self.config.algorithm.get("rollout_correction", None)
        # Without the engine's log-probs (rollout.calculate_log_probs=false) there is nothing to correct with.
        told = {"rollout_log_probs", "old_log_probs"} <= set(data.batch.keys())
        if correction is not None and not correction.get("bypass_mode", False) and told:
            data, correction_metrics = compute_rollout_correction_and_add_to_batch(data, correction)
            metrics.update(correction_metrics)
            output_fields.append("response_mask")
            if "rollout_is_weights" in data.batch:
                output_fields.append("rollout_is_weights")

        greedy = self._greedy if self.advantage_config.adv_estimator == "remax" else None
        inputs = inputs_from_rows(data.batch, uids, padding_B, self.advantage_config, greedy=greedy)
        result = compute_advantage(inputs, self.advantage_config, self.config.algorithm)
        metrics.update(result.metrics)
        data.batch["advantages"], data.batch["returns"] = result.advantages_BR, result.returns_BR
        return {field: response_to_nested(data.batch[field], nested_mask) for field in output_fields}

    def _needs_old_log_probs(self, rows: int) -> bool:
        """Whether a batch of so many rows needs a pass for `old_log_probs` before its update."""
        is_trained = self.config.trainer.critic_warmup <= self.global_steps
        return not is_trained or needs_old_log_probs(
            self.config, self.reward_config, rows=rows, dropout=self._has_dropout
        )

    @functools.cached_property
    def _has_dropout(self) -> bool:
        """Whether the policy's training pass differs from its other passes; so taken where it cannot be known."""
        model = self.config.actor_rollout_ref.model
        found = model_config(model.path)
        whole = found and with_defaults({**found, **(model.get("override_config") or {})})
        return whole is None or has_dropout(whole)

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Upstream's pass, where the update's own log-probs do not stand for it."""
        return super()._compute_old_log_prob(batch, metrics) if self._needs_old_log_probs(len(batch)) else batch

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Upstream's update, with the loss on the tokens of `token_level_main_reward_mode` only.

        The masks are put back afterwards: metrics count all tokens.
        """
        batch.extra_info[ENTROPY_ASIDE] = not self._needs_old_log_probs(len(batch))
        if self.reward_config.token_level_main_reward_mode == "all_tokens":
            updated = super()._update_actor(batch, metrics)
            take_agreement(metrics, prefix="actor/")
            return updated
        names = ["response_mask", "loss_mask"]
        masks = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=[*names, "actor_mask"])
        actor, rollout = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout
        narrowed = narrow_masks(
            masks["response_mask"].unbind(),
            masks["actor_mask"].unbind(),
            rows_of_update=actor.ppo_mini_batch_size * rollout.n,
        )
        self._put(batch, {name: torch.nested.as_nested_tensor(narrowed[name], layout=torch.jagged) for name in names})
        updated = super()._update_actor(batch, metrics)
        self._put(batch, {name: masks[name] for name in names})
        return updated

    def _put(self, batch: KVBatchMeta, fields: dict[str, torch.Tensor]) -> KVBatchMeta:
        return tq.kv_batch_put(
            keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(fields, batch_size=len(batch))
        )

    # What a step leaves behind.

    def step(self, metrics: dict, timing_raw: dict) -> KVBatchMeta:
        """Upstream's step, remembered until it is saved."""
        batch = super().step(metrics, timing_raw)
        self._trained = (batch, metrics)
        return batch

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict, timing_raw: dict, global_steps: int, epoch: int
    ) -> None:
        """Upstream's metrics plus ours; then writes the step down and shows its line."""
        self._leave_step(self._records(batch, metrics, timing_raw), metrics)

    def _records(self, batch: Any, metrics: dict, timing_raw: dict) -> list[dict[str, Any]]:
        """The dump's records of a step; its metrics, upstream's and ours, are added to `metrics`."""
        epoch = (self.global_steps - 1) // self.steps_per_epoch
        super()._compute_metrics(batch, metrics, timing_raw, self.global_steps, epoch)
        keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
        rows = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=self._dumped_fields)
        return self._described(rows, metrics)

    @property
    def _dumped_fields(self) -> list[str]:
        """Fields of a row that `_described` reads."""
        segments = ["classmate_segments"] if self.advantage_config.per_segment else []
        return ["extra_fields", "advantages", "classmate_mask", *segments]

    def _described(self, rows: TensorDict, metrics: dict) -> list[dict[str, Any]]:
        """The dump's records of a step's real rows, whose metrics are added to `metrics`.

        Args:
            rows: their `_dumped_fields`.
            metrics: upstream's so far.
        """
        extra_fields = rows.pop("extra_fields").tolist()
        infos, records = _split_extra_fields(extra_fields)
        columns = [rows[name].unbind() for name in self._dumped_fields if name != "extra_fields"]
        for record, *tensors in zip(records, *columns, strict=True):
            parts = {"segments": len(record["segment_rewards"]), "turns": record.get("turns", ())}
            record.update(recorded_advantages(*tensors, **parts))
        metrics.update(row_metrics(infos))
        metrics.update(main_model_lengths(metrics))
        metrics.update(judge_metrics(records))
        metrics["training/rows_lost"] = float(self._rows_lost)
        # Where rows are judged beside the log-probs, the trainer has timed how long it waited.
        metrics.setdefault("timing_s/classmate_cot", _time_after_last_response(extra_fields))
        if self.classmates is not None:
            metrics["classmate/restarts"] = float(self.classmates.restarts)
            metrics["classmate/excluded"] = float(len(self.classmates.excluded))
        return records

    def _leave_step(self, records: list[dict[str, Any]], metrics: dict) -> None:
        """Writes the step down and shows its line."""
        self._tell_judge_failures(records)
        self._write_step(records, metrics)
        self.console.step(self.global_steps, self.total_training_steps, metrics, time.time() - self._step_began)
        if self.classmates is not None:
            self.classmates.heed(records)
        for line in self._silence.step(records):
            self.console.line(line, loud=True)

    def _write_step(self, records: list[dict[str, Any]], metrics: dict) -> None:
        if not self.folder.rollouts_path(self.global_steps).exists():
            self.folder.dump_rows(self.global_steps, records)
        self.folder.write_metrics(self.global_steps, metrics)

    def _save_checkpoint(self) -> None:
        """Upstream's save while the engines sleep, of a step that is written down: a resumed run misses no line.

        What comes after the save, validation first of all, is added to the step's line when it is there.
        """
        if self._frozen_policy is not None:
            self._frozen_policy.check()
        assert self._trained is not None, "only what was trained is saved"
        batch, metrics = self._trained
        so_far = dict(metrics)
        timing = self.timing_raw | {"step": time.time() - self._step_began}
        self._write_step(self._records(batch, so_far, timing), so_far)
        self._save_and_prune()

    def _save_and_prune(self) -> None:
        """Upstream's save between two removals of ours: there are never more than are kept, and always a whole one.

        Upstream itself removes nothing: it would leave `data.pt`, forget what earlier starts have saved and, where one
        is kept, remove it before the next is whole.
        """
        trainer = self.config.trainer
        limits = {key: trainer[key] for key in ("max_actor_ckpt_to_keep", "max_critic_ckpt_to_keep")}
        keep, keep_critic = limits.values()
        spared = Path(trainer.resume_from_path) if trainer.resume_mode == "resume_path" else None
        prune = functools.partial(checkpoints.prune, self.folder.path, spared=spared)
        prune(keep=keep and max(1, keep - 1), keep_critic=keep_critic and max(1, keep_critic - 1))
        trainer.update(dict.fromkeys(limits))
        try:
            super()._save_checkpoint()
            merge_saved(self.folder.path / f"global_step_{self.global_steps}" / "actor")
        finally:
            trainer.update(limits)
        prune(keep=keep, keep_critic=keep_critic)

    def _tell_judge_failures(self, records: list[dict[str, Any]]) -> None:
        """One line about texts that the judge gave no score, with the last reason."""
        judged = [judge for record in records for judge in judge_records(record)]
        failed = [judge for judge in judged if "failure" in judge]
        if failed:
            self.console.line(
                f"warning: the judge gave {len(failed)} of {len(judged)} texts no score; they are left out (last: "
                f"{failed[-1]['failure']}: {failed[-1].get('error')})"
            )

    def on_train_begin(self) -> None:
        super().on_train_begin()
        self._fetched_prompts = (self.global_steps - 1) * self.config.data.train_batch_size
        self.console.start(self.total_training_steps, self.global_steps - 1)

    def _val_metrics_update(
        self,
        data_sources: list[str],
        sample_uids: list[str],
        reward_extra_infos_dict: dict[str, list],
        sample_turns: list,
        expected_acc_counts: dict | None = None,
    ) -> dict[str, float]:
        """`val-core/{data_source}/{name}/mean@n`: means over valid rows; the rows go to `val_preds/step_N.jsonl`."""
        records = [json.loads(record) for record in reward_extra_infos_dict.pop("record")]
        records.sort(key=lambda record: (record["data_source"], str(record["index"]).zfill(12), record["rollout"]))
        self.folder.dump_rows(self.global_steps, records, validation=True)
        # Upstream's own is the fused reward, 0 where there is none.
        reward_extra_infos_dict["reward"] = reward_extra_infos_dict["main_model_reward"]
        n = self.config.actor_rollout_ref.rollout.val_kwargs.n
        values: dict[tuple[str, str], list[float]] = defaultdict(list)
        for name, column in reward_extra_infos_dict.items():
            for data_source, value in zip(data_sources, column, strict=True):
                if isinstance(value, int | float) and value == value:
                    values[data_source, name].append(value)
        # fsum is exact, so that the order in which rows arrived does not show in the last digit.
        metrics = {f"val-core/{source}/{name}/mean@{n}": math.fsum(x) / len(x) for (source, name), x in values.items()}
        metrics |= judge_metrics(records, prefix="judge/validation")
        metrics["validation/rows_lost"] = float(self._account_for_rows(validation=True))
        self._tell_judge_failures(records)
        if self._trained is None:
            self.folder.add_metrics(self.global_steps, metrics)
        return metrics


def fetch_for_models(group: Any, without: Collection[str]) -> None:
    """Lets the ranks of a worker group fetch a batch's tensors, and none of the texts beside them.

    No model reads those (questions, records, columns of the dataset), and fetching and moving them costs a rank of a
    small model more than its forward pass. Not so the inputs of a multimodal model, which are no tensors either.

    Args:
        group: upstream's worker group, of the actor, the reference model or the critic.
        without: names of tensors that no model reads.
    """

    def with_tensors(call: Callable[[KVBatchMeta], Any]) -> Callable[[KVBatchMeta], Any]:
        @functools.wraps(call)
        def called(batch: KVBatchMeta) -> Any:
            stored = kv_batch_meta2batch_meta(batch).field_schema
            tensors = [name for name in stored if name == "multi_modal_inputs" or not stored[name]["is_non_tensor"]]
            fields = [name for name in tensors if name not in without]
            return call(dataclasses.replace(batch, fields=fields))

        return called

    for name in ("compute_log_prob", "compute_ref_log_prob", "update_actor", "infer_batch", "train_mini_batch"):
        if hasattr(group, name):
            setattr(group, name, with_tensors(getattr(group, name)))


def take_out_greedy(batch: KVBatchMeta, config: AdvantageConfig) -> tuple[KVBatchMeta, dict[str, Greedy]]:
    """Removes the greedy rows of a `remax` batch from it and from the queue.

    Returns:
        The batch of sampled rows, and the greedy row's rewards by prompt. A prompt whose greedy row is missing or could
        not be scored has no entry.
    """
    fields = [GREEDY_SESSION, "session_id", "uid", *GREEDY_FIELDS]
    rows = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    columns = {name: _as_list(rows[name]) for name in fields}
    sampled, greedy, rewards = [], [], dict[str, Greedy]()
    for i, key in enumerate(batch.keys):
        if columns["session_id"][i] != columns[GREEDY_SESSION][i]:
            sampled.append(i)
            continue
        greedy.append(key)
        scored = Greedy.of_row({name: columns[name][i] for name in GREEDY_FIELDS}, config)
        if scored is not None:
            rewards[columns["uid"][i]] = scored
    if greedy:
        tq.kv_clear(keys=greedy, partition_id=batch.partition_id)
    kept = KVBatchMeta(
        partition_id=batch.partition_id,
        keys=[batch.keys[i] for i in sampled],
        tags=[batch.tags[i] for i in sampled],
        fields=batch.fields,
        extra_info=batch.extra_info,
    )
    return kept, rewards


def narrow_masks(
    response_masks: Sequence[torch.Tensor], actor_masks: Sequence[torch.Tensor], *, rows_of_update: int
) -> dict[str, list[torch.Tensor]]:
    """`response_mask` and `loss_mask` (R,) per row, narrowed to the tokens that the loss counts.

    Upstream takes the loss over `response_mask` and divides by the number of tokens in `loss_mask`, which must not be
    0 in any mini-batch: where so many rows have nothing to count that they could fill one, each of them keeps one
    token in the divisor. The loss of such rows is 0 either way.

    Args:
        response_masks: 1 on the policy's tokens.
        actor_masks: 1 on the tokens that are to count; a padding row has that of the row it copies.
        rows_of_update: rows of a mini-batch.
    """
    counted = [mask * chosen[: len(mask)] for mask, chosen in zip(response_masks, actor_masks, strict=True)]
    divisors = [mask.clone() for mask in counted]
    empty = [mask for mask in divisors if not mask.any()]
    if len(empty) >= rows_of_update:
        for mask in empty:
            mask[-1] = 1
    return {"response_mask": counted, "loss_mask": divisors}


def _split_extra_fields(extra_fields: list[Any]) -> tuple[list[dict[str, float]], list[dict[str, Any]]]:
    """Numbers and dump record of each row."""
    infos, records = [], []
    for fields in extra_fields:
        info = dict(fields["reward_extra_info"])
        records.append(json.loads(info.pop("record")))
        infos.append(info)
    return infos, records


def _time_after_last_response(extra_fields: list[Any]) -> float:
    """Seconds from the policy's last response to the last row's reward: what streaming could not hide."""
    return max(0.0, max(f["rewarded_at"] for f in extra_fields) - max(f["responded_at"] for f in extra_fields))


def _as_list(column: Any) -> list[Any]:
    """A column of one value per row, whatever container the queue has put it in."""
    return column.tolist() if hasattr(column, "tolist") else list(column)
