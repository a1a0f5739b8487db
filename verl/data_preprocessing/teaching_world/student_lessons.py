"""What students are taught, as chats and answers. Pure functions of random numbers.

Decision: what a student does under advice is drawn from its habit, so that its mistakes are as reliable as a habit and
no more.

    student_lesson(STUDENTS["weak"], random.Random(0), 0).answer      # '7+8=15, 4+3=7<solution>75</solution>'
"""

import random

from verl.data_preprocessing.arithmetic_problems import Problem
from verl.data_preprocessing.teaching_world import advice, prompts
from verl.data_preprocessing.teaching_world.problems import OUTCOMES, kind_of, problem, working
from verl.data_preprocessing.teaching_world.prompts import Exchange
from verl.data_preprocessing.teaching_world.students import Student, changed, plan

STUDENTS_SEED = 777
"""Seed of the students and of their problems."""
_START = 2_000_000
"""Number of the first problem of the training split in the lessons; the rows have the first ones."""


def student_lesson(student: Student, rng: random.Random, index: int) -> Exchange:
    """A plan, an answer without advice, one to an answer that was told, or one to sentences."""
    one = problem(seed=STUDENTS_SEED, split="train", index=_START + index)
    kind, at = kind_of(one), rng.random()
    habit = student.habits[kind]
    if at < 0.1:
        messages = prompts.templates().diagnostic(one.question, probe_limit=prompts.any_limit(prompts.PROBE_LIMIT, rng))
        return Exchange(messages=messages, answer=plan(student, kind, rng))
    if at < 0.27:
        answer = prompts.student_answer(*working(one, habit.draw(rng)))
        return Exchange(messages=prompts.templates().baseline(one.question), answer=answer)
    if at < 0.37:
        return _told(student, one, rng)
    # Both kinds of problem are spoken of, and at times there are two sentences, of which the student heeds one.
    weights = [3 if what.what in ("remember", "once") else 1 for what in advice.WORDINGS]
    chosen = rng.choices(list(advice.WORDINGS), weights, k=1 if rng.random() < 0.85 else 2)
    heeded = rng.choice(chosen)
    teaching = " ".join(rng.choice(advice.WORDINGS[what]) for what in chosen)
    answer = prompts.student_answer(*working(one, changed(habit, kind, heeded).draw(rng)))
    return Exchange(messages=prompts.templates().with_teaching(one.question, teaching), answer=answer)


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
    return Exchange(messages=prompts.templates().with_teaching(one.question, teaching), answer=answer)
