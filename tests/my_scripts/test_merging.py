"""`merge_fsdp_ckpts.sh`: which checkpoints it merges and uploads, in which order, and what it refuses."""

import shlex
from pathlib import Path

import pytest

from tests.my_scripts.launching import FOLDER, ROOT, fake_run, launch, refused


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
        str(ROOT / "upload_ckpts_to_huggingface.py"),
        "--repo_name",
        "me/it",
        "--root_path",
        str(run),
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
        assert line == f"error: --repo_name {name} is not a name of a repository; write NAME or ORGANISATION/NAME"
    for idle in ([str(run)], ["--step=4"], ["--target=T"], ["--force"]):
        assert "--smoke merges a run of its own" in refused("merge_fsdp_ckpts", "--smoke", *idle, cwd=tmp_path)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_dry_run_of_the_smoke_merge_starts_nothing(tmp_path: Path) -> None:
    done = launch("merge_fsdp_ckpts", "--smoke", "--dry-run", cwd=tmp_path)
    assert shlex.split(done.stdout) == ["bash", str(FOLDER / "qwen3_warmup_sycophancy.sh"), "--smoke"]
    assert not list(tmp_path.iterdir())
