"""The launch scripts before anything starts: what they say, what they would start, and that this is a config that runs.

The end-to-end test of all that train is `tests/e2e/test_script_pipeline.py`.
"""

import json
import re
import shlex
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
from tests.my_scripts.launching import FOLDER, ROOT, SCRIPTS, TRAINING, launch, planned
from verl.classmate.algorithm_config import check_training
from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.data_preprocessing.arithmetic_problems import make_dataset_row, make_problem
from verl.data_preprocessing.common import write_parquet
from verl.data_preprocessing.hinted_arithmetic_sycophancy import sycophancy_row
from verl.trainer import preflight
from verl.trainer.preflight.batches import check_batch_sizes
from verl.trainer.run.choices import Machine
from verl.trainer.run.command_line import CONFIG_FOLDER, prepare_overrides
from verl.trainer.run.untyped import fill_in
from verl.workers.classmates.placement import resolved_schedule

ANSWERED_BY_PYTHON = ["host_classmate_model", "prepare_data"]
"""Scripts whose --help is that of a Python module, tested beside it."""
FROM_WARMUP = [name for name in TRAINING if "general" in name]
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


# What a training script starts


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


def composed(command: list[str]) -> tuple[dict[str, Any], ClassmateRewardModelConfig]:
    """The config that a planned command runs with, as the entry point composes it."""
    dash_m, entry, *overrides = command
    assert dash_m == "-m"
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        config = compose(CONFIGS[entry], overrides=prepare_overrides(overrides))
    fill_in(config, Machine(gpus=4, gpu_gib=79.2)).refuse()
    container: Any = OmegaConf.to_container(config, resolve=True)
    return container, from_mapping(container["reward_model"], require_classmates="classmate" in entry)


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
    config, reward = composed(command)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    check_training(config, reward)
    preflight.check(config, reward, needs_classmates="classmate" in name)
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
    config, reward = composed(command)
    assert config["trainer"]["save_freq"] == 7
    assert config["trainer"]["total_epochs"] == 1
    assert config["actor_rollout_ref"]["model"]["path"] == "M"
    assert reward.classmate_cot_reward_configs.classmate_reward_weight == 0.3
    assert [spec.model for spec in reward.classmates] == ["A", "B"]


# Mistakes


def refused(name: str, *arguments: str, cwd: Path, **variables: object) -> str:
    """What a script says that ends at once."""
    done = launch(name, *arguments, cwd=cwd, **variables)
    assert done.returncode == 2
    assert not done.stdout
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("name", TRAINING)
def test_without_data_the_line_names_the_command_that_makes_it(name: str, tmp_path: Path) -> None:
    dataset = "mmlu_sycophancy" if "mmlu" in name else "helpful_instructions"
    line = refused(name, "--data", str(tmp_path), "--model=M", cwd=tmp_path)
    assert f"run `bash my_scripts/prepare_data.sh {dataset}`" in line
    assert "data.train_files=" in line


def test_without_a_judge_the_line_names_the_keys(data: Path, models: Path, tmp_path: Path) -> None:
    """The trainer says it, on the user's own rows as on prepared ones, before a model is looked at or Ray starts."""
    rows = pq.read_table(data / "helpful_instructions" / "dev.parquet").to_pylist()
    write_parquet([row | {"data_source": "sycophancy"} for row in rows], tmp_path / "mine.parquet")
    given = ["data.train_files=mine.parquet", "data.val_files=mine.parquet", "--model=no/such/model"]
    done = launch("qwen3_warmup_sycophancy", *given, cwd=tmp_path)
    assert done.returncode == 2
    assert "reward_model.llm_judge_backend_type=" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--smok"], "--smok is no option"),
        (["--model"], "--model needs a value"),
        (["--gpus="], "--gpus needs a value"),
        (["--gpus=all", "--dry-run"], "--gpus=all is no number"),
        (["Qwen/Qwen3-4B"], "--model NAME"),
    ],
)
def test_a_mistyped_argument_is_one_line(arguments: list[str], said: str, tmp_path: Path) -> None:
    assert said in refused("qwen3_baseline_mmlu_sycophancy", *arguments, cwd=tmp_path)


@pytest.mark.parametrize("name", [name for name in TRAINING if not name.startswith("qwen3_classmate")])
@pytest.mark.parametrize("written", [["--classmates", "x"], ["--classmates=x"]], ids=" ".join)
def test_classmates_are_refused_where_none_can_be_chosen(name: str, written: list[str], tmp_path: Path) -> None:
    """Self-play's only classmate is the policy; baselines and warm-up have none."""
    line = refused(name, "--dry-run", "--model=M", *written, cwd=tmp_path)
    assert line == "error: --classmates: this script trains with none that can be chosen; leave it out"
    assert planned(name, "--model=M", cwd=tmp_path, CLASSMATES="x"), "a variable may be meant for another script"


