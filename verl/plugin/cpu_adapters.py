"""The few places where upstream verl 0.9.1 assumes an accelerator and has no hook. Each function adapts one module.

`classmate_plugin` runs them right after the module named in the docstring was imported, and only when the platform is the
CPU. Each one says which upstream symbol it changes and why; `tests/plugin/test_cpu_adapters.py` fails when upstream changes
one of them.
"""

import functools
from types import ModuleType
from typing import Any


def gloo_process_group(module: ModuleType) -> None:
    """`verl.utils.distributed`: upstream asks for `cpu:gloo,{device}:{backend}`, which names the CPU twice here."""

    def with_gloo(initialize: Any) -> Any:
        @functools.wraps(initialize)
        def wrapped(timeout_second: float | None = None, backend: str | None = None) -> Any:
            return initialize(timeout_second=timeout_second, backend=backend or "cpu:gloo")

        return wrapped

    module.initialize_global_process_group_ray = with_gloo(module.initialize_global_process_group_ray)  # type: ignore[attr-defined]


def unpinned_offload(module: ModuleType) -> None:
    """`verl.workers.engine.fsdp.transformer_impl`: `CPUOffloadPolicy(pin_memory=True)` needs an accelerator to pin for."""
    policy = module.CPUOffloadPolicy  # type: ignore[attr-defined]

    def unpinned(pin_memory: bool = False) -> Any:
        return policy(pin_memory=False)

    module.CPUOffloadPolicy = unpinned  # type: ignore[attr-defined]


def fsdp_engines(module: ModuleType) -> None:
    """`verl.workers.engine.fsdp.transformer_impl`: its engines are registered for cuda and npu; they serve the CPU as they are."""
    from verl.workers.engine.base import EngineRegistry

    for model_type, engine in (
        ("language_model", module.FSDPEngineWithLMHead),  # type: ignore[attr-defined]
        ("value_model", module.FSDPEngineWithValueHead),  # type: ignore[attr-defined]
    ):
        EngineRegistry.register(model_type=model_type, backend=["fsdp", "fsdp2"], device="cpu")(engine)
