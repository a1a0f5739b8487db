"""Collects teachings for the training of students: a trained teacher writes for every question of a file, in several
variations, and each student answers with what it wrote. Or takes them from the rows that a training run has dumped.

Decision: what happens is in `collection` and `collecting`; this is the command.

    python -m verl.evaluation.collect_teachings --like RUN --questions train.parquet --output teachings --variations 4
    python -m verl.evaluation.collect_teachings TEACHER --students A,B --questions train.jsonl --output teachings
    python -m verl.evaluation.collect_teachings --solutions --students A --questions train.jsonl --output solutions
    python -m verl.evaluation.collect_teachings --from_rollouts RUN [--output FOLDER]

Exit codes: 0; 1 if models stopped answering, 2 for a mistake, told in one line; 130 after Ctrl-C. After all of them
the same command goes on from there.
"""

import argparse
import contextlib
import datetime
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import yaml

from verl.classmate import prompts as chat
from verl.classmate.config import RunConfig, keep_run
from verl.classmate.errors import ClassmateEngineError, ConfigError
from verl.classmate.frozen import FrozenModel
from verl.classmate.row import Task
from verl.classmate.seeds import sends_seed
from verl.classmate.templates import for_run
from verl.evaluation.collecting import AdviceWriter, Collector, Identity, ModelWriter, Variation, Writes
from verl.evaluation.collection import SETTINGS, Asking, Collection
from verl.evaluation.dumped_teachings import from_rollouts
from verl.evaluation.teaching import serving as models
from verl.evaluation.teaching.sources import Named, Source, of_names, of_run
from verl.teaching.collected import solution_of
from verl.teaching.config import NODE, TeachingConfig
from verl.teaching.held_out import held_out_hashes, is_held_out, read_tasks
from verl.teaching.shards import FOLDER
from verl.teaching.templates import Template, Templates
from verl.trainer.run.recorded_config import read_config
from verl.utils import hf_tokenizer
from verl.workers.classmates.placement import engines, resolved_engine
from verl.workers.model_revision import revision_of
from verl.workers.pipelines import pipeline_of
from verl.workers.teaching_pipeline import TeachingPipeline

_WITHOUT_TEACHER = "solutions"
"""The teacher of a collection that `--solutions` makes."""
_NO_LIMIT = 1_000_000
"""More tokens than any solution has."""


def main(arguments: list[str]) -> int:
    """The command; returns the exit code."""
    try:
        given = _parser().parse_intermixed_args(arguments)
        lines = _from_rollouts(given) if given.from_rollouts else _collect(given)
    except ConfigError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except ClassmateEngineError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    print("\n".join(lines))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m verl.evaluation.collect_teachings", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("given", nargs="*", metavar="[TEACHER] key=value", help="a model; overrides as in training")
    parser.add_argument("--like", type=Path, metavar="RUN", help="students, prompts and protocol of a training run")
    parser.add_argument("--students", type=_names, metavar="PATH[,PATH]", help="whom to teach; else the run's")
    parser.add_argument("--questions", type=_names, metavar="FILE[,FILE]", help="Parquet or JSONL, with true answers")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="of the shards")
    parser.add_argument("--exclude", type=_names, default=(), metavar="FILE[,FILE]", help="files of an evaluation")
    parser.add_argument("--variations", type=_count, default=1, metavar="V", help="teachings of each question (1)")
    parser.add_argument("--temperatures", type=_numbers, metavar="T[,T]", help="of the variations, by turns")
    prompts = "likewise: YAML files with teacher_adaptive_template, beside the run's own"
    parser.add_argument("--teacher_prompts", type=_names, default=(), metavar="FILE[,FILE]", help=prompts)
    parser.add_argument("--templates", metavar="FILE", help="YAML with the prompts")
    parser.add_argument("--solutions", action="store_true", help="no teacher: the data's solution is the advice")
    parser.add_argument("--engine", choices=("hf", "vllm", "openai"), help="of all models; else as the machine has it")
    parser.add_argument("--servers", metavar="FILE", help="with openai: the file that names the models' servers")
    parser.add_argument("--from_rollouts", type=Path, metavar="RUN", help="takes what the run has dumped, asks nobody")
    return parser