@pytest.mark.parametrize("name", TRAINING)
def test_every_option_of_a_training_script_changes_the_command_or_is_refused(name: str, tmp_path: Path) -> None:
    for smoke in ([], ["--smoke"]):
        plain = planned(name, "--model=M", *smoke, cwd=tmp_path)
        for option, value in (("--model", "N"), ("--classmates", "x"), ("--gpus", "2"), ("--data", "d")):
            done = launch(name, "--dry-run", "--model=M", *smoke, option, value, cwd=tmp_path)
            if done.returncode == 0:
                assert shlex.split(done.stdout)[1:] != plain, (option, smoke)
            else:
                assert (done.returncode, done.stdout) == (2, "")
                assert option in done.stderr
                assert done.stderr.endswith("out\n")
                assert done.stderr.count("\n") == 1


def fake_run(cwd: Path, stamp: str, *, state: str = "finished", step: int | None = 4, weights: str = "") -> Path:
    """A run of the warm-up, as far as the next script looks at it."""
    run = cwd / "outputs" / "classmate_cot" / "qwen3_warmup_sycophancy" / stamp
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"state": state}))
    if step is not None:
        (run / "latest_checkpointed_iteration.txt").write_text(str(step))
        folder = run / f"global_step_{step}" / "actor" / "huggingface"
        folder.mkdir(parents=True)
        for name in weights.split():
            (folder / name).write_text(
                '{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}'
            )
    return run


def started_from(cwd: Path, name: str = FROM_WARMUP[0]) -> str:
    (path,) = [word for word in planned(name, cwd=cwd) if word.startswith("actor_rollout_ref.model.path=")]
    return path.partition("=")[2]


@pytest.mark.parametrize("name", FROM_WARMUP)
def test_studies_start_from_the_last_finished_warmup(name: str, tmp_path: Path) -> None:
    assert "run `bash my_scripts/qwen3_warmup_sycophancy.sh` here first" in refused(name, cwd=tmp_path)
    fake_run(tmp_path, "20250101-000000", state="running", weights="model.safetensors")
    assert "no finished run" in refused(name, "--dry-run", cwd=tmp_path)
    fake_run(tmp_path, "20250102-000000", weights="model.safetensors")
    last = fake_run(tmp_path, "20250103-000000", weights="model.safetensors")
    fake_run(tmp_path, "20250104-000000", step=None)
    assert started_from(tmp_path, name) == str(last / "global_step_4" / "actor" / "huggingface")
    assert "actor_rollout_ref.model.path=mine" in planned(name, cwd=tmp_path, MODEL="mine")


def test_a_model_that_is_not_whole_is_to_be_merged(tmp_path: Path) -> None:
    run = fake_run(tmp_path, "20250101-000000", weights="model.safetensors.index.json model-00001-of-00002.safetensors")
    line = refused(FROM_WARMUP[0], cwd=tmp_path)
    assert f"run `bash my_scripts/merge_fsdp_ckpts.sh {run.relative_to(tmp_path)}`" in line
    (run / "global_step_4" / "actor" / "huggingface" / "model-00002-of-00002.safetensors").touch()
    assert started_from(tmp_path) == str(run / "global_step_4" / "actor" / "huggingface")


# Merging and Docker


def test_merge_says_what_it_lacks(tmp_path: Path) -> None:
    run = fake_run(tmp_path, "20250101-000000")
    assert "write bash my_scripts/merge_fsdp_ckpts.sh MAIN_DIR" in refused("merge_fsdp_ckpts", cwd=tmp_path)
    assert "holds no global_step_N" in refused("merge_fsdp_ckpts", str(tmp_path), cwd=tmp_path)
    assert "holds no FSDP checkpoint" in refused("merge_fsdp_ckpts", str(run), cwd=tmp_path)
    assert "global_step_9" in refused("merge_fsdp_ckpts", str(run), "--step=9", cwd=tmp_path)
    (run / "global_step_10" / "actor").mkdir(parents=True)
    assert "--target is for one step" in refused("merge_fsdp_ckpts", str(run), "--target=T", cwd=tmp_path)


