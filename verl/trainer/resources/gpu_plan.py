"""The settings with which a run fits into its GPUs' memory, read off its config and written into it.

Decision: `gpu_memory` and `gpu_settings` do the arithmetic. This module reads what the config says of the run, and
tells a person the result. Where the size of a model is not known, cautious settings are taken, and a line says so.

    >>> plan_memory(Choices(config), Machine(gpus=1, gpu_gib=23.5), reward).lines
    ['rows made    17.9 of 23.5 GiB a GPU: policy 10.1, classmate 0 6.8, ...', 'training     19.2 of 23.5 GiB ...']
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf

from verl.classmate.config import DEFAULT_SHARE, ClassmateRewardModelConfig
from verl.classmate.frozen import frozen_models
from verl.classmate.typed import PlainNode, plain_mapping
from verl.trainer.resources.gpu_memory import FEW_ROWS, EngineNeed, Job, Plan, margin_gib
from verl.trainer.resources.gpu_settings import NO_KEY_HELPS, advice, choose
from verl.trainer.resources.model_sizes import model_size
from verl.trainer.run.choices import (
    GPUS,
    HELPER_SHARE,
    MICRO,
    OPTIMIZER,
    PARAM,
    PROMPT,
    RESPONSE,
    ROLLOUT,
    SCHEDULE,
    SHARE,
    TOKENS,
    USUAL,
    Choices,
    Filled,
    Machine,
    divisor,
    has_critic,
    rows_of_rank,
    sequence_parallel,
)
from verl.workers.classmates.placement import Engine, assign_gpus, engines, trainer_gpus

BLIND_SHARE = 0.7
"""Part of a GPU that engines get where a model's size is not known, so that the rest is left for training."""


def this_machine() -> Machine:
    """The GPUs that this process sees."""
    import torch

    count = torch.cuda.device_count()
    with contextlib.suppress(RuntimeError, AssertionError):
        return Machine(gpus=count, gpu_gib=torch.cuda.get_device_properties(0).total_memory / 2**30 if count else 0.0)
    return Machine(gpus=count, gpu_gib=0.0)


def plan_memory(chosen: Choices, machine: Machine, reward: ClassmateRewardModelConfig) -> Filled:
    """Shares, offload, schedule and micro-batches for the memory of the GPUs."""
    plain = PlainNode(plain_mapping(chosen.config))
    job, unknown = _job(chosen, plain, reward, machine)
    if job is None:
        return _blind(chosen, reward, unknown) if unknown else Filled(lines=[])
    plan = choose(job)
    settings = plan.settings
    chosen.set(SHARE, settings.policy_share)
    if job.helpers:
        chosen.set(HELPER_SHARE, settings.helper_share or DEFAULT_SHARE)
    chosen.set(PARAM, settings.param_offload)
    chosen.set(OPTIMIZER, settings.optimizer_offload)
    chosen.set(TOKENS if job.by_tokens else MICRO, settings.micro)
    if chosen.get(SCHEDULE) == "auto":
        OmegaConf.update(chosen.config, SCHEDULE, settings.schedule)
    lines = told(plan)
    if plan.fits:
        return Filled(lines=lines)
    # What the user has set may fit all the same: the estimate is on the safe side.
    if plan.impossible or not job.is_typed:
        return Filled(lines=lines, refusal=refusal(plan))
    return Filled(lines=[*lines, f"warning: {refusal(plan)}"])


def told(plan: Plan) -> list[str]:
    """The plan's arithmetic, for a person."""
    settings, gib = plan.settings, plan.job.gpu_gib
    offload = [name for name, on in (("weights", settings.param_offload), ("Adam", settings.optimizer_offload)) if on]
    moved = f"; {' and '.join(offload)} with the host meanwhile" if offload and not plan.job.offload_policy else ""
    return [
        f"rows made    {plan.rows_made.told(gib)} "
        f"({settings.schedule}, {_rows_at_once(plan)} full rows at once{moved})",
        f"training     {plan.trains.told(gib)}",
    ]


