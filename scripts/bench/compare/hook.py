"""What every process of a verl run loads when it is timed (`VERL_USE_EXTERNAL_MODULES`): step ends, lengths, stubs.

One decision: ours and upstream's are timed by the same lines, attached to upstream's own functions that both call.
Neither costs anything: a line of a file for each step, a key of the sampling parameters for each row.
"""

import asyncio
import json
import os
import time
from functools import wraps
from types import ModuleType
from typing import Any

from scripts.bench.compare.workload import STUB_ANSWER, STUB_PLACES, STUB_REQUEST_S, stub_answer
from verl_overlay import after_import

STEPS_FILE = "COMPARE_STEPS_FILE"
"""Environment variable: the file that gets a line with the clock's seconds at the end of each step."""

LENGTHS_FILE = "COMPARE_LENGTHS_FILE"
"""Environment variable: the file with the tokens of each answer; unset, all go to the limit."""


STUB = "COMPARE_STUB"
"""Environment variable: when it is set, classmates wait instead of computing."""


def note_steps(module: ModuleType) -> None:
    """Notes when upstream's `Tracking` logs, which trainers do at the end of a step."""
    log = module.Tracking.log

    @wraps(log)
    def noted(self: Any, data: Any, step: int, *args: Any, **kwargs: Any) -> Any:
        done = log(self, data, step, *args, **kwargs)
        with open(os.environ[STEPS_FILE], "a") as file:
            file.write(json.dumps({"step": step, "s": time.monotonic()}) + "\n")
        return done

    module.Tracking.log = noted  # type: ignore[attr-defined]


def limit_lengths(module: ModuleType) -> None:
    """Gives each answer of upstream's single-turn loop, from which ours is made, its own most tokens."""
    with open(os.environ[LENGTHS_FILE]) as file:
        lengths = json.load(file)
    run = module.SingleTurnAgentLoop.run

    @wraps(run)
    async def limited(self: Any, sampling_params: dict[str, Any], **columns: Any) -> Any:
        tokens = lengths[int(columns["extra_info"]["index"])][int(columns["session_id"])]
        return await run(self, {**sampling_params, "max_tokens": tokens}, **columns)

    module.SingleTurnAgentLoop.run = limited  # type: ignore[attr-defined]


def play_classmates(module: ModuleType) -> None:
    """Takes the computation out of a classmate's actor; how it is started, asked, put to sleep and read stays."""

    async def generate(
        self: Any, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **_: Any
    ) -> Any:
        if not hasattr(self, "places"):
            self.places = asyncio.Semaphore(STUB_PLACES)
            self.answer = self.engine.tokenizer.encode(STUB_ANSWER, add_special_tokens=False)
        async with self.places:
            await asyncio.sleep(STUB_REQUEST_S)
        ids = stub_answer(self.answer, sampling_params["max_tokens"])
        return self._output(ids, [0.0] * len(ids), "length")

    module.ClassmateWorker.generate = generate  # type: ignore[attr-defined]


if STEPS_FILE in os.environ:
    after_import("verl.utils.tracking", note_steps)
if LENGTHS_FILE in os.environ:
    after_import("verl.experimental.agent_loop.single_turn_agent_loop", limit_lengths)
if STUB in os.environ:
    after_import("verl.workers.classmates.engines", play_classmates)