def test_a_merge_that_broke_off_is_done_again(tmp_path: Path) -> None:
    """The merger is one that dies half-way at its first try; weights in two files, as of a large model."""
    run = fake_run(tmp_path, "20250101-000000")
    actor = run / "global_step_4" / "actor"
    (actor / "fsdp_config.json").touch()
    python = tmp_path / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        "#!/bin/sh\n[ $2 = verl.model_merger ] || exit 0\n"
        "shift 8; mkdir -p $1; cd $1; echo a > model-00001-of-00002.safetensors\n"
        f"[ -e {tmp_path}/tried ] || {{ touch {tmp_path}/tried; exit 1; }}\n"
        "echo b > model-00002-of-00002.safetensors\n"
        "echo model-00001-of-00002.safetensors model-00002-of-00002.safetensors > model.safetensors.index.json\n"
    )
    python.chmod(0o755)
    broken = launch("merge_fsdp_ckpts", str(run), cwd=tmp_path, VIRTUAL_ENV=python.parents[1])
    assert broken.returncode == 1
    assert not list((actor / "huggingface").iterdir())
    again = launch("merge_fsdp_ckpts", str(run), cwd=tmp_path, VIRTUAL_ENV=python.parents[1])
    assert again.stdout == f"merged {actor / 'huggingface'}\n"
    assert len(list((actor / "huggingface").glob("model*"))) == 3
    assert sorted(path.name for path in actor.iterdir()) == ["fsdp_config.json", "huggingface"]
    assert "is whole" in launch("merge_fsdp_ckpts", str(run), cwd=tmp_path).stdout


def test_merge_takes_steps_in_order_then_uploads(tmp_path: Path) -> None:
    run = fake_run(tmp_path, "20250101-000000")
    # What upstream leaves of a checkpoint that it removes.
    (run / "global_step_2").mkdir()
    (run / "global_step_2" / "data.pt").touch()
    for step in (4, 10):
        (run / f"global_step_{step}" / "actor").mkdir(parents=True, exist_ok=True)
        (run / f"global_step_{step}" / "actor" / "fsdp_config.json").touch()
    done = launch("merge_fsdp_ckpts", str(run), "--dry-run", "--repo_name", "me/it", cwd=tmp_path)
    first, second, upload = (shlex.split(line) for line in done.stdout.splitlines())
    for command, step in ((first, 4), (second, 10)):
        actor = run / f"global_step_{step}" / "actor"
        assert command[1:6] == ["-m", "verl.model_merger", "merge", "--backend", "fsdp"]
        assert command[6:] == ["--local_dir", str(actor), "--target_dir", str(actor / "huggingface")]
    assert upload[1:] == [
        *(str(ROOT / "upload_ckpts_to_huggingface.py"), "--repo_name", "me/it"),
        *("--root_path", str(run)),
    ]


def checkpoints(cwd: Path, *steps: int) -> Path:
    """A run with shards at these steps, as far as the merging script looks at them."""
    run = fake_run(cwd, "20250101-000000", step=steps[-1])
    for step in steps:
        (run / f"global_step_{step}" / "actor").mkdir(parents=True, exist_ok=True)
        (run / f"global_step_{step}" / "actor" / "fsdp_config.json").touch()
    return run


@pytest.mark.parametrize(
    ("arguments", "merged", "uploaded"),
    [
        (["--step", "4"], "{run}/global_step_4/actor/huggingface", ["--root_path", "{run}", "--step", "4"]),
        (["--step=4", "--target", "T"], "T", ["--main_only_path", "T"]),
        (["--step=4", "--force"], "{run}/global_step_4/actor/huggingface", ["--root_path", "{run}", "--step", "4"]),
    ],
)
def test_what_is_uploaded_is_what_was_merged(
    arguments: list[str], merged: str, uploaded: list[str], tmp_path: Path
) -> None:
    run = checkpoints(tmp_path, 4, 10)
    done = launch("merge_fsdp_ckpts", str(run), "--dry-run", "--repo_name", "me/it", *arguments, cwd=tmp_path)
    merge, upload = (shlex.split(line) for line in done.stdout.splitlines())
    assert merge[-1] == merged.format(run=run)
    assert upload[2:] == ["--repo_name", "me/it", *(word.format(run=run) for word in uploaded)]


def test_merging_refuses_what_it_would_leave_undone(tmp_path: Path) -> None:
    run = checkpoints(tmp_path, 4)
    for name in ("a/b/c d", "a b", "a/", "-a"):
        line = refused("merge_fsdp_ckpts", str(run), "--repo_name", name, cwd=tmp_path)
        assert line == f"error: --repo_name {name} is no name of a repository; write NAME or ORGANISATION/NAME"
    for idle in ([str(run)], ["--step=4"], ["--target=T"], ["--force"]):
        assert "--smoke merges a run of its own" in refused("merge_fsdp_ckpts", "--smoke", *idle, cwd=tmp_path)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_dry_run_of_the_smoke_merge_starts_nothing(tmp_path: Path) -> None:
    done = launch("merge_fsdp_ckpts", "--smoke", "--dry-run", cwd=tmp_path)
    assert shlex.split(done.stdout) == ["bash", str(FOLDER / "qwen3_warmup_sycophancy.sh"), "--smoke"]
    assert not list(tmp_path.iterdir())


