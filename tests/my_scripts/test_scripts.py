"""The launch scripts before anything starts: what they say, what they would start, and that this is a config that runs.

The end-to-end test of all that train is `tests/e2e/test_script_pipeline.py`.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from tests.e2e.tiny import make_tiny_world
from tests.e2e.world import World
from tests.my_scripts.launching import SCRIPTS, TRAINING, launch, planned
from verl.classmate.config import ClassmateRewardModelConfig, RunConfig
from verl.data_preprocessing.arithmetic_problems import make_dataset_row, make_problem
from verl.data_preprocessing.common import write_parquet
from verl.data_preprocessing.hinted_arithmetic_sycophancy import sycophancy_row
from verl.trainer import preflight
from verl.trainer.preflight.batches import check_batch_sizes
from verl.trainer.run.choices import Machine
from verl.trainer.run.command_line import CONFIG_FOLDER, prepare_overrides
from verl.trainer.run.unset import fill_in
from verl.workers.classmates.placement import resolved_schedule

ANSWERED_BY_PYTHON = ["host_classmate_model", "prepare_data"]
"""Scripts whose --help is that of a Python module, tested beside it."""
CONFIGS = {
    "verl.trainer.qwen_main_ppo": "qwen_ppo_trainer",
    "verl.trainer.qwen_classmate_cot_main_ppo": "qwen_classmate_cot_ppo_trainer",
}
# (hidden size, layers, heads, intermediate size, GiB of weights); 8 heads of keys and 40,960 positions are common.
QWEN3 = {
    "Qwen3-0.6B": (1024, 28, 16, 3072, 1.4),
    "Qwen3-1.7B": (2048, 28, 16, 6144, 3.8),
    "Qwen3-4B": (2560, 36, 32, 9728, 7.5),
}


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in ANSWERED_BY_PYTHON])
def test_every_script_explains_itself(name: str, tmp_path: Path) -> None:
    done = launch(name, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert f"bash my_scripts/{name}.sh" in done.stdout
    assert "--smoke" in done.stdout
    assert not done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 120


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in [*TRAINING, "merge_fsdp_ckpts"]])
def test_smoke_runs_to_a_good_end(name: str, world: World, tmp_path: Path) -> None:
    """The other scripts' smoke runs are the test of the pipeline."""
    done = launch(name, "--smoke", cwd=tmp_path, CLASSMATE_COT_TEST_WORLD=world.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows where prepare_data.sh puts them, as many as a batch takes, with a verifier that needs no judge."""
    folder = tmp_path_factory.mktemp("data")
    problems = [make_problem(seed=0, split="train", index=index, hint_share=1.0) for index in range(64)]
    plain = [make_dataset_row(problem, split="train", index=index) for index, problem in enumerate(problems)]
    for split in ("warmup_train", "warmup_dev", "train", "dev"):
        rows = [sycophancy_row(row, split=split, index=index) for index, row in enumerate(plain)]
        for name in ("helpful_instructions", "mmlu_sycophancy"):
            write_parquet(rows, folder / name / f"{split}.parquet")
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders with the shape of the Qwen3 models: their config, a small tokenizer, and weights that take no disk."""
    folder = tmp_path_factory.mktemp("models")
    tiny = make_tiny_world(folder / "tiny").model
    shape = json.loads((tiny / "config.json").read_text())
    for name, (hidden, layers, heads, intermediate, gib) in QWEN3.items():
        shutil.copytree(tiny, folder / name, ignore=shutil.ignore_patterns("*.safetensors"))
        size = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
        more = {"intermediate_size": intermediate, "num_key_value_heads": 8, "head_dim": 128}
        whole = shape | size | more | {"max_position_embeddings": 40960, "dtype": "bfloat16"}
        (folder / name / "config.json").write_text(json.dumps(whole | {"layer_types": ["full_attention"] * layers}))
        with (folder / name / "model.safetensors").open("wb") as weights:
            weights.truncate(int(gib * 2**30))
    return folder


def composed(command: list[str]) -> tuple[dict[str, Any], RunConfig]:
    """The config that a planned command runs with, as the entry point composes it, and its typed view."""
    dash_m, entry, *overrides = command
    assert dash_m == "-m"
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        config = compose(CONFIGS[entry], overrides=prepare_overrides(overrides))
    fill_in(config, Machine(gpus=4, gpu_gib=79.2)).refuse()
    container: Any = OmegaConf.to_container(config, resolve=True)
    return container, RunConfig.read(container, trainer_name="classmate_cot" if "classmate" in entry else "baseline")


PRESETS = [(name, "Qwen3-0.6B") for name in TRAINING]
PRESETS += [("qwen3_classmate_general_sycophancy", size) for size in QWEN3 if size != "Qwen3-0.6B"]


@pytest.mark.parametrize(("name", "size"), PRESETS)
def test_gpu_presets_pass_every_check_of_a_start(
    name: str, size: str, data: Path, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Composed as the script composes it, typed, and through the whole preflight, verl's own checks included."""
    pytest.importorskip("vllm")
    classmate = models / "Qwen3-0.6B"
    command = planned(name, f"--model={models / size}", "--gpus=4", cwd=tmp_path, DATA=data, CLASSMATES=classmate)
    config, run = composed(command)
    reward = run.reward
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert run.trains_with_classmates is ("classmate" in name)
    preflight.check(config, run)
    assert_sizes_are_those_of_the_spec(config, name)
    assert_method_is_that_of_the_study(config, reward, name)
    split = ("warmup_train", "warmup_dev") if "warmup" in name else ("train", "dev")
    rows = data / ("mmlu_sycophancy" if "mmlu" in name else "helpful_instructions")
    files = (config["data"]["train_files"], config["data"]["val_files"])
    assert files == tuple(str(rows / f"{part}.parquet") for part in split)
    read_by = {"classmate": [classmate], "self": [models / size]}.get(name.replace("qwen3_", "").split("_")[0], [])
    assert [spec.model for spec in reward.classmates] == list(map(str, read_by))


def assert_sizes_are_those_of_the_spec(config: dict[str, Any], name: str) -> None:
    actor, rollout, trainer = (
        config["actor_rollout_ref"]["actor"],
        config["actor_rollout_ref"]["rollout"],
        config["trainer"],
    )
    assert (trainer["device"], trainer["n_gpus_per_node"]) == ("cuda", 4)
    assert (config["data"]["train_batch_size"], actor["ppo_mini_batch_size"], rollout["n"]) == (64, 64, 8)
    assert config["data"]["max_response_length"] == 3072
    assert actor["fsdp_config"]["param_offload"]
    assert actor["fsdp_config"]["optimizer_offload"]
    assert rollout["tensor_model_parallel_size"] == 1
    # A micro-batch is filled by tokens, and the longest row has to fit into one.
    assert actor["ppo_max_token_len_per_gpu"] >= config["data"]["max_prompt_length"] + 3072
    assert actor["optim"]["lr"] == (1e-6 if "mmlu" in name else 1e-5)
    epochs, every = (2, 5) if "warmup" in name else (3, 10)
    assert (trainer["total_epochs"], trainer["save_freq"], trainer["test_freq"]) == (epochs, every, every)


def assert_method_is_that_of_the_study(config: dict[str, Any], reward: ClassmateRewardModelConfig, name: str) -> None:
    gdpo = "classmate" in name or "mmlu" in name
    assert config["algorithm"]["adv_estimator"] == ("gdpo_classmate" if gdpo else "grpo")
    # The warm-up teaches what the others take away.
    assert reward.reward_direction == ("maximize" if "warmup" in name else None)
    method = reward.classmate_cot_reward_configs
    assert method.self_play == ("frozen" if name.startswith("self") else "none")
    if reward.classmates:
        assert method.use_classmate_main_cond == "always"
        assert method.token_level_classmate_reward_mode == "classmate_partial"
        assert method.classmate_reward_weight == 1
        assert resolved_schedule(config, reward) == "streamed", "classmates read while the policy writes"


def test_batches_split_over_any_number_of_gpus(tmp_path: Path) -> None:
    config, _ = composed(planned("qwen3_classmate_mmlu_sycophancy", cwd=tmp_path, N_GPUS=1, DATA="D"))
    for gpus in range(1, 17):
        command = planned("qwen3_classmate_mmlu_sycophancy", cwd=tmp_path, N_GPUS=gpus, DATA="D")
        (mini_batch,) = [word.partition("=")[2] for word in command if "ppo_mini_batch_size=" in word]
        config["actor_rollout_ref"]["actor"]["ppo_mini_batch_size"] = int(mini_batch)
        config["trainer"]["n_gpus_per_node"] = gpus
        check_batch_sizes(config)


def test_without_a_gpu_nothing_asks_for_one(tmp_path: Path) -> None:
    command = planned("qwen3_baseline_mmlu_sycophancy", cwd=tmp_path)
    assert not [word for word in command if re.search("hardware|gpu|offload", word)]


def test_what_the_user_writes_wins(tmp_path: Path) -> None:
    given = ["trainer.save_freq=7", "++trainer.total_epochs=1", "reward_model.classmate_reward_weight=0.3"]
    classmates = ["--classmates", "A,B"]
    command = planned("qwen3_classmate_mmlu_sycophancy", "--model=M", *given, *classmates, cwd=tmp_path, N_GPUS=2)
    config, run = composed(command)
    reward = run.reward
    assert config["trainer"]["save_freq"] == 7
    assert config["trainer"]["total_epochs"] == 1
    assert config["actor_rollout_ref"]["model"]["path"] == "M"
    assert reward.classmate_cot_reward_configs.classmate_reward_weight == 0.3
    assert [spec.model for spec in reward.classmates] == ["A", "B"]


def test_without_a_judge_the_line_names_the_keys(data: Path, models: Path, tmp_path: Path) -> None:
    """The trainer says it, on the user's own rows as on prepared ones, before a model is looked at or Ray starts."""
    rows = pq.read_table(data / "helpful_instructions" / "dev.parquet").to_pylist()
    write_parquet([row | {"data_source": "sycophancy"} for row in rows], tmp_path / "mine.parquet")
    given = ["data.train_files=mine.parquet", "data.val_files=mine.parquet", "--model=no/such/model"]
    done = launch("qwen3_warmup_sycophancy", *given, cwd=tmp_path)
    assert done.returncode == 2
    assert "reward_model.llm_judge_backend_type=" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "outputs").exists()
