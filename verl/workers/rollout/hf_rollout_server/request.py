"""A request on its way through the engine, and what it gets."""

import contextlib
import time
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Literal

from verl.workers.rollout.hf_rollout_server.sampling import SamplingParams

FinishReason = Literal["stop", "length", "abort"]


@dataclass(frozen=True, kw_only=True)
class GenerationOutput:
    """What one request got."""

    token_ids: list[int]
    """Sampled tokens, with the end-of-sequence or stop token where one ended the row."""
    log_probs: list[float]
    """Natural logarithm of the probability with which each token was drawn."""
    finish_reason: FinishReason
    """"stop": end of sequence, stop token or stop string; "length": limit; "abort": aborted, tokens so far kept."""
    prompt_log_probs: list[float] = field(default_factory=list)
    """The same of the prompt's tokens from `logprob_start_len` on, of a request that asked for them."""


@dataclass(eq=False)
class Request:
    """A request on its way through the engine."""

    prompt_ids: list[int]
    params: SamplingParams
    request_id: str
    future: "Future[GenerationOutput]" = field(default_factory=Future)
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    prompt_log_probs: list[float] = field(default_factory=list)
    aborted: bool = False
    came: float = field(default_factory=time.monotonic)

    @property
    def told(self) -> int:
        """Tokens of the prompt whose log-probs are asked for; 0 where tokens are."""
        params = self.params
        return 0 if params.prompt_logprobs is None else len(self.prompt_ids) - params.logprob_start_len

    def finish(self, reason: FinishReason) -> None:
        output = GenerationOutput(
            token_ids=self.token_ids,
            log_probs=self.log_probs,
            finish_reason=reason,
            prompt_log_probs=self.prompt_log_probs,
        )
        with contextlib.suppress(InvalidStateError):  # the caller cancelled it
            self.future.set_result(output)

    def fail(self, error: BaseException) -> None:
        with contextlib.suppress(InvalidStateError):
            self.future.set_exception(error)
