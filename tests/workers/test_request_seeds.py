"""Which requests carry a seed; those without one are drawn differently by every engine and after every start."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from tests.run_config import run_config
from verl.classmate.config import from_mapping
from verl.classmate.frozen import frozen_classmates
from verl.classmate.outcome import Outcome
from verl.classmate.reply import Reply
from verl.trainer.hosting.options import Options
from verl.trainer.hosting.servers import command
from verl.trainer.run.folder import RunFolder
from verl.trainer.run.session import settle
from verl.trainer.run.start import read_run
from verl.workers.classmates.client import ClassmateClient
from verl.workers.classmates.engines import vllm_rollout_config

SEEDS = [11, 12]


def asked(backend: str, *, deterministic: bool = False, policy_engine: str = "hf", live: bool = False) -> list[dict]:
    """Sampling parameters of the two requests of one row."""
    node: dict[str, Any] = {"classmate_model_name_or_path_list": ["m"]}
    if live:
        node = {"self_play": "live", "self_play_model": "policy"}
    reward = from_mapping({"classmate_backend": backend, "classmate_cot_reward_configs": node})
    client = ClassmateClient(reward, max_model_len=99, deterministic=deterministic, policy_engine=policy_engine)
    seen: list[dict] = []

    async def answer(*arguments: Any) -> Reply:
        seen.append(arguments[-1])
        return Reply(outcome=Outcome.ok)

    client.complete = answer  # type: ignore[method-assign]
    asyncio.run(client.sample(0, [1, 2], seeds=SEEDS, validate=False))
    return seen


@pytest.mark.parametrize("backend", ["vllm", "openai"])
def test_vllm_and_servers_of_others_are_asked_without_seeds(backend: str) -> None:
    assert [set(params) for params in asked(backend)] == [{"temperature", "top_p", "top_k", "max_tokens"}] * 2
    assert [params["seed"] for params in asked(backend, deterministic=True)] == SEEDS


def test_the_embedded_engine_draws_from_seeds_anyway() -> None:
    for deterministic in (False, True):
        assert [params["seed"] for params in asked("hf", deterministic=deterministic)] == SEEDS


def test_live_self_play_is_asked_as_the_policys_engine_is() -> None:
    assert [params.get("seed") for params in asked("hf", live=True)] == SEEDS
    assert [params.get("seed") for params in asked("hf", live=True, policy_engine="vllm")] == [None, None]


@pytest.mark.parametrize(("backend", "policy_engine"), [("vllm", "hf"), ("openai", "hf"), ("policy", "vllm")])
def test_log_probs_at_another_temperature_are_not_made_up(backend: str, policy_engine: str) -> None:
    node = {"self_play": "live", "self_play_model": "policy"} if backend == "policy" else {}
    engine = {} if node else {"classmate_backend": backend, "classmates": [{"model": "m"}]}
    reward = from_mapping({**engine, "classmate_cot_reward_configs": node})
    client = ClassmateClient(reward, max_model_len=99, policy_engine=policy_engine)
    with pytest.raises(ValueError, match=r"told at temperature 1, not .*; score it with hf"):
        asyncio.run(client.log_probs(0, [1, 2], [3], temperature=0.7))


def test_engines_without_seeds_start_from_a_new_number_each_time(models: Path) -> None:
    config = run_config(models, ["text_bpe"], "reward_model.classmate_backend=vllm")
    reward = from_mapping(OmegaConf.to_container(config, resolve=True)["reward_model"])  # type: ignore[call-overload,index]
    seeds = [vllm_rollout_config(config, frozen_classmates(reward)[0], sleeps=False).seed for _ in range(20)]
    assert len(set(seeds)) == 20
    # Upstream adds the number of the replica; vLLM takes 32 bits.
    assert all(isinstance(seed, int) and 0 <= seed < 2**31 for seed in seeds)


@pytest.mark.parametrize(("engine", "full_determinism"), [("vllm", False), ("vllm", True), ("hf", False)])
def test_the_policys_engine_too_but_where_requests_are_seeded(
    models: Path, tmp_path: Path, engine: str, full_determinism: bool
) -> None:
    found = set()
    for start in range(4):
        config = run_config(
            models,
            ["text_bpe"],
            f"actor_rollout_ref.rollout.name={engine}",
            f"actor_rollout_ref.rollout.full_determinism={full_determinism}",
            "actor_rollout_ref.rollout.seed=7",
            f"trainer.default_local_dir={tmp_path / str(start)}",
        )
        container: Any = OmegaConf.to_container(config, resolve=True)
        settle(config, read_run(container, "classmate_cot"), RunFolder.open(container))
        found.add(config.actor_rollout_ref.rollout.seed)
    if engine == "vllm" and not full_determinism:
        assert len(found) == 4
    else:
        assert found == {7}


def test_hosted_vllm_servers_start_from_another_number_each_time(tmp_path: Path) -> None:
    options = Options(models=("a",), mapping=tmp_path / "m.json", backend="vllm")
    commands = [command(options, "a", 8003, 0.5) for _ in range(8)]
    assert len({one[one.index("--seed") + 1] for one in commands}) == 8
