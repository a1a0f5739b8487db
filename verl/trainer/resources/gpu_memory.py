"""What each GPU holds while rows are made and while the policy trains, and the settings with which that fits.

Decision: pure arithmetic on sizes, with the GPUs' number and memory as arguments, so that a plan for any machine can be
made on any other. What a user typed is kept; what nobody typed is tried in a fixed order, cheapest first.

    >>> plan = choose(job)
    >>> plan.fits, plan.settings.schedule, plan.settings.policy_share
    (True, 'streamed', 0.31)

All sizes are GiB (2^30 bytes) of one GPU; the terms are explained in docs/resources.md.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from verl.trainer.resources.model_sizes import ModelSize
from verl.workers.classmates.placement import Schedule

GIB = 2**30

TRAINER_GIB = 1.0
"""CUDA context, kernels and communication buffers of the process that trains."""

ASLEEP_GIB = 1.2
"""What an engine keeps while it sleeps: CUDA context and graphs. Measured: 1.0 without graphs."""

ENGINE_GIB = 1.0
"""CUDA context and buffers of an engine that is awake; vLLM takes them out of its share."""

GRAPHS_GIB = 1.0
"""CUDA graphs of an engine that is awake, which vLLM takes beside its share."""

ENGINE_TOKENS = 8192
"""Tokens that vLLM works on at once (`max_num_batched_tokens`)."""

LOGIT_BYTES = 10
"""Of a logit in training: in bfloat16 the logits, their unpadded copy, log-probabilities, and the gradients of two."""

MANY_ROWS, FEW_ROWS = 32, 4
"""Full rows that each engine has room for at once: so many are enough, and with fewer than that it does not fit."""

ROWS = (256, 192, 128, 96, 64, 48, MANY_ROWS, 24, 16, 12, 8, 6, FEW_ROWS)
"""Full rows that are tried, most first; vLLM runs 256 at once."""

NO_KEY_HELPS = "a smaller policy, fewer classmates, or GPUs with more memory"
"""What to take where nothing can be written."""

_LAYER_WIDTHS = 12
"""Tensors of the model's width that a layer holds for a token, beside six of its MLP's."""


def margin_gib(gpu_gib: float) -> float:
    """What is left free: memory that allocators hold in pieces that nothing fits into."""
    return 1.0 + 0.025 * gpu_gib


@dataclass(frozen=True, kw_only=True)
class EngineNeed:
    """An engine on the fullest GPU."""

    name: str
    """For a person."""
    size: ModelSize
    """The model."""
    turn: int
    """Engines with the same number are awake together with the schedule `batched`; the policy's is -1."""
    width: int = 1
    """GPUs that it is spread over."""
    context: int
    """Tokens of a full row."""
    share: float | None = None
    """`gpu_memory_utilization` that was typed."""

    @property
    def weights_gib(self) -> float:
        """Its weights in bfloat16."""
        return 2 * self.size.parameters / self.width / GIB

    @property
    def row_gib(self) -> float:
        """The KV cache of a full row."""
        return self.size.cache_bytes * self.context / self.width / GIB

    @property
    def fixed_gib(self) -> float:
        """What it needs beside the cache: weights, buffers, and the activations and logits of what it works on."""
        active = ENGINE_TOKENS * 4 * self.size.intermediate * 2 + 256 * self.size.vocabulary * 8
        return self.weights_gib + ENGINE_GIB + active / self.width / GIB

    def needs_gib(self, rows: int) -> float:
        """With room for so many full rows at once."""
        return self.fixed_gib + rows * self.row_gib


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run as far as its memory goes; null where nobody typed it."""

    gpus: int
    """Ranks of the trainer."""
    nodes: int = 1
    """`trainer.nnodes`, over which they are spread."""
    gpu_gib: float
    """Memory of each GPU."""
    policy: EngineNeed
    """The policy's engine; `size` is also what is trained."""
    helpers: tuple[EngineNeed, ...]
    """Colocated engines of classmates and judges on the fullest GPU."""
    row_tokens: int
    """Tokens of a full row of the policy: prompt and response."""
    rows_of_rank: int
    """Rows of a mini-batch on each rank; micro-batches divide them."""
    by_tokens: bool = False
    """`use_dynamic_bsz`: micro-batches are filled by tokens."""
    schedule: Schedule | None = None
    """Typed `classmate_schedule`."""
    param_offload: bool | None = None
    """Typed."""
    optimizer_offload: bool | None = None
    """Typed."""
    micro: int | None = None
    """Typed micro-batch: rows, or tokens where they are filled by tokens."""
    offload_policy: bool = False
    """FSDP2's own offload: weights, gradients and Adam stay with the host in training too."""
    shards: int | None = None
    """GPUs over which the trained state is split (`fsdp_size`); None: all."""
    weight_bytes: int = 4
    """Of a trained number: `model_dtype`."""
    lora: bool = False
    """Adapters are trained."""
    critic: ModelSize | None = None
    """The critic's model."""
    sequence_parallel: int = 1
    """Ranks that share a row (Ulysses)."""
    checkpointing: bool = True
    """`enable_gradient_checkpointing`."""
    fused: bool = False
    """`use_fused_kernels`: logits are never there as a whole."""
    policy_sleeps: bool = True
    """`rollout.free_cache_engine`."""
    helpers_sleep: bool = True
    """`classmate_free_cache_engine`."""

    @property
    def is_typed(self) -> bool:
        """Whether anything that a plan decides was typed."""
        shares = [engine.share for engine in (self.policy, *self.helpers)]
        return any(
            one is not None for one in (*shares, self.schedule, self.param_offload, self.optimizer_offload, self.micro)
        )

    @property
    def trained(self) -> tuple[ModelSize, ...]:
        """The models that are trained."""
        return (self.policy.size, *([self.critic] if self.critic is not None else []))


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a plan decides."""

    schedule: Schedule
    """Of the classmates."""
    param_offload: bool
    """Weights are with the host while rows are made."""
    optimizer_offload: bool
    """Adam's moments are."""
    policy_share: float
    """`gpu_memory_utilization` of the policy."""
    helper_share: float
    """The same of each classmate and judge that has none of its own."""
    micro: int
    """Rows of a micro-batch on each GPU, or tokens where they are filled by tokens."""
    rows: int
    """Full rows that the tightest engine has room for at once."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """What a GPU holds at a time."""

    parts: tuple[tuple[str, float], ...]
    """Name and size of each."""

    @property
    def gib(self) -> float:
        """All of it."""
        return sum(size for _, size in self.parts)

    def told(self, gpu_gib: float) -> str:
        """`21.0 of 23.5 GiB a GPU: weights, gradients, Adam 8.9, ...`"""
        parts = ", ".join(f"{name} {size:.1f}" for name, size in self.parts if size >= 0.05)
        return f"{self.gib:.1f} of {gpu_gib:.1f} GiB a GPU: {parts}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Settings, and what they come to."""

    job: Job
    """For which they are."""
    settings: Settings
    """What was decided."""
    rows_made: Phase
    """While rows are made: the fuller time with the schedule `batched`."""
    trains: Phase
    """While the policy trains."""

    @property
    def room_gib(self) -> float:
        """What stays free at the fuller time, behind the margin."""
        return self.job.gpu_gib - margin_gib(self.job.gpu_gib) - max(self.rows_made.gib, self.trains.gib)

    @property
    def fits(self) -> bool:
        """Whether all of it has room."""
        return self.room_gib >= -1e-6 and self.settings.rows >= FEW_ROWS and not self.cramped

    @property
    def impossible(self) -> bool:
        """Whether it would fail for certain, however close the reckoning is."""
        fullest = max(self.rows_made.gib, self.trains.gib)
        no_room = [one for one in self.cramped if (one.share or 0) * self.job.gpu_gib < one.weights_gib + one.row_gib]
        return fullest > self.job.gpu_gib or self.settings.rows < 1 or bool(no_room)

    @property
    def cramped(self) -> tuple[EngineNeed, ...]:
        """Engines whose typed share has room for fewer than `FEW_ROWS` full rows at once."""
        engines = (self.job.policy, *self.job.helpers)
        return tuple(
            one for one in engines if one.share is not None and one.share * self.job.gpu_gib < one.needs_gib(FEW_ROWS)
        )


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
    """Shares of policy and helpers for so many rows; what was typed stays as it is."""
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
    """Full rows that the tightest engine without a typed share has room for; `rows` where all are typed."""
    shares = _shares(job, rows)
    found = []
    for engine in (job.policy, *job.helpers):
        if engine.share is None:
            share = shares[0] if engine is job.policy else shares[1]
            found.append(int((share * job.gpu_gib - engine.fixed_gib) / engine.row_gib + 1e-6))
    return max(0, min(found, default=rows))


