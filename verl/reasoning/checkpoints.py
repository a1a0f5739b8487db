"""Where a training by transformers' `Trainer` goes on after a kill.

One decision: a checkpoint counts only if its last file is there and can be read. One whose writing was cut off lies
beside it, with a higher number, and would end every rerun.

    >>> trainer.train(resume_from_checkpoint=newest_checkpoint(folder / "checkpoints"))
"""

import json
from pathlib import Path


def newest_checkpoint(folder: Path) -> str | None:
    """The last one that is whole: the trainer writes its state behind everything else."""
    found = []
    for state in folder.glob("checkpoint-*/trainer_state.json"):
        try:
            found.append((json.loads(state.read_text())["global_step"], str(state.parent)))
        except (OSError, ValueError, KeyError):
            continue
    return max(found)[1] if found else None
