"""The policy's training engine: upstream's, with logits where a response is predicted, and the entropy on the side.

Decision: where rows are padded (without flash attention: on the CPU), a micro-batch takes rows of similar length, so
that little of it is padding. The model leaves out the logits of prompts, which nothing uses; the outputs at those
positions are 0. A run that trains in one step per batch takes the metric of the entropy from the training pass, where
it must cost neither a gradient nor a copy of the logits.

    >>> EngineRegistry.get_engine_cls("language_model", "fsdp2")
    <class 'verl.workers.engine.fsdp.policy_engine.PolicyEngine'>
"""

import inspect
from typing import Any

import torch
from tensordict import TensorDict
from torch.distributed.tensor import DTensor

from verl.utils import tensordict_utils as tu
from verl.utils import torch_functional
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, _scale_logits_by_temperature

ENTROPY_ASIDE = "entropy_aside"
"""Flag of a batch: its model output shall have the entropy of each token under this name, without gradient."""

_CHUNK_BYTES = 64 * 2**20
"""Of float32 logits whose entropy is computed at a time."""


class PolicyEngine(FSDPEngineWithLMHead):
    """Language model under FSDP, for log-probs and for updates.

    Shapes: B rows, S tokens of the longest row, V tokens of the vocabulary.
    """

    def forward_backward_batch(self, data: TensorDict, loss_function: Any, forward_only: bool = False) -> Any:
        """Upstream's pass, in micro-batches of rows of like lengths; its outputs are in the order of `data`."""
        order = self._by_length(data)
        if order is None:
            return super().forward_backward_batch(data, loss_function, forward_only=forward_only)
        data = tu.index_select_tensor_dict(data, order)
        found: Any = super().forward_backward_batch(data, loss_function, forward_only=forward_only)
        back = order.argsort().tolist()
        for name, values in found["model_output"].items():
            rows = values.unbind()
            found["model_output"][name] = torch.nested.as_nested_tensor([rows[i] for i in back], layout=torch.jagged)
        return found

    def _by_length(self, data: TensorDict) -> torch.Tensor | None:
        """Places of the rows (B,) from the shortest to the longest; None where their order costs nothing."""

        def given(name: str, default: Any) -> Any:
            return tu.get_non_tensor_data(data, name, default=default)

        # Packed rows have no padding; micro-batches of so many tokens, and pairs of rows, are in an order of their own.
        if given("use_remove_padding", True) or given("use_dynamic_bsz", True) or given("force_group_size", 1) != 1:
            return None
        if len(data) <= given("micro_batch_size_per_gpu", len(data)) or not data["input_ids"].is_nested:
            return None
        lengths = data["input_ids"].offsets().diff()
        return None if (lengths.diff() >= 0).all() else lengths.argsort(stable=True)

    def prepare_model_inputs(self, micro_batch: TensorDict) -> tuple[dict[str, Any], dict[str, Any]]:
        """Upstream's inputs; where rows are padded, the model computes logits from the first response on."""
        inputs, args = super().prepare_model_inputs(micro_batch)
        if self._leaves_prompts_out(micro_batch):
            first = int(micro_batch["prompts"].offsets().diff().min()) - 1
            inputs["logits_to_keep"] = inputs["input_ids"].shape[1] - first
            args["first_kept"] = first
            args["labels_BS"] = inputs["input_ids"].roll(-1, dims=1)
        return inputs, args

    def _leaves_prompts_out(self, micro_batch: TensorDict) -> bool:
        def flag(name: str) -> bool:
            return bool(tu.get_non_tensor_data(micro_batch, name, default=False))

        packed = bool(tu.get_non_tensor_data(micro_batch, "use_remove_padding", default=True))
        others = ("use_fused_kernels", "calculate_sum_pi_squared", "distillation_use_topk", "distillation_only")
        if packed or any(map(flag, others)) or "prompts" not in micro_batch:
            return False
        model = getattr(self.module, "module", self.module)
        model = model.get_base_model() if hasattr(model, "get_base_model") else model
        return micro_batch["prompts"].is_nested and "logits_to_keep" in inspect.signature(model.forward).parameters

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: TensorDict, logits_processor_func: Any
    ) -> dict[str, torch.Tensor]:
        """Nested (B, tokens of the row) `log_probs` of each next token, `entropy` and `entropy_aside` if asked for."""
        aside = bool(tu.get_non_tensor_data(micro_batch, ENTROPY_ASIDE, default=False))
        if "first_kept" in output_args:
            return self._of_responses(output.logits, output_args, micro_batch, aside=aside)
        entropy = self._entropy_of_all(output, output_args, micro_batch) if aside else None
        outputs = super().prepare_model_outputs(output, output_args, micro_batch, logits_processor_func)
        return outputs if entropy is None else {**outputs, ENTROPY_ASIDE: entropy}

    def _of_responses(
        self, logits: torch.Tensor, args: dict[str, Any], micro_batch: TensorDict, *, aside: bool
    ) -> dict[str, torch.Tensor]:
        first, labels_BS, offsets = args["first_kept"], args["labels_BS"], micro_batch["input_ids"].offsets()
        logits = _scale_logits_by_temperature(
            logits, args["temperature"][:, None, None], is_unit_temperature=args["temperature_is_one"]
        )
        width = labels_BS.shape[1]
        real_BS = torch.arange(width, device=logits.device) < offsets.diff()[:, None]

        def nested(values: torch.Tensor) -> torch.Tensor:
            whole_BS = torch.nn.functional.pad(values, (first, 0))
            return torch.nested.nested_tensor_from_jagged(whole_BS[real_BS], offsets)

        log_probs = torch_functional.logprobs_from_logits(logits.flatten(0, 1), labels_BS[:, first:].flatten())
        outputs = {"log_probs": nested(log_probs.unflatten(0, (-1, width - first)))}
        if tu.get_non_tensor_data(micro_batch, "calculate_entropy", default=False):
            entropy = torch_functional.entropy_from_logits
            if self.engine_config.entropy_checkpointing:
                outputs["entropy"] = nested(torch.utils.checkpoint.checkpoint(entropy, logits, use_reentrant=False))
            else:
                outputs["entropy"] = nested(entropy(logits))
        if aside:
            outputs[ENTROPY_ASIDE] = nested(entropy_without_gradient(logits))
        return outputs

    def _entropy_of_all(self, output: Any, args: dict[str, Any], micro_batch: TensorDict) -> torch.Tensor:
        """Nested (B, tokens of the row): from the logits of the whole rows, packed or padded, or from the kernel's."""
        offsets = micro_batch["input_ids"].offsets()
        packed = bool(tu.get_non_tensor_data(micro_batch, "use_remove_padding", default=True))
        if tu.get_non_tensor_data(micro_batch, "use_fused_kernels", default=False):
            values = output.entropy.detach()
        else:
            logits = output.logits.full_tensor() if isinstance(output.logits, DTensor) else output.logits
            temperature = args["temperature_rmpad"][None, :] if packed else args["temperature"][:, None]
            values = entropy_without_gradient(logits, None if args["temperature_is_one"] else temperature)
        if packed:
            values = self._gather_and_unpad_packed(values.squeeze(0), args["pad_size"])
        else:
            values = values[torch.arange(values.shape[1], device=values.device) < offsets.diff()[:, None]]
        return torch.nested.nested_tensor_from_jagged(values, offsets)


@torch.no_grad()
def entropy_without_gradient(logits: torch.Tensor, temperature: torch.Tensor | None = None) -> torch.Tensor:
    """Entropy (...) of logits (..., V), a part at a time, so that no second copy of the logits is needed.

    Args:
        logits: they stay as they are.
        temperature: (..., 1) or broadcast to (...): by which they are divided; 1 if None.
    """
    flat = logits.detach().flatten(0, -2)
    divisors = None if temperature is None else temperature.expand(logits.shape[:-1]).flatten().clamp(min=1e-8)
    rows = max(1, _CHUNK_BYTES // (4 * flat.shape[-1]))
    parts = []
    for start in range(0, len(flat), rows):
        part = flat[start : start + rows]
        if divisors is not None:
            part = part / divisors[start : start + rows, None].to(part.dtype)
        parts.append(torch_functional.entropy_from_logits(part.float()))
    return torch.cat(parts).view(logits.shape[:-1])
