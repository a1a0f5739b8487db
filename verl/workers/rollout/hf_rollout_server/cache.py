"""Keys and values of a running batch, with room for tokens to come.

Decision: transformers' own cache copies all of a layer's keys and values for each new token. Here a token is written
behind the others, and a copy is made only where room ends; the model gets the same numbers. Two batches can be put
together, the shorter one padded on its left. Layers that keep a window or a state are transformers' own, and cannot.

    >>> cache = growing_cache(model.config)
    >>> model(input_ids=ids_BL, past_key_values=cache, use_cache=True)
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.cache_utils import DynamicCache, DynamicLayer

_ROOM = 64
"""Least room, in tokens, that is made when the last has gone."""


class GrowingLayer(DynamicLayer):
    """Keys and values (B rows, H heads, S tokens, D) of one layer, as views of tensors with room behind them."""

    _whole: tuple[torch.Tensor, torch.Tensor] | None = None
    """(B, H, S and room, D); None while there is no room."""

    def _written(self) -> tuple[torch.Tensor, torch.Tensor]:
        assert self.keys is not None
        assert self.values is not None
        return self.keys, self.values

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes those of new tokens (B, H, N, D) and returns all, (B, H, S + N, D)."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        before = self.get_seq_length()
        after = before + key_states.shape[2]
        if self._whole is None or self._whole[0].shape[2] < after:
            room = max(_ROOM, after // 4)
            keys, values = (
                new.new_empty((*new.shape[:2], after + room, new.shape[3])) for new in (key_states, value_states)
            )
            if before:
                keys[:, :, :before], values[:, :, :before] = self._written()
            self._whole = keys, values
        keys, values = self._whole
        keys[:, :, before:after], values[:, :, before:after] = key_states, value_states
        self.keys, self.values = keys[:, :, :after], values[:, :, :after]
        return self._written()

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Keeps the rows `beam_idx`, in that order; one may be there several times."""
        super().reorder_cache(beam_idx)
        self._whole = None

    def drop_columns(self, count: int) -> None:
        """Forgets the first tokens of all rows, which are padding in each."""
        self.keys, self.values = (written[:, :, count:] for written in self._written())
        self._whole = None

    def join(self, other: "GrowingLayer") -> None:
        """Takes the rows of another layer behind its own; zeros stand where one has fewer tokens, on its left."""
        tokens = max(self.get_seq_length(), other.get_seq_length())
        joined = []
        for ours, theirs in zip(self._written(), other._written(), strict=True):
            rows = len(ours)
            whole = ours.new_zeros((rows + len(theirs), ours.shape[1], tokens + _ROOM, ours.shape[3]))
            whole[:rows, :, tokens - ours.shape[2] : tokens] = ours
            whole[rows:, :, tokens - theirs.shape[2] : tokens] = theirs
            joined.append(whole)
        self._whole = joined[0], joined[1]
        self.keys, self.values = (whole[:, :, :tokens] for whole in joined)


def growing_cache(config: PreTrainedConfig) -> DynamicCache:
    """An empty cache for a model of this config, for `update`, `reorder_cache` and what `growing_layers` can."""
    cache = DynamicCache(config=config)
    cache.layers = [GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def growing_layers(cache: DynamicCache) -> Sequence[GrowingLayer] | None:
    """The layers of a cache that was written to, where batches can be put together; else None."""
    layers = [layer for layer in cache.layers if isinstance(layer, GrowingLayer)]
    return layers if layers and len(layers) == len(cache.layers) else None
