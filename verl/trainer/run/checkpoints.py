"""The checkpoints in a run folder: which are whole, where a start continues, which are removed.

Decision: what lies on the disk decides, not a list in memory as upstream's. So a resumed run keeps to its number of
checkpoints, and one that was lost costs the steps behind it, not the run.

    >>> latest_step(run)                                        # 40
    >>> prune(run, keep=3, keep_critic=3, spared=None)          # after a save
"""

import re
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError

TRACKER = "latest_checkpointed_iteration.txt"
"""File of a run folder in which upstream writes the step of each save that has ended, and reads where to resume."""


def step_folders(run: Path) -> dict[int, Path]:
    """Step -> folder `global_step_N` of everything that lies in a run folder, whole or not, oldest first."""
    found = {step: path for path in run.glob("global_step_*") if (step := _step_of(path)) and path.is_dir()}
    return dict(sorted(found.items()))


def latest_step(run: Path) -> int:
    """The step at which a run resumes: of the newest whole checkpoint that the tracker knows; 0 before the first save.

    A whole one that the tracker does not know, since the run was killed before it was written, counts where there is
    no other.

    Raises:
        ConfigError: when there were checkpoints and none of them is whole.
    """
    tracker, folders = run / TRACKER, step_folders(run)
    has_critic = any((folder / "critic").is_dir() for folder in folders.values())
    whole = [step for step, folder in folders.items() if _is_whole(folder, has_critic)]
    text = tracker.read_text().strip() if tracker.exists() else ""
    known = [step for step in whole if text.isdigit() and step <= int(text)]
    if known or whole:
        return max(known or whole)
    if tracker.exists():
        raise ConfigError(
            f"{run} has no checkpoint to resume from: no global_step_N holds whole shards and data.pt; put one back, "
            "or start anew with another trainer.default_local_dir"
        )
    return 0


def checkpoint_to_resume(trainer: Mapping[str, Any]) -> Path | None:
    """The folder that `trainer.resume_from_path` names; None unless `trainer.resume_mode` is `resume_path`.

    Args:
        trainer: the config's node `trainer`.

    Raises:
        ConfigError: when it is no `global_step_N` with the shards of a policy.
    """
    if trainer["resume_mode"] != "resume_path":
        return None
    given = trainer["resume_from_path"]
    if not given:
        raise ConfigError(
            "trainer.resume_mode=resume_path needs trainer.resume_from_path=RUN/global_step_N; or write "
            "trainer.resume_mode=auto"
        )
    path = Path(str(given)).expanduser().resolve()
    if _step_of(path) is None or not path.is_dir():
        raise ConfigError(f"trainer.resume_from_path={given} is not a folder global_step_N; write RUN/global_step_N")
    if not _has_shards(path / "actor"):
        raise ConfigError(f"trainer.resume_from_path={given} has no whole shards in actor/; name another global_step_N")
    return path


def saved_ranks(checkpoint: Path) -> int | None:
    """The number of ranks whose shards a checkpoint holds; None where no file says so.

    Args:
        checkpoint: a folder `global_step_N`.
    """
    found = {
        int(match[1])
        for file in checkpoint.glob("actor/model_world_size_*_rank_*.pt")
        if (match := re.fullmatch(r"model_world_size_(\d+)_rank_\d+\.pt", file.name))
    }
    return found.pop() if len(found) == 1 else None


def check_ranks(
    checkpoint: Path, *, gpus_per_node: int, nodes: int, model_key: str = "actor_rollout_ref.model.path"
) -> None:
    """As many ranks read a checkpoint as have written it: each rank reads its own shard of weights and Adam.

    Args:
        checkpoint: a folder `global_step_N`.
        gpus_per_node: `trainer.n_gpus_per_node`; on the CPU ranks.
        nodes: `trainer.nnodes`.
        model_key: where a run of this kind takes its weights from.

    Raises:
        ConfigError: with the number that fits, and how to start from the weights alone with any other.
    """
    saved, ranks = saved_ranks(checkpoint), gpus_per_node * nodes
    if saved is None or saved == ranks:
        return
    if saved % nodes:
        fix = f"trainer.nnodes=1 trainer.n_gpus_per_node={saved}"
    else:
        fix = f"trainer.n_gpus_per_node={saved // nodes}"
    merged = checkpoint / "actor" / "huggingface"
    alone = (
        f", or a new trainer.default_local_dir with {model_key}={merged} for its weights without Adam"
        if next(merged.glob("*.safetensors"), None) is not None
        else ""
    )
    raise ConfigError(f"{checkpoint} was saved by {saved} ranks, but this run has {ranks}; write {fix}{alone}")


def remove_after(run: Path, step: int) -> None:
    """Removes the checkpoints after `step`: a run that goes on there makes them again."""
    for later, folder in step_folders(run).items():
        if later > step:
            shutil.rmtree(folder)


def prune(run: Path, *, keep: int | None, keep_critic: int | None, spared: Path | None) -> None:
    """Removes older checkpoints as whole folders, and what upstream left of those that lost actor and critic.

    Args:
        run: the run folder; its newest checkpoint stays in any case.
        keep: the number of checkpoints that stay; None or 0: all.
        keep_critic: the number of these that keep their critic; None or 0: all.
        spared: a checkpoint that stays however old it is: the one that the user resumed from.
    """
    for folder in list(step_folders(run).values())[:-1]:
        if folder != spared and not (folder / "actor").is_dir() and not (folder / "critic").is_dir():
            _remove(folder)
    folders = [folder for folder in step_folders(run).values() if folder != spared]
    for number, folder in enumerate(reversed(folders), 1):
        if keep and number > keep:
            _remove(folder)
        elif keep_critic and number > keep_critic:
            _remove(folder / "critic")


def _remove(folder: Path) -> None:
    # What cannot be removed now is tried again after the next save, and is no reason to end a run.
    shutil.rmtree(folder, ignore_errors=True)


def _step_of(path: Path) -> int | None:
    match = re.fullmatch(r"global_step_([1-9]\d*)", path.name)
    return int(match[1]) if match else None


def _is_whole(folder: Path, has_critic: bool) -> bool:
    """Whether a save came to its end: `data.pt` is the last file of it."""
    parts = ["actor", "critic"] if has_critic else ["actor"]
    return zipfile.is_zipfile(folder / "data.pt") and all(_has_shards(folder / part) for part in parts)


def _has_shards(part: Path) -> bool:
    """Whether there are weights, and no file is cut off: torch's are zip archives, whose directory is at the end."""
    files = list(part.glob("*.pt"))
    return any(file.name.startswith("model_") for file in files) and all(map(zipfile.is_zipfile, files))
