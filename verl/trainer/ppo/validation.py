"""Metrics of a validation, and when a start has to make up for one.

Decision: means are over valid rows; upstream counts a row without a score as 0.

    >>> validation_means(["gsm8k", "gsm8k"], {"main_model_reward": [1.0, 0.0]}, n=1)
    {'val-core/gsm8k/main_model_reward/mean@1': 0.5, 'val-core/gsm8k/reward/mean@1': 0.5}
"""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig

from verl.trainer.run.folder import RunFolder


def take_records(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """The rows' dump records, sorted; they are taken out of upstream's columns of numbers."""
    records = [json.loads(record) for record in columns.pop("record")]
    return sorted(records, key=lambda row: (row["data_source"], str(row["index"]).zfill(12), row["rollout"]))


def validation_means(data_sources: Sequence[str], columns: Mapping[str, Sequence[Any]], *, n: int) -> dict[str, float]:
    """`val-core/{data_source}/{name}/mean@n` of each column of numbers.

    Args:
        data_sources: of each row.
        columns: numbers by name, one for each row; NaN where it does not count.
        n: answers to each prompt.
    """
    # Upstream's own reward is the fused one, 0 where there is none.
    columns = {**columns, "reward": columns["main_model_reward"]}
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for name, column in columns.items():
        for data_source, value in zip(data_sources, column, strict=True):
            if isinstance(value, int | float) and value == value:
                values[data_source, name].append(value)
    # fsum is exact, so that the order in which rows arrived does not show in the last digit.
    return {f"val-core/{source}/{name}/mean@{n}": math.fsum(x) / len(x) for (source, name), x in values.items()}


def make_up_for_validation(config: DictConfig, folder: RunFolder, *, total_steps: int) -> None:
    """Lets a run validate before its first step where it resumes one that ended between a save and its validation."""
    step, every = folder.resumed_from or 0, config.trainer.test_freq
    due = step > 0 and every > 0 and (step % every == 0 or step >= total_steps)
    if due and not any(key.startswith("val-core/") for key in folder.metrics_of(step)):
        config.trainer.val_before_train = True
