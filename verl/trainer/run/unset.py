"""Keys that are not set follow those that are: batches, lengths, GPUs, and the settings that GPU memory depends on.

Decision: such keys are null in our YAML. So a key is set if it is not null, wherever that was written: on the command
line, by a launch script, in a YAML of a user's own, in a config that a program composed. A start fills in the others
once, before anything is checked; only what is set can then be refused.

    >>> filled = fill_in(config)
    >>> print("\\n".join(filled.lines))
    not set      ppo_mini_batch_size=8, ...
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.classmate.errors import ConfigError
from verl.classmate.frozen import frozen_models
from verl.teaching.config import NODE, TeachingConfig
from verl.trainer.preflight.prompt_lengths import count_fitting
from verl.trainer.resources.gpu_plan import plan_memory, this_machine
from verl.trainer.run.checkpoints import latest_step, saved_ranks
from verl.trainer.run.choices import (
    ACTOR,
    BATCH,
    GPUS,
    LOG_PROB,
    MICRO,
    MINI,
    PROMPT,
    RESPONSE,
    ROLLOUT,
    TOKENS,
    USUAL,
    Choices,
    Filled,
    Machine,
    divisor,
    has_critic,
    prompts_that_split,
    rows_of_rank,
    sequence_parallel,
)
from verl.workers.classmates.placement import dedicated_gpus, engines, trainer_gpus
from verl.workers.classmates.remote import with_hosted


def fill_in(config: DictConfig, machine: Machine | None = None) -> Filled:
    """Gives every key that is null a value that fits those that are not, in place. A second call changes nothing.

    What is wrong with keys that are set is left to the checks that follow.

    Args:
        config: a composed config.
        machine: the GPUs; by default what this process sees.

    Raises:
        ConfigError: where the node `reward_model` or `rcl` cannot be read.
    """
    chosen = Choices(config)
    plain: Any = OmegaConf.to_container(config, resolve=True)
    if NODE in plain:
        # Its own mistakes come before those of the node that repeats its keys.
        TeachingConfig.read(plain[NODE])
    reward = _draft(config)
    on_gpu = chosen.get("trainer.device") == "cuda"
    if machine is None and on_gpu:
        machine = this_machine()
    _lengths(chosen, reward)
    rows = _rows(chosen, plain, reward) if BATCH in chosen.open else None
    _gpus(chosen, reward, machine, rows)
    _deprecated_micro_batches(chosen)
    _batches(chosen, rows)
    filled = Filled(lines=[])
    if on_gpu:
        spread = trainer_gpus(config) if chosen.counts(GPUS, "trainer.nnodes") else 1
        if "colocated_gpus" in config.reward_model:
            OmegaConf.update(config, "reward_model.colocated_gpus", spread)
        if machine is not None:
            filled = plan_memory(chosen, machine, _draft(config))
    _micro_batches(chosen)
    for key, usual in USUAL.items():
        chosen.set(key, usual)
    return Filled(lines=[*chosen.told(), *filled.lines], refusal=filled.refusal)


def _draft(config: DictConfig) -> ClassmateRewardModelConfig:
    """The node `reward_model` while something in it is still open; a run is read when nothing is.

    On a GPU `fill_in` reads it twice. The first draft says how many GPUs are left for the policy; how many engines a
    classmate has depends on that number, and keys of the node may be interpolations of others that were filled in.
    """
    plain: Any = OmegaConf.to_container(config.reward_model, resolve=True)
    return with_hosted(from_mapping(plain, require_classmates=False))


def _deprecated_micro_batches(chosen: Choices) -> None:
    """`ppo_micro_batch_size` and its like count the rows of all GPUs; upstream refuses them beside the newer keys, and
    its workers know these alone."""
    for key in (MICRO, *LOG_PROB):
        old = key.removesuffix("_per_gpu")
        if key in chosen.open and chosen.counts(old):
            ranks = (chosen.get(GPUS) or 1) * (chosen.get("trainer.nnodes") or 1)
            chosen.replace(key, max(1, chosen.get(old) // ranks))
            chosen.replace(old, None)


def _lengths(chosen: Choices, reward: ClassmateRewardModelConfig) -> None:
    """Prompt and response fit into what policy and classmates read."""
    limits = [chosen.get(f"{ROLLOUT}.max_model_len"), _positions(chosen.get("actor_rollout_ref.model.path"))]
    answers = reward.classmate_generation_configs
    if answers.max_model_len is None:
        for spec in (*reward.classmates, *reward.evaluation_classmates):
            positions = _positions(spec.model) if spec.backend != "openai" else None
            limits.append(positions - answers.max_new_tokens if positions is not None else None)
    limit = min((one for one in limits if type(one) is int and one > 1), default=None)
    prompt, response = chosen.get(PROMPT), chosen.get(RESPONSE)
    if limit is None:
        return
    if prompt is None and response is None:
        chosen.set(PROMPT, min(USUAL[PROMPT], limit // 2))
        chosen.set(RESPONSE, min(USUAL[RESPONSE], limit - min(USUAL[PROMPT], limit // 2)))
    elif prompt is None and type(response) is int and response < limit:
        chosen.set(PROMPT, min(USUAL[PROMPT], limit - response))
    elif response is None and type(prompt) is int and prompt < limit:
        chosen.set(RESPONSE, min(USUAL[RESPONSE], limit - prompt))


def _positions(path: Any) -> int | None:
    """Tokens that a model reads at most, as far as a look at its folder tells."""
    from verl.trainer.preflight.models import position_limit

    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        return position_limit(str(path))
    return None


def _gpus(chosen: Choices, reward: ClassmateRewardModelConfig, machine: Machine | None, prompts: int | None) -> None:
    """As many GPUs as there are and the rows that are set can be divided among; a checkpoint's number if a run resumes.

    On the CPU, where `machine` is None, any number of ranks is there.
    """
    if GPUS not in chosen.open or not chosen.counts("trainer.nnodes"):
        return
    nodes = chosen.get("trainer.nnodes")
    there = max(1, machine.gpus - dedicated_gpus(reward, "cuda")) if machine is not None else None
    saved = _ranks_to_resume(chosen)
    if saved is not None and saved % nodes == 0 and (there is None or saved // nodes <= there):
        chosen.set(GPUS, saved // nodes)
        return
    if there is None:
        return
    widths = [engine.width for engine in engines(frozen_models(reward)) if not engine.dedicated]
    widths += [chosen.get(f"{ROLLOUT}.tensor_model_parallel_size") or 1]
    rows = [chosen.get(key) * chosen.get(f"{ROLLOUT}.n") for key in (BATCH, MINI) if chosen.counts(key, f"{ROLLOUT}.n")]
    fitting = (
        gpus
        for gpus in range(there, 0, -1)
        if not any(gpus * nodes % width for width in widths)
        and not any(count % (gpus * nodes) for count in rows)
        and (prompts is None or prompts_that_split(gpus * nodes, chosen.get(f"{ROLLOUT}.n")) <= prompts)
    )
    chosen.set(GPUS, next(fitting, there))


def _ranks_to_resume(chosen: Choices) -> int | None:
    mode, named = chosen.get("trainer.resume_mode"), chosen.get("trainer.resume_from_path")
    with contextlib.suppress(ConfigError, OSError, TypeError):
        if mode == "resume_path" and named:
            return saved_ranks(Path(str(named)).expanduser())
        folder = chosen.get("trainer.default_local_dir")
        if mode == "auto" and folder:
            run = Path(str(folder)).expanduser()
            step = latest_step(run)
            return saved_ranks(run / f"global_step_{step}") if step else None
    return None


def _rows(chosen: Choices, plain: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> int | None:
    """Prompts of the data that are short enough, counted up to the usual batch; None where that cannot be known."""
    from verl.trainer.preflight import quiet
    from verl.trainer.preflight.models import check_model
    from verl.trainer.preflight.templates import policy_tokenizer

    def tokenizer() -> Any:
        # Where the hub cannot be reached, it turns to the cache.
        check_model("actor_rollout_ref.model.path", plain["actor_rollout_ref"]["model"]["path"])
        return policy_tokenizer(plain, reward)

    data = dict(plain["data"]) | {"max_prompt_length": chosen.get(PROMPT) or USUAL[PROMPT]}
    # What is wrong with data and model is told by the checks.
    with contextlib.suppress(ConfigError, OSError, KeyError, TypeError, ValueError, AttributeError), quiet():
        return count_fitting(data, tokenizer, most=USUAL[BATCH])
    return None


def _batches(chosen: Choices, rows: int | None) -> None:
    """A batch is a few large mini-batches. Both can be divided among the ranks, and into the sizes that are set.

    Args:
        chosen: the config; a size that is set and fits nothing is left to the checks.
        rows: prompts that there are, at most the usual batch.
    """
    rollouts = f"{ROLLOUT}.n"
    if not chosen.counts(rollouts, "trainer.nnodes") or not (chosen.counts(GPUS) or GPUS in chosen.open):
        return
    n, ranks = chosen.get(rollouts), (chosen.get(GPUS) or USUAL[GPUS]) * chosen.get("trainer.nnodes")
    split = max(1, ranks // sequence_parallel(chosen))
    step = prompts_that_split(ranks, n)
    in_mini, in_batch = (
        math.lcm(step, *(prompts_that_split(split * chosen.get(key), n) for key in keys if chosen.counts(key)))
        for keys in _pieces(chosen)
    )
    units = ((in_mini, in_batch), (in_mini, step), (step, in_batch), (step, step))
    if BATCH in chosen.open:
        mini = chosen.get(MINI) if chosen.counts(MINI) else None
        found = (_batch_and_mini(mini, one, whole, rows) for one, whole in units)
        # With the smallest batch a check finds the size that was set too large.
        chosen.set(BATCH, next((pair[0] for pair in found if pair), math.lcm(step, mini or 1)))
    if chosen.counts(BATCH):
        chosen.set(MINI, _mini_batch(chosen, chosen.get(BATCH), (in_mini, step)))


def _pieces(chosen: Choices) -> tuple[list[str], list[str]]:
    """Keys of micro-batches that divide the rows of a mini-batch, and of those that divide a batch's."""
    of_mini, of_batch = [], []
    if not chosen.get(f"{ACTOR}.use_dynamic_bsz"):
        of_mini.append(MICRO)
    if has_critic(chosen.config) and not chosen.get("critic.use_dynamic_bsz"):
        of_mini.append("critic.ppo_micro_batch_size_per_gpu")
    for key in LOG_PROB:
        is_used = key.startswith(ROLLOUT) or chosen.get(f"{ACTOR}.use_kl_loss")
        if is_used and not chosen.get(f"{key.rpartition('.')[0]}.log_prob_use_dynamic_bsz"):
            of_batch.append(key)
    return of_mini, of_batch


