"""Configs and states of run folders, for tests.

>>> abandon(RunFolder.open(config()))             # an unfinished run that nobody writes
"""

import json
from pathlib import Path

from tests.trainer.saved import save
from verl.trainer.run import lock as run_lock
from verl.trainer.run.folder import RunFolder


def config(folder: Path | None = None, **changes) -> dict:
    trainer = {
        "project_name": "project",
        "experiment_name": "experiment",
        "default_local_dir": None if folder is None else str(folder),
        "resume_mode": "auto",
        "resume_from_path": None,
        "total_training_steps": 10,
        "logger": [],
    }
    data = {"train_batch_size": 4, "seed": 1}
    for key, value in changes.items():
        (trainer if key in trainer else data)[key] = value
    return {"trainer": trainer, "data": data, "optim": {"lr": 1e-5, "betas": [0.9, 0.999]}}


def abandon(folder: RunFolder) -> None:
    """As if the process that wrote `folder` had been killed."""
    run_lock.release(folder.path)
    state = json.loads((folder.path / "run.json").read_text())
    state["pid"] = 2**22 + 1
    (folder.path / "run.json").write_text(json.dumps(state))


def save_checkpoint(folder: RunFolder, step: int) -> None:
    save(folder.path, step)


def run_until(path: Path, step: int, *saved: int) -> RunFolder:
    """A run that was killed behind `step`."""
    folder = RunFolder.open(config(path))
    for done in range(step + 1):
        folder.write_metrics(done, {"loss": float(done)})
        folder.dump_rows(done, [{"step": done}])
    for saved_step in saved:
        save(folder.path, saved_step)
    abandon(folder)
    return folder
