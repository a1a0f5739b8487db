"""Weights on their way from the trainer into a running model: packed, copied in place, every name accounted for.

One decision: a tensor travels as (name, dtype, shape, bytes), since NumPy has no bfloat16.

    loader = WeightLoader(model)
    async for bucket in buckets(weights, bucket_bytes=64 << 20):
        loader.load(bucket)
    loader.finish()                      # raises if a parameter got no weight
"""

from collections.abc import AsyncIterator, Iterable
from typing import Any

import numpy as np
import torch

PackedTensor = tuple[str, str, tuple[int, ...], np.ndarray]
"""Name, torch dtype name, shape, and the contiguous bytes."""


def pack(name: str, tensor: torch.Tensor) -> PackedTensor:
    """Packs a tensor from any device. On the CPU the bytes are a view, to be sent before the tensor changes."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), flat.view(torch.uint8).numpy()


def unpack(packed: PackedTensor) -> tuple[str, torch.Tensor]:
    """The inverse of `pack`; the tensor owns its memory (what Ray hands out is read-only)."""
    name, dtype, shape, data = packed
    return name, torch.from_numpy(data.copy()).view(getattr(torch, dtype)).reshape(shape)


async def buckets(weights: Any, *, bucket_bytes: int) -> AsyncIterator[list[PackedTensor]]:
    """Groups an iterable or async iterable of (name, tensor) into lists of at most `bucket_bytes` (or one tensor)."""
    bucket: list[PackedTensor] = []
    size = 0
    async for name, tensor in _as_async(weights):
        packed = pack(name, tensor)
        if bucket and size + packed[3].nbytes > bucket_bytes:
            yield bucket
            bucket, size = [], 0
        bucket.append(packed)
        size += packed[3].nbytes
    if bucket:
        yield bucket


async def _as_async(items: Any) -> AsyncIterator[Any]:
    if hasattr(items, "__aiter__"):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


class WeightLoader:
    """Copies one set of weights into a model. Tied names share a tensor: either name will do, both are accepted."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._targets = model.state_dict(keep_vars=True)
        # A tensor is its own key, whatever its numbers are.
        self._missing = {tensor: name for name, tensor in self._targets.items()}

    @torch.no_grad()
    def load(self, bucket: Iterable[PackedTensor]) -> None:
        """Copies a bucket, cast to the model's dtypes. Raises ValueError for an unknown name or another shape."""
        for packed in bucket:
            name, tensor = unpack(packed)
            target = self._targets.get(name)
            if target is None:
                raise ValueError(f"weight update: the rollout model has no parameter {name!r}")
            if target.shape != tensor.shape:
                raise ValueError(f"weight update: {name} is {tuple(tensor.shape)}, expected {tuple(target.shape)}")
            target.copy_(tensor)
            self._missing.pop(target, None)

    def finish(self) -> None:
        """Raises ValueError when a parameter got no weight."""
        if self._missing:
            names = sorted(self._missing.values())
            raise ValueError(f"weight update: {len(names)} parameters got no weight: {', '.join(names[:5])}")
