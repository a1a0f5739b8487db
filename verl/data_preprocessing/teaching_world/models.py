"""The models of the teaching world: each gets a tokenizer of its own, is taught, and is saved with its chat template.

teach_student(STUDENTS["weak"], folder)
teach_teacher(spec, folder)
teach_teacher(spec, folder, steps=spec.warm_steps)
"""

import dataclasses
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from verl.data_preprocessing import embedded_models, embedded_tokenizers
from verl.data_preprocessing.embedded_models import Lesson, ModelSpec
from verl.data_preprocessing.teaching_world import advice, prompts, student_lessons, teacher_lessons
from verl.data_preprocessing.teaching_world.prompts import Exchange
from verl.data_preprocessing.teaching_world.spec import TeachingWorldSpec
from verl.data_preprocessing.teaching_world.students import Student

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_SAMPLE = 1500
"""Lessons whose texts a tokenizer is made from."""
_SENTENCES_SAMPLE = 3
"""How often it sees each sentence besides."""

Exchanges = Callable[[random.Random, int], Exchange]


def tokenizer_for(model: ModelSpec, side: prompts.Side, exchanges: Exchanges, seed: int) -> "PreTrainedTokenizerFast":
    """A tokenizer of the texts in these lessons."""
    rng, texts = random.Random(f"tokenizer/{seed}/{model.name}"), []
    fixed = prompts.whole_tokens(side, model.architecture)
    for index in range(_SAMPLE):
        exchange = exchanges(rng, index)
        for text in (*(turn["content"] for turn in exchange.messages), exchange.answer):
            texts += _between(text, fixed)
    texts += [*advice.SENTENCES] * _SENTENCES_SAMPLE
    tokenizer = embedded_tokenizers.train_tokenizer(model.tokenizer, texts, model.vocab_size)
    prompts.prepare(tokenizer, side, model.architecture)
    return tokenizer


def _between(text: str, fixed: list[str]) -> list[str]:
    """What is left of a text without what has a token of its own."""
    pieces = [text]
    for mark in sorted(fixed, key=len, reverse=True):
        pieces = [part for piece in pieces for part in piece.split(mark)]
    return [piece for piece in pieces if piece]


def teach_student(student: Student, folder: Path, *, bar_position: int = 0) -> None:
    """Makes a student and saves it in `folder`."""
    exchanges = partial(student_lessons.student_lesson, student)
    _teach(student.model, "student", exchanges, student_lessons.STUDENTS_SEED, folder, bar_position)


def teach_teacher(spec: TeachingWorldSpec, folder: Path, *, steps: int | None = None, bar_position: int = 0) -> None:
    """Makes a teacher and saves it in `folder`.

    Args:
        steps: of the training; those of the base teacher unless given.
    """
    # The same name for the tokenizer and the lessons: a longer schooling begins as the shorter one does.
    model = dataclasses.replace(spec.teacher, steps=spec.teacher.steps if steps is None else steps)
    exchanges = partial(teacher_lessons.teacher_lesson, spec.seed, spec.mix)
    _teach(model, "teacher", exchanges, spec.seed, folder, bar_position)


def _teach(
    model: ModelSpec, side: prompts.Side, exchanges: Exchanges, seed: int, folder: Path, bar_position: int
) -> None:
    import torch

    # A process and a single thread for each model: threads that wait for each other are slow when others compute too.
    torch.set_num_threads(1)
    tokenizer = tokenizer_for(model, side, exchanges, seed)

    def lesson(rng: random.Random, index: int) -> Lesson:
        return as_lesson(tokenizer, exchanges(rng, index))

    trained = embedded_models.train_model(model, tokenizer, lesson, seed, bar_position=bar_position)
    trained.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def as_lesson(tokenizer: "PreTrainedTokenizerFast", exchange: Exchange) -> Lesson:
    """The text of a lesson, in the chat template of a model."""
    given = prompts.chat(tokenizer, exchange.messages)
    return Lesson(given=given, learnt=f"{exchange.answer}{tokenizer.eos_token}")