def test_the_hosting_smoke_takes_nothing_else(tmp_path: Path) -> None:
    line = refused("host_classmate_model", "--smoke", "--backend", "vllm", cwd=tmp_path)
    assert line == "error: --smoke hosts one of the embedded world's models; leave --backend out"


def docker_commands(*arguments: str, cwd: Path, **variables: object) -> list[list[str]]:
    done = launch("create_docker", "--dry-run", *arguments, cwd=cwd, **variables)
    assert done.returncode == 0, done.stderr
    return [shlex.split(line) for line in done.stdout.splitlines()]


def volumes(create: list[str]) -> dict[str, str]:
    pairs = [create[i + 1].rsplit(":", 1) for i, word in enumerate(create) if word == "--volume"]
    return {inside: outside for outside, inside in pairs}


def test_the_container_is_called_verl_and_has_gpus_data_and_models(tmp_path: Path) -> None:
    build, create = docker_commands("--data=d", "--hf-cache", "/models", "--", "--network", "host", cwd=tmp_path)
    assert build == ["docker", "build", "--file", str(FOLDER / "Dockerfile"), "--tag", "classmate-cot-verl", str(ROOT)]
    assert create[:4] == ["docker", "create", "--name", "verl"]
    assert create[create.index("--gpus") + 1] == "all"
    assert "--shm-size" in create
    assert create[-3:] == ["--network", "host", "classmate-cot-verl"]
    recipe = (FOLDER / "Dockerfile").read_text()
    checkout = re.search(r"^WORKDIR (\S+)", recipe, re.MULTILINE)[1]  # type: ignore[index]
    cache = re.search(r"HF_HOME=(\S+)", recipe)[1]  # type: ignore[index]
    assert volumes(create) == {checkout: str(ROOT), f"{checkout}/data": str(tmp_path / "d"), cache: "/models"}
    assert create[create.index("--workdir") + 1] == checkout


def test_folders_of_the_container_may_be_written_from_here(tmp_path: Path) -> None:
    """Docker takes a word without a slash for the name of a volume of its own."""
    _, create = docker_commands("--data=d", "--hf-cache=models", cwd=tmp_path)
    assert set(volumes(create).values()) == {str(ROOT), str(tmp_path / "d"), str(tmp_path / "models")}


def test_where_packages_come_from_is_handed_to_the_build_unseen(tmp_path: Path) -> None:
    build, _ = docker_commands(cwd=tmp_path, PIP_INDEX_URL="https://me:secret@index.invalid")
    assert build[build.index("--build-arg") + 1] == "PIP_INDEX_URL"


def test_the_images_toolkit_is_that_of_the_locked_torch() -> None:
    """flash-attn is compiled in it, against that torch."""
    lock = (ROOT / "requirements" / "gpu.lock").read_text()
    version = re.search(r"^cuda-toolkit==(\d+\.\d+)", lock, re.MULTILINE)[1]  # type: ignore[index]
    assert f"nvidia/cuda:{version}." in (FOLDER / "Dockerfile").read_text()


def stand_in_docker(folder: Path, *, container_exists: bool) -> Path:
    """A `docker` that writes down what it is asked."""
    folder.mkdir()
    program = folder / "docker"
    program.write_text(
        f'#!/bin/sh\n[ "$1" != container ] || exit {int(not container_exists)}\necho "$1" >> "{folder}/asked"\n'
    )
    program.chmod(0o755)
    return folder


def test_the_image_is_built_then_the_container_made(tmp_path: Path) -> None:
    folder = stand_in_docker(tmp_path / "bin", container_exists=False)
    path = f"{folder}:/usr/local/bin:/usr/bin:/bin"
    done = launch("create_docker", "--hf-cache", str(tmp_path / "cache"), cwd=tmp_path, PATH=path)
    assert done.returncode == 0, done.stderr
    assert (folder / "asked").read_text().split() == ["build", "create"]
    assert "docker start verl && docker exec -it verl bash" in done.stdout
    assert (tmp_path / "cache").is_dir(), "docker would make it, as root"


def test_a_container_of_that_name_is_left_alone(tmp_path: Path) -> None:
    folder = stand_in_docker(tmp_path / "bin", container_exists=True)
    line = refused("create_docker", cwd=tmp_path, PATH=f"{folder}:/usr/local/bin:/usr/bin:/bin")
    assert "there is a container verl" in line
    assert not (folder / "asked").exists()
