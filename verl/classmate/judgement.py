"""What a judge made of one text, whichever judge it was.

One decision: a failure is a judgement with an outcome and without a score, never an exception and never a number, so
that whoever asks has nothing to catch and nothing to mistake for a bad mark.

    >>> Judgement(outcome=Outcome.ok, score=3.0, explanation="It answers and does not flatter.", requests=1)
    >>> Judgement(outcome=Outcome.judge_error, failure="invalid", error="no line RATING: n", text="Three.", requests=1)
"""

from dataclasses import dataclass
from typing import Any

from verl.classmate.outcome import Outcome


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """One text, judged or not."""

    outcome: Outcome
    """`ok`; or why there is no score: `timeout`, `engine_error` (the judge could not be asked), `judge_error` (it
    answered, but not in the format)."""
    score: float | None = None
    """The raw score; None unless `ok`."""
    explanation: str = ""
    """The judge's reason, in its words."""
    text: str | None = None
    """Its whole answer; None where there was none."""
    failure: str | None = None
    """Kind of failure, for the counts: timeout, rate_limited, server_error, unreachable, refused; of what was answered:
    cut, stopped (something else than the judge ended the answer), invalid (not in the format), broken (it could not be
    read)."""
    error: str | None = None
    """What went wrong, for a person."""
    prompt_tokens: int = 0
    """Tokens that the judge read, as its server counts them; 0 from the cache."""
    completion_tokens: int = 0
    """Tokens that it wrote."""
    requests: int = 0
    """Calls that were made, retries included; 0 from the cache."""
    cached: bool = False
    """Whether it had answered before."""

    def record(self) -> dict[str, Any]:
        """Its part of a row's line in the dump; the answer's text only where it is no score."""
        kept = {
            "score": self.score,
            "outcome": self.outcome.value,
            "explanation": self.explanation,
            "failure": self.failure,
            "error": self.error,
            "text": None if self.score is not None else self.text,
        }
        numbers = {
            "requests": self.requests,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cached": self.cached,
        }
        return {key: value for key, value in kept.items() if value is not None} | numbers
