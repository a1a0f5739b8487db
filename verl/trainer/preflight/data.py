"""Whether the data files can be trained on: they exist, have rows, columns and prompts that fit.

Decision: files are looked at, not loaded. Columns come from the schema, and lengths are counted only until a batch of
prompts fits (one for validation), since those that do not are left out later with a count.

    >>> check_files(config["data"])                               # raises ConfigError
    >>> check_prompt_lengths(config["data"], tokenizer)
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from verl.classmate.config import ClassmateRewardModelConfig
from verl.classmate.errors import ConfigError, reason_of
from verl.classmate.reward_scale import RewardScale, declares_range, directed, function_attributes

_KEYS = ("train_files", "val_files")

_ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")
"""By name, of a reward function."""

_FIRST_ROWS = 8
"""Chats of each file that are looked at, whatever their roles."""


@dataclass(frozen=True, kw_only=True)
class Chat:
    """The prompt of one row."""

    key: str
    """`train_files` or `val_files`."""
    file: str
    """Its file."""
    row: int
    """Its row there, from 0."""
    messages: tuple[Mapping[str, Any], ...]
    """As the dataset has them."""

    @property
    def roles(self) -> tuple[str, ...]:
        """Who speaks, turn by turn."""
        return tuple(str(message.get("role")) for message in self.messages)


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
    for key in _KEYS:
        names = data_files(data, key)
        if not names:
            raise ConfigError(f"data.{key} is empty; write data.{key}=FILE.parquet")
        local = [name for name in names if "://" not in name]
        for name in local:
            _check_file(data, key, name)
        if verified and data["custom_cls"]["path"] is None:
            for name in local:
                _check_data_sources(key, name)


def check_batch(data: Mapping[str, Any]) -> None:
    """The training files have a batch, behind `check_files`.

    Raises:
        ConfigError: with the largest batch that they have.
    """
    names = data_files(data, "train_files")
    if any("://" in name for name in names):
        return
    rows = sum(_open("train_files", name)[0] for name in names)
    most, batch = data["train_max_samples"], data["train_batch_size"]
    if _kept(rows, most) >= batch:
        return
    if rows < batch:
        raise ConfigError(
            f"data.train_files has {rows} rows, fewer than data.train_batch_size={batch}; write data.train_batch_size="
            f"{rows} or less"
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
    total = sum(_open(key, name)[0] for name in names)
    return _kept(total, data["train_max_samples" if key == "train_files" else "val_max_samples"])


def count_fitting(data: Mapping[str, Any], tokenizer: Callable[[], Any], *, most: int) -> int | None:
    """Training prompts of `count_rows` that are not left out as too long; counted up to `most`.

    Where that is not certain (the policy's tokenizer is not to be had, or rows are a sample), fewer.

    Args:
        data: the node `data`.
        tokenizer: gives the policy's; called where lengths count.
        most: more are not looked for.
    """
    rows = count_rows(data, "train_files")
    if rows is None or not data["filter_overlong_prompts"]:
        return None if rows is None else min(rows, most)
    names = data_files(data, "train_files")
    is_sample = rows < sum(_open("train_files", name)[0] for name in names)
    seen = fitting = 0
    try:
        for length in _lengths(data, names, tokenizer()):
            seen += 1
            fitting += length <= data["max_prompt_length"]
            if fitting == most:
                break
    except ConfigError:
        return min((rows + 1) // 2, most)
    if is_sample:
        fitting = (rows * fitting // max(seen, 1) + 1) // 2
    # Where none fits, a check says so.
    return min(fitting, most) or min(rows, most)


def _kept(rows: int, most: int) -> int:
    """How many of the rows upstream keeps for `data.train_max_samples` and its like."""
    return min(rows, most) if most > 0 else rows


def _check_file(data: Mapping[str, Any], key: str, name: str) -> None:
    if not Path(name).is_file():
        raise ConfigError(f"data.{key}={name} does not exist; make it with a module of verl.data_preprocessing")
    rows, schema = _open(key, name)
    if rows == 0:
        raise ConfigError(f"data.{key}={name} has no rows; make it again or name another file")
    if data["custom_cls"]["path"] is None:
        _check_columns(data["prompt_key"], key, name, schema)


def _open(key: str, name: str) -> tuple[int, Any]:
    """Number of rows and Arrow schema."""
    import pyarrow.json
    import pyarrow.parquet

    path = Path(name)
    try:
        if path.suffix in (".json", ".jsonl"):
            table = pyarrow.json.read_json(path)
            return table.num_rows, table.schema
        file = pyarrow.parquet.ParquetFile(path)
        return file.metadata.num_rows, file.schema_arrow
    except Exception as error:
        raise ConfigError(
            f"data.{key}={name} cannot be read as {'JSON lines' if path.suffix.startswith('.json') else 'parquet'} "
            f"({type(error).__name__}); make it again or name another file"
        ) from error


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
        if "://" not in name and "agent_name" in _open(key, name)[1].names:
            # A column of numbers says by NaN that there is none.
            found |= {str(value) for value in _column(Path(name), "agent_name") if value and value == value}
    return sorted(found)


def chat_samples(data: Mapping[str, Any]) -> list[Chat]:
    """Prompts of the local files: the first few of each, and one of each sequence of roles, with and without text, that
    occurs in it.

    Empty where a dataset class of the user's makes the rows.
    """
    if data["custom_cls"]["path"] is not None:
        return []
    return [
        Chat(key=key, file=name, row=row, messages=messages)
        for key in _KEYS
        for name in data_files(data, key)
        if "://" not in name
        for row, messages in _sampled_chats(name, data["prompt_key"])
    ]


@lru_cache(maxsize=16)
def _sampled_chats(name: str, prompt_key: str) -> tuple[tuple[int, tuple[Mapping[str, Any], ...]], ...]:
    """(row, messages) of a file; all roles are read, but only the samples' contents."""
    sampled, known, first = [], set(), 0
    for chats in _chunks(Path(name), prompt_key):
        turns = list(zip(chats.values.field("role").to_pylist(), _are_blank(chats.values), strict=True))
        bounds = chats.offsets.to_pylist()
        for i, (begin, end) in enumerate(pairwise(bounds)):
            sequence = tuple(turns[begin:end])
            if first + i < _FIRST_ROWS or sequence not in known:
                sampled.append((first + i, tuple(chats[i].as_py() or ())))
            known.add(sequence)
        first += len(chats)
    return tuple(sampled)


def _are_blank(turns: Any) -> list[bool]:
    """Of turns as an Arrow array: whether each lacks a text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if turns.type.get_field_index("content") < 0:
        return [True] * len(turns)
    content = turns.field("content")
    if pa.types.is_string(content.type) or pa.types.is_large_string(content.type):
        return pc.equal(pc.utf8_trim_whitespace(content), "").fill_null(True).to_pylist()
    return content.is_null().to_pylist()


def check_chats(chats: Sequence[Chat]) -> None:
    """Every prompt asks something.

    Raises:
        ConfigError: naming file and row.
    """
    for chat in chats:
        reason = _empty(chat.messages)
        if reason is not None:
            raise ConfigError(
                f"data.{chat.key}={chat.file}, row {chat.row}: its prompt is empty ({reason}); take the row out, or "
                "write its text"
            )


def _empty(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Why a prompt is empty; None if it is not."""
    if not messages:
        return "no turns"
    for message in messages:
        if message.get("content") is None and not message.get("tool_calls"):
            return f"the {message.get('role')} turn has content null"
    contents = [message.get("content") for message in messages]
    if all(not content or (isinstance(content, str) and not content.strip()) for content in contents):
        return "no turn has a text"
    return None


def has_question(key: str, name: str) -> bool:
    """Whether the rows of a file have `reward_model.raw_question_for_monitor`."""
    import pyarrow as pa

    schema = _open(key, name)[1]
    column = dict(zip(schema.names, schema.types, strict=True))["reward_model"]
    return pa.types.is_struct(column) and column.get_field_index("raw_question_for_monitor") >= 0


def _sources(name: str) -> list[str]:
    return sorted({str(value) for value in _column(Path(name), "data_source")})


def _check_data_sources(key: str, name: str) -> None:
    from verl.utils.reward_score.cot_monitor import get_verifier

    for source in _sources(name):
        try:
            get_verifier(source)
        except ValueError as error:
            raise ConfigError(
                f"data.{key}={name}: {error}, or score its rows yourself by reward.custom_reward_function.path=FILE.py"
            ) from error


def check_lowest_scores(data: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    """A row without an answer gets the lowest reward only if its verifier has one in the run's direction.

    Args:
        data: the node `data`, whose files were found good.
        reward: the typed node `reward_model`.

    Raises:
        ConfigError: naming the verifier.
    """
    from verl.utils.reward_score.cot_monitor import get_verifier

    if reward.classmate_cot_reward_configs.unfinished_main_score != "lowest":
        return
    for key in _KEYS:
        for source in sorted({source for source, _ in data_sources(data, key)}):
            scale = RewardScale.of(get_verifier(source), reward.reward_direction)
            if scale.lowest is None:
                raise ConfigError(
                    f"data.{key}: the scores of {source}, to {scale.direction}, have no lowest reward for rows without "
                    "an answer; write reward_model.classmate_cot_reward_configs.unfinished_main_score=exclude, or a "
                    "number"
                )


def custom_scale(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> RewardScale | None:
    """How the scores of `reward.custom_reward_function` are read; None where verifiers score.

    Raises:
        ConfigError: it cannot be loaded, or what is said of its scores cannot be.
    """
    function = _custom_function(config)
    if function is None:
        if reward.custom_reward_range is not None:
            raise ConfigError(
                "reward_model.custom_reward_range is that of a function of yours, and none is named; write "
                "reward.custom_reward_function.path=FILE.py, or leave it out"
            )
        return None
    own = RewardScale.of_function(function, reward.custom_reward_range)
    if declares_range(function, reward.custom_reward_range):
        _check_threshold(
            "reward.custom_reward_function: its main_correct_threshold", function_attributes(function), own
        )
        node = "reward_model.classmate_cot_reward_configs"
        given = {"main_correct_threshold": reward.classmate_cot_reward_configs.main_correct_threshold}
        _check_threshold(f"{node}.main_correct_threshold", given, own.turned(reward.reward_direction))
    return own.turned(reward.reward_direction)


def _check_threshold(name: str, given: Mapping[str, Any], scale: RewardScale) -> None:
    """A directed score from which an answer counts as correct lies between the lowest and the highest."""
    threshold = given.get("main_correct_threshold")
    if threshold is None:
        return
    ends = [directed(end, scale) for end in (scale.low, scale.high) if end is not None]
    low, high = min(ends, default=-math.inf), max(ends, default=math.inf)
    if len(ends) == 1:
        rises = (scale.high is None) == (scale.direction == "maximize")
        low, high = (low, math.inf) if rises else (-math.inf, high)
    if not low <= threshold <= high:
        raise ConfigError(
            f"{name} is {threshold:g}, outside the range of its scores, {low:g} to {high:g}, so that all answers or "
            "none would count as correct; write a number in it"
        )


def check_custom_scale(scale: RewardScale, reward: ClassmateRewardModelConfig) -> None:
    """What a function of the user's is asked for, its scores tell.

    Raises:
        ConfigError: naming the key.
    """
    shown, node = reward.classmate_cot_reward_configs, "reward_model.classmate_cot_reward_configs"
    if shown.unfinished_main_score == "lowest" and scale.lowest is None:
        raise ConfigError(
            f"reward.custom_reward_function: its scores, to {scale.direction}, have no lowest reward for rows without "
            f"an answer; write reward_model.custom_reward_range=[LOW,HIGH], or {node}.unfinished_main_score=exclude"
        )
    if math.isnan(scale.threshold) and shown.main_correct_threshold is None and shown.tests_main_answer:
        raise ConfigError(
            f"{node}.main_correct_threshold: the scores of reward.custom_reward_function have no middle, from which an "
            "answer would count as correct; write one, or use_classmate_main_cond=always"
        )


def custom_reward_notes(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> list[str]:
    """A line for a person where the range of a function's scores is nobody's word."""
    function = _custom_function(config)
    if function is None or declares_range(function, reward.custom_reward_range):
        return []
    return [
        "warning: the range of reward.custom_reward_function is not known and taken as 0 to 1, of which a row without "
        "an answer gets 0; write reward_model.custom_reward_range=[LOW,HIGH], or give the function reward_range"
    ]


def _custom_function(config: Mapping[str, Any]) -> Any:
    node = config["reward"].get("custom_reward_function") or {}
    if not node.get("path"):
        return None
    from verl.utils.import_utils import load_extern_object

    path, name = node["path"], node["name"]
    try:
        function = load_extern_object(module_path=path, object_name=name)
    except (Exception, SystemExit) as error:
        # The user's file may raise anything, and end the process.
        raise ConfigError(
            f"reward.custom_reward_function.path={path}: {name} cannot be loaded ({reason_of(error, path)}); correct "
            "the path, the name or the file"
        ) from error
    if not callable(function):
        raise ConfigError(
            f"reward.custom_reward_function.path={path}: {name} is {function!r:.100}, no function; name one by "
            "reward.custom_reward_function.name=NAME"
        )
    _check_signature(function, path, name, dict(node.get("reward_kwargs") or {}))
    return function


def _check_signature(function: Callable[..., Any], path: str, name: str, more: Mapping[str, Any]) -> None:
    """The function takes what upstream calls it with."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # Of a compiled one nothing is known.
    try:
        signature.bind(**{**dict.fromkeys(_ARGUMENTS), **more})
    except TypeError as error:
        raise ConfigError(
            f"reward.custom_reward_function.path={path}: {name}{signature!s:.100} cannot be called with "
            f"{', '.join([*_ARGUMENTS, *more])} ({error}); write def {name}"
            f"({', '.join([*_ARGUMENTS[:-1], 'extra_info=None', *more])})"
        ) from error


def check_sandbox(data: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    """Where rows ask for programs, something that runs them answers.

    Args:
        data: the node `data`.
        reward: the typed node `reward_model`.

    Raises:
        ConfigError: with the command that starts it.
    """
    import requests

    if not any(source == "code" for key in _KEYS for source, _ in data_sources(data, key)):
        return
    fusion = reward.sandbox_fusion_url
    with requests.Session() as session:
        session.trust_env = False
        try:
            # SandboxFusion has no such page there; that it says so is enough.
            answer = session.get(fusion or f"{reward.code_url}/health", timeout=10)
            healthy = fusion is not None or answer.json() == {"status": "healthy"}
        except (requests.RequestException, ValueError):
            healthy = False
    if not healthy and fusion:
        raise ConfigError(
            f"data has code rows, but nothing answers at reward_model.sandbox_fusion_url={fusion}; start it"
        )
    if not healthy:
        raise ConfigError(
            f"data has code rows, but no code sandbox answers at {reward.code_url}; start one by `uvicorn "
            "verl.code_utils.api:app --port 8001`, or write reward_model.code_sandbox_url=http://HOST:PORT"
        )


def check_prompt_lengths(data: Mapping[str, Any], tokenizer: Any) -> None:
    """A batch of prompts fits, of validation one; with `data.filter_overlong_prompts=false` all of them do.

    Args:
        data: the node `data`.
        tokenizer: the policy's.

    Raises:
        ConfigError: naming the key and the lengths.
    """
    if data["custom_cls"]["path"] is not None:
        return
    for key in _KEYS:
        names = data_files(data, key)
        local = [name for name in names if "://" not in name]
        needed = data["train_batch_size"] if key == "train_files" and local == names else 1
        _check_lengths(data, key, _lengths(data, local, tokenizer), needed)


def _check_lengths(data: Mapping[str, Any], key: str, lengths: Iterator[int], needed: int) -> None:
    limit, leave_out = data["max_prompt_length"], data["filter_overlong_prompts"]
    fitting, too_long = 0, []
    for length in lengths:
        if length > limit:
            too_long.append(length)
            continue
        fitting += 1
        if leave_out and fitting == needed:
            return
    if too_long and leave_out and not fitting:
        raise ConfigError(
            f"data.{key}: all {len(too_long)} prompts are longer than data.max_prompt_length={limit} (the shortest has "
            f"{min(too_long)} tokens); raise it"
        )
    if too_long and leave_out:
        raise ConfigError(
            f"data.{key}: {fitting} of {fitting + len(too_long)} prompts fit data.max_prompt_length={limit}, fewer "
            f"than data.train_batch_size={needed}; raise the length, or write a smaller batch"
        )
    if too_long:
        raise ConfigError(
            f"data.{key}: {len(too_long)} prompts are longer than data.max_prompt_length={limit} (the longest has "
            f"{max(too_long)} tokens); raise it, or write data.filter_overlong_prompts=true to leave them out"
        )


def _lengths(data: Mapping[str, Any], names: list[str], tokenizer: Any) -> Iterator[int]:
    """Length of each prompt in tokens, as upstream counts it; it too skips those that the chat template refuses.

    Raises:
        ConfigError: when it refuses all of them.
    """
    arguments = dict(data["apply_chat_template_kwargs"] or {})
    seen, refusal = 0, None
    for name in names:
        for messages in _column(Path(name), data["prompt_key"]):
            try:
                text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **arguments)
            except Exception as error:
                refusal = error
                continue
            seen += 1
            yield len(tokenizer(text, add_special_tokens=False)["input_ids"])
    if refusal is not None and seen == 0:
        reason = " ".join(str(refusal).split())[:200]
        raise ConfigError(
            f"data: the policy's chat template refuses every prompt of {', '.join(names)} ({reason}); change the roles "
            "in the data, or the model"
        )


def _column(path: Path, column: str) -> Iterator[Any]:
    """The values of one column, read as they are asked for."""
    for chunk in _chunks(path, column):
        yield from chunk.to_pylist()


def _chunks(path: Path, column: str) -> Iterator[Any]:
    """The same as Arrow arrays."""
    import pyarrow.json
    import pyarrow.parquet

    if path.suffix in (".json", ".jsonl"):
        yield from pyarrow.json.read_json(path).column(column).chunks
        return
    for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=256, columns=[column]):
        yield batch.column(0)
