"""Schedules and live self-play in real runs: when classmates are asked changes nothing, and whom they are is proven."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from tests.e2e.world import (
    MAIN,
    PROMPTS,
    ROLLOUTS,
    World,
    finished,
    graded_reward,
    metrics,
    rows,
    settings,
    start,
    steps,
)
from verl.classmate.seeds import request_seed, row_key
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig, HFEngine
from verl.workers.rollout.hf_rollout_server.request import GenerationOutput
from verl.workers.rollout.hf_rollout_server.sampling import SamplingParams

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="deterministic runs are refused on a GPU")
STEPS, NEW_TOKENS, LIVE = 2, 24, 1
"""The live classmate comes behind the given one."""


@pytest.fixture(scope="module")
def runs(world: World, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One run with each schedule: a classmate on two engines, the policy as it is now, and an unseen reader."""
    folder = tmp_path_factory.mktemp("schedules")
    return {schedule: _finished(world, folder, schedule) for schedule in ("streamed", "batched")}


def _finished(world: World, folder: Path, schedule: str) -> Path:
    overrides = [
        f"reward_model.classmate_model_name_or_path_list=[{world.classmates[0]}]",
        "reward_model.classmate_replicas=2",
        f"reward_model.evaluation_classmates=[{{model: {world.classmates[1]}}}]",
        f"reward_model.classmate_schedule={schedule}",
        "reward_model.classmate_cot_reward_configs.self_play=live",
        "trainer.deterministic=true",
        f"trainer.total_training_steps={STEPS}",
        "trainer.save_freq=1",
        "trainer.val_before_train=false",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        graded_reward(folder),
    ]
    with start([*MAIN, *settings(world, folder / schedule, *overrides)], log=folder / f"{schedule}.txt") as run:
        run.wait_for(lambda: 1 in steps(folder / schedule))
        engines = [len(run.processes(f"ray::{name}")) for name in ("ClassmateWorker", "HFServer")]
        assert run.wait() == 0, run.terminal
    assert engines == [4, 1], "two of the classmate and of the unseen reader, of the policy one for both of its parts"
    return folder / schedule


@pytest.mark.long
def test_streamed_and_batched_give_the_same_rewards(runs: dict[str, Path]) -> None:
    for step in range(1, STEPS + 1):
        dumps = [(run / "rollouts" / f"step_{step}.jsonl").read_bytes() for run in runs.values()]
        assert dumps[0] == dumps[1]
        records = rows(runs["batched"], step)
        assert len(records) == PROMPTS * ROLLOUTS
        assert {s["outcome"] for r in records for c in r["classmates"] for s in c["samples"]} >= {"ok"}
        for key in ("critic/classmate_reward/mean", "critic/final_reward/mean", "actor/grad_norm"):
            values = [steps(run)[step][key] for run in runs.values()]
            assert values[0] == values[1], key
    streamed, batched = (rows(run, STEPS, validation=True) for run in runs.values())
    assert streamed == batched
    assert all({s["outcome"] for u in row["unseen"] for s in u["samples"]} == {"ok"} for row in batched if row["cot"])
    assert not any("unseen" in row for row in rows(runs["batched"], STEPS)), "it reads validation rows only"
    assert [line["step"] for line in metrics(runs["batched"])] == [line["step"] for line in metrics(runs["streamed"])]


@pytest.mark.long
def test_live_self_play_answers_with_the_last_steps_weights(world: World, runs: dict[str, Path]) -> None:
    records = [row for row in rows(runs["streamed"], 2) if row["classmates"][LIVE]["samples"][0]["outcome"] == "ok"]
    assert records
    tokenizer = AutoTokenizer.from_pretrained(world.policy)
    texts, log_probs = {}, {}
    for name, model in (("start", world.policy), ("step 1", runs["streamed"] / "global_step_1/actor/huggingface")):
        outputs = answers_of(model, world.policy, [request_of(row, LIVE, tokenizer) for row in records])
        texts[name] = [tokenizer.decode(output.token_ids, skip_special_tokens=True).strip() for output in outputs]
        log_probs[name] = [sum(output.log_probs) for output in outputs]
    said = [row["classmates"][LIVE]["samples"][0]["text"].strip() for row in records]
    same = {name: sum(a == b for a, b in zip(said, texts[name], strict=True)) / len(said) for name in texts}
    # The prompt's text as a whole may have other tokens than its parts, of which the run made it.
    assert same["step 1"] >= 0.9 > same["start"]
    assert log_probs["step 1"] != pytest.approx(log_probs["start"], rel=1e-3)


@pytest.mark.long
def test_classmates_that_take_turns_on_a_cpu_give_equal_rewards(world: World, tmp_path: Path) -> None:
    def run(schedule: str) -> list[dict[str, Any]]:
        folder = tmp_path / schedule
        overrides = (
            f"reward_model.classmate_schedule={schedule}",
            "trainer.deterministic=true",
            "trainer.total_training_steps=1",
            "trainer.save_freq=-1",
            "trainer.test_freq=-1",
            "trainer.val_before_train=false",
            graded_reward(tmp_path),
        )
        finished([*MAIN, *settings(world, folder, *overrides)], log=tmp_path / f"{schedule}.txt")
        return rows(folder, 1)

    streamed, batched = run("streamed"), run("batched")
    assert batched == streamed
    assert {s["outcome"] for row in batched for c in row["classmates"] for s in c["samples"]} >= {"ok"}


def request_of(row: dict[str, Any], classmate: int, tokenizer: Any) -> tuple[list[int], SamplingParams]:
    """What a classmate was asked, from the dump."""
    key = row_key(row["data_source"], row["index"])
    seed = request_seed(1, row["step"], key, row["rollout"], classmate, 0)
    prompt_ids = tokenizer.encode(row["classmates"][classmate]["prompt"], add_special_tokens=False)
    return prompt_ids, SamplingParams(max_tokens=NEW_TOKENS, temperature=0.7, top_p=0.9, seed=seed)


def answers_of(
    model: Path, tokenizer: Path, requests: list[tuple[list[int], SamplingParams]]
) -> list[GenerationOutput]:
    config = EngineConfig(model_path=str(model), tokenizer_path=str(tokenizer), deterministic=True)
    engine = HFEngine.from_config(config)
    try:
        return asyncio.run(engine.generate_batch(requests))
    finally:
        engine.close()
