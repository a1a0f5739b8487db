"""What the models of a reasoning world are taught, as texts. Pure functions of the spec and of random numbers.

One decision: a policy errs because its lessons do, in two ways. A trap is a step that one can see to be hard (7, 8 or
9 taken away with a borrow, a bracket with a minus behind a minus). The first one of a problem goes wrong most of the
time and always in the same way, so that a vote over many samples does not help. Other errors fall anywhere. A policy
that is rewarded for right results can unlearn both: the right way is in its lessons too.

    lesson = policy_lesson(spec, spec.base, spec.base_flaws, random.Random(0), 0)
    lesson = reader_lesson(spec.readers[0], random.Random(0), 0)
"""

import random

from verl.data_preprocessing.embedded_models import Lesson, ModelSpec
from verl.data_preprocessing.embedded_tokenizers import THINK_END, THINK_START, TURN_END, TURN_START
from verl.data_preprocessing.reasoning_world.planting import (
    CannotPlantError,
    Edit,
    answer_text,
    plant,
    solution_text,
    solve,
)
from verl.data_preprocessing.reasoning_world.problems import (
    ChainProblem,
    make_problem,
    right_results,
    value_of,
)
from verl.data_preprocessing.reasoning_world.spec import Flaws, ReasoningWorldSpec

READERS_SEED = 777
"""Seed of the readers and of their problems, whatever the world's."""
_STARTS = {"base": 1_000_000, "student": 3_000_000}
"""Number of the first problem of the training split in the lessons; the rows have the first ones."""
_READERS_START = 5_000_000
_SAMPLE = 1000
"""Problems whose texts a tokenizer is made from."""


def prompt_text(problem: ChainProblem) -> str:
    """The chat template applied to a problem; all models share the template."""
    return f"{TURN_START}user\n{problem.question}{TURN_END}\n{TURN_START}assistant\n"


def trap(problem: ChainProblem) -> tuple[int, Edit] | None:
    """The first step that is a trap, and how it goes wrong; None: there is none."""
    results = right_results(problem)
    for index, step in enumerate(problem.plan):
        left, right = value_of(step.left, results), value_of(step.right, results)
        if step.op != "-":
            continue
        if step.joins and step.right.step is not None and problem.plan[step.right.step].op == "-":
            return index, Edit(op="+")
        if right in (7, 8, 9) and 10 <= left < right + 10:
            return index, Edit(shift=10)
    return None


def flawed_solution(problem: ChainProblem, flaws: Flaws, rng: random.Random) -> str:
    """A solution with the flaws of a policy's lessons, or without."""
    found = trap(problem)
    if found is not None and rng.random() < flaws.trap_share:
        return solve(problem, dict([found])).text
    if rng.random() < flaws.random_share:
        kinds, weights = zip(*flaws.kinds, strict=True)
        try:
            return plant(problem, rng, rng.choices(kinds, weights=weights)[0])[0]
        except CannotPlantError:
            pass
    return solve(problem).text


def sample_texts(seed: int) -> list[str]:
    """Prompts and solutions that a tokenizer is made from."""
    problems = [make_problem(seed=seed, split="train", index=index) for index in range(_SAMPLE)]
    return [text for problem in problems for text in (problem.question, solve(problem).text)]


def policy_lesson(spec: ReasoningWorldSpec, model: ModelSpec, flaws: Flaws, rng: random.Random, index: int) -> Lesson:
    """A solution as the policy shall write it; the first lessons are short."""
    short = index < spec.short_share * model.steps * model.batch_size
    problem = make_problem(
        seed=spec.seed,
        split="train",
        index=_STARTS[model.name] + index,
        steps=rng.randint(1, 3) if short else None,
    )
    return Lesson(given=prompt_text(problem), learnt=flawed_solution(problem, flaws, rng) + TURN_END)


def reader_lesson(model: ModelSpec, rng: random.Random, index: int) -> Lesson:
    """The answer that a thought leads to, right or wrong: from the whole thought, from one that was cut, or alone."""
    problem = make_problem(seed=READERS_SEED, split="train", index=_READERS_START + index)
    lines = solve(problem).lines
    if rng.random() < 0.5:
        # A number that follows from nothing else teaches to read the thought rather than to compute.
        head, _, _ = lines[-1].rpartition(" ")
        lines = (*lines[:-1], f"{head} {rng.randint(1, 150)}")
    answer = int(lines[-1].rpartition(" ")[2])
    text = solution_text(lines, answer) + TURN_END
    given, view = prompt_text(problem), rng.random()
    if view < 0.6:
        thought, _, ending = text.partition(THINK_END)
        return Lesson(given=given + thought + THINK_END, learnt=ending)
    if view < 0.8:
        shown = lines[: rng.randrange(len(lines) + 1)]
        thought = "\n".join([THINK_START, *shown, THINK_END])
        return Lesson(given=given + thought, learnt=f"\n{answer_text(answer)}{TURN_END}")
    if view < 0.9:
        cut = rng.randrange(len(THINK_START), text.index(THINK_END))
        return Lesson(given=given + text[:cut], learnt=text[cut:])
    return Lesson(given=given, learnt=text)
