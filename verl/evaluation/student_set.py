"""Makes a training set for a student out of collected teachings: whole rows that fit into its context, in its own chat
template and tokens, none of an evaluation's questions among them.

Decision: which rows are taken is pure (`verl.teaching.student_sets`); this is the command, with a real tokenizer.

    python -m verl.evaluation.student_set RUN --mode self_guided --student MODEL --max_length 4096 --min_gain 0.25 \\
        --eval_files test.parquet --output set.parquet
    python -m verl.evaluation.student_set teachings more_teachings --mode contrastive --student MODEL \\
        --max_length 4096 --pick all --per_question 4 --eval_files test.parquet --output pairs.jsonl

Exit codes: 0; 2 for a mistake, told in one line.
"""

import argparse
import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from verl.classmate import prompts
from verl.classmate.errors import ConfigError
from verl.classmate.templates import for_run
from verl.evaluation import arguments
from verl.evaluation.arguments import OneLineParser
from verl.teaching.collected import CollectedTeaching, as_collected
from verl.teaching.config import TeachingConfig
from verl.teaching.held_out import forms_of, held_out_hashes
from verl.teaching.shards import Shards, read_shards
from verl.teaching.student_sets import (
    MODES,
    PICKS,
    Collected,
    Mode,
    SelectionRules,
    StudentSet,
    TraceFormat,
    build_student_set,
)
from verl.teaching.templates import Messages, Templates
from verl.trainer.run.state import write_atomically
from verl.utils import hf_tokenizer

ALL = "all"
"""Of `--taught`: whoever was taught."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be built."""

    mode: Mode
    """What a row consists of."""
    student: str
    """Path or hub name of the model that will be trained."""
    max_length: int
    """Most tokens of a row."""
    rules: SelectionRules = field(default_factory=SelectionRules)
    """Which rows are taken."""
    eval_files: tuple[str, ...] = ()
    """Files of an evaluation, none of whose questions may be there."""
    leave_out_held_out: bool = False
    """Whether such questions are left out; otherwise they are an error."""
    taught: str | None = None
    """Whose rows are taken: a student's name, or `all`; None: the own ones of the student, where it was taught."""
    templates_file: str | None = None
    """YAML file with the prompts; None: those that stand beside the shards."""
    trace_format: TraceFormat = field(default_factory=TraceFormat)
    """For `rlt_trace`."""


def build(places: Sequence[Path], order: Order) -> StudentSet:
    """The set out of some shards.

    Args:
        places: run folders, folders of shards, or files.
        order: what is to be built.

    Raises:
        ConfigError: no shards, a held-out question, several prompts, or a student that cannot be trained so.
    """
    shards = read_shards(places)
    try:
        tokenizer = for_run(hf_tokenizer(order.student), date=None, system_as_user=True)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"student {order.student} cannot be loaded ({reason}); name a folder or a model of the hub"
        ) from error
    prompts.check_tokenizer(tokenizer, order.student)
    rows, counts = _chosen(shards, order)
    specials = prompts.special_tokens(tokenizer)
    kept = [row for row in as_collected(rows) if not _spells(row, specials, order.mode)]
    counts["special_token"] = len(rows) - len(kept)
    made = build_student_set(
        kept,
        order.mode,
        rules=order.rules,
        templates=_templates(rows, shards.templates, order.templates_file),
        count_tokens=functools.partial(templated_length, tokenizer),
        max_length=order.max_length,
        evaluation_hashes=held_out_hashes(order.eval_files),
        trace_format=order.trace_format,
    )
    if order.mode != "contrastive":
        # What the supervised trainer asks of a row: its whole answer is learnt.
        made = replace(made, rows=[{**row, "loss_from": 0} for row in made.rows])
    return replace(made, counts={**shards.counts, **counts, **made.counts})


