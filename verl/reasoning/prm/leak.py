"""Whether words give planted steps away: if a bag of words tells them from natural ones, a model learns the words.

One decision: what is measured is the AUC of naive Bayes on words it has not seen, by cross-validation over problems.

    >>> bag_of_words_auc(["3 + 4 = 8"] * 30, ["3 + 4 = 7"] * 30)
"""

import math
import random
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from verl.reasoning.prm.metrics import auroc

LEAST = 20
"""Steps of each sort below which nothing can be said."""
_FOLDS = 5
_WORD = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")


def bag_of_words_auc(
    planted: Sequence[str], natural: Sequence[str], groups: Sequence[Sequence[str]] | None = None, seed: int = 0
) -> float | None:
    """The AUC with which words, numbers and signs tell planted steps from natural ones; 0.5: not at all.

    Args:
        planted: planted steps.
        natural: steps that models wrote.
        groups: of both, the problem of each step: those of one problem are in one fold; None: each is its own.
        seed: of the folds.

    Returns:
        None for fewer than 20 of a sort. Below 0.5 is chance, and reported as it is.
    """
    if min(len(planted), len(natural)) < LEAST:
        return None
    texts = [*planted, *natural]
    is_planted = np.arange(len(texts)) < len(planted)
    names = [str(at) for at in range(len(texts))] if groups is None else [*groups[0], *groups[1]]
    order = sorted(set(names))
    random.Random(seed).shuffle(order)
    fold_of = {name: at % _FOLDS for at, name in enumerate(order)}
    bags = [set(_WORD.findall(text.lower())) for text in texts]
    odds = np.zeros(len(texts))
    for fold in range(_FOLDS):
        inside = [at for at in range(len(texts)) if fold_of[names[at]] != fold]
        word_odds = _word_odds([bags[at] for at in inside], [bool(is_planted[at]) for at in inside])
        for at in range(len(texts)):
            if fold_of[names[at]] == fold:
                odds[at] = sum(word_odds.get(word, 0.0) for word in bags[at])
    return auroc(odds, is_planted)


def leaking_kinds(
    planted: Sequence[tuple[str, str, str]], natural: Sequence[tuple[str, str]], most: float
) -> tuple[set[str], float | None, float | None]:
    """The kinds that are to be left out so that words tell less than `most`.

    Args:
        planted: kind, step and problem of each planted step.
        natural: step and problem of each natural one.
        most: AUC that must not be reached.

    Returns:
        The kinds, worst first out; the AUC of all, and of what is left (None: too few to say).
    """
    out: set[str] = set()

    def measured(kinds: set[str]) -> float | None:
        kept = [(step, problem) for kind, step, problem in planted if kind in kinds]
        groups = [[problem for _, problem in kept], [problem for _, problem in natural]]
        return bag_of_words_auc([step for step, _ in kept], [step for step, _ in natural], groups)

    kinds = {kind for kind, _, _ in planted}
    before = now = measured(kinds)
    while now is not None and now >= most and kinds - out:
        left = sorted(kinds - out)
        # A kind too rare to be measured alone goes last.
        worst = max(left, key=lambda kind: (measured({kind}) or 0.0, kind))
        out.add(worst)
        now = measured(kinds - out)
    return out, before, now


def _word_odds(bags: Sequence[set[str]], planted: Sequence[bool]) -> dict[str, float]:
    """The log-odds that each word adds, smoothed by one step with it and one without."""
    n = Counter(planted)
    seen = {
        sort: Counter(word for bag, is_it in zip(bags, planted, strict=True) if is_it is sort for word in bag)
        for sort in (True, False)
    }
    odds = {}
    for word in seen[True] | seen[False]:
        share = {sort: (seen[sort][word] + 1) / (n[sort] + 2) for sort in (True, False)}
        odds[word] = math.log(share[True] / share[False])
    return odds
