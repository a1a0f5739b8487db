"""Whether rows with a hint say what they ask without it, where that is what classmates are to be shown.

>>> check_hints(config["data"], reward_config)                # raises ConfigError
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl.classmate.config import ClassmateRewardModelConfig
from verl.classmate.errors import ConfigError
from verl.classmate.hints import LACKING, has_hint, prompt_without_hint
from verl.trainer.preflight.data import KEYS, data_files
from verl.trainer.preflight.tables import column_values


def check_hints(data: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    """With `classmate_question=hint_removed` every row with a hint has `reward_model.prompt_without_hint`.

    Rows that a dataset class of the user's makes, and those of files that are not local, are looked at when classmates
    are to read them.

    Args:
        data: the node `data`, whose files were found good.
        reward: the typed node `reward_model`.

    Raises:
        ConfigError: naming file and row.
    """
    is_full = reward.classmate_cot_reward_configs.classmate_question == "full"
    has_readers = reward.classmates or reward.evaluation_classmates
    if is_full or not has_readers or data["custom_cls"]["path"] is not None:
        return
    for key in KEYS:
        for name in data_files(data, key):
            row = None if "://" in name else _lacking(Path(name))
            if row is not None:
                raise ConfigError(f"data.{key}={name}, row {row}: {LACKING}")


def _lacking(file: Path) -> int | None:
    """The first row with a hint that does not say what it asks without the hint."""
    columns = (column_values(file, name) for name in ("data_source", "reward_model"))
    for row, (source, reward_model) in enumerate(zip(*columns, strict=True)):
        task = reward_model or {}
        if prompt_without_hint(task) is None and _is_hinted(str(source), task):
            return row
    return None


def _is_hinted(source: str, reward_model: Mapping[str, Any]) -> bool:
    from verl.utils.reward_score.cot_monitor import get_verifier, known_data_sources

    if has_hint(reward_model):
        return True
    return source in known_data_sources() and get_verifier(source).hinted_answer(reward_model) is not None
