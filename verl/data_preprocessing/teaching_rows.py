"""Rows for teachers and their students, out of a set of questions with solutions and, often, thoughts.

Decision: one command for all, since they differ in what is made of a record, not in how it is read. `--rows` says what
they are for, `--format` how the set writes its columns (`verl.data_preprocessing.reasoning_traces`).

    python -m verl.data_preprocessing.teaching_rows --rows teacher_rl --format gsm8k --output_dir data/taught_gsm8k
    python -m verl.data_preprocessing.teaching_rows --rows teacher_sft --format bespoke_stratos --output_dir D
    python -m verl.data_preprocessing.teaching_rows --rows teacher_sft --format custom --dataset F.jsonl --output_dir D
"""

import argparse
import dataclasses
import importlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from verl.data_preprocessing.common import make_row, run_command
from verl.data_preprocessing.reasoning_traces import (
    DATA_CONFIGS,
    DataConfig,
    TracedRow,
    completions,
    data_config,
    formats,
    rows,
    sft,
)
from verl.data_preprocessing.recipe import Recipe, build, parse
from verl.data_preprocessing.sources import HubSplit, Record
from verl.data_preprocessing.splits import Task, by_sizes, ordered
from verl.teaching import explanation, tags
from verl.teaching import templates as teaching_templates
from verl.teaching.templates import Templates

ROWS = ("teacher_rl", "teacher_sft", "student_sft")
KINDS = ("auto", "rcl", "rlt")
AGENT = "rcl_teacher"
"""The agent loop of a teacher's rows."""

OWN_FORMATS = "custom_data.reasoning_datasets_info"
"""Module in the working folder that registers formats of a user's."""

_SUFFIXES = (".jsonl", ".parquet", ".gz")

_CUSTOM = ("system_prompt", "think_tag", "solution_tag", "think_prefix", "think_solution_delimiter", "tag_format")
"""Fields of a format that the command line sets for `--format custom`."""


