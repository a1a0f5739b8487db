"""What a teacher is taught before RL: to advise in many ways, and one-digit sums. Pure functions of random numbers.

Decision: the teacher learns to say all that can be said, fitting or not. What helps whom is left to RL.

    teacher_lesson(0, Mix(), random.Random(0), 0).answer      # '<thinking>...</thinking><teaching>...</teaching>'
    warmup_row(0, Mix(), 0).teaching                          # 'Remember the carry.'
"""

import random
from dataclasses import dataclass

from verl.data_preprocessing.arithmetic_problems import Problem
from verl.data_preprocessing.teaching_world import advice, prompts
from verl.data_preprocessing.teaching_world.problems import OUTCOMES, kind_of, problem
from verl.data_preprocessing.teaching_world.prompts import Exchange
from verl.data_preprocessing.teaching_world.spec import Mix
from verl.data_preprocessing.teaching_world.students import STUDENTS, TRAINED_WITH, Weakness, plan, shown

_LESSONS_START, _WARMUP_START = 1_000_000, 3_000_000
"""Number of the first problem of the training split in the lessons and in the warm-up; the rows have the first ones."""
_OFFTASK_SHARE = 0.15
"""Share of the lessons that are one-digit sums."""

_FITTING: dict[Weakness, advice.What] = {"forgets": "remember", "twice": "once"}
DIAGNOSES: dict[Weakness, str] = {
    "forgets": "It marks nothing.",
    "sure": "It marks one.",
    "twice": "It marks one twice.",
}
"""What a teacher thinks, in private, of the plan that shows it."""
_OFFTASK_WORDINGS = ("What is {a} plus {b}?", "Add {b} to {a}.", "{a} and {b} make?")


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
        return Exchange(messages=prompts.templates().baseline(question), answer=prompts.student_answer("", number))
    row = _warmup(problem(seed=seed, split="train", index=_LESSONS_START + index), mix, rng)
    limit = prompts.any_limit(prompts.TEACHING_LIMIT, rng)
    messages = prompts.templates().adaptive(row.problem.question, row.approach, teaching_limit=limit)
    return Exchange(messages=messages, answer=prompts.teacher_answer(row.diagnosis, row.teaching))


def offtask_count() -> int:
    """How many questions there are beside the teacher's task."""
    return 81 * len(_OFFTASK_WORDINGS)


def offtask(index: int) -> tuple[str, int]:
    """A question beside the teacher's task, and its answer: a sum of two numbers from 1 to 9."""
    pair, wording = divmod(index, len(_OFFTASK_WORDINGS))
    a, b = pair // 9 + 1, pair % 9 + 1
    return _OFFTASK_WORDINGS[wording].format(a=a, b=b), a + b
