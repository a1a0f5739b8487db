"""What a training needs around it, started from a command line or from a script: settled keys, and Ray.

>>> run, notes = settle(config, run, folder)
>>> session = start_ray(config, run)
>>> session.close()
"""

import contextlib
import dataclasses
import importlib.util
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from verl.classmate.algorithm_config import group_notes, rollout_correction
from verl.classmate.config import ClassmateRewardModelConfig, RunConfig, keep_run
from verl.classmate.frozen import frozen_readers
from verl.classmate.seeds import fresh_engine_seed, sends_seed
from verl.data_preprocessing.taught_dataset import rows_of_a_question
from verl.teaching.config import forget_teaching, this_teaching
from verl.trainer.fork.server import ForkServer
from verl.trainer.preflight.custom_reward import custom_reward_notes
from verl.trainer.run import loggers
from verl.trainer.run.checkpoints import checkpoint_to_resume
from verl.trainer.run.folder import RunFolder


def settle(config: DictConfig, run: RunConfig, folder: RunFolder) -> tuple[RunConfig, list[str]]:
    """Resolves, in place, what depends on the folder, the machine and other keys.

    What the typed view holds does not change behind this: here `this_run` gives what is returned, and in a worker
    process, to which upstream sends the config, an equal value.

    Args:
        config: the whole composed config.
        run: its typed view, with hosted classmates named (`verl.workers.classmates.remote.with_hosted`).
        folder: the run's folder.

    Returns:
        The typed view of the settled config, and lines for a person.
    """
    rollouts = config.actor_rollout_ref.rollout.n
    notes = [*custom_reward_notes(config, run.reward), *group_notes(run.algorithm, rollouts=rollouts)]
    if run.device == "cpu":
        os.environ["VERL_PLATFORM"] = "cpu"
    OmegaConf.resolve(config)
    run = dataclasses.replace(run, reward=_settled_reward(run.reward, folder), folder=folder.path)
    with open_dict(config):
        _settle_trainer(config, run, folder)
        if correction := rollout_correction(config, run.reward):
            OmegaConf.update(config, "algorithm.rollout_correction", correction, merge=True)
        _tell_workers(config.reward_model, run.reward)
        _settle_models(config, run)
        _settle_students(config, run)
    if run.algorithm.adv_estimator.startswith("gdpo") and run.algorithm.gdpo_group_norm == "mean_only":
        notes.append("warning: gdpo_group_norm=mean_only does not bring the two rewards to one scale")
    if run.device == "cuda" and importlib.util.find_spec("flash_attn") is None:
        with open_dict(config):
            for model in (config.actor_rollout_ref.model, config.critic.model):
                model.override_config.setdefault("attn_implementation", "sdpa")
                model.use_remove_padding = False
        notes.append("attention   sdpa, since flash-attn is not installed")
    keep_run(config, run)
    return run, notes


def _settled_reward(reward: ClassmateRewardModelConfig, folder: RunFolder) -> ClassmateRewardModelConfig:
    """The node `reward_model` with the run's day, and with a path that is the same in all folders."""
    cache = reward.llm_judge_cache_path
    return dataclasses.replace(
        reward,
        chat_date=folder.chat_date or reward.chat_date,
        # Workers may stand in other folders.
        llm_judge_cache_path=None if cache is None else str(Path(cache).expanduser().absolute()),
    )


def _tell_workers(node: DictConfig, reward: ClassmateRewardModelConfig) -> None:
    """Writes what was found out at the start into the config that workers are sent."""
    node.chat_date = reward.chat_date
    node.llm_judge_cache_path = reward.llm_judge_cache_path
    node.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn = (
        reward.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn
    )
    # They look into no file, which may have changed since.
    if any(spec.backend == "openai" for spec in reward.classmates):
        given = [spec for spec in reward.classmates if spec.self_play == "none"]
        node.classmates = [dataclasses.asdict(spec) for spec in given]
    if any(spec.backend == "openai" for spec in reward.evaluation_classmates):
        node.evaluation_classmates = [dataclasses.asdict(spec) for spec in reward.evaluation_classmates]


