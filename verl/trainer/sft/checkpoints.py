"""Checkpoints of supervised training, in the layout of every other run's: `global_step_N/actor` and `data.pt`.

One decision: upstream's handler saves and loads the engine; where files lie, which of them stay and where a run goes
on is ours (`verl.trainer.run.checkpoints`). A run that goes on behind a whole epoch begins the next one from its first
row: upstream's loader, restored at the end of an epoch, would have no row left for the next.

    >>> publish(run, step=40)              # RUN is now a model's folder
"""

import os
import shutil
from pathlib import Path
from typing import Any, cast

import torch

from verl.trainer.run.checkpoints import TRACKER, prune, step_folders
from verl.trainer.run.state import write_atomically
from verl.utils.checkpoint import CheckpointHandler

ENGINE, LOADER = "actor", "data.pt"


class StepFolders(CheckpointHandler):
    """Saves to and resumes from `RUN/global_step_N`."""

    engine: Any
    """Upstream's, which trains."""
    steps_per_epoch: int = 0
    """Batches of an epoch."""

    def save_checkpoint(self, step: int) -> None:
        """Saves the engine, the loader and, last, the number of the step; removes older checkpoints."""
        run, engine = Path(self.default_local_dir), cast(Any, self.engine)
        folder = run / f"global_step_{step}"
        engine.save_checkpoint(local_path=str(folder / ENGINE), global_step=step, max_ckpt_to_keep=None)
        torch.distributed.barrier()
        if self.rank == 0:
            # The same for all ranks: it counts batches.
            torch.save(self.train_dataloader.state_dict(), folder / LOADER)
            write_atomically(run / TRACKER, str(step))
            resumed = Path(self.resume_from_path) if self.resume_from_path else None
            prune(run, keep=self.max_ckpt_to_keep, keep_critic=None, spared=resumed)
        torch.distributed.barrier()

    def load_checkpoint(self) -> int:
        """Loads what the start has found (`resume_from_path`); returns its step, 0 for a new run."""
        if self.resume_mode != "resume_path":
            return 0
        folder = Path(str(self.resume_from_path))
        cast(Any, self.engine).load_checkpoint(str(folder / ENGINE))
        step = int(folder.name.removeprefix("global_step_"))
        if step % self.steps_per_epoch:
            self.train_dataloader.load_state_dict(torch.load(folder / LOADER, weights_only=False))
        return step


def publish(run: Path, *, step: int) -> Path | None:
    """Makes the run folder a model's folder, with the weights of a step, which take no further room on the disk.

    Returns:
        The run folder; None where the checkpoint holds no whole model.
    """
    saved = step_folders(run)[step] / ENGINE / "huggingface"
    if not any(saved.glob("*.safetensors")):
        return None
    for old in (*run.glob("*.safetensors"), *run.glob("*.safetensors.index.json")):
        old.unlink()
    for file in sorted(saved.iterdir()):
        if file.is_file():
            _link(file, run / file.name)
    return run


def _link(source: Path, target: Path) -> None:
    partial: Any = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    try:
        os.link(source, partial)
    except OSError:
        # A file system without hard links.
        shutil.copy2(source, partial)
    partial.replace(target)
