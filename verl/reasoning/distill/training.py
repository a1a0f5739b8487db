"""The loop of a course: stages, steps, looks at held-out problems, checkpoints.

One decision: everything that the next step depends on is in one file, replaced in one go, so that a run that was killed
anywhere ends with the weights that it would have had.

    >>> follow(learner, course, rows, hooks, plan, folder / "checkpoint.pt")
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from verl.reasoning.distill.course import Course
from verl.reasoning.distill.learner import Learner
from verl.reasoning.sft.chat import Row


@dataclass(frozen=True, kw_only=True)
class Plan:
    """When what happens."""

    rows_per_step: int
    """Rows of an update."""
    looks_per_stage: int = 0
    """How often held-out problems are looked at while a stage goes on."""
    min_gain: float = 0.005
    """A stage ends where the score has risen by less ..."""
    patience: int = 2
    """... in so many looks after another."""
    save_every: int = 50
    """Steps between checkpoints."""
    title: str = "distillation"
    """Of the progress bar."""


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """What is asked of others on the way."""

    difficulty: Callable[[Any, Sequence[str]], Mapping[str, float]]
    """Of problems, by their ids, for the model as it is."""
    look: Callable[[Any], Mapping[str, float] | None] = lambda model: None
    """Scores of the model on held-out problems; `score` decides; None: there are none."""
    own_rows: Callable[[Any, Sequence[int], int], list[Row] | None] = lambda model, places, step: None
    """Rows in place of those that were drawn, written by the model itself; None: the drawn ones."""


@dataclass(kw_only=True)
class Progress:
    """What happened so far; a checkpoint keeps it."""

    stages: list[dict[str, Any]] = field(default_factory=list)
    """One entry for each stage that has ended."""
    history: list[dict[str, float]] = field(default_factory=list)
    """One entry a step."""
    looks: list[float] = field(default_factory=list)
    """Scores of the running stage."""
    began: int = 0
    """Tokens when it began."""
    without_gain: int = 0
    """Looks after another with too little gain."""


def follow(
    learner: Learner, course: Course, rows: Sequence[Row], hooks: Hooks, plan: Plan, checkpoint: Path
) -> Progress:
    """Trains to the end of the course, from its last checkpoint on where there is one."""
    progress = Progress()
    if checkpoint.exists():
        kept = learner.load(checkpoint)
        course.set_state(kept["course"])
        progress = Progress(**kept["progress"])
    bar = tqdm(
        total=course.budget, initial=min(learner.tokens, course.budget), desc=plan.title, unit="token", disable=None
    )
    with bar:
        while len(progress.stages) < course.stages:
            if course.stage < len(progress.stages):
                difficulty = hooks.difficulty(learner.model, course.untaught())
                course.begin_stage(difficulty, tokens=learner.tokens)
                progress.looks, progress.began, progress.without_gain = [], learner.tokens, 0
                _save(learner, course, progress, checkpoint)
            _stage(learner, course, rows, hooks, plan, progress, checkpoint, bar)
            scores = dict(hooks.look(learner.model) or {})
            spent = learner.tokens - progress.began
            told = {"stage": course.stage, "problems": len(course.bins[-1]), "tokens": spent, **scores}
            progress.stages.append({**told, "ended_early": progress.without_gain >= plan.patience})
            _save(learner, course, progress, checkpoint)
    return progress


def _stage(
    learner: Learner,
    course: Course,
    rows: Sequence[Row],
    hooks: Hooks,
    plan: Plan,
    progress: Progress,
    checkpoint: Path,
    bar: Any,
) -> None:
    """Spends the tokens of a stage, or ends where held-out problems show no more gain; the last stage spends all."""
    whole = course.stage_tokens_left(progress.began)
    looks = 0 if course.is_last else plan.looks_per_stage
    while course.stage_tokens_left(learner.tokens) > 0 and progress.without_gain < plan.patience:
        places = course.draw(plan.rows_per_step)
        own = hooks.own_rows(learner.model, places, learner.steps)
        before = learner.tokens
        told = learner.step([rows[place] for place in places] if own is None else own)
        progress.history.append({"step": float(learner.steps), "stage": float(course.stage), **told})
        bar.update(learner.tokens - before)
        bar.set_postfix(stage=course.stage + 1, loss=f"{told['loss']:.3f}")
        due = (learner.tokens - progress.began) * (looks + 1) // max(1, whole)
        if looks and len(progress.looks) < min(due, looks):
            _look(learner, hooks, plan, progress)
            _save(learner, course, progress, checkpoint)
        elif learner.steps % plan.save_every == 0:
            _save(learner, course, progress, checkpoint)


def _look(learner: Learner, hooks: Hooks, plan: Plan, progress: Progress) -> None:
    found = hooks.look(learner.model)
    if found is None:
        return
    best = max(progress.looks, default=None)
    progress.looks.append(found["score"])
    if best is not None:
        progress.without_gain = progress.without_gain + 1 if found["score"] - best < plan.min_gain else 0


def _save(learner: Learner, course: Course, progress: Progress, checkpoint: Path) -> None:
    learner.save(checkpoint, course=course.state(), progress=dict(vars(progress)))
