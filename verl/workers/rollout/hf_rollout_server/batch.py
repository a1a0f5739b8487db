"""Rows that run together: their prompts are read at once, and each forward pass gives every row a token.

Decision: the loop over tokens is our own. `model.generate` can neither take, drop nor abort rows, while a batch here
takes the rows of another one behind its own, drops those that have ended, and delivers a row the moment that it ends.

    batch = decoder.read(requests)             # the prompts, and a first token
    while any(batch.rows):
        decoder.step(batch)                    # one token more
    decoder.tell(others)                       # prompts that are only read
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from verl.workers.rollout.hf_rollout_server.cache import growing_cache, growing_layers
from verl.workers.rollout.hf_rollout_server.fixed_rows import padded_length
from verl.workers.rollout.hf_rollout_server.request import Request
from verl.workers.rollout.hf_rollout_server.sampling import BatchSampler, SamplingParams

_AT_ONCE = 64
"""Tokens of a row whose logits are in float32 at one time."""


@dataclass(eq=False, kw_only=True)
class Batch:
    """Rows that run together: B rows, L columns, of which the first `length` are in the cache."""

    rows: list[Request | None]
    """None where a row has ended."""
    ids_B1: torch.Tensor
    """The token of each row that the model has not read."""
    positions_B1: torch.Tensor
    mask_BL: torch.Tensor
    """1 on tokens, those to come included, 0 on padding."""
    length: int
    cache: DynamicCache
    sampler: BatchSampler

    def keep(self, live: Sequence[int]) -> None:
        """Drops the other rows."""
        keep = torch.tensor(live, device=self.ids_B1.device)
        self.cache.reorder_cache(keep)  # type: ignore[arg-type]
        self.sampler.select(keep)
        self.ids_B1, self.positions_B1, self.mask_BL = self.ids_B1[keep], self.positions_B1[keep], self.mask_BL[keep]
        self.rows = [self.rows[index] for index in live]

    def join(self, other: "Batch") -> None:
        """Takes the rows of another batch behind its own, with what they have; only where `growing_layers` are."""
        ours, theirs = growing_layers(self.cache), growing_layers(other.cache)
        assert ours is not None
        assert theirs is not None
        # Else a batch that others join again and again would grow for ever.
        padding = int(self.mask_BL.argmax(dim=1).min())
        for layer, other_layer in zip(ours, theirs, strict=True):
            layer.drop_columns(padding)
            layer.join(other_layer)
        masks = self.mask_BL[:, padding : self.length], other.mask_BL[:, : other.length]
        self.rows = self.rows + other.rows
        self.length = max(mask.shape[1] for mask in masks)
        to_come = max((row.params.max_tokens - len(row.token_ids) for row in self.rows if row is not None), default=0)
        padded = [torch.nn.functional.pad(mask, (self.length - mask.shape[1], 0)) for mask in masks]
        self.mask_BL = torch.nn.functional.pad(torch.cat(padded), (0, to_come), value=1)
        self.ids_B1 = torch.cat([self.ids_B1, other.ids_B1])
        self.positions_B1 = torch.cat([self.positions_B1, other.positions_B1])
        self.sampler.join(other.sampler)


class Decoder:
    """Reads prompts and writes tokens, with one model."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        vocab_size: int,
        eos_token_ids: set[Any],
        fixed_rows: int,
    ) -> None:
        """
        Args:
            model: frozen, on its device.
            tokenizer: for stop strings.
            vocab_size: tokens from this one on are never picked.
            eos_token_ids: those that end a row.
            fixed_rows: rows of every batch, 0 for as many as there are.
        """
        self._model, self._tokenizer = model, tokenizer
        self._vocab_size, self._eos_token_ids, self._fixed_rows = vocab_size, eos_token_ids, fixed_rows

    def read(self, requests: Sequence[Request]) -> Batch:
        """Reads the prompts (B rows, at first one for each prompt; L columns, left-padded) and writes a first token."""
        device = self._model.device
        rows: list[Request | None] = list(requests)
        rows += [None] * (self._fixed_rows - len(rows))
        longest = max(request.params.max_tokens for request in requests)
        prompts = [tuple(row.prompt_ids) if row is not None else (0,) for row in rows]
        # A prompt that several rows share is read once; deterministic forwards have a fixed number of rows.
        distinct = prompts if self._fixed_rows else list(dict.fromkeys(prompts))
        ids_BL, mask_BL = self._padded(distinct, longest)
        width = ids_BL.shape[1]
        positions_BL = (mask_BL[:, :width].cumsum(-1) - 1).clamp(min=0)
        filler = SamplingParams(max_tokens=1, temperature=0)
        sampler = BatchSampler(
            [filler if row is None else row.params for row in rows], vocab_size=self._vocab_size, device=device
        )
        cache = growing_cache(self._model.config)
        logits_BV = self._next_logits(ids_BL, mask_BL[:, :width], positions_BL, cache)
        if len(distinct) < len(rows):
            place = {prompt: index for index, prompt in enumerate(distinct)}
            asked = torch.tensor([place[prompt] for prompt in prompts], device=device)
            # Meant for beam search, but the one selection that every kind of layer has.
            cache.reorder_cache(asked)  # type: ignore[arg-type]
            logits_BV, positions_BL, mask_BL = logits_BV[asked], positions_BL[asked], mask_BL[asked]
        batch = Batch(
            rows=rows,
            ids_B1=ids_BL[:, -1:],
            positions_B1=positions_BL[:, -1:],
            mask_BL=mask_BL,
            length=width,
            cache=cache,
            sampler=sampler,
        )
        self._write(batch, logits_BV)
        return batch

    def tell(self, requests: Sequence[Request]) -> None:
        """Reads the prompts in one pass and tells how likely the tokens are that are asked about (the last K)."""
        prompts = [tuple(request.prompt_ids) for request in requests]
        prompts += [(0,)] * (self._fixed_rows - len(prompts))
        ids_BL, mask_BL = self._padded(prompts, 0)
        told = max(request.told for request in requests)
        logits_BKV = self._model(
            input_ids=ids_BL,
            attention_mask=mask_BL,
            position_ids=(mask_BL.cumsum(-1) - 1).clamp(min=0),
            use_cache=False,
            # What is expected of a token stands in the place of the one before it.
            logits_to_keep=told + 1,
        ).logits[:, -told - 1 : -1]
        heat = [request.params.prompt_logprobs_temperature for request in requests]
        heat_B11 = torch.tensor(heat + [1.0] * (len(prompts) - len(heat)), device=logits_BKV.device)[:, None, None]
        targets_BK1 = ids_BL[:, -told:, None]
        parts = zip(logits_BKV.split(_AT_ONCE, dim=1), targets_BK1.split(_AT_ONCE, dim=1), strict=True)
        log_probs_BK = torch.cat(
            [
                torch.log_softmax(logits.float() / heat_B11, dim=-1).gather(-1, targets)[..., 0]
                for logits, targets in parts
            ],
            dim=1,
        )
        for request, log_probs_K in zip(requests, log_probs_BK.tolist(), strict=False):
            request.prompt_log_probs = log_probs_K[-request.told :]
            if request.aborted:
                request.finish("abort")
            elif not all(map(math.isfinite, request.prompt_log_probs)):
                request.fail(RuntimeError(f"request {request.request_id}: the model's logits are not numbers (NaN)"))
            else:
                request.finish("length")

    def _padded(self, prompts: Sequence[Sequence[int]], room: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Prompts, left-padded (B, L), and their mask with ones for tokens to come (B, L + room)."""
        longest = max(map(len, prompts))
        width = padded_length(longest) if self._fixed_rows else longest
        ids_BL = torch.zeros((len(prompts), width), dtype=torch.long)
        mask_BL = torch.ones((len(prompts), width + room), dtype=torch.long)
        for index, prompt in enumerate(prompts):
            ids_BL[index, width - len(prompt) :] = torch.tensor(prompt)
            mask_BL[index, : width - len(prompt)] = 0
        return ids_BL.to(self._model.device), mask_BL.to(self._model.device)

    def step(self, batch: Batch) -> None:
        """Gives each row one token more."""
        mask_BL = batch.mask_BL[:, : batch.length + 1]
        logits_BV = self._next_logits(batch.ids_B1, mask_BL, batch.positions_B1, batch.cache)
        batch.length += 1
        self._write(batch, logits_BV)

    def _next_logits(
        self, ids_BL: torch.Tensor, mask_BL: torch.Tensor, positions_BL: torch.Tensor, cache: DynamicCache
    ) -> torch.Tensor:
        """What the model expects behind each row's last token, (B, V)."""
        logits_B1V: torch.Tensor = self._model(
            input_ids=ids_BL,
            attention_mask=mask_BL,
            position_ids=positions_BL,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        return logits_B1V[:, -1]

    def _write(self, batch: Batch, logits_BV: torch.Tensor) -> None:
        """Gives each row its next token; those that it ends become None."""
        tokens_B, log_probs_B = batch.sampler.pick(logits_BV)
        for index, (token, log_prob) in enumerate(zip(tokens_B.tolist(), log_probs_B.tolist(), strict=True)):
            row = batch.rows[index]
            if row is not None and self._advance(row, token, log_prob):
                batch.rows[index] = None
        batch.ids_B1, batch.positions_B1 = tokens_B[:, None], batch.positions_B1 + 1

    def _advance(self, row: Request, token: int, log_prob: float) -> bool:
        """Gives a row its next token; True when that ended it."""
        if row.aborted:
            row.finish("abort")
            return True
        if log_prob != log_prob:
            row.fail(RuntimeError(f"request {row.request_id}: the model's logits are not numbers (NaN)"))
            return True
        row.token_ids.append(token)
        row.log_probs.append(log_prob)
        ended = token in self._eos_token_ids and not row.params.ignore_eos
        if ended or token in row.params.stop_token_ids or (row.params.stop and self._at_stop_string(row)):
            row.finish("stop")
            return True
        if len(row.token_ids) >= row.params.max_tokens:
            row.finish("length")
            return True
        return row.future.cancelled()

    def _at_stop_string(self, row: Request) -> bool:
        # A stop string of n bytes spans at most n tokens; some more give the decoder its left context.
        window = max(len(stop.encode()) for stop in row.params.stop) + 8
        text = self._tokenizer.decode(row.token_ids[-window:], skip_special_tokens=False)
        return any(stop in text for stop in row.params.stop)
