"""What nobody typed follows what was typed: batches, lengths, GPUs, and the settings that GPU memory hangs on.

Decision: such keys are null in our YAML. So a key is typed when it is not null, wherever that was written: on the
command line, by a launch script, in a YAML of a user's own, in a config that a program composed. A start fills them in
once, before anything is checked; only what was typed can then be refused.

    >>> filled = fill_in(config)
    >>> print("\\n".join(filled.lines))
    not typed    data.train_batch_size=8: ppo_mini_batch_size=8, ...
"""

import contextlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.classmate.errors import ConfigError
from verl.trainer.checkpoints import latest_step, saved_ranks
from verl.trainer.choices import (
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
    rows_of_rank,
    sequence_parallel,
)
from verl.trainer.gpu_plan import plan_memory, this_machine
from verl.trainer.preflight_data import count_rows
from verl.workers.classmate_placement import dedicated_gpus, engines, trainer_gpus
from verl.workers.classmate_remote import with_hosted


def fill_in(config: DictConfig, machine: Machine | None = None) -> Filled:
    """Gives every key that is null a value that fits those that are not, in place. A second call changes nothing.

    What is wrong with typed keys is left to the checks behind it.

    Args:
        config: a composed config.
        machine: the GPUs; by default what this process sees.

    Raises:
        ConfigError: where the node `reward_model` cannot be read.
    """
    chosen = Choices(config)
    plain: Any = OmegaConf.to_container(config, resolve=True)
    reward = with_hosted(from_mapping(plain["reward_model"], require_classmates=False))
    on_gpu = chosen.get("trainer.device") == "cuda"
    if machine is None and on_gpu:
        machine = this_machine()
    _deprecated_micro_batches(chosen)
    _lengths(chosen, reward)
    _gpus(chosen, reward, machine)
    _batches(chosen, plain["data"])
    filled = Filled(lines=[])
    if on_gpu:
        spread = trainer_gpus(config) if chosen.counts(GPUS, "trainer.nnodes") else 1
        if "colocated_gpus" in config.reward_model:
            OmegaConf.update(config, "reward_model.colocated_gpus", spread)
        if machine is not None:
            filled = plan_memory(chosen, machine)
    _micro_batches(chosen)
    for key, usual in USUAL.items():
        chosen.set(key, usual)
    return Filled(lines=[*chosen.told(), *filled.lines], refusal=filled.refusal)


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
        for spec in reward.classmates:
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
    from verl.trainer.preflight_models import position_limit

    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        return position_limit(str(path))
    return None


def _gpus(chosen: Choices, reward: ClassmateRewardModelConfig, machine: Machine | None) -> None:
    """As many GPUs as there are, or as what was typed splits over; a checkpoint's number where a run goes on there."""
    if GPUS not in chosen.open or machine is None or not chosen.counts("trainer.nnodes"):
        return
    nodes = chosen.get("trainer.nnodes")
    there = max(1, machine.gpus - dedicated_gpus(reward, "cuda"))
    saved = _ranks_to_resume(chosen)
    if saved is not None and saved % nodes == 0 and saved // nodes <= there:
        chosen.set(GPUS, saved // nodes)
        return
    widths = [engine.width for engine in engines(reward) if not engine.dedicated]
    widths += [chosen.get(f"{ROLLOUT}.tensor_model_parallel_size") or 1]
    rows = [chosen.get(key) * chosen.get(f"{ROLLOUT}.n") for key in (BATCH, MINI) if chosen.counts(key, f"{ROLLOUT}.n")]
    fitting = (
        gpus
        for gpus in range(there, 0, -1)
        if not any(gpus * nodes % width for width in widths) and not any(count % (gpus * nodes) for count in rows)
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


def _batches(chosen: Choices, data: Mapping[str, Any]) -> None:
    """Batch and mini-batch divide one another and split over the ranks."""
    if not chosen.counts(f"{ROLLOUT}.n", "trainer.nnodes") or not (chosen.counts(GPUS) or GPUS in chosen.open):
        return
    ranks = (chosen.get(GPUS) or USUAL[GPUS]) * chosen.get("trainer.nnodes")
    # So many prompts have rows that split over the ranks.
    step = ranks // math.gcd(ranks, chosen.get(f"{ROLLOUT}.n"))
    mini = chosen.get(MINI) if chosen.counts(MINI) else None
    if BATCH in chosen.open:
        step_of_batch = math.lcm(step, mini or 1)
        most = max(USUAL[BATCH], mini or 0)
        rows = _rows_of(data)
        if rows is not None and rows < most:
            # Half of a small set, so that some prompts may be left out as too long.
            most = max(1, 1 << (rows.bit_length() - 1), mini or 0)
        chosen.set(BATCH, max(most - most % step_of_batch, step_of_batch))
    if chosen.counts(BATCH):
        chosen.set(MINI, _mini_batch(chosen, chosen.get(BATCH), step, ranks))


def _rows_of(data: Mapping[str, Any]) -> int | None:
    with contextlib.suppress(ConfigError, TypeError, KeyError, OSError):
        return count_rows(data, "train_files")
    return None


def _mini_batch(chosen: Choices, batch: int, step: int, ranks: int) -> int:
    """The largest part of the batch up to the usual one that splits over the ranks and into typed micro-batches."""
    largest = min(USUAL[MINI], batch)
    whole = [size for size in range(largest, 0, -1) if size % step == 0]
    dividing = [size for size in whole if batch % size == 0]
    micro = chosen.get(MICRO) if chosen.counts(MICRO) and not chosen.get(f"{ACTOR}.use_dynamic_bsz") else 1
    rollouts, split = chosen.get(f"{ROLLOUT}.n"), ranks // sequence_parallel(chosen)
    for sizes in ([size for size in dividing if size >= largest // 4], whole, dividing):
        fitting = [size for size in sizes if size * rollouts // max(1, split) % micro == 0]
        if fitting:
            return fitting[0]
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