def _settle_trainer(config: DictConfig, run: RunConfig, folder: RunFolder) -> None:
    """Where the run stands, how it begins, who logs."""
    trainer = config.trainer
    trainer.default_local_dir = str(run.folder)
    if folder.resumed_from:
        trainer.val_before_train = False
    elif trainer.resume_mode == "auto":
        trainer.resume_mode = "disable"
    checkpoint = checkpoint_to_resume(trainer)
    if checkpoint is not None:
        # Upstream reads the step off the end of it.
        trainer.resume_from_path = str(checkpoint)
    trainer.v1.trainer_mode = run.trainer_name
    config.transfer_queue.enable = True
    # Upstream's console logger prints every metric of a step; ours is the terminal.
    trainer.logger = [name for name in loggers.as_list(trainer.logger) if name != "console"]


def _settle_students(config: DictConfig, run: RunConfig) -> None:
    """How many rows are made of each question for a teacher's students, and where their answers are stored."""
    teaching = this_teaching(config)
    if teaching is None:
        return
    students, readers = len(run.reward.classmates), len(frozen_readers(run.reward))
    rows = rows_of_a_question(teaching.protocol.student_assignment, students=students, readers=readers)
    config.data.students = {**rows, "needs_truth": teaching.reward.uses_rcl}
    # Workers may stand in other folders.
    for key in ("baseline_cache", "templates_file"):
        if config.rcl[key] is not None:
            config.rcl[key] = str(Path(config.rcl[key]).expanduser().absolute())
    forget_teaching()


def _settle_models(config: DictConfig, run: RunConfig) -> None:
    """How the policy and the critic are trained, and the policy's engine draws."""
    rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    for trained in (actor, config.critic):
        # Left null, verl divides by the longest response of each micro-batch, which is no constant.
        if trained.loss_agg_mode == "seq-mean-token-sum-norm" and trained.loss_scale_factor is None:
            trained.loss_scale_factor = run.max_response_length
    if not sends_seed(rollout.name, deterministic=run.deterministic or rollout.full_determinism):
        # Requests carry none: a start that goes on with a run must not draw the first one's numbers again.
        rollout.seed = fresh_engine_seed()
    if run.deterministic:
        rollout.engine_kwargs.setdefault("hf", {})
        rollout.engine_kwargs.hf.deterministic = True
    if run.device == "cpu":
        for optim in (actor.optim, config.critic.optim):
            is_fusable = optim.optimizer_impl == "torch.optim" and optim.optimizer in ("Adam", "AdamW")
            if is_fusable and not optim.override_optimizer_config:
                # Torch's default there reads and writes each tensor a dozen times: a third of the speed, or less.
                optim.override_optimizer_config = {"fused": True}


@dataclass(frozen=True, kw_only=True)
class RaySession:
    """This process's connection to Ray."""

    logs: Path
    """Folder of Ray's logs on this machine."""
    fork_server: ForkServer | None
    """The session's own, which makes the Python workers; None where it was given one, or Ray starts them itself."""

    def close(self) -> None:
        """Leaves Ray, and ends it where it was started for this process."""
        import ray

        ray.shutdown()
        if self.fork_server is not None:
            self.fork_server.close()


_KEPT_MEMORY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(2 * 2**30),
}
"""Keeps glibc's malloc from giving a step's tensors back to the system. The next step would fault them in again page by
page, a quarter of what an update takes on a CPU. A thread's own arena always gives them back."""


def start_fork_server(config: DictConfig, run: RunConfig) -> ForkServer | None:
    """A server for `trainer.fork_workers`, where workers are of this machine and of this environment.

    The caller closes it, after Ray. Its imports take as long as this process's own: the sooner, the better.
    """
    runtime_env = _runtime_env(config, run)
    other_environment = any(value is not None for key, value in runtime_env.items() if key != "env_vars")
    if not run.fork_workers or os.environ.get("RAY_ADDRESS") or other_environment:
        return None
    try:
        return ForkServer.start(runtime_env["env_vars"])
    except OSError as error:
        logging.getLogger(__name__).warning("workers are not forked, and start more slowly: %s", error)
        return None


