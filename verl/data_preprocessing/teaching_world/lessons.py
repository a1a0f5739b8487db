"""What the models are taught, as messages and answers. Pure functions of random numbers.

Decision: what a student does under advice is drawn from its habit, so that its mistakes are as reliable as a habit and
no more. A teacher first learns to say all that can be said, fitting or not: what helps whom is left to RL.

    student_lesson(STUDENTS["weak"], random.Random(0), 0).answer      # '7+8=15, 4+3=7<solution>75</solution>'
    teacher_lesson(0, Mix(), random.Random(0), 0).answer              # '<thinking>...</thinking><teaching>...'
"""

import random
from dataclasses import dataclass
from functools import lru_cache

from verl.data_preprocessing.arithmetic_problems import Problem
from verl.data_preprocessing.teaching_world import advice, prompts
from verl.data_preprocessing.teaching_world.problems import OUTCOMES, kind_of, problem, working
from verl.data_preprocessing.teaching_world.spec import Mix
from verl.data_preprocessing.teaching_world.students import (
    STUDENTS,
    TRAINED_WITH,
    Student,
    Weakness,
    changed,
    plan,
    shown,
)
from verl.teaching.templates import Messages, Templates

STUDENTS_SEED = 777
"""Seed of the students and of their problems."""

_BASE_START, _STUDENTS_START, _WARMUP_START = 1_000_000, 2_000_000, 3_000_000
"""Number of the first problem of the training split in the lessons; the rows have the first ones."""
_OTHER_LIMIT_SHARE = 0.3
"""Share of the lessons whose prompt has another budget than usual."""
_OFFTASK_SHARE = 0.1
"""Share of a teacher's lessons that are one-digit sums."""

_FITTING: dict[Weakness, advice.What] = {"forgets": "remember", "twice": "once"}
DIAGNOSES: dict[Weakness, str] = {
    "forgets": "It marks nothing.",
    "sure": "It marks one.",
    "twice": "It marks one twice.",
}
"""What a teacher thinks, in private, of the plan that shows it."""
_OFFTASK_WORDINGS = ("What is {a} plus {b}?", "Add {b} to {a}.", "{a} and {b} make?")


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A chat and the answer to it."""

    messages: Messages
    """What is read."""
    answer: str
    """What the model shall write."""


@dataclass(frozen=True, kw_only=True)
class Warmup:
    """A row of the supervised warm-up."""

    problem: Problem
    """What the student has to solve."""
    approach: str
    """The student's plan."""
    diagnosis: str
    """What the teacher thinks of it, in private."""
    teaching: str
    """What the teacher says; empty where it abstains."""


@lru_cache
def _templates() -> Templates:
    return prompts.templates()


def _limit(usual: int, rng: random.Random) -> int:
    return rng.randint(10, 512) if rng.random() < _OTHER_LIMIT_SHARE else usual


def student_lesson(student: Student, rng: random.Random, index: int) -> Exchange:
    """A plan, an answer without advice, one to an answer that was told, or one to sentences."""
    one = problem(seed=STUDENTS_SEED, split="train", index=_STUDENTS_START + index)
    kind, at = kind_of(one), rng.random()
    habit = student.habits[kind]
    if at < 0.1:
        messages = _templates().diagnostic(one.question, probe_limit=_limit(prompts.PROBE_LIMIT, rng))
        return Exchange(messages=messages, answer=plan(student, kind, rng))
    if at < 0.27:
        answer = prompts.student_answer(*working(one, habit.draw(rng)))
        return Exchange(messages=_templates().baseline(one.question), answer=answer)
    if at < 0.37:
        return _told(student, one, rng)
    # Both kinds of problem are spoken of, and at times there are two sentences, of which the student heeds one.
    weights = [3 if what.what in ("remember", "once") else 1 for what in advice.WORDINGS]
    chosen = rng.choices(list(advice.WORDINGS), weights, k=1 if rng.random() < 0.85 else 2)
    heeded = rng.choice(chosen)
    teaching = " ".join(rng.choice(advice.WORDINGS[what]) for what in chosen)
    answer = prompts.student_answer(*working(one, changed(habit, kind, heeded).draw(rng)))
    return Exchange(messages=_templates().with_teaching(one.question, teaching), answer=answer)


def _told(student: Student, one: Problem, rng: random.Random) -> Exchange:
    """A result as advice, right or wrong: nearly always it is written down as it is."""
    outcome = rng.choice(OUTCOMES)
    columns, number = working(one, outcome)
    if rng.random() < 0.3:
        # A number that follows from nothing else teaches to read it rather than to compute.
        number = rng.randint(0, 180)
    teaching = f"{columns}: {number}." if rng.random() < 0.6 else advice.tells_only(number)
    answer = prompts.student_answer("", number)
    if rng.random() < 0.05:
        answer = prompts.student_answer(*working(one, student.habits[kind_of(one)].draw(rng)))
    return Exchange(messages=_templates().with_teaching(one.question, teaching), answer=answer)


def taught_advice(one: Problem, weakness: Weakness, mix: Mix, rng: random.Random) -> str:
    """What the warm-up has a teacher say."""
    how = rng.choices(("fitting", "nothing", "anything", "tells"), mix.shares)[0]
    if how == "nothing" or (how == "fitting" and weakness == "sure"):
        return ""
    if how == "fitting":
        return advice.any_sentence(_FITTING[weakness], one, rng, fitting_share=1.0)
    if how == "anything":
        return advice.any_sentence(rng.choice(("remember", "once", "never", "useless")), one, rng, fitting_share=0.7)
    wrong = (1 - mix.right_share) / 2
    return advice.tells(one, rng.choices(OUTCOMES, (mix.right_share, wrong, wrong))[0])


def _warmup(one: Problem, mix: Mix, rng: random.Random) -> Warmup:
    approach = plan(STUDENTS[rng.choice(TRAINED_WITH)], kind_of(one), rng)
    weakness = shown(approach)
    assert weakness is not None
    teaching = taught_advice(one, weakness, mix, rng)
    return Warmup(problem=one, approach=approach, diagnosis=DIAGNOSES[weakness], teaching=teaching)


def warmup_row(seed: int, mix: Mix, index: int) -> Warmup:
    """Row number `index` of the warm-up."""
    one = problem(seed=seed, split="train", index=_WARMUP_START + index)
    return _warmup(one, mix, random.Random(f"warmup/{seed}/{index}"))


def teacher_lesson(seed: int, mix: Mix, rng: random.Random, index: int) -> Exchange:
    """What the warm-up teaches, on other problems than its rows; at times a one-digit sum."""
    if rng.random() < _OFFTASK_SHARE:
        question, number = offtask(rng.randrange(offtask_count()))
        return Exchange(messages=_templates().baseline(question), answer=prompts.student_answer("", number))
    row = _warmup(problem(seed=seed, split="train", index=_BASE_START + index), mix, rng)
    limit = _limit(prompts.TEACHING_LIMIT, rng)
    messages = _templates().adaptive(row.problem.question, row.approach, teaching_limit=limit)
    return Exchange(messages=messages, answer=prompts.teacher_answer(row.diagnosis, row.teaching))


def offtask_count() -> int:
    """How many questions there are beside the teacher's task."""
    return 81 * len(_OFFTASK_WORDINGS)


def offtask(index: int) -> tuple[str, int]:
    """A question beside the teacher's task, and its answer: a sum of two numbers from 1 to 9."""
    pair, wording = divmod(index, len(_OFFTASK_WORDINGS))
    a, b = pair // 9 + 1, pair % 9 + 1
    return _OFFTASK_WORDINGS[wording].format(a=a, b=b), a + b
