"""Shards of a real training by two ranks: merged on the way to the hub, loaded from what arrived there."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.e2e.world import MAIN, World, finished, settings
from tests.hub.stand_in import LocalHub
from verl.hub.checkpoints import read_run
from verl.hub.upload import Target, upload
from verl.trainer.run.model_folders import has_whole_weights

pytestmark = pytest.mark.long


def test_shards_are_merged_uploaded_and_load(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    overrides = ["trainer.total_training_steps=1", "trainer.save_freq=1", "trainer.n_gpus_per_node=2"]
    overrides += ["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16"]
    overrides += ["actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16"]
    finished([*MAIN, *settings(world, run, *overrides)], log=tmp_path / "terminal.txt")
    folder = run / "global_step_1" / "actor"
    assert len(list(folder.glob("model_world_size_2_rank_*.pt"))) == 2
    trained = load_file(folder / "huggingface" / "model.safetensors")
    (folder / "huggingface" / "model.safetensors").unlink()
    assert not has_whole_weights(folder / "huggingface")

    with LocalHub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", hub.token)
        said: list[str] = []
        upload(read_run(run), Target(repo_id="lab/model", licence="mit"), say=said.append)
        assert said[0] == "global_step_1: merging its shards"
        files = hub.repositories["lab/model"].branches["main"]
    arrived = tmp_path / "arrived"
    arrived.mkdir()
    for name, content in files.items():
        (arrived / name).write_bytes(content)
    merged = load_file(arrived / "model.safetensors")
    for name, weight in merged.items():
        # Upstream's merger writes bf16.
        assert torch.equal(weight.to(torch.bfloat16), trained[name].to(torch.bfloat16)), name
    tokenizer = AutoTokenizer.from_pretrained(arrived)
    model = AutoModelForCausalLM.from_pretrained(arrived)
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "1 + 2"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    assert model.generate(**ids, max_new_tokens=4).shape[1] > ids["input_ids"].shape[1]
    card = files["README.md"].decode()
    assert "license: mit" in card
    assert "`classmate_a`, `classmate_b`" in card
    assert str(world.folder) not in card
    assert json.loads(files["config.json"])["architectures"] == ["Qwen3ForCausalLM"]
    shutil.rmtree(run)