def _runtime_env(config: DictConfig, run: RunConfig) -> dict[str, Any]:
    """Ray's runtime environment of all workers: upstream's, ours, and over both what the user's config says."""
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    runtime_env: Any = OmegaConf.to_container(
        OmegaConf.merge(
            OmegaConf.create(get_ppo_ray_runtime_env(config)), config.ray_kwargs.ray_init.get("runtime_env") or {}
        ),
        resolve=True,
    )
    env_vars = runtime_env.setdefault("env_vars", {})
    env_vars |= {"TRANSFER_QUEUE_ENABLE": "1", "TQ_NUM_THREADS": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    if run.device == "cpu":
        for name, value in _KEPT_MEMORY.items():
            env_vars.setdefault(name, os.environ.get(name, value))
    if "VERL_PLATFORM" in os.environ:
        env_vars["VERL_PLATFORM"] = os.environ["VERL_PLATFORM"]
    return runtime_env


def start_ray(config: DictConfig, run: RunConfig, fork_server: ForkServer | None = None) -> RaySession:
    """Starts Ray, or joins the cluster of `RAY_ADDRESS`; leaves nothing running when that fails.

    Args:
        config: the settled config.
        run: its typed view.
        fork_server: of `start_fork_server`; the session has one of its own where none is given.

    Raises:
        ConfigError: when the cluster has fewer logical CPUs than the run's actors ask for.
    """
    from verl.trainer.preflight.devices import check_gpus, check_ray_cpus
    from verl.trainer.resources.plan import needed_gpus, needed_ray_cpus

    reward = run.reward

    def check(there: Mapping[str, float]) -> None:
        check_ray_cpus(config, reward, there.get("CPU", 0))
        check_gpus(config, reward, there.get("GPU", 0))

    needs = Needs(cpus=needed_ray_cpus(config, reward), gpus=needed_gpus(config, reward), check=check)
    return open_ray(config, run, needs, fork_server)


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What Ray must have for the actors of a run."""

    cpus: int
    """Logical CPUs."""
    gpus: int
    """GPUs; on the CPU logical ones, which upstream's pools ask for."""
    check: Callable[[Mapping[str, float]], None] = lambda _: None
    """Is shown what a cluster has; raises ConfigError where that is too little."""


def open_ray(config: DictConfig, run: RunConfig, needs: Needs, fork_server: ForkServer | None = None) -> RaySession:
    """As `start_ray`, for whoever knows what its actors need.

    Raises:
        ConfigError: of `needs.check`.
    """
    import ray

    runtime_env = _runtime_env(config, run)
    options: dict[str, Any] = OmegaConf.to_container(config.ray_kwargs.ray_init, resolve=True)  # type: ignore[assignment]
    options = {key: value for key, value in options.items() if value is not None and key != "runtime_env"}
    # Logical CPUs: fewer than the actors ask for would make them wait for ever, whatever the number of cores.
    options.setdefault("num_cpus", max(os.cpu_count() or 1, needs.cpus))
    if run.device == "cpu":
        # An own number of the user's is kept where it is larger.
        options["num_gpus"] = max(options.get("num_gpus") or 0, needs.gpus)
        # Ray counts its logical ones against this list, which those empty who want no GPU to be used.
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if os.environ.get("RAY_ADDRESS"):
        options = {"address": os.environ["RAY_ADDRESS"]}
    else:
        # Ray would keep a record of each of the last 100,000 requests between processes, 0.6 MB a step of the main job.
        os.environ.setdefault("RAY_task_events_report_interval_ms", "0")
    with contextlib.ExitStack() as undone_on_error:
        own = start_fork_server(config, run) if fork_server is None else None
        if own is not None:
            undone_on_error.callback(own.close)
        if forks := fork_server or own:
            runtime_env["py_executable"] = forks.py_executable
        undone_on_error.callback(ray.shutdown)
        context: Any = ray.init(
            **options,
            runtime_env=runtime_env,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        needs.check(ray.cluster_resources())
        undone_on_error.pop_all()
    return RaySession(logs=Path(context.address_info["session_dir"]) / "logs", fork_server=own)
