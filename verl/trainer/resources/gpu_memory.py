"""What each GPU holds while rows are made and while the policy trains, and whether that fits.

Decision: pure arithmetic on sizes, with the GPUs' number and memory as arguments, so that a plan for any machine can be
made on any other.

    >>> plan = evaluate(job, settings)
    >>> plan.fits, plan.rows_made.gib, plan.trains.gib
    (True, 17.9, 19.2)

All sizes are GiB (2^30 bytes) of one GPU; the terms are explained in docs/resources.md.
"""

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

FEW_ROWS = 4
"""Full rows for which each engine must have room at once: with fewer than that it does not fit."""

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
    turn: str
    """Engines with the same one are awake together with the schedule `batched`; the policy's is its own."""
    width: int = 1
    """GPUs that it is spread over."""
    context: int
    """Tokens of a full row."""
    share: float | None = None
    """`gpu_memory_utilization`, if it is set."""
    validation_only: bool = False
    """Whether it is awake only while the policy sleeps in a validation (`FrozenModel.validation_only`)."""

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
    """A run as far as its memory goes; None stands for what the user has not set."""

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
    """`classmate_schedule`, if it is set."""
    param_offload: bool | None = None
    """The same of `param_offload`."""
    optimizer_offload: bool | None = None
    """The same of `optimizer_offload`."""
    micro: int | None = None
    """The micro-batch, if it is set: rows, or tokens where micro-batches are filled by tokens."""
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
        """Whether the user has set anything that a plan decides."""
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
    """While rows are made: the fullest time, where engines take turns."""
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
        """Whether it fails for certain, even if the estimate is too high."""
        fullest = max(self.rows_made.gib, self.trains.gib)
        no_room = [one for one in self.cramped if (one.share or 0) * self.job.gpu_gib < one.weights_gib + one.row_gib]
        return fullest > self.job.gpu_gib or self.settings.rows < 1 or bool(no_room)

    @property
    def cramped(self) -> tuple[EngineNeed, ...]:
        """Engines whose share is set, and has room for fewer than `FEW_ROWS` full rows at once."""
        engines = (self.job.policy, *self.job.helpers)
        return tuple(
            one for one in engines if one.share is not None and one.share * self.job.gpu_gib < one.needs_gib(FEW_ROWS)
        )


def evaluate(job: Job, settings: Settings) -> Plan:
    """The plan that these settings make."""
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
    together, turns = [], dict[str, list[tuple[str, float]]]()
    for helper in job.helpers:
        told = (helper.name, _helper_gib(job, settings, helper) + GRAPHS_GIB)
        if settings.schedule == "batched" or (helper.validation_only and job.helpers_sleep):
            turns.setdefault(helper.turn, []).append(told)
        else:
            together.append(told)
    times = [[policy, *together], *([*together, *turn] for turn in turns.values())]
    if not job.policy_sleeps:
        times = [[policy, *time] for time in times[1:]] or times
    phases = []
    for time in times:
        asleep = 1 + len(job.helpers) - len(time)
        sleeping = [("engines asleep", ASLEEP_GIB * asleep)] if asleep else []
        phases.append(Phase(parts=(*time, *sleeping, *rest)))
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