def _from_rollouts(given: argparse.Namespace) -> list[str]:
    target = given.output or given.from_rollouts / FOLDER
    done = from_rollouts(given.from_rollouts, target, exclude=given.exclude)
    return [f"{target}: {done.rows} rows of {done.steps} steps, {done.held_out} rows of held-out questions left out"]


def _collect(given: argparse.Namespace) -> list[str]:
    """Makes the rows; what is printed."""
    if not given.questions or given.output is None:
        raise ConfigError("--questions FILE and --output FOLDER are needed; --help shows how they are written")
    held_out = held_out_hashes(given.exclude)
    tasks, left_out = read_tasks(given.questions)
    wanted = [task for task in tasks if not is_held_out(task, held_out)]
    left_out["held_out"] = len(tasks) - len(wanted)
    if not wanted:
        raise ConfigError(f"all questions of {', '.join(given.questions)} are held out; name other questions")
    teachers = [one for one in given.given if "=" not in one]
    if len(teachers) > 1:
        raise ConfigError(f"{teachers[1]!r} is a second teacher; name one, and write overrides as key=value")
    collection = collect(
        Wanted(
            teacher=teachers[0] if teachers else None,
            like=given.like,
            students=given.students,
            files=given.questions,
            templates=given.templates,
            engine=given.engine,
            servers=given.servers,
            solutions=given.solutions,
            overrides=tuple(one for one in given.given if "=" in one),
        ),
        tasks=wanted,
        output=given.output,
        variations=given.variations,
        temperatures=given.temperatures,
        prompts=[_prompt(file) for file in given.teacher_prompts],
    )
    rows = collection.rows()
    usable = sum(row.reward is not None for row in rows)
    reasons = [f"{count} {name}" for name, count in {**left_out, **collection.left_out}.items() if count]
    lines = [f"{given.output}: {len(rows)} rows, {usable} with a reward"]
    return lines + ([f"left out: {', '.join(reasons)}"] if reasons else [])


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Who is to teach whom, as the command line has it."""

    teacher: str | None = None
    """Path or hub name; None: the last checkpoint of `like`."""
    like: Path | None = None
    """A training run, whose students, prompts and protocol are taken."""
    students: tuple[str, ...] | None = None
    """In the place of the run's."""
    files: tuple[str, ...] = ()
    """Where the questions are from."""
    templates: str | None = None
    """YAML file with prompts."""
    engine: str | None = None
    """hf, vllm or openai, for all models."""
    servers: str | None = None
    """The file that names servers, for openai."""
    solutions: bool = False
    """Whether advice is known, and no teacher is asked."""
    overrides: tuple[str, ...] = ()
    """As in training."""


def _settings(
    source: Source,
    writes: FrozenModel | None,
    students: Sequence[FrozenModel],
    temperatures: Sequence[float] | None,
    prompts: Sequence[Template],
) -> dict[str, Any]:
    """What a collection's teachings depend on; a folder holds those of one."""
    run = source.run
    given = source.config.actor_rollout_ref.rollout
    heat = list(temperatures or [float(given.temperature)])
    return {
        "teacher": _WITHOUT_TEACHER if writes is None else revision_of(writes),
        "students": [revision_of(one) for one in students],
        "templates": source.teaching.templates.hash,
        "prompts": [asdict(one) for one in prompts],
        "temperatures": heat,
        "sampling": {"top_p": float(given.top_p), "top_k": int(given.top_k)},
        "protocol": asdict(source.teaching.protocol),
        "reward": json.loads(json.dumps(asdict(source.teaching.reward), default=str)),
        "students_sampling": asdict(run.reward.classmate_generation_configs),
        "lengths": [run.max_prompt_length, run.max_response_length],
        "seed": run.reward.seed,
        "date": run.reward.chat_date,
    }


