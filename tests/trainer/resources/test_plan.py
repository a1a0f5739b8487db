"""The plan that a run prints at its start: what runs where, what it needs and what is there."""

import functools
import json
from collections.abc import Sequence
from pathlib import Path

import huggingface_hub
import pytest

from scripts import resources_table
from tests.e2e.tiny import make_tiny_world
from tests.trainer.test_configs import composed
from verl.classmate.config import from_mapping
from verl.trainer.resources import plan as resource_plan
from verl.utils.model_servers.mapping import Server, changing


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return make_tiny_world(tmp_path_factory.mktemp("world")).model


def plan(model: str, hardware: str, *classmates: dict, overrides: Sequence[str] = ()) -> list[str]:
    config = composed("classmate_cot_ppo_trainer", hardware, f"actor_rollout_ref.model.path={model}", *overrides)
    reward = from_mapping({"classmates": list(classmates)}, require_classmates=False)
    return resource_plan.resource_plan(config, reward, debug=False)


def test_every_part_has_an_aligned_row(model):
    lines = plan(str(model), "cpu", {"model": str(model), "backend": "hf"}, {"model": "some/model", "backend": "vllm"})
    header, *rows = lines[:5]
    assert [row[:18].rstrip() for row in rows] == ["policy, training", "policy, rollout", "classmate 0", "classmate 1"]
    for column in ("engine", "where", "memory"):
        place = header.index(column)
        assert all(row[place - 1] == " " and row[place] != " " for row in rows)
    assert "not known yet" in rows[3]
    assert "model" in rows[3]


def test_a_remote_classmate_costs_nothing_here(model, tmp_path):
    mapping = tmp_path / "mapping.json"
    with changing(mapping) as servers:
        servers["some/model"] = Server(name="some/model", outward_host="localhost", port=8003)
    config = composed("classmate_cot_ppo_trainer", "cpu", f"actor_rollout_ref.model.path={model}")
    classmates = [{"model": "some/model", "backend": "openai"}]
    node = {"host_classmate_name_to_url_json_fn": str(mapping)}
    reward = from_mapping({"classmates": classmates, "classmate_cot_reward_configs": node})
    *rows, memory = resource_plan.resource_plan(config, reward, debug=False)
    assert " ".join(rows[-1].split()) == "classmate 0 openai remote its own model at http://127.0.0.1:8003"
    needed = memory.partition(";")[0]
    assert needed == plan(str(model), "cpu")[-1].partition(";")[0]


def test_a_reader_in_validation_only_has_a_row_and_its_weights(model):
    config = composed("classmate_cot_ppo_trainer", "cpu", f"actor_rollout_ref.model.path={model}")
    reward = from_mapping({"evaluation_classmates": [{"model": str(model)}]}, require_classmates=False)
    *rows, memory = resource_plan.resource_plan(config, reward, debug=False)
    assert " ".join(rows[-1].split()).startswith("unseen 0 hf CPU ")
    assert rows[-1].endswith(f"{model.name}, in validation only")
    assert memory.partition(";")[0] != plan(str(model), "cpu")[-1].partition(";")[0]


def test_memory_is_compared_with_what_is_there(model, monkeypatch):
    monkeypatch.setattr(resource_plan, "memory_gib", lambda: (16.0, 12.0))
    lines = plan(str(model), "cpu", {"model": str(model), "backend": "hf"})
    assert "16.0 GiB there, 12.0 free" in lines[-1]
    monkeypatch.setattr(resource_plan, "memory_gib", lambda: (16.0, 1.0))
    assert plan(str(model), "cpu")[-1].startswith("warning: memory may not suffice")


def test_a_critic_is_counted(model):
    with_critic = plan(str(model), "cpu", overrides=["algorithm.adv_estimator=gae"])
    assert [row[:18].rstrip() for row in with_critic[1:4]] == [
        "policy, training",
        "critic, training",
        "policy, rollout",
    ]
    assert len(with_critic) == len(plan(str(model), "cpu")) + 1


def test_gpu_memory_is_told_as_a_share(model):
    policy = "actor_rollout_ref.rollout.gpu_memory_utilization=0.5"
    classmate = {"model": str(model), "backend": "vllm", "gpu_memory_utilization": 0.25}
    lines = plan(str(model), "gpu", classmate, overrides=[policy])
    assert any(line.startswith("GPUs ") and "1 needed" in line for line in lines)
    assert any(line.startswith("GPU memory") and "75%" in line for line in lines)


def test_half_precision_files_take_twice_their_size_in_float32(model, tmp_path):
    import shutil

    half = Path(shutil.copytree(model, tmp_path / "half"))
    config = json.loads((half / "config.json").read_text()) | {"dtype": "bfloat16"}
    (half / "config.json").write_text(json.dumps(config))
    stored = resource_plan.weights_gib(str(half), as_float32=False)
    assert resource_plan.weights_gib(str(half), as_float32=True) == pytest.approx(2 * stored)
    assert resource_plan.weights_gib("some/model", as_float32=True) is None


def test_a_hub_models_weights_follow_from_its_cached_config(monkeypatch, tmp_path):
    """They counted as nothing, so that no warning about them could come."""
    snapshot = tmp_path / "models--Qwen--Cached-0.6B" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("abc")
    (snapshot / "config.json").write_text(json.dumps(resources_table.POLICIES["Qwen3-0.6B"]))
    monkeypatch.setattr(
        "huggingface_hub.try_to_load_from_cache",
        functools.partial(huggingface_hub.try_to_load_from_cache, cache_dir=str(tmp_path)),
    )
    found = resource_plan.weights_gib("Qwen/Cached-0.6B", as_float32=True)
    assert found == pytest.approx(4 * 596_049_920 / 2**30)
    lines = plan("Qwen/Cached-0.6B", "gpu")
    assert "8.9 GiB" in lines[1], "weights, gradients, Adam"


def test_this_machine_has_memory():
    total, free = resource_plan.memory_gib()
    assert 0 < free <= total
