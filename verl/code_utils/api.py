"""The code sandbox as a service: programs and tests in, passed or not out (docs/sandbox.md#requests).

Decision: the event loop only counts and waits. Programs run behind `Sandbox`, at most `concurrency` of them, each
awaited by a thread; requests beyond those wait in a bounded queue, and beyond that are refused at once.

    uvicorn verl.code_utils.api:app --port 8001          # loopback; settings are variables CODE_SANDBOX_...
    python -m verl.code_utils.api --port 8001 --concurrency 8
    curl localhost:8001/test_program -H 'content-type: application/json' \\
        -d '{"program": "def f(): return 1", "tests": ["assert f() == 1"]}'     # {"results":[1],"runtimes":[0.002]}

Requests and replies are JSON and nothing else; nothing that arrives is unpickled. Whoever can reach the port can run
programs here, behind the protections that the start-up line names.
"""

import argparse
import asyncio
import concurrent.futures
import dataclasses
import json
import logging
import sys
import threading
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, Field
from starlette.exceptions import HTTPException as StarletteHTTPException

from verl.classmate.config import MAX_CODE_SECONDS, SANDBOX_PORT
from verl.code_utils.sandbox import Mode, Results, Sandbox, SandboxError, SandboxSettings, queue_timeout

__all__ = ["app", "create_app"]


# uvicorn shows what is said here.
logger = logging.getLogger("uvicorn.error")


def _from_json(value: Any) -> Any:
    """Tests may come as a JSON string of the list."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the string is not a JSON list ({type(error).__name__})") from None


class StdioTest(BaseModel):
    """What a program reads, and what it should print."""

    input: str
    output: str


class _Request(BaseModel):
    program: str
    """Python source."""
    max_execution_time: Annotated[float, Field(gt=0, le=MAX_CODE_SECONDS, allow_inf_nan=False)] = 1.0
    """Limit of each test in seconds."""


class AssertRequest(_Request):
    """A program and statements that run after it, each in a process of its own."""

    tests: Annotated[list[str], BeforeValidator(_from_json)]


class StdioRequest(_Request):
    """A program that reads its input and prints its output."""

    tests: Annotated[list[StdioTest], BeforeValidator(_from_json)]


class Reply(BaseModel):
    """One entry per test, in order."""

    results: list[int]
    runtimes: list[float]


class Busy(Exception):
    """A request that cannot have its turn in time."""


class Turns:
    """Lets `concurrency` requests run, `queue` more wait, and refuses the rest."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        settings = sandbox.settings
        self._most = settings.concurrency + settings.queue
        self._inside = 0
        self._places = asyncio.Semaphore(settings.concurrency)

    async def run(self, request: Request, mode: Mode, program: str, tests: list[Any], seconds: float) -> Results:
        """What became of the tests.

        Raises:
            Busy: there are too many requests, or this one has waited too long.
            SandboxError: the sandbox failed.
        """
        if self._inside >= self._most:
            raise Busy
        self._inside += 1
        try:
            try:
                await asyncio.wait_for(self._places.acquire(), queue_timeout(seconds))
            except TimeoutError:
                raise Busy from None
            try:
                if await request.is_disconnected():
                    raise HTTPException(499, "the client is gone")
                return await _in_thread(lambda: self._sandbox.run(mode, program, tests, seconds=seconds))
            finally:
                self._places.release()
        finally:
            self._inside -= 1


async def _in_thread(work: Callable[[], Results]) -> Results:
    """Awaits `work` in a daemon thread: those of an executor would keep a service that is told to end."""
    done: concurrent.futures.Future[Results] = concurrent.futures.Future()

    def run() -> None:
        done.set_running_or_notify_cancel()
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="sandbox", daemon=True).start()
    return await asyncio.wrap_future(done)


