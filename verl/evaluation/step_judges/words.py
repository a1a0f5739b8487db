"""A judge in words for the embedded world: the base model, fine-tuned to say yes or no to each step.

One decision: it is asked as `GenerativeStepScorer` asks, with a question of a few tokens, since its tokenizer has no
words but those of the world.

    >>> fine_tune(base, lessons(rows), folder, settings)
    >>> words_scorer(HFBackend(folder)).score_steps(problems, steps)
"""

from collections.abc import Sequence

from verl.reasoning.backends import GenBackend
from verl.reasoning.prm.generative import SAID, GenerativeStepScorer
from verl.reasoning.prm.rows import LabelledSolution

QUESTION = "{problem}\n{steps}\n? {step}"
"""The step in question stands behind the mark."""


def words_scorer(backend: GenBackend) -> GenerativeStepScorer:
    """The judge, of a model that learnt `lessons`."""
    return GenerativeStepScorer(backend, words=False, question=QUESTION, progress=False)


def lessons(rows: Sequence[LabelledSolution], backend: GenBackend) -> list[tuple[str, str]]:
    """A question and its verdict for each labelled step; `backend` is not asked."""
    asks = words_scorer(backend)
    yes, no = SAID
    return [
        (asks.prompt(row.prompt, row.completions, place), yes if label else no)
        for row in rows
        for place, label in enumerate(row.labels)
        if label is not None
    ]
