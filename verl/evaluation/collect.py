"""A collection of teachings from what a caller wants: who teaches whom, which models answer, and what is missing.

>>> collection = collect(Wanted(like=run, ...), tasks=tasks, output=folder, variations=4)
"""

import contextlib
import datetime
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from verl.classmate import prompts as chat
from verl.classmate.config import RunConfig, keep_run
from verl.classmate.errors import ConfigError
from verl.classmate.frozen import FrozenModel
from verl.classmate.row import Task
from verl.classmate.seeds import sends_seed
from verl.classmate.templates import for_run
from verl.evaluation.collecting import AdviceWriter, Collector, Identity, ModelWriter, Variation, Writes
from verl.evaluation.collection import SETTINGS, Asking, Collection
from verl.evaluation.teaching import serving as models
from verl.evaluation.teaching.sources import Named, Source, of_names, of_run
from verl.teaching.collected import solution_of
from verl.teaching.config import NODE, TeachingConfig
from verl.teaching.templates import Template
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


def _tell(line: str) -> None:
    from tqdm import tqdm

    tqdm.write(line, file=sys.stderr)