def _not_negative(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rows or tokens: write 0 or more")
    return int(text)


class TeachingRows(Recipe):
    """One row for each question."""

    name = "teaching_rows"
    summary = "Rows for teachers and their students as parquet."
    test_part = True
    modules = (completions, explanation, formats, rows, sft, tags, teaching_templates)
    options: ClassVar = {
        "--rows": {"choices": ROWS, "required": True, "help": "what the rows are for"},
        "--format": {"required": True, "help": f"how the set is written: {', '.join(DATA_CONFIGS)}"},
        "--dataset": {"help": "a set of the hub, a file or a folder; the format's own set, if not given"},
        "--dataset_config": {"help": "configuration of a set of the hub that has several"},
        "--dataset_split": {"default": "train", "help": "split of a set of the hub"},
        "--kind": {
            "choices": KINDS,
            "default": "auto",
            "help": "rcl: rows need a ground truth, and a warm-up teaches to advise; rlt: they need a solution, and a "
            "warm-up teaches to explain; auto: rows that either can use, and what the format has for a warm-up",
        },
        "--train_rows": {"type": _not_negative, "help": "keep only so many rows to train on"},
        "--test_rows": {"type": _not_negative, "help": "rows held out: a twentieth, 200 at most, if not given"},
        "--split_order": {"choices": ("shuffle", "file"), "default": "shuffle", "help": "how rows go into the splits"},
        "--allow_solution_as_trace": {
            "action": "store_true",
            "help": "a row without a thought learns its solution",
        },
        "--templates": {"help": "YAML file with the run's templates (rcl.templates_file)"},
        "--max_teaching_tokens": {"type": _not_negative, "default": 512, "help": "rcl.protocol.max_teaching_tokens"},
        "--student_name": {"help": "what the teacher's prompt calls the student, where the run names it"},
        "--tokenizer": {"help": "the student's, by which a thought is cut to max_teaching_tokens (rcl warm-up only)"},
        **{f"--{name}": {"help": f"{name} of --format custom"} for name in _CUSTOM},
    }

    def sources(self, options: argparse.Namespace) -> Mapping[str, tuple[HubSplit, ...]]:
        own = config_of(options).source
        if options.dataset is None and own is None:
            raise ValueError(f"--format {options.format} has no data set of its own: name one with --dataset")
        if options.dataset is None or (own is not None and options.dataset == own.repo):
            assert own is not None
            split = dataclasses.replace(own, config=options.dataset_config or own.config, split=options.dataset_split)
            held_out = config_of(options).test_split
        else:
            split = HubSplit(repo=options.dataset, config=options.dataset_config, split=options.dataset_split)
            held_out = None
        parts = {"train": (split,)}
        return parts if held_out is None else parts | {"test": (dataclasses.replace(split, split=held_out),)}

    def task(self, record: Record, options: argparse.Namespace) -> Task:
        config, source = config_of(options), data_source_of(options)
        assert record.fields is not None
        row = config.read(record.fields, data_source=source)
        row = self._usable(row, options)
        return Task(
            part=record.part,
            index=record.index,
            question=row.question,
            # One question may stand for several students, each with an outline of its own.
            key=f"{row.question}\n{row.approach}" if row.approach and options.rows == "teacher_sft" else "",
            ground_truth=row.ground_truth,
            answer=row.ground_truth or row.solution,
            details={"row": row},
        )

    def _usable(self, row: TracedRow, options: argparse.Namespace) -> TracedRow:
        """The row, once it is known that what is asked for can be made of it; raises ValueError otherwise."""
        kind = kind_of(row, options)
        if options.rows == "teacher_rl":
            if kind == "rcl" and row.ground_truth is None:
                raise ValueError("no ground truth can be told from the solution")
            if kind == "rlt" and row.solution is None:
                raise ValueError("the solution is blank")
            if row.ground_truth is None and row.solution is None:
                raise ValueError("neither a ground truth nor a solution")
            if kind == "rlt" and row.solution is not None:
                explanation_marks = config_of(options).explanation.marks
                completions.check_free(explanation_marks, row.question, row.solution)
            return row
        if options.rows == "teacher_sft" and kind == "rcl" and row.teaching is not None:
            self._sft_row(row, options)
            return row
        row = sft.explained(row, solution_as_trace=options.allow_solution_as_trace)
        if options.rows == "teacher_sft" and kind == "rcl":
            (row,) = sft.bootstrap_rows(
                [row], max_tokens=options.max_teaching_tokens, count_tokens=_counter(options.tokenizer)
            )
        self._sft_row(row, options)
        return row

    def split(self, tasks: list[Task], options: argparse.Namespace) -> dict[str, list[Task]]:
        held_out = [task for task in tasks if task.part == "test"]
        train = [task for task in tasks if task.part == "train"]
        if not held_out and options.test_rows != 0 and len(train) > 1:
            wanted = options.test_rows or min(200, max(1, len(train) // 20))
            mixed = ordered(train, seed=options.seed, order=options.split_order)
            pieces = by_sizes(mixed, {"train": max(1, len(train) - wanted), "test": min(wanted, len(train) - 1)})
            train, held_out = pieces["train"], pieces["test"]
        return {"train": train[: options.train_rows], "test": held_out[: options.test_rows]}

    def row(self, task: Task, split: str, options: argparse.Namespace) -> dict[str, Any]:
        traced: TracedRow = task.details["row"]
        info = {"split": split, "index": task.index, "dataset": options.format}
        if options.rows == "teacher_rl":
            return rl_row(traced, config_of(options), data_source=data_source_of(options), info=info)
        made = self._sft_row(traced, options)
        return {"data_source": data_source_of(options), **made, "extra_info": info}

    def _sft_row(self, row: TracedRow, options: argparse.Namespace) -> dict[str, Any]:
        config = config_of(options)
        if options.rows == "student_sft":
            return sft.student_row(row, config)
        if kind_of(row, options) == "rlt":
            return sft.explaining_row(row, config.explanation)
        templates = _templates(options.templates)
        return sft.advising_row(
            row, templates, teaching_limit=options.max_teaching_tokens, student_name=options.student_name
        )


def config_of(options: argparse.Namespace) -> DataConfig:
    """The format that the command line names.

    Raises:
        ConfigError: it is not known, or an option for `custom` stands beside another one.
    """
    config = data_config(options.format)
    typed = {name: value for name in _CUSTOM if (value := getattr(options, name)) is not None}
    if typed and options.format != "custom":
        raise ValueError(f"--{next(iter(typed))} is for --format custom; --format {options.format} says it already")
    return dataclasses.replace(config, **typed)


def data_source_of(options: argparse.Namespace) -> str:
    """The rows' data source: the format's, or its id."""
    return config_of(options).data_source or str(options.format)


def kind_of(row: TracedRow, options: argparse.Namespace) -> str:
    """`rcl`, `rlt`, or for RL rows `auto`."""
    if options.kind != "auto" or options.rows == "teacher_rl":
        return str(options.kind)
    return "rlt" if row.teaching is None else "rcl"


def rl_row(row: TracedRow, config: DataConfig, *, data_source: str, info: Mapping[str, Any]) -> dict[str, Any]:
    """A row for RL; `extra_info` holds what a teacher who explains, and its student, are shown.

    Args:
        row: with a ground truth, a solution, or both.
        config: how student and teacher write.
        data_source: what the row is called.
        info: `split`, `index` and more for `extra_info`.
    """
    form, teacher = config.trace_format, config.explanation
    told = {
        "raw_question": row.question,
        "solution": row.solution,
        "tagged_solution": None if row.solution is None else f"{form.solution_open}{row.solution}{form.solution_close}",
        "student_system_prompt": row.system or form.system,
        "think_prefix": row.prefix or form.think_prefix,
        "think_open": form.think_open,
        "think_close": form.think_close,
        "think_solution_delimiter": config.delimiter(row),
        "solution_open": form.solution_open,
        "solution_close": form.solution_close,
        "teacher_system_prompt": teacher.system,
        "teacher_opening": None if row.solution is None else teacher.opening(row.solution),
        "teacher_think_open": teacher.explanation_open,
        "teacher_think_close": teacher.explanation_close,
    }
    made = make_row(
        data_source=data_source,
        question=row.question,
        ground_truth=row.ground_truth,
        split=info["split"],
        index=info["index"],
        ability=config.ability,
        extra_info={**info, **told},
    )
    return {**made, "agent_name": AGENT}


def _read_templates(file: str) -> str:
    """The content of a file of templates, as JSON: what they say makes the rows, not where they lie."""
    import yaml

    try:
        content = yaml.safe_load(Path(file).expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"--templates {file} cannot be read ({reason}): name a YAML file") from error
    Templates.from_mapping(content)
    return json.dumps(content)


@lru_cache
def _templates(content: str | None) -> Templates:
    return Templates.from_mapping(None if content is None else json.loads(content))


@lru_cache
def _counter(model: str | None) -> Any:
    if model is None:
        raise SystemExit(
            "error: --kind rcl makes advice of thoughts, cut to max_teaching_tokens of the student: write "
            "--tokenizer MODEL, the student's"
        )
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise SystemExit(
            f"error: --tokenizer {model} cannot be loaded ({type(error).__name__}): name a model"
        ) from error
    return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line; `arguments` replaces what the shell gave.

    Raises:
        ValueError: what is asked for cannot be made; nothing was changed then.
    """
    _own_formats()
    recipe = TeachingRows()
    options = parse(recipe, arguments)
    config_of(options)
    if options.templates is not None:
        options.templates = _read_templates(options.templates)
    path = Path(options.dataset).expanduser() if options.dataset else None
    if path is not None and path.exists():
        if options.local_file:
            raise ValueError("--dataset and --local_file both name files: write one of them")
        options.local_file = _files(path)
        # Where a file lies makes no other data set of it.
        options.dataset = path.name
    elif path is not None and (
        path.suffix in (".jsonl", ".parquet", ".gz") or options.dataset.startswith((".", "/", "~"))
    ):
        raise ValueError(f"--dataset {options.dataset} does not exist: name a file, a folder or a set of the hub")
    print(build(recipe, options))


def _own_formats() -> None:
    """Imports `custom_data.reasoning_datasets_info`, where users register formats of their own."""
    try:
        importlib.import_module(OWN_FORMATS)
    except ModuleNotFoundError as error:
        if error.name not in (OWN_FORMATS, OWN_FORMATS.partition(".")[0]):
            raise


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = sorted(file for pattern in ("*.jsonl", "*.jsonl.gz", "*.parquet") for file in path.glob(pattern))
    if not found:
        raise ValueError(f"--dataset {path} holds no .jsonl and no .parquet file: name a folder with rows")
    return found


if __name__ == "__main__":
    run_command(main)
