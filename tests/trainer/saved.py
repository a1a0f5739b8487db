"""Checkpoints as upstream leaves them, without a model in them.

>>> save(tmp_path / "run", 20)
"""

from pathlib import Path

import torch

from verl.trainer.run.checkpoints import TRACKER


def save(run: Path, step: int, *, critic: bool = False) -> Path:
    """Writes the files of one save, and its step into the tracker; the checkpoint's folder."""
    folder = run / f"global_step_{step}"
    for part in ("actor", "critic") if critic else ("actor",):
        (folder / part).mkdir(parents=True)
        for name in ("model", "optim", "extra_state"):
            torch.save({"step": step}, folder / part / f"{name}_world_size_1_rank_0.pt")
    torch.save({"step": step}, folder / "data.pt")
    (run / TRACKER).write_text(str(step))
    return folder


def saved_steps(run: Path) -> list[int]:
    """Steps of all folders of checkpoints, whole or not."""
    return sorted(int(path.name.removeprefix("global_step_")) for path in run.glob("global_step_*"))
