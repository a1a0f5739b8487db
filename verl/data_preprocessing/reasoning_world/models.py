"""The models of a reasoning world: each gets a tokenizer of its own, is taught, and is saved as a checkpoint.

teach_policy(spec, spec.base, spec.base_flaws, folder)
teach_reader(spec.readers[0], folder)
"""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

from verl.data_preprocessing import embedded_models, embedded_tokenizers
from verl.data_preprocessing.embedded_models import Lesson, ModelSpec
from verl.data_preprocessing.reasoning_world import lessons
from verl.data_preprocessing.reasoning_world.spec import Flaws, ReasoningWorldSpec


def teach_policy(
    spec: ReasoningWorldSpec, model: ModelSpec, flaws: Flaws, folder: Path, *, bar_position: int = 0
) -> None:
    """Makes the base policy or the student and saves it in `folder`; both have one tokenizer."""
    _teach(model, partial(lessons.policy_lesson, spec, model, flaws), spec.seed, folder, bar_position)


def teach_reader(model: ModelSpec, folder: Path, *, bar_position: int = 0) -> None:
    """Makes a reader and saves it in `folder`."""
    _teach(model, partial(lessons.reader_lesson, model), lessons.READERS_SEED, folder, bar_position)


def _teach(
    model: ModelSpec, make_lesson: Callable[[random.Random, int], Lesson], seed: int, folder: Path, bar_position: int
) -> None:
    import torch

    # A process and a single thread for each model: threads that wait for each other are slow when others compute too.
    torch.set_num_threads(1)
    texts = lessons.sample_texts(lessons.READERS_SEED)
    tokenizer = embedded_tokenizers.train_tokenizer(model.tokenizer, texts, model.vocab_size)
    trained = embedded_models.train_model(model, tokenizer, make_lesson, seed, bar_position=bar_position)
    trained.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
