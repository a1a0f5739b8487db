"""The settings with which a run fits into its GPUs' memory, read off its config and written into it.

Decision: `gpu_memory` does the arithmetic; here is what a config says of the run, and what a person is told. Where the
size of a model is not known, cautious settings are taken, and a line says so.

    >>> plan_memory(Choices(config), Machine(gpus=1, gpu_gib=23.5), reward).lines
    ['rows made    17.9 of 23.5 GiB a GPU: policy 10.1, classmate 0 6.8, ...', 'training     19.2 of 23.5 GiB ...']
"""

import contextlib
import math
from collections.abc import Iterable, Mapping
from typing import Any

from omegaconf import OmegaConf

from verl.classmate.config import DEFAULT_SHARE, ClassmateRewardModelConfig, JudgeEngineSpec
from verl.trainer.resources import gpu_memory
from verl.trainer.resources.gpu_memory import EngineNeed, Job
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
    plain: Any = OmegaConf.to_container(chosen.config, resolve=True)
    job, unknown = _job(chosen, plain, reward, machine)
    if job is None:
        return _blind(chosen, reward, unknown) if unknown else Filled(lines=[])
    plan = gpu_memory.choose(job)
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
    # What was typed may fit all the same: the reckoning is on the safe side.
    if plan.impossible or not job.is_typed:
        return Filled(lines=lines, refusal=refusal(plan))
    return Filled(lines=[*lines, f"warning: {refusal(plan)}"])


def told(plan: gpu_memory.Plan) -> list[str]:
    """The plan's arithmetic, for a person."""
    settings, gib = plan.settings, plan.job.gpu_gib
    offload = [name for name, on in (("weights", settings.param_offload), ("Adam", settings.optimizer_offload)) if on]
    moved = f"; {' and '.join(offload)} with the host meanwhile" if offload and not plan.job.offload_policy else ""
    return [
        f"rows made    {plan.rows_made.told(gib)} "
        f"({settings.schedule}, {_rows_at_once(plan)} full rows at once{moved})",
        f"training     {plan.trains.told(gib)}",
    ]


def _rows_at_once(plan: gpu_memory.Plan) -> int:
    """Full rows that the tightest engine has room for."""
    rows = []
    for engine in (plan.job.policy, *plan.job.helpers):
        default = plan.settings.policy_share if engine is plan.job.policy else plan.settings.helper_share
        gib = (engine.share or default) * plan.job.gpu_gib
        rows.append(max(0, int((gib - engine.fixed_gib) / engine.row_gib + 1e-6)))
    return min(rows)


def refusal(plan: gpu_memory.Plan) -> str:
    """One line for a run that does not fit, with what would."""
    job, settings = plan.job, plan.settings
    limit = job.gpu_gib - gpu_memory.margin_gib(job.gpu_gib)
    if plan.trains.gib > limit:
        why = f"training a policy of {job.policy.size.name} takes {plan.trains.told(job.gpu_gib)}"
    elif plan.rows_made.gib > limit:
        why = f"while rows are made ({settings.schedule}), they take {plan.rows_made.told(job.gpu_gib)}"
    else:
        shares = ", ".join(f"{one.name} {one.share:g}" for one in plan.cramped)
        why = f"the shares ({shares}) have room for weights and fewer than {gpu_memory.FEW_ROWS} full rows at once"
    ways = gpu_memory.advice(job)
    verb = "take" if ways == [gpu_memory.NO_KEY_HELPS] else "write"
    return f"GPU memory: {why}; {limit:.1f} can be used; {verb} {', or '.join(ways)}"