def templated_length(tokenizer: Any, messages: Messages) -> int:
    """Tokens of a chat in a student's template, however a trainer puts it together: whole, or the answer behind its
    prompt with a mark that ends it.

    Raises:
        ConfigError: the template does not take these turns.
    """

    def length(chat: Messages, *, opens_answer: bool = False) -> int:
        try:
            text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=opens_answer)
        except Exception as error:
            reason = " ".join(str(error).split())[:120]
            raise ConfigError(f"the student's chat template refuses a row ({reason}); name another model") from error
        return len(tokenizer.encode(text, add_special_tokens=False))

    if not messages or messages[-1]["role"] != "assistant":
        return length(messages, opens_answer=True)
    whole = length(messages)
    answer = len(tokenizer.encode(messages[-1]["content"], add_special_tokens=False))
    return max(whole, length(messages[:-1], opens_answer=True) + answer + 1)


def _chosen(shards: Shards, order: Order) -> tuple[list[CollectedTeaching], dict[str, int]]:
    """The rows of the student that is meant, none of them held out; and how many others there are.

    Raises:
        ConfigError: there are held-out questions.
    """
    held_out = held_out_hashes(order.eval_files)
    wanted = [row for row in shards.rows if held_out.isdisjoint(forms_of({"question": row.question}))]
    missing = len(shards.rows) - len(wanted)
    if missing and not order.leave_out_held_out:
        raise ConfigError(
            f"{missing} of {len(shards.rows)} rows are of held-out questions; collect with "
            "rcl.collect.exclude_files or --exclude, or write --leave_out_held_out"
        )
    if not wanted:
        raise ConfigError(f"all {missing} rows are of held-out questions; collect other questions")
    named = _taught(wanted, order)
    rows = [row for row in wanted if named is None or row.student in named]
    if not rows:
        there = ", ".join(sorted({row.student for row in wanted})) or "nobody"
        raise ConfigError(f"--taught {order.taught}: no such student was taught; the shards have {there}, or write all")
    return rows, {"held_out": missing, "other_student": len(wanted) - len(rows)}


def _taught(rows: Sequence[CollectedTeaching], order: Order) -> set[str] | None:
    """Names of the students whose rows are taken; None: all."""
    if order.taught == ALL:
        return None
    if order.taught is not None:
        return {order.taught}
    # What it wrote itself is nearest to what it can learn.
    model = _place(order.student)
    return {row.student for row in rows if _place(row.student_model) == model} or None


def _place(model: str) -> str:
    path = Path(model).expanduser()
    return str(path.resolve()) if path.is_dir() else model.rstrip("/")


def _templates(rows: Sequence[CollectedTeaching], beside: Mapping[str, Templates], file: str | None) -> Templates:
    """What the students were asked with.

    Raises:
        ConfigError: it is not known, or not the same for all rows.
    """
    if file is not None:
        return TeachingConfig.read({"templates_file": file}).templates
    hashes = {row.template_hash for row in rows}
    if not hashes <= beside.keys():
        raise ConfigError("the prompts of these rows do not stand beside their shards; name them by --templates")
    found = [beside[one] for one in sorted(hashes)]
    # Teachers may have been asked in several ways; what students were asked must be one.
    alike = {(one.student_baseline_template, one.student_with_teaching_template, one.answer_format) for one in found}
    if len(alike) > 1:
        raise ConfigError(
            f"students were asked in {len(alike)} ways in these shards; build a set of each, or name one by --templates"
        )
    return found[0]


def _spells(row: Collected, specials: Sequence[str], mode: Mode) -> bool:
    """Whether a text of a row spells a special token out, which would end a turn where none ends."""
    texts = [row.question, row.teaching if mode in ("with_teaching", "rlt_trace") else "", row.solution]
    texts += [one.text for one in (*row.guided, *(row.baseline if mode == "contrastive" else ()))]
    return any(token in text for token in specials for text in texts)


