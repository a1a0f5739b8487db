"""Whether the data files can be trained on: they exist, have rows, columns and a verifier for each data source.

Decision: files are looked at, not loaded; columns come from the schema.

    >>> check_files(config["data"])                               # raises ConfigError
"""

from collections.abc import Mapping
from numbers import Number
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError
from verl.data_preprocessing.taught_dataset import MODULE as TAUGHT
from verl.trainer.preflight.tables import column_values, open_table

KEYS = ("train_files", "val_files")


def data_files(data: Mapping[str, Any], key: str) -> list[str]:
    """The files of `data.train_files` or `data.val_files`, which may be one name or a list."""
    files = data[key]
    return [files] if isinstance(files, str) else list(files or [])


def check_files(data: Mapping[str, Any], *, verified: bool = True) -> None:
    """Every data file exists and can be read, has rows and the columns that a row needs.

    Args:
        data: the node `data`.
        verified: whether verifiers score the rows, so that each data source needs one; not a function of the user's.

    Raises:
        ConfigError: naming the key and the file.
    """
    for key in ("train_max_samples", "val_max_samples"):
        if type(data[key]) is not int:
            raise ConfigError(f"data.{key}: expected an integer, got {data[key]!r}; write -1 for all rows")
    for key in KEYS:
        names = data_files(data, key)
        if not names:
            raise ConfigError(f"data.{key} is empty; write data.{key}=FILE.parquet")
        local = [name for name in names if "://" not in name]
        for name in local:
            _check_file(data, key, name)
        if verified and data["custom_cls"]["path"] is None:
            for name in local:
                _check_data_sources(key, name)


def check_batch(data: Mapping[str, Any], *, copies: int = 1) -> None:
    """The training files have a batch, behind `check_files`.

    Args:
        data: the node `data`.
        copies: rows that are made of one in a file.

    Raises:
        ConfigError: with the largest batch that they have.
    """
    names = data_files(data, "train_files")
    if any("://" in name for name in names):
        return
    rows = sum(open_table("train_files", name)[0] for name in names)
    most, batch = data["train_max_samples"], data["train_batch_size"]
    if _kept(rows, most) * copies >= batch:
        return
    if rows * copies < batch:
        times = f", {rows * copies} with one for each student" if copies > 1 else ""
        raise ConfigError(
            f"data.train_files has {rows} rows{times}, fewer than data.train_batch_size={batch}; write "
            f"data.train_batch_size={rows * copies} or less"
        )
    raise ConfigError(
        f"data.train_max_samples={most} keeps fewer rows than data.train_batch_size={batch}; write {batch} or more, or "
        "-1 for all rows"
    )


def count_rows(data: Mapping[str, Any], key: str) -> int | None:
    """Rows that a run asks for with `data.train_files` or `data.val_files`, before prompts are left out as too long.

    None where that is not known beforehand: files that are not local, a dataset class of the user's.
    """
    names = data_files(data, key)
    if data["custom_cls"]["path"] is not None or any("://" in name for name in names):
        return None
    total = sum(open_table(key, name)[0] for name in names)
    return _kept(total, data["train_max_samples" if key == "train_files" else "val_max_samples"])


def _kept(rows: int, most: int) -> int:
    """How many of the rows upstream keeps for `data.train_max_samples` and its like."""
    return min(rows, most) if most > 0 else rows


def _check_file(data: Mapping[str, Any], key: str, name: str) -> None:
    if not Path(name).is_file():
        raise ConfigError(f"data.{key}={name} does not exist; make it with a module of verl.data_preprocessing")
    rows, schema = open_table(key, name)
    if rows == 0:
        raise ConfigError(f"data.{key}={name} has no rows; make it again or name another file")
    if data["custom_cls"]["path"] in (None, TAUGHT):
        _check_columns(data["prompt_key"], key, name, schema)


def _check_columns(prompt_key: str, key: str, name: str, schema: Any) -> None:
    import pyarrow as pa

    columns = dict(zip(schema.names, schema.types, strict=True))
    extra = columns.get("extra_info")
    has_index = extra is not None and pa.types.is_struct(extra) and extra.get_field_index("index") >= 0
    lacking = [column for column in (prompt_key, "data_source", "reward_model") if column not in columns]
    lacking += [] if has_index else ["extra_info.index"]
    if lacking:
        raise ConfigError(
            f"data.{key}={name} lacks {', '.join(lacking)}; make it with a module of verl.data_preprocessing, which "
            "writes all columns that a row needs"
        )
    kind = columns[prompt_key]
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not is_list or not pa.types.is_struct(kind.value_type) or kind.value_type.get_field_index("role") < 0:
        raise ConfigError(
            f"data.{key}={name}: {prompt_key} must be a list of messages {{role, content}}, not {columns[prompt_key]}"
        )


def data_sources(data: Mapping[str, Any], key: str) -> list[tuple[str, str]]:
    """(data source, file) of the local files of `data.train_files` or `data.val_files`, each once, in order.

    Empty where a dataset class of the user's makes the rows.
    """
    if data["custom_cls"]["path"] is not None:
        return []
    return [(source, name) for name in data_files(data, key) if "://" not in name for source in _sources(name)]


def agent_names(data: Mapping[str, Any], key: str) -> list[str]:
    """The agent loops that the rows of local files of `data.train_files` or `data.val_files` name, sorted.

    Empty where a dataset class of the user's makes the rows, or none has the column `agent_name`.
    """
    if data["custom_cls"]["path"] is not None:
        return []
    found: set[str] = set()
    for name in data_files(data, key):
        if "://" not in name and "agent_name" in open_table(key, name)[1].names:
            # A column of numbers says by NaN that there is none.
            found |= {str(value) for value in column_values(Path(name), "agent_name") if value and value == value}
    return sorted(found)


def has_question(key: str, name: str) -> bool:
    """Whether the rows of a file have `reward_model.raw_question_for_monitor`."""
    import pyarrow as pa

    schema = open_table(key, name)[1]
    column = dict(zip(schema.names, schema.types, strict=True))["reward_model"]
    return pa.types.is_struct(column) and column.get_field_index("raw_question_for_monitor") >= 0


def lacks_ground_truth(name: str) -> bool:
    """Whether a row of a file has no `reward_model.ground_truth` that could be stated: a text or a number."""
    truths = ((row or {}).get("ground_truth") for row in column_values(Path(name), "reward_model"))
    return any(not (isinstance(truth, (str, Number)) and str(truth).strip()) for truth in truths)


def _sources(name: str) -> list[str]:
    return sorted({str(value) for value in column_values(Path(name), "data_source")})


def _check_data_sources(key: str, name: str) -> None:
    from verl.utils.reward_score.cot_monitor import get_verifier

    for source in _sources(name):
        try:
            get_verifier(source)
        except ValueError as error:
            raise ConfigError(
                f"data.{key}={name}: {error}, or score its rows yourself by reward.custom_reward_function.path=FILE.py"
            ) from error
