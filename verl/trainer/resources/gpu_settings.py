"""The settings with which a run fits into its GPUs' memory, and what would make one fit that does not.

Decision: what a user has set is kept. The other settings are tried in a fixed order, cheapest first, and `gpu_memory`
says whether they fit.

    >>> plan = choose(job)
    >>> plan.fits, plan.settings.schedule, plan.settings.policy_share
    (True, 'streamed', 0.31)
"""

import dataclasses
from collections.abc import Iterator, Sequence

from verl.trainer.resources.gpu_memory import FEW_ROWS, Job, Plan, Settings, evaluate
from verl.workers.classmates.placement import Schedule

MANY_ROWS = 32
"""Full rows that each engine has room for at once: so many are enough."""

ROWS = (256, 192, 128, 96, 64, 48, MANY_ROWS, 24, 16, 12, 8, 6, FEW_ROWS)
"""Full rows that are tried, most first; vLLM runs 256 at once."""

NO_KEY_HELPS = "a smaller policy, fewer classmates, or GPUs with more memory"
"""What to take where nothing can be written."""


def choose(job: Job) -> Plan:
    """The first settings with which the job fits and every engine has room for `MANY_ROWS`.

    Where there are none, those with room for most rows; where nothing fits, those that need least.
    """
    found: list[Plan] = []
    for schedule, param, optimizer in _ways(job):
        plan = _widest(job, schedule, param, optimizer)
        if plan.fits and plan.settings.rows >= MANY_ROWS:
            return plan
        found.append(plan)
    return max(found, key=lambda plan: (plan.fits, plan.settings.rows if plan.fits else 0, plan.room_gib))


def _ways(job: Job) -> Iterator[tuple[Schedule, bool, bool]]:
    """Schedules and offloads that are allowed, cheapest first: offloading costs a copy a step, waiting costs more."""
    schedules: Sequence[Schedule] = ("streamed", "batched") if job.helpers and job.helpers_sleep else ("streamed",)
    for schedule in [job.schedule] if job.schedule is not None else schedules:
        for offload in (False, True):
            param = offload if job.param_offload is None else job.param_offload
            optimizer = offload if job.optimizer_offload is None else job.optimizer_offload
            yield schedule, param, optimizer


def _widest(job: Job, schedule: Schedule, param: bool, optimizer: bool) -> Plan:
    """The plan with room for most rows, of those with these settings; one for `FEW_ROWS` where none fits."""
    for rows in ROWS:
        shares = _shares(job, rows)
        for micro in _micro_batches(job):
            settings = Settings(
                schedule=schedule,
                param_offload=param,
                optimizer_offload=optimizer,
                policy_share=shares[0],
                helper_share=shares[1],
                micro=micro,
                rows=_rows_at_once(job, rows),
            )
            plan = evaluate(job, settings)
            if plan.fits:
                return plan
    return plan


def _shares(job: Job, rows: int) -> tuple[float, float]:
    """Shares of policy and helpers for so many rows; what is set stays as it is."""
    policy = job.policy.share or _share(job.policy.needs_gib(rows), job.gpu_gib)
    open_ones = [helper.needs_gib(rows) for helper in job.helpers if helper.share is None]
    return policy, _share(max(open_ones, default=0.0), job.gpu_gib)


def _share(gib: float, gpu_gib: float) -> float:
    """Rounded up to hundredths, and at most 0.95: an engine does not start with less than its share free."""
    return min(0.95, -(-gib * 100 // gpu_gib) / 100)


def _micro_batches(job: Job) -> list[int]:
    """Micro-batches that are tried, largest first."""
    if job.micro is not None:
        return [job.micro]
    if job.by_tokens:
        return sorted({max(job.row_tokens, 16384 >> halvings) for halvings in range(8)}, reverse=True)
    return [rows for rows in range(min(16, job.rows_of_rank), 0, -1) if job.rows_of_rank % rows == 0] or [1]


def _rows_at_once(job: Job, rows: int) -> int:
    """Full rows that the tightest engine has room for, of those whose share is not set; `rows` where all are set."""
    shares = _shares(job, rows)
    found = []
    for engine in (job.policy, *job.helpers):
        if engine.share is None:
            share = shares[0] if engine is job.policy else shares[1]
            found.append(int((share * job.gpu_gib - engine.fixed_gib) / engine.row_gib + 1e-6))
    return max(0, min(found, default=rows))


def advice(job: Job) -> list[str]:
    """What would make a job fit that does not fit, each alone: keys to write; if no key helps, what to take instead."""
    found = []
    open_job = dataclasses.replace(
        job,
        schedule=None,
        param_offload=None,
        optimizer_offload=None,
        micro=None,
        policy=dataclasses.replace(job.policy, share=None),
        helpers=tuple(dataclasses.replace(helper, share=None) for helper in job.helpers),
        policy_sleeps=True,
        helpers_sleep=True,
    )
    if choose(open_job).fits:
        return ["null for gpu_memory_utilization, micro-batches and offload, and classmate_schedule=auto"]
    for factor in (2, 4, 8, 16):
        gpus = job.gpus * factor
        if gpus > 8 and gpus % 8:
            continue
        more = dataclasses.replace(open_job, gpus=gpus, rows_of_rank=max(1, job.rows_of_rank // factor))
        if job.shards is None and choose(more).fits:
            there = gpus % job.nodes == 0 and gpus // job.nodes <= 8
            more_nodes = f"trainer.nnodes={gpus // 8} trainer.n_gpus_per_node=8"
            found.append(f"trainer.n_gpus_per_node={gpus // job.nodes}" if there else more_nodes)
            break
    for shorter in (2, 4, 8):
        less = job.row_tokens - job.row_tokens // shorter
        if job.row_tokens - less >= 256 and choose(_with_shorter_rows(open_job, less)).fits:
            tokens = job.row_tokens - less
            found.append(f"data.max_prompt_length and data.max_response_length that add up to {tokens}")
            break
    host = "actor_rollout_ref.actor.fsdp_config.offload_policy=true (training state with the host; slow)"
    if not job.offload_policy and choose(dataclasses.replace(open_job, offload_policy=True)).fits:
        found.append(host)
    if not job.lora and choose(dataclasses.replace(open_job, lora=True)).fits:
        found.append("actor_rollout_ref.model.lora_rank=32 (adapters are trained)")
    return found or [NO_KEY_HELPS]


def _with_shorter_rows(job: Job, less: int) -> Job:
    return dataclasses.replace(
        job,
        row_tokens=job.row_tokens - less,
        policy=dataclasses.replace(job.policy, context=job.policy.context - less),
        helpers=tuple(dataclasses.replace(helper, context=helper.context - less) for helper in job.helpers),
    )
