"""How students and teachers behave before anything is trained by RL.

measure_student(STUDENTS["weak"], folder)["solves"]      # {'sum': 0.33, 'difference': 0.3, 'all': 0.31}
measure_teacher(spec, folder)["states"]                  # {'ok': 0.7, 'empty': 0.3}
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from verl.data_preprocessing import embedded_models
from verl.data_preprocessing.arithmetic_problems import Problem
from verl.data_preprocessing.embedded_models import load_model
from verl.data_preprocessing.teaching_world import advice, prompts, teacher_lessons
from verl.data_preprocessing.teaching_world.problems import KINDS, kind_of, problem
from verl.data_preprocessing.teaching_world.spec import TeachingWorldSpec
from verl.data_preprocessing.teaching_world.student_lessons import STUDENTS_SEED
from verl.data_preprocessing.teaching_world.students import STUDENTS, TRAINED_WITH, Student, changed, plan, shown
from verl.data_preprocessing.worlds.measure import mean
from verl.teaching.answers import AnswerRules, extract_answer
from verl.teaching.leak import find_leak
from verl.teaching.tags import extract_teaching
from verl.teaching.templates import Messages

TEMPERATURE = 0.7
"""At which students are asked, as in a run."""
_ANSWER_TOKENS, _PLAN_TOKENS, _TEACHER_TOKENS = 32, 50, 64

Shares = dict[str, float]


def measure_student(student: Student, folder: Path, *, problems: int, bar_position: int = 0) -> dict[str, Any]:
    """Solve rates of a student, by kind of problem, beside those that follow from its habits.

    Args:
        problems: asked without advice, and for a plan; half of them with each sentence.
        bar_position: line of the terminal for the progress bar.

    Returns:
        `solves` without advice and `expected` from the habits, `under` each sentence the same two, `told` the right
        result with and without a working, and `plan_shows_habit`: the share of the plans that do.
    """
    ask = _asker(folder)
    alone = [problem(seed=STUDENTS_SEED, split="val", index=index) for index in range(problems)]
    advised = alone[: problems // 2]
    prompt = prompts.templates()

    def solved(items: Sequence[Problem], messages: Sequence[Messages]) -> Shares:
        answers = ask(messages, _ANSWER_TOKENS, TEMPERATURE)
        rules = AnswerRules()
        right = [extract_answer(said, rules).text == str(one.answer) for one, said in zip(items, answers, strict=True)]
        return _by_kind(items, right)

    def under(teachings: Sequence[str]) -> Shares:
        told = zip(advised, teachings, strict=True)
        return solved(advised, [prompt.with_teaching(one.question, teaching) for one, teaching in told])

    def expected(what: advice.Advice | None) -> Shares:
        habits = {kind: changed(student.habits[kind], kind, what).sampled_at(TEMPERATURE) for kind in KINDS}
        shares: Shares = {kind: round(habit.solves, 4) for kind, habit in habits.items()}
        return {**shares, "all": mean(shares.values())}

    plans = ask(
        [prompt.diagnostic(one.question, probe_limit=prompts.PROBE_LIMIT) for one in alone], _PLAN_TOKENS, TEMPERATURE
    )
    shows = [shown(text) == student.habits[kind_of(one)].weakness for one, text in zip(alone, plans, strict=True)]
    return {
        "solves": solved(alone, [prompt.baseline(one.question) for one in alone]),
        "expected": expected(None),
        "under": {
            text: {**under([text] * len(advised)), "expected": expected(what)["all"]}
            for text, what in tqdm(
                advice.SENTENCES.items(), desc=f"measure {student.name:<10}", unit="sentence", position=bar_position
            )
        },
        "told": {
            "working": under([advice.tells(one) for one in advised])["all"],
            "result": under([advice.tells_only(one.answer) for one in advised])["all"],
        },
        "plan_shows_habit": mean(shows),
    }


def measure_teacher(spec: TeachingWorldSpec, folder: Path) -> dict[str, float | Shares]:
    """What a teacher writes to the students that it is trained with, at temperature 1.

    Returns:
        `states` of the tag contract; of all rows the shares that are one of the `sentences`, `tells` a result, `leaks`
        the right one; `diagnosis`, the share that says what the plan shows; `offtask` accuracy.
    """
    ask = _asker(folder)
    held_out = [problem(seed=spec.seed, split="val", index=index) for index in range(spec.measured)]
    rng, prompt = random.Random(f"measure/{spec.seed}"), prompts.templates()
    plans = [plan(STUDENTS[TRAINED_WITH[i // 2 % 2]], kind_of(one), rng) for i, one in enumerate(held_out)]
    messages = [
        prompt.adaptive(one.question, text, teaching_limit=prompts.TEACHING_LIMIT)
        for one, text in zip(held_out, plans, strict=True)
    ]
    written = ask(messages, _TEACHER_TOKENS, 1.0)
    teachings = [
        extract_teaching(text, prompt.tags, count_tokens=len, max_tokens=10_000, overflow="penalize")
        for text in written
    ]
    states = Counter(teaching.state.value for teaching in teachings)
    leaks = [
        find_leak(teaching.text, question=one.question, truth=str(one.answer)).any
        for one, teaching in zip(held_out, teachings, strict=True)
    ]
    diagnoses = [
        teacher_lessons.DIAGNOSES[shown(text) or "sure"] in said.partition(prompt.tags.private_close)[0]
        for text, said in zip(plans, written, strict=True)
    ]
    asked = [teacher_lessons.offtask(number) for number in range(0, teacher_lessons.offtask_count(), 2)]
    said = ask([prompt.baseline(question) for question, _ in asked], _ANSWER_TOKENS, 0.0)
    answers = [extract_answer(text, AnswerRules()).text for text in said]
    return {
        "states": {state: round(number / spec.measured, 4) for state, number in sorted(states.items())},
        "sentences": mean(advice.known(teaching.text) is not None for teaching in teachings),
        "tells": mean("=" in teaching.text for teaching in teachings),
        "leaks": mean(leaks),
        "diagnosis": mean(diagnoses),
        "offtask": mean(text == str(number) for text, (_, number) in zip(answers, asked, strict=True)),
    }


def _asker(folder: Path) -> Callable[[Sequence[Messages], int, float], list[str]]:
    """What a saved model answers to chats, given most tokens and temperature."""
    model, tokenizer = load_model(folder)

    def ask(messages: Sequence[Messages], most: int, temperature: float) -> list[str]:
        asked = [prompts.chat(tokenizer, chat) for chat in messages]
        return embedded_models.generate(model, tokenizer, asked, max_new_tokens=most, temperature=temperature, seed=0)

    return ask


def _by_kind(items: Sequence[Problem], right: Sequence[bool]) -> Shares:
    """Share of right answers by kind of problem, and of `all`."""
    rows = list(zip(items, right, strict=True))
    shares: Shares = {kind: mean(hit for one, hit in rows if kind_of(one) == kind) for kind in KINDS}
    return {**shares, "all": mean(right)}