def evaluate(job: Job, settings: Settings) -> Plan:
    """What settings come to."""
    return Plan(
        job=job, settings=settings, rows_made=_while_rows_are_made(job, settings), trains=_while_training(job, settings)
    )


def _state_gib(job: Job, *, weights: bool, optimizer: bool, gradients: bool) -> float:
    """Of the trained models on each GPU: weights, gradients, Adam's two moments."""
    if job.offload_policy:
        return 0.0
    shards, total = job.shards or job.gpus, 0.0
    for size in job.trained:
        trained = 0.02 if job.lora else 1.0
        copies = weights + (gradients + 2 * optimizer) * trained
        total += job.weight_bytes * copies * size.parameters / shards / GIB
    return total


def _helper_gib(job: Job, settings: Settings, helper: EngineNeed) -> float:
    return (helper.share or settings.helper_share) * job.gpu_gib


def _while_rows_are_made(job: Job, settings: Settings) -> Phase:
    kept = _state_gib(
        job, weights=not settings.param_offload, optimizer=not settings.optimizer_offload, gradients=False
    )
    rest = [("weights and Adam", kept), ("CUDA of the trainer", TRAINER_GIB)]
    policy = ("policy", settings.policy_share * job.gpu_gib + GRAPHS_GIB)
    helpers = [(helper.name, _helper_gib(job, settings, helper) + GRAPHS_GIB) for helper in job.helpers]
    if settings.schedule == "streamed":
        return Phase(parts=(policy, *helpers, *rest))
    times = [[policy]]
    for turn in sorted({helper.turn for helper in job.helpers}):
        times.append([told for told, helper in zip(helpers, job.helpers, strict=True) if helper.turn == turn])
    if not job.policy_sleeps:
        times = [[policy, *time] for time in times[1:]] or times
    phases = []
    for time in times:
        asleep = ASLEEP_GIB * (1 + len(helpers) - len(time))
        phases.append(Phase(parts=(*time, ("engines asleep", asleep), *rest)))
    return max(phases, key=lambda phase: phase.gib)


