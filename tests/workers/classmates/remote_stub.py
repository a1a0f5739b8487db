"""A server of one model that answers as a test says, and who asks it: a client, or a group of one classmate.

>>> with serving(stub.app, name=NAME) as server:
...     enter(mapping, server)
...     Asker(mapping).ask()
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from tests.workers.running import cpu_config
from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.classmate.reply import Reply
from verl.utils.model_servers.mapping import Server, changing
from verl.workers.classmate_workers import ClassmateGroup, create_classmate_workers
from verl.workers.classmates.remote import RemoteClassmate, with_hosted

NAME = "some/model"
IDS = [11, 12, 13]
PARAMS = {"temperature": 0.5, "top_p": 0.9, "top_k": -1, "max_tokens": 8, "seed": 3}


def good(ids: Any = IDS, **choice: Any) -> JSONResponse:
    return JSONResponse({"choices": [{"token_ids": ids, "finish_reason": "stop", **choice}]})


def failing(status: int, message: str = "no", **headers: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "code": status}}, status_code=status, headers=headers)


def in_turn(*answers: Any) -> Callable[[], Any]:
    """Each answer once, the last one for ever."""
    left = list(answers)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


class Stub:
    """A server of one model whose answers are set by the test."""

    def __init__(self) -> None:
        self.answer: Callable[[], Any] = good
        self.asked: list[dict[str, Any]] = []
        self.headers: list[str | None] = []
        self.probes = 0
        self.healthy = True
        self.app = FastAPI()

        @self.app.post("/v1/completions")
        async def completions(request: Request) -> Any:
            self.asked.append(await request.json())
            self.headers.append(request.headers.get("authorization"))
            answer = self.answer()
            return await answer if asyncio.iscoroutine(answer) else answer

        @self.app.get("/v1/models")
        async def models() -> Any:
            self.probes += 1
            return {"data": [{"id": NAME, "max_model_len": 100}]}

        @self.app.get("/health")
        async def health() -> Any:
            return Response(status_code=200 if self.healthy else 503)


def enter(mapping: Path, *servers: Server) -> None:
    """Lets the mapping file name exactly these."""
    with changing(mapping) as there:
        there.clear()
        there.update({server.name: server for server in servers})


class Asker:
    """A client as an agent-loop worker has it, on one event loop for the whole test."""

    def __init__(self, mapping: Path, timeout_s: float = 30.0) -> None:
        self.events: list[str] = []
        self.client = RemoteClassmate(NAME, mapping, timeout_s=timeout_s, on_event=self.events.append)
        self._runner = asyncio.Runner()

    def ask(self, times: int = 1) -> list[Reply]:
        async def run() -> list[Reply]:
            return list(await asyncio.gather(*(self.client.complete([1, 2], PARAMS) for _ in range(times))))

        return self._runner.run(run())

    def close(self) -> None:
        self._runner.run(self.client.close())
        self._runner.close()


def config(mapping: Path, *models: str, **reward_model: Any) -> ClassmateRewardModelConfig:
    return from_mapping(
        {
            "classmate_cot_reward_configs": {
                "classmate_model_name_or_path_list": list(models),
                "host_classmate_name_to_url_json_fn": str(mapping),
            },
            **reward_model,
        }
    )


def group(mapping: Path, policy: str, events: list[str]) -> ClassmateGroup:
    reward = with_hosted(config(mapping, NAME, classmate_backend="openai", classmate_failure_policy=policy))
    return create_classmate_workers(cpu_config(), reward, on_event=events.append)