def _rows_at_once(plan: Plan) -> int:
    """Full rows that the tightest engine has room for."""
    rows = []
    for engine in (plan.job.policy, *plan.job.helpers):
        default = plan.settings.policy_share if engine is plan.job.policy else plan.settings.helper_share
        gib = (engine.share or default) * plan.job.gpu_gib
        rows.append(max(0, int((gib - engine.fixed_gib) / engine.row_gib + 1e-6)))
    return min(rows)


def refusal(plan: Plan) -> str:
    """One line for a run that does not fit, with what would."""
    job, settings = plan.job, plan.settings
    limit = job.gpu_gib - margin_gib(job.gpu_gib)
    if plan.trains.gib > limit:
        why = f"training a policy of {job.policy.size.name} takes {plan.trains.told(job.gpu_gib)}"
    elif plan.rows_made.gib > limit:
        why = f"while rows are made ({settings.schedule}), they take {plan.rows_made.told(job.gpu_gib)}"
    else:
        shares = ", ".join(f"{one.name} {one.share:g}" for one in plan.cramped)
        why = f"the shares ({shares}) have room for weights and fewer than {FEW_ROWS} full rows at once"
    ways = advice(job)
    verb = "take" if ways == [NO_KEY_HELPS] else "write"
    return f"GPU memory: {why}; {limit:.1f} can be used; {verb} {', or '.join(ways)}"


def _job(
    chosen: Choices, plain: Mapping[str, Any], reward: ClassmateRewardModelConfig, machine: Machine
) -> tuple[Job | None, list[str]]:
    """The run as far as its memory goes; or None with the models whose size is not known, if that is the reason."""
    lengths = [chosen.get(key) or USUAL[key] for key in (PROMPT, RESPONSE)]
    rows = rows_of_rank(chosen)
    if rows is None or not all(type(length) is int and length >= 1 for length in lengths) or not chosen.counts(GPUS):
        return None, []
    gpus = trainer_gpus(plain)
    pooled = [engine for engine in engines(frozen_models(reward)) if engine.in_policy_pool("cuda")]
    try:
        blocks = assign_gpus(pooled, gpus)
    except ValueError:
        return None, []
    trained = [plain["actor_rollout_ref"]["model"]["path"]]
    if has_critic(plain):
        trained.append(plain["critic"]["model"]["path"])
    names = [*trained, *(engine.frozen.model for engine in pooled)]
    unknown = sorted({str(name) for name in names if model_size(name) is None})
    if unknown or not machine.gpu_gib:
        return None, unknown or ["the GPUs"]
    tokens = sum(lengths)
    beside = [
        [_need(engine, tokens) for engine, block in zip(pooled, blocks, strict=True) if gpu in block]
        for gpu in range(gpus)
    ]
    fullest = max(beside, key=lambda here: sum(need.fixed_gib for need in here))
    return _job_beside(fullest, chosen, plain, reward, gpu_gib=machine.gpu_gib, rows=rows[0], row_tokens=tokens), []


def _need(engine: Engine, row_tokens: int) -> EngineNeed:
    """An engine of a frozen model, whose size is known."""
    frozen, size = engine.frozen, model_size(engine.frozen.model)
    assert size is not None
    return EngineNeed(
        name=frozen.label,
        size=size,
        turn=frozen.name,
        width=engine.width,
        context=frozen.context_length(row_tokens=row_tokens),
        share=frozen.gpu_memory_utilization,
        validation_only=frozen.validation_only,
    )


