"""The frozen models of a run as a user names them, and what stands for the settings that were left open.

>>> engines = {"backend": "hf", "placement": "colocated", "replicas": None, "tensor_parallel_size": 1}
>>> defaults = EngineDefaults(**engines, colocated_gpus=4, gpu_memory_utilization=None)
>>> defaults.fill(ClassmateSpec(model="a")).replicas
4
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from verl.classmate.typed import COUNT, MEMORY_SHARE

Backend = Literal["auto", "hf", "vllm", "openai"]
Placement = Literal["colocated", "dedicated"]

DEFAULT_SHARE = 0.5
"""What `gpu_memory_utilization: null` stands for where no plan was made: on the CPU, and outside of a run."""


@dataclass(frozen=True, kw_only=True)
class ReaderSpec:
    """One reader: a frozen model that reads the policy's chain of thought."""

    model: str
    """Path or hub name of the model."""
    backend: Backend | None = None
    """Engine of this reader; null: reward_model.classmate_backend."""
    placement: Placement | None = None
    """Where its engines stand; null: reward_model.classmate_placement."""
    replicas: int | None = field(default=None, metadata=COUNT)
    """Engines that share its requests; null: reward_model.classmate_replicas."""
    tensor_parallel_size: int | None = field(default=None, metadata=COUNT)
    """Devices one engine is spread over; null: reward_model.classmate_vllm_configs.tensor_parallel_size. Not for
    openai."""
    gpu_memory_utilization: float | None = field(default=None, metadata=MEMORY_SHARE)
    """Share of a device's memory for this engine; null: reward_model.classmate_vllm_configs.gpu_memory_utilization. Not
    for openai."""


_Spec = TypeVar("_Spec", bound=ReaderSpec)


@dataclass(frozen=True, kw_only=True)
class ClassmateSpec(ReaderSpec):
    """One classmate: a reader whose answers are part of the reward."""

    weight: float = field(default=1.0, metadata={"at_least": 0})
    """Weight of this classmate in the mean over classmates; only the ratios count."""

    @property
    def self_play(self) -> Literal["none", "frozen", "live"]:
        """none: a user wrote it; else it is the policy itself."""
        return "none"


@dataclass(frozen=True, kw_only=True)
class SelfPlaySpec(ClassmateSpec):
    """The policy as its own classmate; made from `self_play`, never written by a user."""

    mode: Literal["frozen", "live"]
    """frozen: an engine with the start checkpoint; live: the policy's own rollout servers."""

    @property
    def self_play(self) -> Literal["none", "frozen", "live"]:
        """`mode`."""
        return self.mode


@dataclass(frozen=True, kw_only=True)
class EngineDefaults:
    """What stands for the settings that a spec leaves open."""

    backend: Backend
    """Engine."""
    placement: Placement
    """Where engines stand."""
    replicas: int | None
    """Engines of each model; null: one for each GPU of the policy where they are colocated, else one."""
    colocated_gpus: int
    """GPUs of the policy."""
    tensor_parallel_size: int
    """Devices one engine is spread over."""
    gpu_memory_utilization: float | None
    """Share of a device's memory; None: it is not set."""

    def fill(self, spec: _Spec) -> _Spec:
        """The spec with nothing left open; what belongs to a server stays open with openai."""
        spec = dataclasses.replace(spec, backend=spec.backend or self.backend)
        if spec.backend == "openai":
            return spec
        placement = spec.placement or self.placement
        width = spec.tensor_parallel_size or self.tensor_parallel_size
        spread = self.one_per_gpu(placement, 1 if spec.backend == "hf" else width)
        return dataclasses.replace(
            spec,
            placement=placement,
            replicas=spec.replicas or self.replicas or spread,
            tensor_parallel_size=width,
            gpu_memory_utilization=spec.gpu_memory_utilization or self.gpu_memory_utilization,
        )

    def one_per_gpu(self, placement: Placement, width: int) -> int:
        """Number of engines of a model for which none is set, each spread over `width` devices."""
        return max(1, self.colocated_gpus // width) if placement == "colocated" else 1
