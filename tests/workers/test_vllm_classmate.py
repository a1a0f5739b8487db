"""A classmate on vLLM: engines of its own, and what becomes of one whose server or engine core dies or stands still."""

import asyncio
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
import torch
from transformers import Qwen3ForCausalLM

from tests.e2e.tiny import make_tiny_world
from tests.trainer.test_configs import composed
from tests.workers.running import PROMPT, process_of
from verl.classmate.config import from_mapping
from verl.classmate.frozen import frozen_classmates
from verl.classmate.outcome import Outcome
from verl.workers.classmate_workers import ClassmateClient, ClassmateGroup, create_classmate_workers
from verl.workers.classmates.placement import actor_name

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[ClassmateGroup, Any, list[str]]]:
    pytest.importorskip("vllm")
    model = make_tiny_world(tmp_path).model
    reward = from_mapping(
        {
            "classmates": [{"model": str(model), "backend": "vllm", "placement": "dedicated"}],
            "classmate_max_restarts": 3,
            "classmate_ping_timeout": 20,
            "classmate_generation_configs": {"max_new_tokens": 8, "temperature": 1.0, "top_p": 1.0},
        }
    )
    config = composed(
        "classmate_cot_ppo_trainer",
        "cpu",
        f"actor_rollout_ref.model.path={model}",
        "data.max_prompt_length=32",
        "data.max_response_length=16",
    )
    events: list[str] = []
    os.environ["VERL_PLATFORM"] = "cpu"
    ray.init(num_cpus=8, num_gpus=1, include_dashboard=False, log_to_driver=False)
    try:
        group = create_classmate_workers(config, reward, on_event=events.append)
        yield group, reward, events
        group.shutdown()
    finally:
        ray.shutdown()


def test_log_probs_are_those_of_transformers(running: Any) -> None:
    """Also behind a prompt that it has read before."""
    group, reward, _ = running
    # On a CPU vLLM compiles what ranks them when it is first asked.
    patient = dataclasses.replace(reward, classmate_ping_timeout=200.0)
    client = ClassmateClient(patient, max_model_len=group.max_model_len)
    model = Qwen3ForCausalLM.from_pretrained(reward.classmates[0].model)
    text = [11, 12, 13, 14, 15]

    async def ask() -> list[Any]:
        await client.sample(0, PROMPT, seeds=(1,), validate=True)
        return [await client.log_probs(0, PROMPT * times, text) for times in (1, 4, 4)]

    for times, reply in zip((1, 4, 4), asyncio.run(ask()), strict=True):
        ids = PROMPT * times + text
        with torch.no_grad():
            log_probs_LV = torch.log_softmax(model(torch.tensor([ids])).logits[0].float(), dim=-1)
        first = len(ids) - len(text)
        expected = [float(log_probs_LV[first + i - 1, token]) for i, token in enumerate(text)]
        assert reply.outcome is Outcome.ok, reply.error
        assert reply.log_probs == pytest.approx(expected, abs=1e-3)


def test_dead_servers_and_dead_or_stopped_cores_are_restarted(running: Any) -> None:
    group, reward, events = running
    client = ClassmateClient(reward, max_model_len=group.max_model_len)

    def ask() -> list[Any]:
        return asyncio.run(client.sample(0, PROMPT, seeds=(1, 2, 3), validate=True))

    def processes() -> list[psutil.Process]:
        """The server, then what it has started."""
        process = process_of(actor_name(frozen_classmates(reward)[0]))
        return [process, *process.children(recursive=True)]

    before = ask()
    assert [reply.outcome for reply in before] == [Outcome.ok] * 3

    server, *below = processes()
    server.kill()
    server.wait()
    assert {reply.outcome for reply in ask()} == {Outcome.engine_error}
    group.heal()
    assert (group.restarts, group.excluded) == (1, frozenset())
    assert [reply.token_ids for reply in ask()] == [reply.token_ids for reply in before]
    _, alive = psutil.wait_procs(below, timeout=10)
    assert alive == [], "nothing of the dead engine is left, nor its memory"

    def engine_core() -> psutil.Process:
        (core,) = (process for process in processes()[1:] if "EngineCore" in " ".join(process.cmdline()))
        return core

    engine_core().kill()
    (lost, *_) = ask()
    assert lost.outcome is Outcome.engine_error
    group.heal()
    assert (group.restarts, group.excluded) == (2, frozenset()), events
    assert [reply.token_ids for reply in ask()] == [reply.token_ids for reply in before]

    core = engine_core()
    core.suspend()
    assert {reply.outcome for reply in ask()} == {Outcome.timeout}, "its server lives, and passes pings on"
    group.heal()
    assert (group.restarts, group.excluded) == (3, frozenset()), events
    assert "hangs; restart 3 of 3 (no answer to a ping within 20 s)" in events[-1]
    assert not psutil.pid_exists(core.pid)
    assert [reply.token_ids for reply in ask()] == [reply.token_ids for reply in before]
    assert all("restart" in event and "\n" not in event for event in events)