def _batch_and_mini(mini: int | None, in_mini: int, in_batch: int, rows: int | None) -> tuple[int, int] | None:
    """The largest mini-batch with which the batch is nearly as large as it may be, and that batch.

    Args:
        mini: the one that is set.
        in_mini: prompts of which it is a multiple.
        in_batch: prompts of which the batch is a multiple.
        rows: prompts that there are.
    """
    most = max(USUAL[BATCH], mini or 0, in_mini, in_batch)
    most = most if rows is None else min(most, rows)
    largest = max(USUAL[MINI], in_mini)
    sizes = [mini] if mini is not None else range(in_mini, min(most, largest) + 1, in_mini)
    pairs = [(most - most % math.lcm(size, in_batch), size) for size in sizes]
    near = [pair for pair in pairs if pair[0] * 8 >= most * 7]
    if near:
        return max(near, key=lambda pair: pair[1])
    return max((pair for pair in pairs if pair[0]), default=None)


def _mini_batch(chosen: Choices, batch: int, units: Sequence[int]) -> int:
    """The largest part of the batch up to the usual one; else the next larger part; else what leaves least over."""
    largest = min(USUAL[MINI], batch)
    # In one process nothing fills up a mini-batch.
    beyond = batch if chosen.get("debug") is True else min(batch, 2 * USUAL[MINI])
    parts = [size for size in range(1, batch + 1) if batch % size == 0]
    usual = [size for size in reversed(parts) if largest // 4 <= size <= largest]
    larger = [size for size in parts if largest < size <= beyond]
    uneven = sorted(range(largest, 0, -1), key=lambda size: (size <= largest // 2, -batch % size, -size))
    for unit in units:
        for sizes in (usual, larger, uneven, reversed(parts)):
            found = next((size for size in sizes if size % unit == 0), None)
            if found is not None:
                return found
    return largest


def _micro_batches(chosen: Choices) -> None:
    """Micro-batches divide the rows of a rank; rows filled by tokens have room for the longest."""
    rows = rows_of_rank(chosen)
    if rows is not None:
        chosen.set(MICRO, divisor(rows[0], USUAL[MICRO]))
        for key in LOG_PROB:
            # For so many there is room when there is for training.
            chosen.set(key, divisor(rows[1], chosen.get(MICRO) if chosen.counts(MICRO) else USUAL[key]))
    lengths = [chosen.get(key) or USUAL[key] for key in (PROMPT, RESPONSE)]
    if all(type(length) is int for length in lengths):
        chosen.set(TOKENS, max(USUAL[TOKENS], sum(lengths)))
