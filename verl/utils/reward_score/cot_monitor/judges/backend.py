"""A back end of a judge: one attempt to ask a model, what it wrote, or why it wrote nothing.

>>> answer = await backend.ask(prompt, pattern)
>>> answer.text, answer.finish_reason
"""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

FailureKind = Literal["timeout", "rate_limited", "server_error", "unreachable", "refused"]


class CallFailed(Exception):
    """One attempt of a back end that brought no answer."""

    def __init__(self, kind: FailureKind, reason: str, *, retry: bool = False, wait_s: float = 0.0) -> None:
        """`retry`: another attempt may do better; `wait_s`: the server asked to wait so long."""
        super().__init__(reason)
        self.kind, self.retry, self.wait_s = kind, retry, wait_s


@dataclass(frozen=True, kw_only=True)
class JudgeAnswer:
    """What a judge wrote."""

    text: str
    """All of it."""
    finish_reason: str | None
    """`stop`; `length` where it was cut; the server's own word where something else ended it; None where it says
    nothing."""
    prompt_tokens: int
    """Tokens that it read."""
    completion_tokens: int
    """Tokens that it wrote."""


class JudgeBackend(Protocol):
    """One way to ask a model."""

    identity: dict[str, Any]
    """All that an answer depends on besides the prompt: model, place, sampling."""

    async def ask(self, prompt: str, pattern: str | None) -> JudgeAnswer:
        """One attempt.

        Args:
            prompt: the whole question.
            pattern: regular expression of valid answers, for back ends that can hold a model to it.

        Raises:
            CallFailed: there is no answer.
        """
        ...

    async def close(self) -> None:
        """Closes connections."""
        ...