def write(made: StudentSet, output: Path) -> None:
    """Writes a set as Parquet or JSONL, by the file's name.

    Raises:
        ConfigError: another kind of file, or nothing to write.
    """
    if output.suffix not in (".parquet", ".jsonl"):
        raise ConfigError(f"--output {output}: write FILE.parquet or FILE.jsonl")
    if not made.rows:
        raise ConfigError(f"no row is left ({told(made.counts)}); collect more, or write other rules")
    output.parent.mkdir(parents=True, exist_ok=True)
    if output.suffix == ".jsonl":
        write_atomically(output, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in made.rows))
        return
    import pandas as pd

    partial = output.with_suffix(".partial")
    pd.DataFrame(made.rows).to_parquet(partial)
    partial.replace(output)


def told(counts: Mapping[str, int]) -> str:
    """Counts as one line."""
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count or name in ("collected", "kept"))


def main(arguments: list[str]) -> int:
    """The command; returns the exit code."""
    try:
        given = _parser().parse_args(arguments)
        made = build(given.shards, _order(given))
        write(made, given.output)
    except ConfigError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    tokens = sum(row["tokens"] for row in made.rows)
    print(f"{given.output}: {len(made.rows)} rows, {tokens} tokens")
    print(told(made.counts))
    return 0


def _order(given: argparse.Namespace) -> Order:
    picked: Callable[..., SelectionRules] = SelectionRules
    return Order(
        mode=given.mode,
        student=given.student,
        max_length=given.max_length,
        rules=picked(
            min_gain=given.min_gain,
            min_solve_rate=given.min_solve_rate,
            per_question=given.per_question,
            pick=given.pick,
        ),
        eval_files=given.eval_files,
        leave_out_held_out=given.leave_out_held_out,
        taught=given.taught,
        templates_file=given.templates,
        trace_format=_trace_format(given.trace_format),
    )


def _trace_format(text: str | None) -> TraceFormat:
    """The tags of `rlt_trace` from JSON.

    Raises:
        ConfigError: unknown keys, or no JSON.
    """
    if text is None:
        return TraceFormat()
    try:
        content = json.loads(text)
        assert isinstance(content, dict)
    except (ValueError, AssertionError) as error:
        raise ConfigError(
            f'--trace_format: {text!r} is no JSON object; write {{"think_open": "<think>", ...}}'
        ) from error
    known = asdict(TraceFormat())
    if unknown := sorted(content.keys() - known.keys()):
        raise ConfigError(f"--trace_format: {unknown[0]} is unknown; write one of: {', '.join(known)}")
    return TraceFormat(**content)


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="python -m verl.evaluation.student_set", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("shards", nargs="+", type=Path, help="run folders, folders of shards, or files")
    parser.add_argument("--mode", required=True, choices=MODES, help="what a row consists of")
    parser.add_argument("--student", required=True, metavar="MODEL", help="that will be trained")
    parser.add_argument("--max_length", required=True, type=int, metavar="N", help="most tokens of a row")
    parser.add_argument("--output", required=True, type=Path, metavar="FILE", help=".parquet or .jsonl")
    parser.add_argument("--pick", choices=PICKS, default="first_fit", help="which of a question's rows (first_fit)")
    parser.add_argument("--per_question", type=int, default=1, metavar="N", help="with --pick all: most of them (1)")
    parser.add_argument("--min_gain", type=float, metavar="D", help="lowest gain")
    parser.add_argument("--min_solve_rate", type=float, metavar="W", help="lowest solve rate with the teaching")
    parser.add_argument(
        "--eval_files", type=arguments.names, default=(), metavar="FILE[,FILE]", help="must not be among them"
    )
    parser.add_argument("--leave_out_held_out", action="store_true", help="leaves their questions out instead")
    parser.add_argument("--taught", metavar="NAME", help="whose rows; all: everybody's (the student's own, if any)")
    parser.add_argument("--templates", metavar="FILE", help="YAML with the prompts, if not beside the shards")
    parser.add_argument("--trace_format", metavar="JSON", help="tags of rlt_trace")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
