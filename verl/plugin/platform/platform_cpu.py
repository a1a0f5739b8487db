"""verl on machines without an accelerator: FSDP2 on gloo, Ray with logical resources, memory figures of the process.

The one decision: Ray still schedules by the resource `GPU`, with as many logical GPUs as there are ranks. Upstream's
resource pools ask for that resource by name; a second spelling would have to be taught to each of them.

    >>> from verl.plugin.platform import get_platform
    >>> get_platform().device_name                    # on a machine without an accelerator
    'cpu'
"""

import contextlib
import os
import types
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

from verl.plugin.platform.platform_base import PlatformBase


def _rss_bytes(peak: bool) -> int:
    """Resident set size of this process, in bytes; 0 where the system does not tell."""
    import resource

    if peak:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with contextlib.suppress(OSError), open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


class CpuDeviceModule(ModuleType):
    """What upstream calls on `torch.cuda`, answered for the CPU: `torch.cpu` plus memory figures and no-ops."""

    def __init__(self) -> None:
        super().__init__("verl_cpu_device")

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def get_device_name(self, device: Any = None) -> str:
        return "CPU"

    def empty_cache(self) -> None:
        """Nothing is cached."""

    def ipc_collect(self) -> None:
        """There are no device IPC handles."""

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        """The peak is the process's own and cannot be reset."""

    def set_per_process_memory_fraction(self, fraction: float, device: Any = None) -> None:
        """Memory is not partitioned on the CPU."""

    def memory_allocated(self, device: Any = None) -> int:
        return _rss_bytes(peak=False)

    def memory_reserved(self, device: Any = None) -> int:
        return _rss_bytes(peak=False)

    def max_memory_allocated(self, device: Any = None) -> int:
        return _rss_bytes(peak=True)

    def max_memory_reserved(self, device: Any = None) -> int:
        return _rss_bytes(peak=True)

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """(free, total) bytes of main memory."""
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)


class PlatformCPU(PlatformBase):
    """Registered last under the name `cpu`, so that auto-detection picks it only where no accelerator answers."""

    def __init__(self) -> None:
        self._device_module = CpuDeviceModule()

    @property
    def device_name(self) -> str:
        return "cpu"

    @property
    def vendor_name(self) -> str:
        return "cpu"

    @property
    def device_module(self) -> ModuleType:
        return self._device_module

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        """The string `cpu`: upstream hands the result to `Tensor.to`, where an index would mean an accelerator."""
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        """There is one device."""

    def synchronize(self, device_index: int | None = None) -> None:
        """The CPU is synchronous."""

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """The CPU allocator has no such settings."""

    def empty_cache(self) -> None:
        """Nothing is cached."""

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        """There is no device profiler."""

    def profiler_stop(self) -> None:
        """There is no device profiler."""

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def rollout_env_vars(self) -> dict[str, str]:
        """What a vLLM server on the CPU needs; a variable that the user has set is left as it is.

        By default vLLM reserves half of the machine's memory for its cache, and binds each engine's threads to the same
        cores: several engines and the trainer share this machine. Upstream sets the logging level WARN for all its
        processes, at which vLLM lists a dozen things that a CPU does not have.
        """
        defaults = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_LOGGING_LEVEL": "ERROR"}
        env = {name: os.environ.get(name, default) for name, default in defaults.items()}
        if env["VLLM_LOGGING_LEVEL"] == "WARN":
            env["VLLM_LOGGING_LEVEL"] = defaults["VLLM_LOGGING_LEVEL"]
        return env

    def cudart(self) -> Any:
        return types.SimpleNamespace()
