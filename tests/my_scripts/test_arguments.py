"""Launch scripts: what they refuse in one line, and which model a study starts from."""

import shlex
from pathlib import Path

import pytest

from tests.my_scripts.launching import TRAINING, fake_run, launch, planned, refused

FROM_WARMUP = [name for name in TRAINING if "general" in name]


@pytest.mark.parametrize("name", TRAINING)
def test_without_data_the_line_names_the_command_that_makes_it(name: str, tmp_path: Path) -> None:
    dataset = "mmlu_sycophancy" if "mmlu" in name else "helpful_instructions"
    line = refused(name, "--data", str(tmp_path), "--model=M", cwd=tmp_path)
    assert f"run `bash my_scripts/prepare_data.sh {dataset}`" in line
    assert "data.train_files=" in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--smok"], "--smok is not an option"),
        (["--model"], "--model needs a value"),
        (["--gpus="], "--gpus needs a value"),
        (["--gpus=all", "--dry-run"], "--gpus=all is not a number"),
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
    assert line == "error: --classmates: this script has no classmates to choose; leave it out"
    assert planned(name, "--model=M", cwd=tmp_path, CLASSMATES="x"), "a variable may be meant for another script"


@pytest.mark.parametrize("name", TRAINING)
def test_every_option_changes_the_command_or_is_refused(name: str, tmp_path: Path) -> None:
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


def test_the_hosting_smoke_takes_nothing_else(tmp_path: Path) -> None:
    line = refused("host_classmate_model", "--smoke", "--backend", "vllm", cwd=tmp_path)
    assert line == "error: --smoke hosts one of the embedded world's models; leave --backend out"
