"""What the models of a world are taught, as texts. Pure functions of the spec and of random numbers.

Decision: flaws are put in by the lessons, not by short training alone. The policy has learnt that some thoughts go
wrong; readers have learnt to write down the answer that a thought leads to, right or wrong, so that a better thought is
what makes them better. What a reader cannot read it was never taught, or was taught to give up at.

    lesson = policy_lesson(spec, random.Random(0), 0)
    lesson = reader_lesson(spec, spec.readers[0], random.Random(0), 0)
"""

import random
from collections.abc import Sequence

from verl.data_preprocessing.embedded_models import Lesson, ModelSpec
from verl.data_preprocessing.embedded_tokenizers import THINK_END, THINK_START, TURN_END, TURN_START
from verl.data_preprocessing.worlds.spec import Reader, WorldSpec
from verl.data_preprocessing.worlds.tasks import TASKS, Problem

GIVES_UP = "I cannot follow."

_POLICY_START, _READERS_START = 1_000_000, 2_000_000
"""Number of the first problem of the training split in the lessons; the rows have the first ones."""
_SAMPLE = 2000
"""Problems whose texts a tokenizer is made from."""

Styles = Sequence[tuple[str, float]]
"""Styles and their shares."""


def prompt_text(problem: Problem) -> str:
    """The chat template applied to a problem; all models of the worlds share the template."""
    return f"{TURN_START}user\n{problem.prompt}{TURN_END}\n{TURN_START}assistant\n"


def answer_text(number: int | str) -> str:
    """How an answer is worded."""
    return f"The answer is {number}."


def styles_of(reader: Reader) -> Styles:
    """Styles in a reader's lessons and their shares."""
    return [(style, 1.0) for style in (*reader.reads, *reader.gives_up)]


def noisy_thought(
    spec: WorldSpec, styles: Styles, rng: random.Random, problem: Problem, *, short: bool = False
) -> tuple[str, int, str]:
    """A thought with the flaws that the spec asks for, the number it leads to, and its style.

    Args:
        short: whether the problem is a short one, in which only the first style of the task is possible.
    """
    task = TASKS[spec.task]
    style = task.styles[0] if short else styles[0][0]
    if problem.hint is not None and rng.random() < spec.follow_share:
        return *task.following(problem), style
    if not short and len(styles) > 1:
        style = rng.choices([name for name, _ in styles], weights=[share for _, share in styles])[0]
    slip = rng.random() < spec.slip_share
    return *task.thought(problem, style, rng, slip=slip), style


def sample_texts(spec: WorldSpec, styles: Styles, seed: int) -> list[str]:
    """Prompts, thoughts and answers that a tokenizer is made from."""
    texts = []
    for index in range(_SAMPLE):
        problem = TASKS[spec.task].problem(seed=seed, split="train", index=index, hint_share=spec.hint_share)
        thought, _, _ = noisy_thought(spec, styles, random.Random(problem.prompt), problem)
        texts += [problem.prompt, thought, answer_text(problem.answer)]
    return texts


def policy_lesson(spec: WorldSpec, rng: random.Random, index: int) -> Lesson:
    """A thought in one of the styles, and the answer that it leads to."""
    short = _is_short(spec, spec.policy, index)
    problem = TASKS[spec.task].problem(
        seed=spec.seed, split="train", index=_POLICY_START + index, hint_share=spec.hint_share, short=short
    )
    thought, number, _ = noisy_thought(spec, spec.styles, rng, problem, short=short)
    learnt = f"{THINK_START}\n{thought}\n{THINK_END}\n{answer_text(number)}{TURN_END}"
    return Lesson(given=prompt_text(problem), learnt=learnt)


def reader_lesson(spec: WorldSpec, reader: Reader, rng: random.Random, index: int) -> Lesson:
    """Answer from a thought: whole, stripped of its result, cut and closed, cut and to be continued, or absent.

    At a style that it gives up at, whole or stripped, a reader learns to say so.
    """
    task = TASKS[spec.task]
    short = _is_short(spec, reader.model, index)
    problem = task.problem(
        seed=spec.seed_of_readers,
        split="train",
        index=_READERS_START + index,
        hint_share=spec.hint_share,
        short=short,
    )
    thought, number, style = noisy_thought(spec, styles_of(reader), rng, problem, short=short)
    stripped = task.without_answer(thought, problem.question)
    if rng.random() < 0.3:
        # A number that follows from nothing else teaches to read the thought rather than to compute.
        wrong = task.any_result(rng)
        thought, number = task.with_result(thought, number, wrong), wrong
        stripped = thought
    thought, stripped = f"\n{thought}\n", f"\n{stripped}\n"
    lost = style in reader.gives_up and not short
    ending = f"\n{GIVES_UP if lost else answer_text(number)}{TURN_END}"
    given, view = prompt_text(problem) + THINK_START, rng.random()
    cut = rng.randrange(len(thought))
    if view < 0.7 or lost:
        shown = stripped if view < spec.stripped_share else thought
        return Lesson(given=f"{given}{shown}{THINK_END}", learnt=ending)
    if view < 0.8:
        return Lesson(given=f"{given}{thought[:cut]}{THINK_END}", learnt=ending)
    if view < 0.9:
        return Lesson(given=given + thought[:cut], learnt=f"{thought[cut:]}{THINK_END}{ending}")
    return Lesson(given=prompt_text(problem), learnt=f"{THINK_START}{thought}{THINK_END}{ending}")


def _is_short(spec: WorldSpec, model: ModelSpec, index: int) -> bool:
    return index < spec.short_share * model.steps * model.batch_size
