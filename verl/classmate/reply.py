"""What became of one request to a classmate, whichever engine answered it.

One decision: a failure is a reply with an outcome, never an exception, so that whoever asks has nothing to catch.

    >>> Reply(outcome=Outcome.ok, token_ids=(5, 2), finish_reason="stop")
    >>> Reply(outcome=Outcome.timeout, error="no answer within 60 s")
"""

from dataclasses import dataclass

from verl.classmate.outcome import Outcome


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One sample of one classmate."""

    outcome: Outcome
    """`ok`, or why there are no tokens: `timeout`, `engine_error`, `excluded`."""
    token_ids: tuple[int, ...] = ()
    """Generated tokens in the classmate's own vocabulary."""
    finish_reason: str | None = None
    """`stop`, `length` or the engine's own word for it."""
    log_probs: tuple[float, ...] = ()
    """Natural logarithm of each token's probability, where the engine tells it: of the generated tokens, or of a text
    that was only read (`ClassmateClient.log_probs`)."""
    error: str | None = None
    """What the engine said, for the log."""