def _job(
    chosen: Choices, plain: Mapping[str, Any], reward: ClassmateRewardModelConfig, machine: Machine
) -> tuple[Job | None, list[str]]:
    """The run as far as its memory goes; or None with the models whose size is not known, if that is the reason."""
    lengths = [chosen.get(key) or USUAL[key] for key in (PROMPT, RESPONSE)]
    rows = rows_of_rank(chosen)
    if rows is None or not all(type(length) is int and length >= 1 for length in lengths) or not chosen.counts(GPUS):
        return None, []
    policy, gpus = plain["actor_rollout_ref"], trainer_gpus(plain)
    pooled = [engine for engine in engines(reward) if engine.in_policy_pool("cuda")]
    try:
        blocks = assign_gpus(pooled, gpus)
    except ValueError:
        return None, []
    beside: list[list[Engine]] = [[] for _ in range(gpus)]
    for engine, block in zip(pooled, blocks, strict=True):
        for gpu in block:
            beside[gpu].append(engine)
    typed = _typed_shares(chosen, plain["reward_model"], reward)
    path = policy["model"]["path"]
    critic = plain["critic"]["model"]["path"] if plain["algorithm"]["adv_estimator"] == "gae" else None
    names = [path, *(engine.spec.model for engine in pooled), *([critic] if critic is not None else [])]
    unknown = sorted({str(name) for name in names if model_size(name) is None})
    if unknown or not machine.gpu_gib:
        return None, unknown or ["the GPUs"]
    tokens = sum(lengths)

    def need(engine: Engine) -> EngineNeed:
        size = model_size(engine.spec.model)
        assert size is not None
        judged = isinstance(engine.spec, JudgeEngineSpec)
        context = reward.classmate_generation_configs.context_length(
            max_prompt_length=lengths[0], max_response_length=lengths[1]
        )
        return EngineNeed(
            name="judge" if judged else f"classmate {engine.classmate}",
            size=size,
            turn=engine.classmate,
            width=engine.width,
            context=reward.llm_judge_max_context if judged else context,
            share=typed.get(engine.classmate),
        )

    fullest = max(
        ([need(engine) for engine in here] for here in beside), key=lambda here: sum(n.fixed_gib for n in here)
    )
    actor, rollout, model = policy["actor"], policy["rollout"], policy["model"]
    fsdp, size = actor["fsdp_config"], model_size(path)
    assert size is not None
    by_tokens = bool(actor["use_dynamic_bsz"])
    typed_micro = TOKENS if by_tokens else MICRO
    lora = model["lora_rank"] or (model.get("lora") or {}).get("rank")
    schedule = chosen.get(SCHEDULE)
    job = Job(
        gpus=gpus,
        nodes=plain["trainer"]["nnodes"],
        gpu_gib=machine.gpu_gib,
        policy=EngineNeed(
            name="policy",
            size=size,
            turn=-1,
            width=rollout["tensor_model_parallel_size"] if rollout["name"] == "vllm" else 1,
            context=_context(chosen, reward, tokens),
            share=_share(chosen, SHARE),
        ),
        helpers=tuple(fullest),
        row_tokens=tokens,
        rows_of_rank=rows[0],
        by_tokens=by_tokens,
        schedule=None if schedule == "auto" else schedule,
        param_offload=None if PARAM in chosen.open else bool(fsdp["param_offload"]),
        optimizer_offload=None if OPTIMIZER in chosen.open else bool(fsdp["optimizer_offload"]),
        micro=chosen.get(typed_micro) if chosen.counts(typed_micro) else None,
        offload_policy=bool(fsdp["offload_policy"]) and actor["strategy"] == "fsdp2",
        shards=fsdp["fsdp_size"] if 1 <= fsdp["fsdp_size"] <= gpus else None,
        weight_bytes=4 if fsdp["model_dtype"] == "fp32" else 2,
        lora=bool(lora),
        critic=model_size(critic) if critic is not None else None,
        sequence_parallel=sequence_parallel(chosen),
        checkpointing=bool(model["enable_gradient_checkpointing"]),
        fused=bool(model["use_fused_kernels"]),
        policy_sleeps=bool(rollout["free_cache_engine"]),
        helpers_sleep=reward.classmate_free_cache_engine,
    )
    return job, []


def _context(chosen: Choices, reward: ClassmateRewardModelConfig, tokens: int) -> int:
    """Tokens of a full row in the policy's engine; with live self-play the classmate's answer comes behind them."""
    typed = chosen.get(f"{ROLLOUT}.max_model_len")
    if reward.live_classmate is not None:
        tokens += reward.classmate_generation_configs.max_new_tokens
    return min(tokens, typed) if type(typed) is int and typed >= 1 else tokens


def _share(chosen: Choices, key: str) -> float | None:
    share = chosen.get(key)
    return float(share) if isinstance(share, int | float) and 0 < share <= 1 else None


def _typed_shares(
    chosen: Choices, plain: Mapping[str, Any], reward: ClassmateRewardModelConfig
) -> dict[int, float | None]:
    """Index of a classmate or judge -> the share that was typed for it."""
    for_all = _share(chosen, HELPER_SHARE)
    given: Iterable[Any] = plain.get("classmates") or ()
    own = [one.get("gpu_memory_utilization") if isinstance(one, Mapping) else None for one in given]
    judged = plain.get("llm_judge_gpu_memory_utilization")
    shares: dict[int, float | None] = {}
    for index, spec in enumerate(reward.frozen_models):
        single = judged if isinstance(spec, JudgeEngineSpec) else own[index] if index < len(own) else None
        shares[index] = single or for_all
    return shares


def _blind(chosen: Choices, reward: ClassmateRewardModelConfig, unknown: list[str]) -> Filled:
    """Cautious settings where a size is not known."""
    helpers = len({engine.classmate for engine in engines(reward) if not engine.dedicated})
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
            f"GPU memory   {what} not known, so nothing was reckoned: {BLIND_SHARE:.0%} for engines, weights and Adam "
            "with the host while rows are made; what was typed stays"
        ]
    )
