"""A helper of TRL that costs no CPU: a server with the OpenAI interface that waits instead of computing.

One decision: it is real HTTP on loopback, the least that a TRL user's helper on a GPU of its own would cost. Ours play
theirs in the classmate's own actor (`hook.py`), since a server knows no schedule: rows go there one by one in both.

    >>> with serving([folder], mapping=mapping):         # the mapping file says where
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

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from scripts.bench.compare.workload import STUB_ANSWER, STUB_PLACES, STUB_REQUEST_S, stub_answer


def make_app(model: Path) -> web.Application:
    """The server of one model, whose tokenizer it speaks: completions, the list of models, health."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    answer = tokenizer.encode(STUB_ANSWER, add_special_tokens=False).ids
    places = asyncio.Semaphore(STUB_PLACES)

    async def complete(request: web.Request) -> web.Response:
        asked: dict[str, Any] = await request.json()
        async with places:
            await asyncio.sleep(STUB_REQUEST_S)
        prompt, tokens = asked["prompt"], int(asked["max_tokens"])
        if isinstance(prompt, str):
            prompt = tokenizer.encode(prompt, add_special_tokens=False).ids
        ids = stub_answer(answer, tokens)
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
