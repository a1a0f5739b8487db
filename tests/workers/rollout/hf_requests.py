"""Requests for the engine "hf": prompts, and callers that come together or one after the other."""

import asyncio
import time
from typing import Any

import pytest

from verl.workers.rollout.hf_rollout_server.engine import HFEngine
from verl.workers.rollout.hf_rollout_server.request import GenerationOutput
from verl.workers.rollout.hf_rollout_server.sampling import SamplingParams

Prompt = list[int]
PROMPTS: list[Prompt] = [[5 + (7 * row + 3 * column) % 40 for column in range(2 + row % 9)] for row in range(24)]
POISON = 51
"""A token that a broken model cannot stand."""
LONG = [5 + (3 * column) % 40 for column in range(60)]
"""A prompt that is longer than what others have got so far."""


def params_of(seed: int | None = 0, **values: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 12, "seed": seed, "ignore_eos": True, **values})


def generate(engine: HFEngine, requests: list[tuple[Prompt, SamplingParams]]) -> list[Any]:
    """Outputs (or errors) of requests that arrive together."""

    async def run() -> list[Any]:
        engine.hold("arriving")
        tasks = [
            asyncio.create_task(engine.generate(prompt, params, str(index)))
            for index, (prompt, params) in enumerate(requests)
        ]
        await asyncio.sleep(0)  # all have been submitted
        engine.release("arriving")
        return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(run())


class Steps:
    """Forward passes of an engine, each a little slower than it is, and counted."""

    def __init__(self, engine: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._forward = engine.model.forward
        monkeypatch.setattr(engine.model, "forward", self._slow)

    def _slow(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        time.sleep(0.02)
        return self._forward(*args, **kwargs)

    async def after(self, count: int) -> None:
        """Returns when so many have begun."""
        while self.count < count:
            await asyncio.sleep(0.005)


def generate_late(
    engine: HFEngine,
    steps: Steps,
    first: list[tuple[Prompt, SamplingParams]],
    late: list[tuple[int, Prompt, SamplingParams]],
) -> list[Any]:
    """Outputs (or errors) of requests that arrive together, and of those that come after so many forward passes."""

    async def ask(number: int, after: int, prompt: Prompt, params: SamplingParams) -> GenerationOutput:
        await steps.after(after)
        return await engine.generate(prompt, params, str(number))

    async def run() -> list[Any]:
        requests = [(0, *request) for request in first] + late
        return await asyncio.gather(*(ask(i, *one) for i, one in enumerate(requests)), return_exceptions=True)

    return asyncio.run(run())