class _Guard:
    """Around the application: starts the sandbox with the server, and lets no request grow beyond its limit."""

    def __init__(self, inner: Any, sandbox: Sandbox) -> None:
        self._inner, self._sandbox = inner, sandbox

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        try:
            await asyncio.to_thread(self._sandbox.start)
        except SandboxError as error:
            await send({"type": "lifespan.startup.failed", "message": f"error: {error}"})
            return
        logger.info("%s", startup_line(self._sandbox))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Any, receive: Any, send: Any) -> None:
        limit = self._sandbox.settings.body_mb << 20
        refusal = HTTPException(413, f"the request has more than {limit >> 20} MiB (CODE_SANDBOX_BODY_MB)")
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > limit:
            await JSONResponse({"detail": refusal.detail}, 413, {"connection": "close"})(scope, receive, send)
            return
        received = 0

        async def counted() -> Any:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise refusal
            return message

        await self._inner(scope, counted, send)


def startup_line(sandbox: Sandbox) -> str:
    """What the service takes and protects from, in one line."""
    settings = sandbox.settings
    return (
        f"code sandbox: {settings.concurrency} programs at once, {settings.queue} wait; "
        f"active: {'; '.join(sandbox.protections)} | not active: {'; '.join(sandbox.missing) or 'none'}"
    )


def create_app(settings: SandboxSettings) -> Any:
    """The ASGI application. Its sandbox starts with the server, which gives up if that fails."""
    sandbox = Sandbox(settings)
    api = FastAPI(title="ClassmateCoT code sandbox", docs_url=None, redoc_url=None)
    turns: list[Turns] = []

    async def judge(request: Request, mode: Mode, asked: _Request, tests: list[Any]) -> Results:
        if not tests:
            return Results(results=[], runtimes=[])
        if len(tests) > settings.tests:
            raise HTTPException(422, f"{len(tests)} tests are more than {settings.tests} (CODE_SANDBOX_TESTS)")
        if not turns:
            turns.append(Turns(sandbox))
        return await turns[0].run(request, mode, asked.program, tests, asked.max_execution_time)

    @api.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "healthy"}

    @api.post("/test_program", response_model=Reply)
    async def test_program(asked: AssertRequest, request: Request) -> Results:
        return await judge(request, "assert", asked, asked.tests)

    @api.post("/test_program_stdio", response_model=Reply)
    async def test_program_stdio(asked: StdioRequest, request: Request) -> Results:
        return await judge(request, "stdio", asked, [test.model_dump() for test in asked.tests])

    @api.exception_handler(Busy)
    async def busy(request: Request, error: Busy) -> JSONResponse:
        return JSONResponse({"detail": "too many requests at once; ask again"}, 503, {"retry-after": "1"})

    @api.exception_handler(SandboxError)
    async def failed(request: Request, error: SandboxError) -> JSONResponse:
        logger.error("a program could not be run: %s", error)
        return JSONResponse({"detail": str(error)}, 500)

    @api.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        # Without the input, which may be large and need not be text that JSON can hold.
        problems = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:10]]
        return JSONResponse({"detail": problems}, 422)

    @api.exception_handler(StarletteHTTPException)
    async def refused(request: Request, error: StarletteHTTPException) -> JSONResponse:
        # What cannot be decoded at all is as malformed as what can.
        return JSONResponse({"detail": error.detail}, 422 if error.status_code == 400 else error.status_code)

    return _Guard(api, sandbox)


def main(arguments: list[str]) -> None:
    """Serves until it is interrupted."""
    import uvicorn

    parser = argparse.ArgumentParser(prog="python -m verl.code_utils.api", description="Serves the code sandbox.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=SANDBOX_PORT, help="port (default: %(default)s)")
    try:
        defaults = SandboxSettings.from_environment()
        for field in dataclasses.fields(SandboxSettings):
            option, default = f"--{field.name.replace('_', '-')}", getattr(defaults, field.name)
            if field.name == "allow_weak":
                parser.add_argument(option, action="store_true", default=default)
            else:
                parser.add_argument(option, type=int, default=default, metavar="N", help="(default: %(default)s)")
        options = vars(parser.parse_args(arguments))
        host, port = options.pop("host"), options.pop("port")
        settings = SandboxSettings(**options)
    except ValueError as error:
        sys.exit(f"error: {error}")
    uvicorn.run(create_app(settings), host=host, port=port)


def _from_environment() -> Any:
    """What uvicorn serves; a wrong variable is one line."""
    try:
        return create_app(SandboxSettings.from_environment())
    except ValueError as error:
        sys.exit(f"error: {error}")


app = _from_environment()

if __name__ == "__main__":
    main(sys.argv[1:])
