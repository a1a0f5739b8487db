"""Launch scripts for tests: found by glob, started as a user starts them, away from the user's own settings.

>>> done = launch("qwen3_warmup_sycophancy", "--smoke", cwd=tmp_path, CLASSMATE_COT_TEST_WORLD=world.folder)
>>> done.returncode, done.stderr
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "my_scripts"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.sh") if path.stem != "common")
"""Every script that a user starts."""
TRAINING = [name for name in SCRIPTS if "qwen3" in name]
"""Those that train."""

_SETTINGS = ("MODEL", "CLASSMATES", "N_GPUS", "DATA", "WORLD", "CLASSMATE_COT_STARTED_AT", "CUDA_VISIBLE_DEVICES")


def environment(**variables: object) -> dict[str, str]:
    """This process's environment without what the scripts read, and with `variables`."""
    own = {key: value for key, value in os.environ.items() if key not in _SETTINGS}
    given = {key: str(value) for key, value in variables.items()}
    return own | {"VIRTUAL_ENV": sys.prefix, "CUDA_VISIBLE_DEVICES": ""} | given


def launch(name: str, *arguments: str, cwd: Path, **variables: object) -> subprocess.CompletedProcess[str]:
    """Runs a script to its end.

    Args:
        name: without folder and `.sh`.
        arguments: as a user writes them.
        cwd: where it is started, so that runs are below `cwd / "outputs"`.
        variables: of the environment.
    """
    return subprocess.run(
        ["bash", str(FOLDER / f"{name}.sh"), *arguments],
        cwd=cwd,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
    )


def planned(name: str, *arguments: str, cwd: Path, **variables: object) -> list[str]:
    """The command that a training script would start, without its Python: `-m`, entry point, overrides."""
    done = launch(name, "--dry-run", *arguments, cwd=cwd, **variables)
    assert done.returncode == 0, done.stderr
    return shlex.split(done.stdout)[1:]


def refused(name: str, *arguments: str, cwd: Path, **variables: object) -> str:
    """What a script says that ends at once."""
    done = launch(name, *arguments, cwd=cwd, **variables)
    assert done.returncode == 2
    assert not done.stdout
    (line,) = done.stderr.splitlines()
    return line


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


def runs(cwd: Path, name: str) -> list[Path]:
    """The folders of a script's smoke runs, oldest first."""
    return sorted((cwd / "outputs" / "classmate_cot" / f"{name}_smoke").iterdir())
