"""Back end `openai`: a judge behind any server with OpenAI's chat interface, from vLLM on this machine to hosted ones.

One decision: what not every server knows is tried, and given up for good when the server refuses it: holding the model
to the format (`structured_outputs`, vLLM's word for it), and the old name of the limit of tokens.

    >>> backend = OpenAIBackend(base_url="http://127.0.0.1:8003/v1", model="judge", key_variable="OPENAI_API_KEY",
    ...                         temperature=0.0, max_tokens=2048, connections=64)
    >>> (await backend.ask("Rate this ...", None)).text
"""

import asyncio
import os
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from verl.utils.model_servers.mapping import is_this_machine
from verl.utils.model_servers.openai_http import (
    ServerFailed,
    connections,
    error_message,
    json_object,
    post,
    said,
    without,
)
from verl.utils.reward_score.cot_monitor.judges.backend import CallFailed, FailureKind, JudgeAnswer

_NO_ANSWERS = ("refusal", "tool_calls", "function_call")
"""Parts of a message with which a model does something else than answer, whatever else it wrote."""


class OpenAIBackend:
    """Asks one model of one server."""

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        key_variable: str,
        temperature: float | None,
        max_tokens: int,
        max_connections: int,
    ) -> None:
        """Opens nothing.

        Args:
            base_url: up to and with `/v1`.
            model: its name on the server.
            key_variable: environment variable of the server's key.
            temperature: None leaves it to the server.
            max_tokens: of an answer.
            max_connections: to the server.
        """
        self._url = f"{base_url}/chat/completions"
        self._key_variable = key_variable
        self._max_connections = max_connections
        sampling = {} if temperature is None else {"temperature": temperature}
        self._body: dict[str, Any] = {"model": model, **sampling}
        self._max_tokens = max_tokens
        self._limit_name = "max_tokens"
        self._structured = True
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.identity = {"backend": "openai", "base_url": base_url, **self._body, "max_tokens": max_tokens}

    async def ask(self, prompt: str, pattern: str | None) -> JudgeAnswer:
        """As `JudgeBackend.ask`."""
        plain = pattern is None
        while True:
            structured, limit_name = self._structured and not plain, self._limit_name
            status, content = await self._post(
                {
                    **self._body,
                    limit_name: self._max_tokens,
                    "messages": [{"role": "user", "content": prompt}],
                    **({"structured_outputs": {"regex": pattern}} if structured else {}),
                }
            )
            refused = status in (400, 422)
            if refused and limit_name == "max_tokens" and b"max_completion_tokens" in content:
                self._limit_name = "max_completion_tokens"
            elif refused and structured:
                plain = True
            else:
                answer = self._read(status, content)
                # The same request without it was not refused.
                self._structured = self._structured and (structured or pattern is None)
                return answer

    async def _post(self, body: dict[str, Any]) -> tuple[int, bytes]:
        try:
            return await post(self._connections(), self._url, body, key=self._key)
        except ServerFailed as error:
            busy: FailureKind = "rate_limited" if error.busy else "server_error"
            kind: FailureKind = "unreachable" if error.status is None else busy
            raise CallFailed(kind, f"{self._url}: {error}", retry=True, wait_s=error.wait_s) from error

    def _read(self, status: int, content: bytes) -> JudgeAnswer:
        if status != 200:
            message = error_message(content, key=self._key)
            raise CallFailed("refused", f"{self._url} answers with status {status} ({message})")
        try:
            reply = json_object(content)
            choice = (reply.get("choices") or [{}])[0]
            if error := reply.get("error") or choice.get("error"):
                # A server that only passes questions on has sent its status by the time that the next one fails.
                raise CallFailed(
                    "server_error", f"{self._url} sends an error ({said(error, key=self._key)})", retry=True
                )
            message, usage = choice["message"], reply.get("usage") or {}
            text, reason = message["content"], choice.get("finish_reason")
            if isinstance(text, list):
                reason = "refusal" if any(part.get("type") == "refusal" for part in text) else reason
                text = "".join(part["text"] for part in text if "text" in part)
            if _filtered(choice.get("content_filter_results")):
                reason = "content_filter"
            if kind := next((kind for kind in _NO_ANSWERS if message.get(kind)), None):
                reason = kind
            read, written = (int(usage.get(f"{part}_tokens") or 0) for part in ("prompt", "completion"))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
            detail = f"{type(error).__name__}: {without(self._key, str(error))[:100]}"
            raise CallFailed("server_error", f"{self._url} sends no chat completion ({detail})", retry=True) from error
        return JudgeAnswer(
            # None: the model wrote nothing but a thought, or declined.
            text=text.encode(errors="replace").decode() if isinstance(text, str) else "",
            finish_reason=str(reason)[:100] if reason else None,
            prompt_tokens=read,
            completion_tokens=written,
        )

    async def close(self) -> None:
        """Closes the connections."""
        if self._session is not None and self._loop is asyncio.get_running_loop():
            await self._session.close()
        self._session = None

    @property
    def _key(self) -> str | None:
        return os.environ.get(self._key_variable) or None

    def _connections(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            if self._session is not None:
                self._session.detach()  # of a loop that has ended
            self._loop = loop
            local = is_this_machine(urlsplit(self._url).hostname or "")
            self._session = connections(self._max_connections, proxies=not local)
        return self._session


def _filtered(results: Any) -> bool:
    """Whether a filter took something away, by what Azure's servers report for each kind of content."""
    found = results.values() if isinstance(results, dict) else ()
    return any(isinstance(result, dict) and bool(result.get("filtered")) for result in found)
