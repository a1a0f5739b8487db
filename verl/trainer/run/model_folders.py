"""A trained policy as a folder that transformers can load: whether it is whole, and how shards are merged into it.

>>> model_of(Path("outputs/run/global_step_40"))
PosixPath('outputs/run/global_step_40/actor/huggingface')
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from verl.classmate.errors import ConfigError


def model_of(checkpoint: Path) -> Path:
    """The policy of a checkpoint, which is merged first where only its shards are there.

    Args:
        checkpoint: a folder `global_step_N`.

    Raises:
        ConfigError: it holds no whole policy.
    """
    actor = checkpoint / "actor"
    model = actor / "huggingface"
    if not has_whole_weights(model):
        if not can_be_merged(actor):
            raise ConfigError(f"{checkpoint} holds no whole policy, neither a model nor all shards; name another one")
        try:
            merge_shards(actor, model)
        except ValueError as error:
            raise ConfigError(f"{error}; name another checkpoint") from error
    return model


def has_whole_weights(folder: Path) -> bool:
    """Whether a model folder has a config and all of its weights, none of them cut off."""
    try:
        names = {"model.safetensors"}
        index = folder / "model.safetensors.index.json"
        if index.exists() and not (folder / "model.safetensors").exists():
            names = set(json.loads(index.read_text())["weight_map"].values())
        return (folder / "config.json").exists() and all(_is_whole(folder / name) for name in names)
    except (OSError, ValueError, KeyError, AttributeError):
        return False


def _is_whole(weights: Path) -> bool:
    """Whether a safetensors file is as long as its header says."""
    with weights.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    end = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
    return weights.stat().st_size == 8 + length + end


def can_be_merged(actor: Path) -> bool:
    """Whether a checkpoint's folder `actor` holds all shards, and the config of the model that they are of."""
    shards = [re.fullmatch(r"model_world_size_(\d+)_rank_(\d+)\.pt", path.name) for path in actor.glob("model_*.pt")]
    ranks = {int(shard[2]) for shard in shards if shard}
    sizes = {int(shard[1]) for shard in shards if shard}
    return sizes == {len(ranks)} and (actor / "huggingface" / "config.json").exists()


def merge_shards(actor: Path, target: Path) -> None:
    """Makes a model folder out of the shards in `actor`, by upstream's merger.

    Raises:
        ValueError: when it fails.
    """
    command = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
    command += ["--local_dir", str(actor), "--target_dir", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or not has_whole_weights(target):
        reason = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise ValueError(f"{actor} could not be merged ({reason})")