def _writer(
    writes: FrozenModel, tokenizer: Any, pipeline: TeachingPipeline, run: RunConfig, sampling: Mapping[str, Any]
) -> ModelWriter:
    """The teacher, as it writes in training."""
    return ModelWriter(
        writes.name,
        tokenizer,
        pipeline,
        seed=run.reward.seed if _seeded(writes, run.deterministic) else None,
        sampling=sampling,
        limits=(run.max_prompt_length, run.max_response_length),
        template_kwargs=run.template_kwargs,
    )


def _check_kind(source: Source) -> None:
    """Explanations of solutions are written in training only.

    Raises:
        ConfigError: the source's teacher explains.
    """
    kind = source.teaching.reward.kind
    if source.teaching.reward.uses_rlt:
        raise ConfigError(
            f"rcl.reward.kind={kind}: explanations of solutions are collected while their teacher trains "
            "(rcl.collect.enable=true) or by --from_rollouts RUN; or write rcl.reward.kind=rcl"
        )


def _teachers_tokenizer(source: Source) -> Any:
    """The teacher's, as the run uses it.

    Raises:
        ConfigError: it has no chat template.
    """
    reward = source.run.reward
    tokenizer = for_run(hf_tokenizer(source.teacher), date=reward.chat_date, system_as_user=reward.system_as_user)
    chat.check_tokenizer(tokenizer, source.teacher)
    return tokenizer


def collect(
    wanted: Wanted,
    *,
    tasks: Sequence[Task],
    output: Path,
    variations: int = 1,
    temperatures: Sequence[float] | None = None,
    prompts: Sequence[Template] = (),
    title: str = "collecting",
    advice: Callable[[Task], str | None] = solution_of,
) -> Collection:
    """Collects the teachings of some questions in a folder, or what is missing of them.

    Args:
        wanted: who teaches whom.
        tasks: the questions.
        output: the folder.
        variations: teachings of each question, for each student.
        temperatures: of the teacher, by turns; None: the run's.
        prompts: in the place of the teacher's, by turns with the run's own.
        title: for the progress bar.
        advice: what is said of a question, with `solutions`.

    Raises:
        ConfigError: something named is not possible.
        ClassmateEngineError: the models answer nothing any more.
    """
    source = _source(wanted)
    _check_kind(source)
    run = replace(source.run, folder=output.absolute(), reward=replace(source.run.reward, chat_date=_date(output)))
    keep_run(source.config, run)
    source = replace(source, run=run)
    students = models.frozen_students(source)[: len(run.reward.classmates)]
    writes = None
    if not wanted.solutions:
        writes = models.frozen_teacher(source, models.TEACHER, source.teacher, engine=wanted.engine)
    settings = _settings(source, writes, students, temperatures, prompts)
    tokenizer = _teachers_tokenizer(source)
    with (
        Collection.open(output, settings) as collection,
        models.Serving.open(source, [*students, *([writes] if writes else [])], on_event=_tell) as serving,
    ):
        pipeline = pipeline_of(source.config, tokenizer, serving.client)  # type: ignore[arg-type]
        assert isinstance(pipeline, TeachingPipeline)
        writer: Writes = AdviceWriter(advice, pipeline)
        if writes is not None:
            writer = _writer(writes, tokenizer, pipeline, run, settings["sampling"])
        identity = Identity(run=collection.run, teacher=str(settings["teacher"]), seed=run.reward.seed)
        collector = Collector(pipeline, writer, serving.client, identity, cache=pipeline.students.stored)
        asking = Asking(
            collector=collector,
            serving=serving,
            students={r: one.name for r, one in enumerate(students)},
            teacher=None if writes is None else writes.name,
        )
        which = _variations(variations, settings["temperatures"], [None, *prompts])
        collection.add(asking, tasks=tasks, variations=which, templates=source.teaching.templates, title=title)
    return collection


