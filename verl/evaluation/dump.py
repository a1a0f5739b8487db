"""What a run has written about one step: its rows, and the config under which they came about.

One decision: a dump is read as it is or refused in one line; nothing that is missing in it is made up.

    >>> dump = Dump.open(Path("outputs/run"), step=3)
    >>> dump.records[0].final_reward, dump.config.algorithm.adv_estimator
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from verl.classmate.errors import ConfigError
from verl.classmate.record import RowRecord


@dataclass(frozen=True, kw_only=True, eq=False)
class Dump:
    """One step of one run."""

    run: Path
    """The run folder."""
    step: int
    """Global step."""
    validation: bool
    """Whether these are the validation's rows."""
    config: DictConfig
    """The run's resolved config."""
    records: list[RowRecord]
    """One per row, in the dump's order."""
    lines: list[dict[str, Any]]
    """The same as it stands in the file, to compare with."""

    @classmethod
    def open(cls, run: Path, *, step: int, validation: bool = False) -> "Dump":
        """Reads it.

        Raises:
            ConfigError: no such run or step, or a dump that this version cannot read.
        """
        config_file = run / "config.yaml"
        if not config_file.is_file():
            raise ConfigError(f"{run} is not a run folder (no config.yaml); write the folder that the run printed")
        folder = run / ("val_preds" if validation else "rollouts")
        file = folder / f"step_{step}.jsonl"
        if not file.is_file():
            steps = sorted(int(path.stem.removeprefix("step_")) for path in folder.glob("step_*.jsonl"))
            known = f"it has {_ranges(steps)}" if steps else "it has none"
            kind = "validated" if validation else "trained"
            raise ConfigError(f"{run} has no rows of a {kind} step {step}; {known}")
        try:
            # Not `splitlines`: a policy may write characters that it takes for ends of lines.
            with file.open() as opened:
                texts = list(opened)
            lines = [json.loads(text) for text in texts]
        except json.JSONDecodeError as error:
            raise ConfigError(f"{file} is damaged ({error}); replay another step") from error
        try:
            records = [RowRecord.from_json(text, name=f"row {number}") for number, text in enumerate(texts)]
        except ConfigError as error:
            raise ConfigError(f"{file} is {error}, which cannot be replayed; replay a run of this version") from error
        if not records:
            raise ConfigError(f"{file} has no rows; replay another step")
        config = OmegaConf.create(yaml.safe_load(config_file.read_text()))
        assert isinstance(config, DictConfig)
        # Written when the run was opened; which rows the classmates read is what the trainer did.
        if not validation:
            trained_with = any(record.asked for record in records)
            OmegaConf.update(config, "trainer.v1.trainer_mode", "classmate_cot" if trained_with else "baseline")
        return cls(run=run, step=step, validation=validation, config=config, records=records, lines=lines)


def _ranges(numbers: list[int]) -> str:
    """`1-4, 7`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)
