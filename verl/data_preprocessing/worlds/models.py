"""The models of a world: each gets a tokenizer of its own, is taught, and is saved as a checkpoint.

teach_policy(spec, folder)
teach_reader(spec, spec.readers[0], folder)
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from verl.data_preprocessing import embedded_models, embedded_tokenizers
from verl.data_preprocessing.embedded_models import Lesson, ModelSpec
from verl.data_preprocessing.worlds import lessons
from verl.data_preprocessing.worlds.spec import Reader, WorldSpec

_GIVES_UP_SAMPLE = 200
"""How often a tokenizer is shown that its reader gives up."""


def teach_policy(spec: WorldSpec, folder: Path, *, bar_position: int = 0) -> None:
    """Makes the policy and saves it in `folder`."""
    texts = lessons.sample_texts(spec, spec.styles, spec.seed)
    _teach(spec.policy, texts, partial(lessons.policy_lesson, spec), spec.seed, folder, bar_position)


def teach_reader(spec: WorldSpec, reader: Reader, folder: Path, *, bar_position: int = 0) -> None:
    """Makes a reader and saves it in `folder`."""
    texts = lessons.sample_texts(spec, lessons.styles_of(reader), spec.seed_of_readers)
    if reader.gives_up:
        texts += [lessons.GIVES_UP] * _GIVES_UP_SAMPLE
    lesson = partial(lessons.reader_lesson, spec, reader)
    _teach(reader.model, texts, lesson, spec.seed_of_readers, folder, bar_position)


def _teach(
    model: ModelSpec,
    texts: Sequence[str],
    make_lesson: Callable[[random.Random, int], Lesson],
    seed: int,
    folder: Path,
    bar_position: int,
) -> None:
    import torch

    # A process and a single thread for each model: threads that wait for each other are slow when others compute too.
    torch.set_num_threads(1)
    tokenizer = embedded_tokenizers.train_tokenizer(
        model.tokenizer, texts, model.vocab_size, whole_words=model.whole_words
    )
    trained = embedded_models.train_model(model, tokenizer, make_lesson, seed, bar_position=bar_position)
    trained.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
