"""A run with three tiny checkpoints, a hub on loopback, and the command that uploads the one to the other."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import yaml
from huggingface_hub import constants
from transformers import AutoModelForCausalLM

import upload_ckpts_to_huggingface
from tests.e2e.tiny import make_tiny_world
from tests.hub.stand_in import LocalHub

STEPS = (1, 2, 10)

CONFIG = {
    "actor_rollout_ref": {"model": {"path": "Qwen/Qwen3-0.6B"}, "actor": {"optim": {"lr": 1e-5}}, "rollout": {"n": 8}},
    "algorithm": {"adv_estimator": "gdpo_classmate"},
    "data": {"train_files": "/srv/secret/train.parquet", "train_batch_size": 16},
    "trainer": {"v1": {"trainer_mode": "classmate_cot"}},
    "reward_model": {
        "classmates": [],
        "classmate_cot_reward_configs": {
            "classmate_model_name_or_path_list": ["meta-llama/Llama-3.2-1B-Instruct", "/srv/secret/my_classmate"],
            "classmate_reward_weight": 0.5,
            "self_play": "frozen",
        },
    },
}


@pytest.fixture(scope="module")
def made_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder as a training leaves it, with weights in several files."""
    folder = tmp_path_factory.mktemp("run")
    world = make_tiny_world(folder / "world")
    model = AutoModelForCausalLM.from_pretrained(world.model)
    for step in STEPS:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.01)
        actor = folder / "run" / f"global_step_{step}" / "actor"
        model.save_pretrained(actor / "huggingface", max_shard_size="150KB")
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(world.model / name, actor / "huggingface")
        (actor / "model_world_size_1_rank_0.pt").write_bytes(b"shard")
        (actor / "optim_world_size_1_rank_0.pt").write_bytes(b"moments")
        (actor.parent / "data.pt").write_bytes(b"dataloader")
    (folder / "run" / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    measured = "val-core/hinted_arithmetic/main_model_reward/mean@1"
    lines = [{"step": step, measured: value} for step, value in ((0, 0.25), (2, 0.5), (10, 0.75))]
    (folder / "run" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "run" / "latest_checkpointed_iteration.txt").write_text(str(STEPS[-1]))
    return folder / "run"


@pytest.fixture
def run(made_run: Path, tmp_path: Path) -> Path:
    """A copy of the run that a test may change."""
    return Path(shutil.copytree(made_run, tmp_path / "run"))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LocalHub]:
    """A hub that this process is logged in to."""
    with LocalHub() as local:
        monkeypatch.setattr(constants, "ENDPOINT", local.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", local.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no_token"))
        monkeypatch.setenv("HF_TOKEN", local.token)
        yield local


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Runs the script in this process: what it printed, and the error it ended with, if any."""

    def call(*arguments: object) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["upload", *map(str, arguments)])
        error = ""
        try:
            upload_ckpts_to_huggingface.main()
        except SystemExit as end:
            error = str(end.code)
        return capsys.readouterr().out, error

    return call
