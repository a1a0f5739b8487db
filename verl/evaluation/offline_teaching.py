"""A collection by models that are named: from a training run or from names to rows in a folder.

One decision: it is composed as an evaluation is (`verl.evaluation.teaching.sources`) and served as one, so that what is
named, overridden or placed means the same in both.

    >>> wanted = Wanted(like=Path("outputs/rcl"), students=("Qwen/Qwen3-1.7B",))
    >>> collect(wanted, tasks=read_tasks(["train.parquet"])[0], output=Path("teachings"), variations=4).rows()
    [CollectedTeaching(...), ...]
"""

import contextlib
import datetime
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from verl.classmate import prompts as chat
from verl.classmate.config import keep_run
from verl.classmate.errors import ConfigError
from verl.classmate.frozen import FrozenModel
from verl.classmate.row import Task
from verl.classmate.seeds import sends_seed
from verl.classmate.templates import for_run
from verl.evaluation.collecting import AdviceWriter, Collector, Identity, ModelWriter, Variation, Writes
from verl.evaluation.collection import SETTINGS, Asking, Collection
from verl.evaluation.teaching import serving as serving_models
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


def collect(
    wanted: Wanted,
    *,
    tasks: Sequence[Task],
    output: Path,
    variations: int = 1,
    temperatures: Sequence[float] | None = None,
    prompts: Sequence[Template] = (),
    title: str = "collecting",
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

    Raises:
        ConfigError: something named is not possible.
        ClassmateEngineError: the models answer nothing any more.
    """
    source = _prepared(wanted, output)
    students, teacher = _models(wanted, source)
    heat = list(temperatures or [float(source.config.actor_rollout_ref.rollout.temperature)])
    settings = _settings(source, students, teacher) | {
        "temperatures": heat,
        "prompts": [asdict(one) for one in prompts],
    }
    tokenizer = for_run(
        hf_tokenizer(source.teacher),
        date=source.run.reward.chat_date,
        system_as_user=source.run.reward.system_as_user,
    )
    chat.check_tokenizer(tokenizer, source.teacher)
    models = [*students, *([teacher] if teacher else [])]
    with (
        Collection.open(output, settings) as collection,
        serving_models.Serving.open(source, models, on_event=_tell) as serving,
    ):
        pipeline = pipeline_of(source.config, tokenizer, serving.client)  # type: ignore[arg-type]
        assert isinstance(pipeline, TeachingPipeline)
        identity = Identity(run=collection.run, teacher=str(settings["teacher"]), seed=source.run.reward.seed)
        writer = _writer(source, pipeline, teacher, tokenizer)
        asking = Asking(
            collector=Collector(pipeline, writer, serving.client, identity, cache=pipeline.students.stored),
            serving=serving,
            students={r: one.name for r, one in enumerate(students)},
            teacher=None if teacher is None else teacher.name,
        )
        which = _variations(variations, heat, [None, *prompts])
        collection.add(asking, tasks=tasks, variations=which, templates=source.teaching.templates, title=title)
    return collection


def _prepared(wanted: Wanted, output: Path) -> Source:
    """The config of a collection in a folder, as this process works with it.

    Raises:
        ConfigError: something named is not possible.
    """
    source = _source(wanted)
    kind = source.teaching.reward.kind
    if source.teaching.reward.uses_rlt:
        raise ConfigError(
            f"rcl.reward.kind={kind}: explanations of solutions are collected while their teacher trains "
            "(rcl.collect.enable=true) or by --from_rollouts RUN; or write rcl.reward.kind=rcl"
        )
    if source.teaching.protocol.teacher_asks and not wanted.solutions:
        raise ConfigError(
            "rcl.protocol.probe.author=teacher: teachings with questions of the teacher's own are collected while it "
            "trains (rcl.collect.enable=true) or by --from_rollouts RUN; or write "
            "rcl.protocol.probe.author=student_prompt"
        )
    run = replace(source.run, folder=output.absolute(), reward=replace(source.run.reward, chat_date=_date(output)))
    keep_run(source.config, run)
    return replace(source, run=run)


def _models(wanted: Wanted, source: Source) -> tuple[tuple[FrozenModel, ...], FrozenModel | None]:
    """The students, and who writes; None where nobody has to."""
    students = serving_models.frozen_students(source)[: len(source.run.reward.classmates)]
    if wanted.solutions:
        return students, None
    name = serving_models.TEACHER
    return students, serving_models.frozen_teacher(source, name, source.teacher, engine=wanted.engine)


def _settings(source: Source, students: Sequence[FrozenModel], teacher: FrozenModel | None) -> dict[str, Any]:
    """What decides what a row is, beside temperatures and prompts of the teacher."""
    run, given = source.run, source.config.actor_rollout_ref.rollout
    return {
        "teacher": _WITHOUT_TEACHER if teacher is None else revision_of(teacher),
        "students": [revision_of(one) for one in students],
        "templates": source.teaching.templates.hash,
        "sampling": {"top_p": float(given.top_p), "top_k": int(given.top_k)},
        "protocol": asdict(source.teaching.protocol),
        "reward": json.loads(json.dumps(asdict(source.teaching.reward), default=str)),
        "students_sampling": asdict(run.reward.classmate_generation_configs),
        "lengths": [run.max_prompt_length, run.max_response_length],
        "seed": run.reward.seed,
        "date": run.reward.chat_date,
    }


def _writer(source: Source, pipeline: TeachingPipeline, teacher: FrozenModel | None, tokenizer: Any) -> Writes:
    if teacher is None:
        return AdviceWriter(solution_of, pipeline)
    run, given = source.run, source.config.actor_rollout_ref.rollout
    seeded = sends_seed(resolved_engine(teacher), deterministic=run.deterministic)
    return ModelWriter(
        teacher.name,
        tokenizer,
        pipeline,
        seed=run.reward.seed if seeded else None,
        sampling={"top_p": float(given.top_p), "top_k": int(given.top_k)},
        limits=(run.max_prompt_length, run.max_response_length),
        template_kwargs=run.template_kwargs,
    )


@contextlib.contextmanager
def open_for(wanted: Wanted) -> Iterator[None]:
    """Keeps Ray open for several collections with such models, where their engines need it."""
    source = _source(wanted)
    students, teacher = _models(wanted, source)
    local = engines([*students, *([teacher] if teacher else [])])
    with serving_models.opened_ray(source, local) if local else contextlib.nullcontext():
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
        overrides += ["rcl.reward.kind=rcl", "rcl.protocol.probe.author=student_prompt"]
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
