"""The teachings of a run that did not collect while it trained, out of the rows that it dumped.

One decision: a step is a shard, as if the run had collected it; what is there already is left alone, so that the same
call goes on where it was stopped, or adds the steps that have come since.

    >>> from_rollouts(Path("outputs/rcl"), Path("outputs/rcl/teachings"))
    Taken(steps=60, rows=7680, held_out=0)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from verl.classmate.config import RunConfig
from verl.classmate.errors import ConfigError
from verl.classmate.record import RowRecord
from verl.teaching.baseline_cache import BaselineCache
from verl.teaching.collected import rows_of
from verl.teaching.config import NODE, TeachingConfig
from verl.teaching.held_out import held_out_hashes, is_held_out
from verl.teaching.shards import collection_id, keep_templates
from verl.trainer.run.folder import dumped_steps
from verl.trainer.run.state import write_atomically


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What was taken."""

    steps: int
    """Shards that were written."""
    rows: int
    """In them."""
    held_out: int
    """Rows of the dump that are of held-out questions."""


def from_rollouts(run: Path, target: Path, *, exclude: Sequence[str] = ()) -> Taken:
    """Writes a shard for each dumped step of a run that has none.

    Args:
        run: its folder.
        target: of the shards.
        exclude: files whose questions are left out, beside those of the run's validation and `rcl.collect`.

    Raises:
        ConfigError: it is no teacher's run, or a dump is damaged.
    """
    from tqdm import tqdm

    config = _config(run)
    teaching, seed = TeachingConfig.read(config[NODE]), RunConfig.read(config).reward.seed
    validation = config["data"]["val_files"]
    files = [validation] if isinstance(validation, str) else list(validation or ())
    here = [name for name in files if Path(name).expanduser().is_file()]
    held_out = held_out_hashes([*here, *teaching.collect.exclude_files, *exclude])
    dumped = dumped_steps(run / "rollouts")
    if not dumped:
        raise ConfigError(f"{run} has dumped no step; name the folder of a run that has rollouts/step_N.jsonl")
    name = collection_id(target)
    template_hash = keep_templates(target, teaching.templates)
    file = teaching.cache_file(run)
    cache = BaselineCache(file) if file is not None and file.is_file() else None
    left = {step: path for step, path in sorted(dumped.items()) if not (target / path.name).exists()}
    counted = {"rows": 0, "held_out": 0}
    for step, path in tqdm(left.items(), desc="collecting", unit="step"):
        rows = []
        for record in _records(path):
            if is_held_out(record.answer.task, held_out):
                counted["held_out"] += 1
                continue
            rows += rows_of(
                record,
                run=name,
                teacher=f"{name}@{step - 1}",
                seed=seed,
                template_hash=template_hash,
                temperature=float(config["actor_rollout_ref"]["rollout"]["temperature"]),
                baselines=None if cache is None else cache.stored,
            )
        write_atomically(target / path.name, "".join(f"{row.to_json()}\n" for row in rows))
        counted["rows"] += len(rows)
    return Taken(steps=len(left), **counted)


def _config(run: Path) -> dict[str, Any]:
    """The config of a teacher's run.

    Raises:
        ConfigError: it is none.
    """
    try:
        content = yaml.safe_load((run / "config.yaml").read_bytes())
    except OSError as error:
        raise ConfigError(
            f"{run} is not a run folder (no config.yaml); write the folder that the run printed"
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{run}/config.yaml is damaged; put back the one that the run wrote") from error
    if not isinstance(content, dict) or not content.get(NODE):
        raise ConfigError(f"{run} trained no teacher (its config.yaml has no node {NODE}); name a teacher's run")
    return content


def _records(path: Path) -> list[RowRecord]:
    try:
        with path.open("rb") as lines:
            return [RowRecord.from_json(line, name=f"row {number}") for number, line in enumerate(lines)]
    except ConfigError as error:
        raise ConfigError(f"{path} {error}") from error
