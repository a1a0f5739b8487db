"""A helper that costs no CPU: a server with the OpenAI interface that waits instead of computing.

One decision: it is real HTTP on loopback, so that a run asks it through the same code as any hosted classmate; only
what a model would compute is replaced by time.

    >>> with serving([folder], mapping=mapping):         # the mapping file of engine `openai` names it
    ...     ...
"""

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from aiohttp import web

PLACES, REQUEST_S = 4, 0.25
"""Requests that it serves at a time, and seconds that each takes: 2 s for 32."""

ANSWER = "The answer is 7, since 3 and 4 are 7."
"""What it says, repeated up to the tokens that were asked for."""


def make_app(model: Path) -> web.Application:
    """The server of one model, whose tokenizer it speaks: completions, the list of models, health."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    answer = tokenizer.encode(ANSWER, add_special_tokens=False).ids
    places = asyncio.Semaphore(PLACES)

    async def complete(request: web.Request) -> web.Response:
        asked: dict[str, Any] = await request.json()
        async with places:
            await asyncio.sleep(REQUEST_S)
        prompt, tokens = asked["prompt"], int(asked["max_tokens"])
        if isinstance(prompt, str):
            prompt = tokenizer.encode(prompt, add_special_tokens=False).ids
        ids = (answer * (1 + tokens // len(answer)))[:tokens]
        choice = {"index": 0, "text": tokenizer.decode(ids), "finish_reason": "length", "token_ids": ids}
        return web.json_response({"choices": [choice | {"prompt_token_ids": prompt}]})

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": str(model), "object": "model"}]})

    async def health(_: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.add_routes([web.post("/v1/completions", complete), web.get("/v1/models", models), web.get("/health", health)])
    return app


async def serve(models: Sequence[Path], mapping: Path) -> None:
    """Serves each model in an application of its own until standard input ends, and names them in `mapping`."""
    servers = {}
    for model in models:
        runner = web.AppRunner(make_app(model), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=512).start()
        port = runner.addresses[0][1]
        servers[str(model)] = {"outward_host": "127.0.0.1", "local_host": "127.0.0.1", "port": port}
    mapping.write_text(json.dumps(servers))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)


@contextlib.contextmanager
def serving(models: Sequence[Path], *, mapping: Path) -> Iterator[None]:
    """Serves the models during the block, from a process that does nothing else.

    Args:
        models: folders with a `tokenizer.json`; absolute, since that is their name.
        mapping: the file in which runs look them up; written here.

    Raises:
        RuntimeError: it did not start.
    """
    command = [sys.executable, "-P", __file__, "--mapping", str(mapping), *map(str, models)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the stub did not start")
        yield
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL", help="folder with a tokenizer.json")
    parser.add_argument("--mapping", type=Path, required=True, help="file that gets the servers' addresses")
    asked = parser.parse_args()
    asyncio.run(serve(asked.models, asked.mapping))