def _while_training(job: Job, settings: Settings) -> Phase:
    tokens = settings.micro if job.by_tokens else settings.micro * job.row_tokens
    passes = working_gib(job, tokens)
    gathered = max(8 * (one.vocabulary * one.hidden + one.parameters / one.layers) for one in job.trained) / GIB
    if job.gpus == 1 and not job.offload_policy:
        # Nothing is gathered, but weights are cast to bfloat16 all the same.
        gathered /= 2
    engines = ASLEEP_GIB if job.policy_sleeps else settings.policy_share * job.gpu_gib + GRAPHS_GIB
    for helper in job.helpers:
        engines += ASLEEP_GIB if job.helpers_sleep else _helper_gib(job, settings, helper) + GRAPHS_GIB
    unit = f"{tokens:,} tokens" if job.by_tokens else f"{settings.micro} full row{'s' * (settings.micro > 1)}"
    what = "weights, gradients, Adam" if job.critic is None else "weights, gradients, Adam of policy and critic"
    return Phase(
        parts=(
            (what, _state_gib(job, weights=True, optimizer=True, gradients=True)),
            (f"logits and activations of {unit}", passes),
            ("gathered layers", gathered),
            ("engines asleep" if job.policy_sleeps and job.helpers_sleep else "engines", engines),
            ("CUDA of the trainer", TRAINER_GIB),
        )
    )


def working_gib(job: Job, tokens: int) -> float:
    """Logits and activations of a micro-batch of so many tokens."""
    size, tokens = job.policy.size, -(-tokens // job.sequence_parallel)
    logits = size.vocabulary * (1 if job.fused else LOGIT_BYTES)
    inside = 2 * (_LAYER_WIDTHS * size.hidden + 6 * size.intermediate)
    kept = 2 * size.hidden * size.layers + inside if job.checkpointing else inside * size.layers
    return tokens * (logits + kept) / GIB


def advice(job: Job) -> list[str]:
    """What would make a job fit that does not, each alone: keys to write, or where none does, what to take."""
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
            found.append(f"data.max_prompt_length and data.max_response_length of together {tokens}")
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
