"""The trainer of every run: verl's synchronous PPO trainer plus our rows, advantages, dumps and terminal lines.

Decision: upstream's `fit` and `step` stay as they are. What differs is in methods that upstream calls anyway, which
stand here in the order in which a run calls them; what they do is in the modules beside this one. What a row goes
through before it reaches the trainer is in `verl.experimental.agent_loop`.

    >>> trainer = ClassmateCoTRayPPOTrainer(config, classmate_cot_reward_configs={"classmate_reward_weight": 0.3})
    >>> trainer.init_workers()
    >>> trainer.fit()
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
import transfer_queue as tq
from omegaconf import DictConfig
from tensordict import NonTensorStack, TensorDict
from transfer_queue import KVBatchMeta

from verl.classmate.errors import ConfigError
from verl.classmate.record import RowRecord
from verl.experimental.agent_loop.row_reading import row_pipeline
from verl.trainer.ppo import batched, start_up
from verl.trainer.ppo.advantage.rows import Greedy
from verl.trainer.ppo.batch_advantages import advantages_in_queue
from verl.trainer.ppo.fetched_fields import fetch_for_models, read_by_no_model
from verl.trainer.ppo.greedy import take_out_greedy
from verl.trainer.ppo.masks import narrowed_in_queue
from verl.trainer.ppo.one_update import ENTROPY_COEFF, take_agreement
from verl.trainer.ppo.passes import Passes, as_of_next_step, goes_straight_on
from verl.trainer.ppo.process_guard import ProcessGuard
from verl.trainer.ppo.queue_rows import AccountedRows, LostRows, most_left_out, put_rewards, put_rows, row_uids
from verl.trainer.ppo.ref_mix import MovingReference, RanksOnRay
from verl.trainer.ppo.scheduled import Scheduled
from verl.trainer.ppo.step_record import StepRecorder, save_and_prune
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.trainer.ppo.validation import make_up_for_validation
from verl.trainer.run.session import start_ray
from verl.utils.debug import marked_timer
from verl.workers.classmate_workers import ClassmateGroup
from verl.workers.engine.fsdp.policy_engine import ENTROPY_ASIDE
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.one_server import client_of


@register_trainer("classmate_cot")
class ClassmateCoTRayPPOTrainer(PPOTrainerSync):
    """Trains on the verifier's reward and the classmates' (docs/method.md)."""

    trains_with_classmates = True
    """Whether classmates read training rows; else they read the validation rows only, where there are any."""

    agent_loop_manager: Any
    """`ClassmateAgentLoopManager`, or what the caller has given."""

    def __init__(self, config: DictConfig, **given: Any) -> None:
        """Reads the config; nothing is started before `init_workers`.

        Args:
            config: composed from one of our primary YAML files.
            given: fields of `start_up.Given`, all of which may be left out.

        Raises:
            ConfigError: for unknown keys or impossible settings.
        """
        self._given = start_up.Given(**given)
        self._run = run = start_up.open_run(config, self._given, with_classmates=self.trains_with_classmates)
        self.reward_config, self.advantage_config = run.reward, run.advantage
        self.folder, self.console = run.folder, run.console
        self.classmates = self._given.classmates
        self._startup = start_up.StartupLine(self._given.clock, self.console)
        self._passes = Passes(config, run.config)
        self._recorder = StepRecorder(run, config)
        self._fetched_prompts, self._next_under_way, self._validates = 0, False, False
        self._greedy: dict[str, Greedy] = {}
        # The batch of the last step and its metrics so far; None before the first.
        self._trained: tuple[Any, dict[str, Any]] | None = None
        super().__init__(config)

    def _build_replay_buffer(self) -> ReplayBuffer:
        # Upstream compares this string for everything that distinguishes the synchronous trainer.
        self.trainer_mode = "sync"
        self._rows = AccountedRows(super()._build_replay_buffer(), most_left_out=most_left_out(self.config))
        self._lost = LostRows(self._rows, self._run)
        return self._rows.buffer

    # The start.

    def init_workers(self) -> None:
        """Starts Ray and the queue where the caller has not, then models, engines and classmates.

        Raises:
            ConfigError: with debug=true, which is for another trainer.
        """
        if self._run.config.debug:
            raise ConfigError("debug=true is for verl.trainer.ppo.inprocess_trainer.InProcessTrainer; write false")
        if not ray.is_initialized():
            self._ray_session = start_ray(self.config, self._run.config)
        # The queue's actors start while the data is read; `_init_resource_pool_mgr` waits for them.
        with ThreadPoolExecutor(1, thread_name_prefix="queue") as pool:
            self._queue = pool.submit(tq.init, self.config.transfer_queue)
            self.init()

    def _setup(self) -> None:
        self._init_classmate_workers()
        super()._setup()
        self._reference = MovingReference(self, RanksOnRay(self.actor_rollout_wg))
        self._scheduled, self._process_guard = Scheduled(self), ProcessGuard(self)
        groups = [getattr(self, name, None) for name in ("actor_rollout_wg", "ref_policy_wg", "critic_wg")]
        fetch_for_models(groups, without=read_by_no_model(self.advantage_config))
        if self._passes.reads_later[True]:
            self.reward_loop_manager = batched.RewardsComeLater(lambda: self._passes.reads_later[self._validates])
            self._row_pipeline = row_pipeline(self.config, self.tokenizer)

    def _init_classmate_workers(self) -> None:
        """Starts the classmates and judges that need no GPU pool, which load while the policy's own models do."""
        if self.classmates is None:
            self.classmates = ClassmateGroup.of_run(self.config, self.reward_config, on_event=self.console.line)

    def _init_tokenizer(self) -> None:
        super()._init_tokenizer()
        self.tokenizer = start_up.run_tokenizer(self._given.tokenizer or self.tokenizer, self.reward_config)

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        start_up.check_data(self._run, self.config, self.train_dataset, self.val_dataset, self.total_training_steps)

    def _init_resource_pool_mgr(self) -> None:
        self._queue.result()
        super()._init_resource_pool_mgr()
        self.role_worker_mapping = self._given.role_worker_mapping or self.role_worker_mapping
        pools, given = self.resource_pool_manager, self._given.resource_pool_manager
        self.resource_pool_manager = start_up.resource_pools(pools, given, self.config, self.reward_config)

    def on_init_end(self) -> None:
        # The policy's engines sleep until their weights are updated: the classmates' start meanwhile.
        if self.classmates is not None:
            self.classmates.start_placed(self.resource_pool_manager)
            self.classmates.wait_until_ready()
            start_up.refuse_junk(self._process_guard, self._run, self.classmates)
        self._frozen_policy = start_up.frozen_policy(self.reward_config, self.folder, self.console)
        super().on_init_end()

    # A run.

    def fit(self, agent_loop_manager: Any = None) -> None:
        """Trains to the end; builds the agent-loop manager when none is given."""
        self._startup.models_are_there()
        make_up_for_validation(self.config, self.folder, total_steps=self.total_training_steps)
        super().fit(agent_loop_manager or self._build_agent_loop_manager())
        if self.classmates is not None:
            self.classmates.shutdown()
        self.folder.finish()

    def _build_agent_loop_manager(self) -> Any:
        clients = {
            "llm_client": self.get_llm_client(),
            "teacher_client": self.get_teacher_client(),
            "reward_loop_worker_handles": None if self._passes.scored_later else self.get_reward_handles(),
        }
        manager = start_up.start_agent_loops(self.config, clients, passes=self._passes, classmates=self.classmates)
        manager.steps_per_epoch, self._rows.wait_for_rows = self.steps_per_epoch, manager.wait_for_rows
        manager.temperature = self._scheduled.temperature
        if self._passes.reads_later[True]:
            manager.lessons_first = batched.lessons_first(self._row_pipeline, self.classmates, self.checkpoint_manager)
        return manager

    def get_llm_client(self) -> LLMServerClient:
        """Upstream's client of the policy's engines."""
        return client_of(self.llm_server_manager)

    def on_validate_begin(self) -> None:
        super().on_validate_begin()
        self._startup.show()
        self._validates = True

    def on_train_begin(self) -> None:
        super().on_train_begin()
        self._fetched_prompts = (self.global_steps - 1) * self.config.data.train_batch_size
        self.console.start(self.total_training_steps, self.global_steps - 1)

    # A step: its rows.

    def on_step_begin(self) -> None:
        super().on_step_begin()
        self._scheduled.begin(self.global_steps)
        self._recorder.begin()
        self._startup.show()

    def step(self, metrics: dict, timing_raw: dict) -> KVBatchMeta:
        """Upstream's step, which calls the methods from here to `_update_actor`; keeps its batch until it is saved."""
        self._trained = (super().step(metrics, timing_raw), metrics)
        self._scheduled.after(self.global_steps, metrics)
        self._process_guard.after(metrics)
        return self._trained[0]

    def prepare_step(self) -> dict:
        """Hands out the step's prompts, unless the step before has done so."""
        under_way, self._next_under_way = self._next_under_way, False
        return {} if under_way else super().prepare_step()

    def _fetch_one_gen_batch(self) -> TensorDict:
        batch = super()._fetch_one_gen_batch()
        batch["uid"] = NonTensorStack(*row_uids(batch, first=self._fetched_prompts, step=self.global_steps))
        self._fetched_prompts += len(batch)
        return batch

    def on_sample_end(self) -> None:
        self._recorder.rows_lost += self._lost.count(self.global_steps)
        super().on_sample_end()
        if self.classmates is not None:
            self.classmates.sleep()

    def _compute_reward_colocate(self, batch: KVBatchMeta, metrics: dict | None = None) -> KVBatchMeta:
        """Upstream's place for helpers that share the policy's GPU: it has just put the policy to sleep."""
        put_rows(batch, self._generate_classmate_continuations(batch))
        return batch

    def _generate_classmate_continuations(self, batch: KVBatchMeta) -> list[dict[str, Any]]:
        """Shows the batch to one of the readers that take turns after the other; what is added to each row."""
        assert self.classmates is not None, "rows are read here only where engines take turns"
        return batched.reward_rows(batch, self._row_pipeline, self.reward_config, self.classmates)

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """For `remax`, takes the greedy rows out first: they are baselines, and nothing trains on them."""
        if self.advantage_config.adv_estimator == "remax":
            batch, self._greedy = take_out_greedy(batch, self.advantage_config)
        return super()._balance_batch(batch, metrics, *args, **kwargs)

    # A step: its update.

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Upstream's pass, where the update's own log-probs do not stand for it."""
        needed = self._passes.needs_old_log_probs(len(batch), step=self.global_steps)
        return super()._compute_old_log_prob(batch, metrics) if needed else batch

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Advantages from the reward's parts, or from the fused scalar by upstream's estimators."""
        if self._passes.reads_beside:
            with marked_timer("classmate_cot", self.timing_raw):
                put_rewards(batch, self.agent_loop_manager.rewards())
        kl, guard = self._scheduled.kl, self._process_guard
        return advantages_in_queue(batch, self.config, self.advantage_config, self._greedy, metrics, kl, guard)

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Upstream's update, with the loss on the tokens of `token_level_main_reward_mode` only."""
        batch.extra_info[ENTROPY_COEFF] = self._scheduled.entropy_coeff(self.global_steps)
        batch.extra_info[ENTROPY_ASIDE] = not self._passes.needs_old_log_probs(len(batch), step=self.global_steps)
        with narrowed_in_queue(batch, self.config, self.reward_config.token_level_main_reward_mode):
            updated = super()._update_actor(batch, metrics)
        self._reference.follow()
        take_agreement(metrics, prefix="actor/")
        return updated

    # A step: what it leaves behind.

    def _save_checkpoint(self) -> None:
        """Upstream's save, while the engines sleep. The step is written down first, so a resumed run misses no line."""
        if self._frozen_policy is not None:
            self._frozen_policy.check()
        assert self._trained is not None, "only what was trained is saved"
        (batch, metrics), step = self._trained, self.global_steps
        records = self._records(batch, so_far := dict(metrics), self.timing_raw | {"step": self._recorder.seconds})
        self._recorder.write(records, so_far, step=step)
        save = self._process_guard.saved_before(self._reference.saved_before(super()._save_checkpoint))
        save = self._scheduled.saved_before(save)
        save_and_prune(save, trainer=self.config.trainer, folder=self.folder.path, step=step)

    def on_step_end(self) -> None:
        if self.classmates is not None:
            self.classmates.heal()
        super().on_step_end()
        if self.classmates is not None:
            self.classmates.wake_up()
        if goes_straight_on(self.config, self.global_steps, self.total_training_steps):
            # The policy has its new weights: answers of the next step are written while this one is written down.
            with as_of_next_step(self):
                super().prepare_step()
            self._next_under_way = True

    def _val_metrics_update(
        self, data_sources: list[str], sample_uids: list[str], reward_extra_infos_dict: dict, *args: Any, **kwargs: Any
    ) -> dict[str, float]:
        self._validates = False
        step, n = self.global_steps, self.config.actor_rollout_ref.rollout.val_kwargs.n
        metrics = self._recorder.validated(data_sources, reward_extra_infos_dict, self._lost, step=step, n=n)
        if self._trained is None:
            self.folder.add_metrics(step, metrics)
        return metrics

    def _compute_metrics(self, batch: KVBatchMeta, metrics: dict, timing_raw: dict, *args: Any, **kwargs: Any) -> None:
        """Upstream's metrics plus ours; then writes the step down and shows its line."""
        records = self._records(batch, metrics, timing_raw)
        self._recorder.leave(records, metrics, self.classmates, self.global_steps, self.total_training_steps)

    def _records(self, batch: Any, metrics: dict, timing_raw: dict) -> list[RowRecord]:
        """The dump's records of a step; its metrics, upstream's and ours, are added to `metrics`."""
        epoch = (self.global_steps - 1) // self.steps_per_epoch
        super()._compute_metrics(batch, metrics, timing_raw, self.global_steps, epoch)
        keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
        rows = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=self._recorder.fields)
        return self._recorder.records(rows, metrics, self.classmates)