@contextlib.contextmanager
def open_for(wanted: Wanted) -> Iterator[None]:
    """Keeps Ray open for several collections with such models, where their engines need it."""
    source = _source(wanted)
    students = models.frozen_students(source)[: len(source.run.reward.classmates)]
    teacher = models.frozen_teacher(source, models.TEACHER, source.teacher, engine=wanted.engine)
    local = engines([*students, teacher])
    with models.opened_ray(source, local) if local else contextlib.nullcontext():
        yield


def _source(wanted: Wanted) -> Source:
    """The config of the collection.

    Raises:
        ConfigError: something named is missing or not possible.
    """
    overrides = list(wanted.overrides)
    named = Named(
        teacher=wanted.teacher,
        students=wanted.students,
        # Whom the run has never taught may be taught now.
        unseen=None if wanted.students is None else (),
        data=None if wanted.like else wanted.files,
        templates=wanted.templates,
        engine=wanted.engine,
        servers=wanted.servers,
    )
    if wanted.solutions:
        # Nobody is asked to write: a student's tokenizer stands for the teacher's, and no budget holds.
        named = replace(named, teacher=_first_student(wanted))
        overrides += [f"rcl.protocol.max_teaching_tokens={_NO_LIMIT}", "rcl.protocol.max_probe_tokens=0"]
        overrides.append("rcl.reward.kind=rcl")
    if wanted.like is not None:
        return of_run(wanted.like, named, overrides)
    if named.teacher is None:
        raise ConfigError("nobody teaches; name a TEACHER, or --like RUN, or write --solutions")
    return of_names(named, overrides)


def _first_student(wanted: Wanted) -> str:
    if wanted.students:
        return wanted.students[0]
    content = read_config(wanted.like) if wanted.like is not None else {}
    specs = TeachingConfig.read(content[NODE]).students if NODE in content else ()
    if not specs:
        raise ConfigError("--solutions: nobody is taught; write --students PATH, or --like RUN")
    return specs[0].model


def _seeded(writes: FrozenModel, deterministic: bool) -> bool:
    return sends_seed(resolved_engine(writes), deterministic=deterministic)


def _variations(count: int, temperatures: Sequence[float], prompts: Sequence[Template | None]) -> list[Variation]:
    """Each temperature with each prompt, by turns."""
    return [
        Variation(
            number=v,
            temperature=temperatures[v % len(temperatures)],
            prompt=prompts[v // len(temperatures) % len(prompts)],
        )
        for v in range(count)
    ]


def _date(output: Path) -> str:
    """The day that chat templates are told: that of the collection's first start."""
    try:
        known = json.loads((output / SETTINGS).read_text())["date"]
    except (OSError, ValueError, KeyError, TypeError):
        known = None
    return known or datetime.datetime.now().astimezone().date().isoformat()


def _prompt(file: str) -> Template:
    """A teacher's prompt of a YAML file, checked with the others.

    Raises:
        ConfigError: the file has none, or one that breaks the contract.
    """
    try:
        content = yaml.safe_load(Path(file).expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"--teacher_prompts: {file} cannot be read; name a YAML file") from error
    name = "teacher_adaptive_template"
    if not isinstance(content, Mapping) or set(content) != {name}:
        raise ConfigError(f"--teacher_prompts: {file} holds something else; write {name}: {{system: ..., user: ...}}")
    return Templates.from_mapping(content).teacher_adaptive_template


def _tell(line: str) -> None:
    from tqdm import tqdm

    tqdm.write(line, file=sys.stderr)


def _names(text: str) -> tuple[str, ...]:
    return tuple(one for one in text.split(",") if one)


def _numbers(text: str) -> tuple[float, ...]:
    found = tuple(float(one) for one in _names(text))
    if not found or min(found) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of temperatures")
    return found


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no count")
    return int(text)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; --help shows how it is written")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
