"""The worker that makes rows: its loop, a prompt's sessions, and what the rows of a prompt share."""

import asyncio
import copy
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, open_dict

from tests.experimental.agent_loop.scripted_loop import Classmates, Policy, composed, loop_of, prompt_columns
from tests.workers.scripted_rows import RESPONSE, THOUGHT
from verl.experimental.agent_loop import agent_loop
from verl.experimental.agent_loop.row_reading import ClassmateAgentLoopOutput
from verl.experimental.agent_loop.row_worker import ClassmateAgentLoopWorker
from verl.trainer.ppo.v1 import agent_loop_tq


def worker_without_engine(config: DictConfig, postprocess: Callable[..., Awaitable[None]]) -> ClassmateAgentLoopWorker:
    """A worker that hands what its loops make to `postprocess`."""
    worker = object.__new__(ClassmateAgentLoopWorker)
    worker.config, worker._agent_loop_postprocess, worker.tools = config, postprocess, []
    worker.llm_client = worker.tokenizer = worker.processor = worker.hf_model_type = worker.dataset_cls = None
    worker._reading, worker._making = {}, set()
    return worker


def sessions(config: DictConfig, monkeypatch: pytest.MonkeyPatch, *, validate: bool) -> list[dict[str, Any]]:
    """What the policy is asked about one prompt, by session."""
    asked: list[dict[str, Any]] = []

    class Loop:
        async def run(self, sampling_params: dict[str, Any], **columns: Any) -> None:
            asked.append({**sampling_params, **columns})

    async def ignore(*args: Any, **kwargs: Any) -> None:
        pass

    monkeypatch.setattr(agent_loop_tq.tq, "async_kv_put", ignore)
    worker = worker_without_engine(config, ignore)
    worker._register(Loop())  # type: ignore[arg-type]
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": validate}
    prompt = {"uid": "0-1-key", "agent_name": "classmate_cot"}
    asyncio.run(worker._run_prompt(prompt, {"temperature": 1.0, "top_p": 0.9, "top_k": 5}, trajectory))
    return asked


def test_a_function_in_the_registry_makes_a_loop_without_hydra() -> None:
    make = agent_loop.hydra.utils.instantiate
    loop = object()
    assert make(config=lambda **_: loop, tools=[]) is loop
    assert make(config={"_target_": "fractions.Fraction"}, numerator=3) == 3


@pytest.mark.guards("REMAX and async paths unpacking wrong tuples")
@pytest.mark.parametrize("estimator", ["remax", "rloo"])
def test_remax_has_one_greedy_session_more(config: DictConfig, monkeypatch: pytest.MonkeyPatch, estimator: str) -> None:
    config = copy.deepcopy(config)
    with open_dict(config):
        config.algorithm.adv_estimator = estimator
    n = config.actor_rollout_ref.rollout.n
    *sampled, last = sessions(config, monkeypatch, validate=False)
    assert [row["session_id"] for row in (*sampled, last)] == list(range(n + (estimator == "remax")))
    assert {(row["temperature"], row["top_p"], row["top_k"]) for row in sampled} == {(1.0, 0.9, 5)}
    if estimator == "remax":
        assert (last["temperature"], last["top_p"], last["top_k"]) == (0, 1.0, -1)
        assert {row["greedy_session"] for row in sampled} == {last["session_id"]}
    validation = sessions(config, monkeypatch, validate=True)
    assert len(validation) == config.actor_rollout_ref.rollout.val_kwargs.n
    assert {row["temperature"] for row in validation} == {1.0}


def test_rows_of_a_prompt_share_answers_to_the_question_alone(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the worker that makes them; nothing of it outlives the prompt."""
    kind = "reward_model.classmate_cot_reward_configs.classmate_reward_type=remove_wo_cot"
    config = composed(models, kind, "actor_rollout_ref.rollout.n=5")
    classmates, made = Classmates({}), []

    async def ignore(*args: Any, **kwargs: Any) -> None:
        pass

    async def keep(output: ClassmateAgentLoopOutput, *args: Any, **kwargs: Any) -> None:
        made.append(json.loads(output.extra_fields["reward_extra_info"]["record"]))

    monkeypatch.setattr(agent_loop_tq.tq, "async_kv_put", ignore)
    worker = worker_without_engine(config, keep)
    row = prompt_columns(agent_name="classmate_cot")

    async def go() -> None:
        worker._agent_loop = loop_of(config, Policy(RESPONSE))
        worker._agent_loop.pipeline.asker.client = classmates
        worker._register(worker._agent_loop)
        trajectory = {"step": 5, "sample_index": 0, "rollout_n": 0, "validate": False}
        for uid in ("0-5-key", "1-5-key"):
            await worker._run_prompt({"uid": uid, **row}, {"temperature": 1.0}, trajectory)

    asyncio.run(go())
    alone = [request for request in classmates.requests if THOUGHT.strip() not in request["prompt"]]
    assert (len(made), len(classmates.requests)) == (10, 2 * (2 * 5 + 2))
    assert [request["classmate"] for request in alone] == [0, 1, 0, 1], "once for each prompt"
    for record in made:
        views = [sample["view"] for one in record["classmates"] for sample in one["samples"]]
        assert views == [0, 0, 1, 1] * 2, "every row shows them"
