"""One request to a server of others: what is worth another try, how long to wait, and what its error says.

One decision: a failure of the server (no connection, one that broke, status 429 or 5xx) is an exception; any other
status is an answer, which is the asker's to read. Classmates and judges on servers share this.

    >>> status, content = await post(session, f"{url}/v1/completions", body, key=os.environ.get("OPENAI_API_KEY"))
    >>> if status != 200:
    ...     print(error_message(content, key=None))
"""

import email.utils
import json
import random
import time
from typing import Any

import aiohttp

RETRY_DELAY_S = 0.5
"""Wait before the first retry; doubled for each further one, and spread by half of it either way."""

CONNECT_TIMEOUT_S = 5.0
"""A machine that is there accepts a connection within this time."""

_MAX_REPLY_BYTES = 16 << 20


class ServerFailed(Exception):
    """The server, not the request, failed: worth another try."""

    def __init__(self, reason: str, *, status: int | None = None, wait_s: float = 0.0) -> None:
        """`status` is None without an answer; `wait_s` what the server asked to wait."""
        super().__init__(reason)
        self.status, self.wait_s = status, wait_s

    @property
    def busy(self) -> bool:
        """Whether it answers, and has too much to do."""
        return self.status == 429


async def post(session: aiohttp.ClientSession, url: str, body: Any, *, key: str | None) -> tuple[int, bytes]:
    """Status and content of a reply that is worth reading. Redirects are not followed: they would carry the key on.

    Raises:
        ServerFailed: no connection, one that broke, status 429 or 5xx.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        async with session.post(url, json=body, headers=headers, allow_redirects=False) as response:
            content = bytearray()
            async for chunk in response.content.iter_chunked(1 << 16):
                content += chunk
                if len(content) > _MAX_REPLY_BYTES:
                    raise ServerFailed(f"sent more than {_MAX_REPLY_BYTES} bytes")
            if response.status == 429 or response.status >= 500:
                raise ServerFailed(
                    f"status {response.status} ({error_message(bytes(content), key=key)})",
                    status=response.status,
                    wait_s=retry_after(response.headers.get("Retry-After")),
                )
            return response.status, bytes(content)
    except (aiohttp.ClientError, OSError) as error:
        raise ServerFailed(without(key, f"{type(error).__name__}: {error}")[:200]) from error


def connections(limit: int, *, proxies: bool = False) -> aiohttp.ClientSession:
    """A session for servers of the running event loop; `proxies`: those of the environment count."""
    return aiohttp.ClientSession(
        # A new connection each: one kept open may be closed by the server just when it is used again.
        connector=aiohttp.TCPConnector(limit=limit, force_close=True),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
        trust_env=proxies,
    )


def backoff_s(attempt: int, *, at_least: float = 0.0) -> float:
    """Seconds to wait before the try that follows `attempt` (from 0)."""
    return max(at_least, RETRY_DELAY_S * 2**attempt * random.uniform(0.5, 1.5))


def error_message(content: bytes, *, key: str | None) -> str:
    """What an error says, short, on one line, and without the key."""
    try:
        return said(json_object(content)["error"], key=key)
    except (ValueError, KeyError):
        return said(content[:2000].decode(errors="replace"), key=key)


def said(error: Any, *, key: str | None) -> str:
    """What the field `error` of a reply says, as `error_message`."""
    text = str(error.get("message", error) if isinstance(error, dict) else error)
    return without(key, " ".join(text.split()))[:200]


def json_object(content: bytes) -> dict[str, Any]:
    """The JSON object that a server sent.

    Raises:
        ValueError: it is none, or so deep that only somebody who means harm can have written it.
    """
    try:
        found = json.loads(content)
    except RecursionError as error:
        raise ValueError("JSON that is too deep") from error
    if not isinstance(found, dict):
        raise ValueError(f"JSON of type {type(found).__name__} where an object is due")
    return found


def without(key: str | None, text: str) -> str:
    """`text` with the key blotted out: servers may repeat what they were sent."""
    return text.replace(key, "***") if key else text


def retry_after(value: str | None) -> float:
    """Seconds that a server asks to wait, by its header; 0 where it does not say."""
    if value is None:
        return 0.0
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0