def _job_beside(
    helpers: Sequence[EngineNeed],
    chosen: Choices,
    plain: Mapping[str, Any],
    reward: ClassmateRewardModelConfig,
    *,
    gpu_gib: float,
    rows: int,
    row_tokens: int,
) -> Job:
    """What the config says of the trained models, whose sizes are known, and of how they are trained."""
    actor, rollout, model = (plain["actor_rollout_ref"][name] for name in ("actor", "rollout", "model"))
    fsdp, size, gpus = actor["fsdp_config"], model_size(model["path"]), trainer_gpus(plain)
    assert size is not None
    by_tokens, schedule = bool(actor["use_dynamic_bsz"]), chosen.get(SCHEDULE)
    typed_micro = TOKENS if by_tokens else MICRO
    policy = EngineNeed(
        name="policy",
        size=size,
        turn="policy",
        width=rollout["tensor_model_parallel_size"] if rollout["name"] == "vllm" else 1,
        context=_context(chosen, reward, row_tokens),
        share=_share(chosen, SHARE),
    )
    return Job(
        gpus=gpus,
        nodes=plain["trainer"]["nnodes"],
        gpu_gib=gpu_gib,
        policy=policy,
        helpers=tuple(helpers),
        row_tokens=row_tokens,
        rows_of_rank=rows,
        by_tokens=by_tokens,
        schedule=None if schedule == "auto" else schedule,
        param_offload=None if PARAM in chosen.open else bool(fsdp["param_offload"]),
        optimizer_offload=None if OPTIMIZER in chosen.open else bool(fsdp["optimizer_offload"]),
        micro=chosen.get(typed_micro) if chosen.counts(typed_micro) else None,
        offload_policy=bool(fsdp["offload_policy"]) and actor["strategy"] == "fsdp2",
        shards=fsdp["fsdp_size"] if 1 <= fsdp["fsdp_size"] <= gpus else None,
        weight_bytes=4 if fsdp["model_dtype"] == "fp32" else 2,
        lora=bool(model["lora_rank"] or (model.get("lora") or {}).get("rank")),
        critic=model_size(plain["critic"]["model"]["path"]) if has_critic(plain) else None,
        sequence_parallel=sequence_parallel(chosen),
        checkpointing=bool(model["enable_gradient_checkpointing"]),
        fused=bool(model["use_fused_kernels"]),
        policy_sleeps=bool(rollout["free_cache_engine"]),
        helpers_sleep=reward.classmate_free_cache_engine,
    )


def _context(chosen: Choices, reward: ClassmateRewardModelConfig, tokens: int) -> int:
    """Tokens of a full row in the policy's engine; with live self-play the classmate's answer comes behind them."""
    typed = chosen.get(f"{ROLLOUT}.max_model_len")
    if reward.live_classmate is not None:
        tokens += reward.classmate_generation_configs.max_new_tokens
    return min(tokens, typed) if type(typed) is int and typed >= 1 else tokens


def _share(chosen: Choices, key: str) -> float | None:
    share = chosen.get(key)
    return float(share) if isinstance(share, int | float) and 0 < share <= 1 else None


def _blind(chosen: Choices, reward: ClassmateRewardModelConfig, unknown: list[str]) -> Filled:
    """Cautious settings where a size is not known."""
    helpers = len({engine.frozen.name for engine in engines(frozen_models(reward)) if not engine.dedicated})
    each = math.floor(100 * BLIND_SHARE / (1 + helpers)) / 100
    settings: dict[str, Any] = {SHARE: each, HELPER_SHARE: each, PARAM: True, OPTIMIZER: True}
    for key, value in settings.items():
        chosen.set(key, value)
    rows = rows_of_rank(chosen)
    if rows is not None:
        chosen.set(MICRO, divisor(rows[0], 2))
    what = f"the size of {', '.join(unknown)} is" if unknown != ["the GPUs"] else "the GPUs' memory is"
    return Filled(
        lines=[
            f"GPU memory   {what} not known, so nothing was computed: the engines get {BLIND_SHARE:.0%} together, "
            "weights and Adam are with the host while rows are made; what you set stays"
        ]
    )
