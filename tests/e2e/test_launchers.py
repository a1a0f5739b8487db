"""From nothing to an evaluated teacher by the two launch scripts, on a small embedded teaching world."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.my_scripts.launching import ROOT, environment


def launched(script: str, *words: str, cwd: Path) -> str:
    done = subprocess.run(
        [str(ROOT / script), *words],
        cwd=cwd,
        env=environment(TEACHING_WORLD=cwd / "world", OMP_NUM_THREADS="1"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_warm_up_training_and_evaluation_on_no_gpu(tmp_path: Path) -> None:
    builder = [sys.executable, "-m", "verl.data_preprocessing.teaching_world", "--short", "--local_dir", "world"]
    subprocess.run(builder, cwd=tmp_path, env=environment(), check=True, capture_output=True)
    launched("launch.sh", "0", "configs/run/teacher_sft.yaml", "train_batch_size=8", "max_steps=2", cwd=tmp_path)
    warm = tmp_path / "results" / "teaching_world" / "pre_rl_model"
    assert (warm / "model.safetensors").exists()

    words = ("0", "0", "smoke_cpu", f"model_name_or_path={warm}", "degradation_penalty=1")
    said = launched("launch_with_server.sh", *words, cwd=tmp_path)
    (run,) = (tmp_path / "results" / "teaching_world" / "smoke_cpu").iterdir()
    assert json.loads((run / "run.json").read_text())["state"] == "finished"
    assert "degradation_penalty: 1" in (run / "config.yaml").read_text()
    assert f"written: {run / 'teaching_evaluation.json'}" in said
    assert "tells the answer" in said, "the table with its controls"

    # The same command again is a new run: this one has ended. An evaluation finds its weights.
    words = ("0", "eval_teacher", f"model_name_or_path={run}", "launch.evaluation.items=1")
    said = launched("launch.sh", *words, cwd=tmp_path)
    assert "teaching_evaluation.json" in said
