"""The same run on one rank and on two, with classmates; a LoRA run, whose model is a model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.e2e.world import MAIN, PROMPTS, ROLLOUTS, World, finished, graded_reward, rows, settings, steps

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(torch.cuda.is_available(), reason="deterministic runs are refused on a GPU"),
]
SHORT = (
    "trainer.deterministic=true",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "reward_model.use_classmate_condition=always",
)


def by_row(run_folder: Path, step: int) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of a step by prompt and rollout: ranks share them out by length, which changes their order."""
    return {(row["uid"], row["rollout"]): row for row in rows(run_folder, step)}


def close(one: Any, other: Any) -> bool:
    """Equal, numbers to rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, rel=1e-4, abs=1e-4)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(close, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    return bool(one == other)


@pytest.mark.long
def test_one_rank_and_two_with_classmates_are_the_same_run(world: World, tmp_path: Path) -> None:
    common = [*SHORT, "trainer.total_training_steps=2", "trainer.save_freq=-1", graded_reward(tmp_path)]
    halves = ["trainer.n_gpus_per_node=2", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16"]
    halves += ["actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16"]
    # One process makes the numbers of one rank on Ray: test_determinism.py.
    finished([*MAIN, *settings(world, tmp_path / "one", *common, "debug=true")], log=tmp_path / "one.txt")
    finished([*MAIN, *settings(world, tmp_path / "two", *common, *halves)], log=tmp_path / "two.txt")
    assert steps(tmp_path / "one").keys() == steps(tmp_path / "two").keys() == {1, 2}

    for step in (1, 2):
        one, two = by_row(tmp_path / "one", step), by_row(tmp_path / "two", step)
        assert one.keys() == two.keys()
        assert len(one) == PROMPTS * ROLLOUTS
        assert any(row["classmate_valid"] and row["classmate_score"] > 0 for row in one.values())
        assert any(row["advantage_on_cot"] for row in one.values())
        for key, row in one.items():
            different = [name for name in row if not close(row[name], two[key][name])]
            assert not different, (key, different)
        mine, theirs = steps(tmp_path / "one")[step], steps(tmp_path / "two")[step]
        for name in ("actor/pg_loss", "actor/entropy", "actor/grad_norm", "critic/final_reward/mean"):
            assert mine[name] == pytest.approx(theirs[name], rel=1e-3, abs=1e-5), (step, name)
    assert steps(tmp_path / "two")[2]["actor/grad_norm"] > 0


@pytest.mark.long
def test_lora_trains_adapters_only_and_saves_a_whole_model(world: World, tmp_path: Path) -> None:
    run_folder, rank = tmp_path / "run", 4
    adapters = [f"actor_rollout_ref.model.lora_rank={rank}", "actor_rollout_ref.model.lora_alpha=16"]
    adapters += ["actor_rollout_ref.model.lora.merge=true", "actor_rollout_ref.actor.optim.lr=1e-2"]
    common = [*SHORT, "trainer.total_training_steps=2", "trainer.save_freq=2", graded_reward(tmp_path)]
    finished([*MAIN, *settings(world, run_folder, *common, *adapters)], log=tmp_path / "terminal.txt")

    for step, line in steps(run_folder).items():
        assert line["actor/grad_norm"] > 0
        # What was sampled from is what is trained: the merged weights have arrived in the engine, which upstream sends
        # as bf16.
        assert line["training/rollout_probs_diff_mean"] < 0.01, step
        assert line["training/rollout_actor_probs_pearson_corr"] > 0.999, step
        assert any(row["classmate_valid"] for row in rows(run_folder, step))

    actor = run_folder / "global_step_2" / "actor"
    shard = torch.load(actor / "model_world_size_1_rank_0.pt", weights_only=False)
    shard = {name: getattr(value, "to_local", lambda value=value: value)() for name, value in shard.items()}
    start, saved = load_file(world.policy / "model.safetensors"), load_file(actor / "huggingface" / "model.safetensors")
    assert saved.keys() == start.keys()
    scale = json.loads((actor / "lora_train_meta.json").read_text())["lora_alpha"] / rank
    changed = []
    for name, before in start.items():
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{stem}.lora_A.default.weight" not in shard:
            assert torch.equal(saved[name].float(), before.float()), f"{name} has no adapter and must not change"
            continue
        assert torch.equal(shard[f"{stem}.base_layer.weight"].float(), before.float()), (
            f"{name}: the base must not change"
        )
        added = scale * shard[f"{stem}.lora_B.default.weight"] @ shard[f"{stem}.lora_A.default.weight"]
        assert torch.allclose(saved[name].float(), before.float() + added, atol=1e-2), name
        changed.append(bool(added.abs().max() > 0))
    assert len(changed) >= 7
    assert any(changed)

    from transformers import AutoModelForCausalLM

    model, loading = AutoModelForCausalLM.from_pretrained(actor / "huggingface", output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert torch.isfinite(model(torch.tensor([[1, 2, 3]])).logits).all()
