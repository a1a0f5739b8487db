"""The CPU platform answers what upstream asks of an accelerator."""

import os
import subprocess
import sys

import pytest
import torch

from verl.plugin.platform import PlatformRegistry
from verl.plugin.platform.platform_cpu import PlatformCPU
from verl.utils import device as verl_device

no_accelerator = pytest.mark.skipif(torch.cuda.is_available(), reason="another platform is chosen where there is a GPU")


@pytest.fixture
def platform() -> PlatformCPU:
    return PlatformCPU()


@no_accelerator
def test_chosen_on_a_machine_without_an_accelerator() -> None:
    assert verl_device.get_device_name() == "cpu"
    assert verl_device.get_nccl_backend() == "gloo"


def test_asked_after_every_accelerator() -> None:
    assert PlatformRegistry.registered_names()[-1] == "cpu"


def test_can_be_named() -> None:
    command = "from verl.plugin.platform import get_platform; print(get_platform().device_name)"
    done = subprocess.run(
        [sys.executable, "-c", command], env={**os.environ, "VERL_PLATFORM": "cpu"}, capture_output=True, text=True
    )
    assert done.stdout.split()[-1] == "cpu", done.stderr


def test_current_device_is_what_tensor_to_takes(platform: PlatformCPU) -> None:
    assert torch.ones(1).to(platform.current_device()).device.type == "cpu"


def test_memory_figures_are_those_of_the_process(platform: PlatformCPU) -> None:
    device = platform.device_module
    before = device.memory_allocated()
    block = torch.ones(32, 1024, 1024)
    grown = device.memory_allocated() - before
    assert 0.8 * block.nbytes < grown < 2 * block.nbytes
    assert device.max_memory_allocated() >= device.memory_allocated() * 0.9
    free, total = device.mem_get_info()
    assert 0 < free <= total


def test_random_state_is_saved_and_restored(platform: PlatformCPU) -> None:
    device = platform.device_module
    device.manual_seed(3)
    state = device.get_rng_state()
    first = torch.rand(4)
    device.set_rng_state(state)
    assert torch.equal(torch.rand(4), first)


def test_every_abstract_method_of_upstream_has_an_answer(platform: PlatformCPU) -> None:
    platform.set_device(0)
    platform.synchronize()
    platform.empty_cache()
    platform.manual_seed_all(1)
    platform.set_allocator_settings("expandable_segments:True")
    with platform.nvtx_range("step"):
        platform.profiler_start()
        platform.profiler_stop()
    assert platform.device_count() == 1
    assert platform.get_device_capability() == (None, None)
    assert not platform.is_ipc_supported()


def test_ray_schedules_by_logical_gpus(platform: PlatformCPU) -> None:
    assert platform.ray_resource_name() == "GPU"


def test_vllm_servers_get_a_small_cache_and_no_thread_binding(
    platform: PlatformCPU, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND", "VLLM_LOGGING_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    assert platform.rollout_env_vars() == {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }


def test_the_users_environment_wins(platform: PlatformCPU, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "4")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "INFO")
    env = platform.rollout_env_vars()
    assert env["VLLM_CPU_KVCACHE_SPACE"] == "4"
    assert env["VLLM_LOGGING_LEVEL"] == "INFO"


def test_upstreams_default_logging_level_is_not_the_users(
    platform: PlatformCPU, monkeypatch: pytest.MonkeyPatch
) -> None:
    from verl.trainer.constants_ppo import PPO_RAY_RUNTIME_ENV

    monkeypatch.setenv("VLLM_LOGGING_LEVEL", PPO_RAY_RUNTIME_ENV["env_vars"]["VLLM_LOGGING_LEVEL"])
    assert platform.rollout_env_vars()["VLLM_LOGGING_LEVEL"] == "ERROR"
