"""Sampling parameters of one request, and the sampler of a batch whose rows have different ones.

One decision: a sampled row spends exactly one uniform number per token, drawn up front from the request's own seed, and
inverts the cumulative distribution in float64. A row's tokens then depend on its logits and its seed, not on its
neighbours or the device, and rounding of the logits changes a token only where the uniform number falls on a boundary.

    params = SamplingParams.from_dict({"temperature": 0.7, "top_p": 0.9, "seed": 3}, max_tokens=64)
    sampler = BatchSampler([params, params], vocab_size=512, device="cpu")
    tokens_B, log_probs_B = sampler.pick(logits_BV, step=0)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

# What vLLM's users may pass, with the only value that this engine knows: the neutral one.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1, None),
    "presence_penalty": (0, None),
    "frequency_penalty": (0, None),
    "min_p": (0, None),
    "min_tokens": (0, None),
    "n": (1, None),
    # Upstream asks its teachers so; this engine gives tokens alone.
    "detokenize": (False, None),
}


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How one request is sampled. Raises ValueError for values out of range."""

    max_tokens: int
    """Most tokens to generate, at least 1; the engine also ends a row at its `max_model_len`."""
    temperature: float = 1.0
    """Divides the logits; 0 takes the most likely token."""
    top_p: float = 1.0
    """Smallest set of most likely tokens whose probabilities reach this sum; 1 keeps all."""
    top_k: int = -1
    """Number of most likely tokens to keep; -1 or 0 keeps all."""
    seed: int | None = None
    """Non-negative seed of this request; None takes the next number of the engine's own stream."""
    stop: tuple[str, ...] = ()
    """Generation ends with the token that completes one of these strings; the token is kept."""
    stop_token_ids: tuple[int, ...] = ()
    """Generation ends with one of these tokens; the token is kept."""
    ignore_eos: bool = False
    """Go on after the model's end-of-sequence tokens."""
    prompt_logprobs: int | None = None
    """0: only read the prompt, tell how likely its tokens are, and write none; None: write."""
    logprob_start_len: int = 1
    """With `prompt_logprobs`, the first token of the prompt that is told of; nothing is known of token 0."""
    prompt_logprobs_temperature: float = 1.0
    """With `prompt_logprobs`, what the logits are divided by for them; `temperature` is for tokens that are written."""

    def __post_init__(self) -> None:
        checks = {
            "max_tokens must be at least 1": self.max_tokens >= 1,
            "temperature must be 0 or more": self.temperature >= 0,
            "top_p must be in (0, 1]": 0 < self.top_p <= 1,
            "top_k must be -1, 0 or more": self.top_k >= -1,
            "seed must be None or 0 or more": self.seed is None or self.seed >= 0,
            "stop must not hold an empty string": all(self.stop),
            "prompt_logprobs must be None or 0": self.prompt_logprobs in (None, 0),
            "logprob_start_len must be at least 1": self.logprob_start_len >= 1,
            "prompt_logprobs_temperature must be above 0": self.prompt_logprobs_temperature > 0,
            "max_tokens must be 1 with prompt_logprobs": self.prompt_logprobs is None or self.max_tokens == 1,
        }
        for message, valid in checks.items():
            if not valid:
                raise ValueError(f"sampling_params: {message} (got {self})")

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken."""
        return self.temperature == 0 or self.top_k == 1

    @classmethod
    def from_dict(cls, params: Mapping[str, Any], *, max_tokens: int) -> "SamplingParams":
        """Reads the dictionary that verl's clients send (vLLM's names; `max_new_tokens` as in SGLang).

        `max_tokens` is what a request without a limit of its own gets. Raises ValueError for keys and values that this
        engine lacks.
        """
        given = dict(params)
        given.pop("logprobs", None)  # log-probs are always computed
        limits = [given.pop(key, None) for key in ("max_tokens", "max_new_tokens")]
        for key, neutral in _NEUTRAL.items():
            if given.pop(key, neutral[0]) not in neutral:
                raise ValueError(f"sampling_params.{key}={params[key]!r}: engine 'hf' supports {neutral[0]!r} only")
        unknown = sorted(given.keys() - cls.__dataclass_fields__.keys())
        if unknown:
            raise ValueError(
                f"sampling_params {unknown}: unknown to engine 'hf', which reads {sorted(cls.__dataclass_fields__)}"
            )
        stop = given.pop("stop", None) or ()
        return cls(
            max_tokens=next((limit for limit in limits if limit is not None), max_tokens),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            stop_token_ids=tuple(given.pop("stop_token_ids", None) or ()),
            **given,
        )


_PER_ROW = ("greedy_B", "temperature_B", "top_p_B", "top_k_B", "picked_B")


class BatchSampler:
    """Picks one token per row, each row by its own parameters (B rows, V vocabulary, T most tokens of a row)."""

    def __init__(self, params: Sequence[SamplingParams], *, vocab_size: int, device: str | torch.device) -> None:
        """Every sampled row needs a seed. Tokens from `vocab_size` on (a padded vocabulary's tail) are never picked."""
        self.vocab_size = vocab_size
        self.greedy_B = torch.tensor([row.greedy for row in params], device=device)
        self.temperature_B = torch.tensor([1.0 if row.greedy else row.temperature for row in params], device=device)
        # Infinity for "keep all": a sum of float probabilities may exceed 1.
        self.top_p_B = torch.tensor(
            [torch.inf if row.greedy or row.top_p == 1 else row.top_p for row in params], device=device
        )
        self.top_k_B = torch.tensor(
            [row.top_k if row.top_k > 0 and not row.greedy else vocab_size for row in params], device=device
        )
        uniforms = np.zeros((len(params), max(row.max_tokens for row in params)))
        for index, row in enumerate(params):
            if not row.greedy:
                # NumPy hashes the whole seed; torch's CPU generator would drop all but the low 32 bits.
                uniforms[index, : row.max_tokens] = np.random.Generator(np.random.PCG64(row.seed)).random(
                    row.max_tokens
                )
        self.uniforms_BT = torch.from_numpy(uniforms).to(device)
        self.picked_B = torch.zeros(len(params), dtype=torch.long, device=device)
        self._summarise()

    def _summarise(self) -> None:
        self._all_greedy = bool(self.greedy_B.all())
        self._truncated = ((self.top_p_B < 1) | (self.top_k_B < self.vocab_size)).nonzero()[:, 0]

    def select(self, rows: torch.Tensor) -> None:
        """Keeps only the given rows, in that order."""
        for name in (*_PER_ROW, "uniforms_BT"):
            setattr(self, name, getattr(self, name)[rows])
        self._summarise()

    def join(self, other: "BatchSampler") -> None:
        """Takes the rows of another sampler of this vocabulary behind its own; each goes on where it was."""
        for name in _PER_ROW:
            setattr(self, name, torch.cat([getattr(self, name), getattr(other, name)]))
        parts = self.uniforms_BT, other.uniforms_BT
        longest = max(part.shape[1] for part in parts)
        self.uniforms_BT = torch.cat([torch.nn.functional.pad(part, (0, longest - part.shape[1])) for part in parts])
        self._summarise()

    def pick(self, logits_BV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The next token of each row and the logarithms of the probabilities they were drawn with.

        Those are verl's "processed" log-probs: after temperature, top-k and top-p; of greedy rows, at temperature 1.
        """
        scaled_BV = logits_BV[:, : self.vocab_size].float() / self.temperature_B[:, None]
        if len(self._truncated):
            scaled_BV[self._truncated] = self._truncate(scaled_BV[self._truncated], self._truncated)
        log_probs_BV = torch.log_softmax(scaled_BV, dim=-1)
        tokens_B1 = log_probs_BV.argmax(dim=-1, keepdim=True)
        if not self._all_greedy:
            cdf_BV = log_probs_BV.double().exp().cumsum(dim=-1)
            total_B1 = cdf_BV[:, -1:]
            # Rows that have ended may still be there.
            step_B1 = self.picked_B[:, None].clamp(max=self.uniforms_BT.shape[1] - 1)
            # Below the total, so that the first entry above the target exists and has a probability above 0.
            target_B1 = torch.minimum(
                self.uniforms_BT.gather(1, step_B1) * total_B1, torch.nextafter(total_B1, torch.zeros_like(total_B1))
            )
            sampled_B1 = torch.searchsorted(cdf_BV, target_B1, right=True).clamp(max=self.vocab_size - 1)
            tokens_B1 = torch.where(self.greedy_B[:, None], tokens_B1, sampled_B1)
        self.picked_B += 1
        return tokens_B1[:, 0], log_probs_BV.gather(1, tokens_B1)[:, 0]

    def _truncate(self, logits_RV: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Top-k, then top-p of what remains, as vLLM does."""
        sorted_RV, order_RV = logits_RV.sort(dim=-1, descending=True, stable=True)
        rank_V = torch.arange(self.vocab_size, device=logits_RV.device)
        sorted_RV = sorted_RV.masked_fill(rank_V >= self.top_k_B[rows, None], -torch.inf)
        probs_RV = sorted_RV.softmax(dim=-1)
        before_RV = probs_RV.cumsum(dim=-1) - probs_RV
        outside_RV = (before_RV >= self.top_p_B[rows, None]) & (rank_V > 0)
        sorted_RV = sorted_RV.masked_fill(outside_RV, -torch.inf)
        return torch.empty_like(logits_RV).scatter_(1, order_RV, sorted_RV)
