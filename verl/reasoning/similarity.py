"""How alike two solutions are, as a number from 0 to 1, for a pool of solutions at a time.

One decision: a similarity is a function of the whole pool, since rare words tell more than common ones, and which are
rare only the pool knows. Identical texts have 1, whatever is measured.

    >>> similarity("tfidf")(["3 + 4 = 7.", "3 + 4 = 7.", "The sum is 8."])[0, 1]
    1.0
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from verl.classmate.errors import ConfigError

Similarity = Callable[[Sequence[str]], np.ndarray]
"""(N, N) float64 in 0..1, symmetric, 1 on the diagonal."""

SimilarityName = Literal["tfidf", "expr", "hidden", "sentence"]

_WORD = re.compile(r"[^\W\d_]+|\d+(?:\.\d+)?|[^\w\s]")
_SIDE = (
    r"(?:(?:\\[A-Za-z]++|\d++(?:[.,]\d++)*+|(?<![A-Za-z])[A-Za-z](?![A-Za-z])|[-+*/^%(){}\[\]\u00d7\u00b7\u00f7\u2212])"
    r"\s*+)++"
)
_EQUATION = re.compile(rf"{_SIDE}(?:=\s*+{_SIDE})++")
"""Numbers, names of one letter, signs and commands on both sides; words are none."""
_SAME_SIGN = str.maketrans({"\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u2212": "-"})


def similarity(name: SimilarityName, *, model: Any = None, tokenizer: Any = None) -> Similarity:
    """A similarity by its name.

    Args:
        name: `tfidf` counts words, pairs of words and signs; `expr` compares the equations; `hidden` compares what a
            model makes of the texts; `sentence` an encoder of sentence-transformers.
        model: for `hidden` a causal model of transformers, for `sentence` the encoder or its name.
        tokenizer: for `hidden`, the model's.

    Raises:
        ConfigError: the name is unknown, or something that it needs is missing.
    """
    if name == "tfidf":
        return tfidf
    if name == "expr":
        return expressions
    if name == "hidden":
        if model is None or tokenizer is None:
            raise ConfigError("similarity=hidden compares a model's states; give the model and its tokenizer")
        return hidden_states(model, tokenizer)
    if name == "sentence":
        return sentences(model or "sentence-transformers/all-MiniLM-L6-v2")
    raise ConfigError(f"similarity={name!r} is unknown; write tfidf, expr, hidden or sentence")


def tfidf(texts: Sequence[str]) -> np.ndarray:
    """Cosine of counts of words, signs and pairs of neighbours, weighted by how rare they are in the pool."""
    counts = [Counter(_grams(text)) for text in texts]
    known = sorted({gram for count in counts for gram in count})
    place = {gram: i for i, gram in enumerate(known)}
    weights = np.zeros((len(texts), len(known)))
    for row, count in enumerate(counts):
        for gram, times in count.items():
            weights[row, place[gram]] = times
    # Smoothed, so that what all have in common still counts a little.
    idf = np.log((1 + len(texts)) / (1 + (weights > 0).sum(axis=0))) + 1
    return _cosines(weights * idf, texts)


def expressions(texts: Sequence[str]) -> np.ndarray:
    """Jaccard index of the sets of equations, however they are spaced; two texts without any have 0."""
    sets = [equations(text) for text in texts]
    found = np.array([[_jaccard(one, other) for other in sets] for one in sets]).reshape(len(texts), len(texts))
    return _with_identical(found, texts)


def equations(text: str) -> frozenset[str]:
    """The equations of a text, in one spelling."""
    return frozenset("".join(match.group().split()).translate(_SAME_SIGN) for match in _EQUATION.finditer(text))


def hidden_states(model: Any, tokenizer: Any, *, batch_size: int = 16) -> Similarity:
    """Cosine of the mean of a model's last states over the tokens of a text."""

    def measure(texts: Sequence[str]) -> np.ndarray:
        import torch

        vectors: list[np.ndarray] = []
        with torch.inference_mode():
            for start in range(0, len(texts), batch_size):
                ids = [
                    tokenizer.encode(text, add_special_tokens=False) or [0]
                    for text in texts[start : start + batch_size]
                ]
                longest = max(map(len, ids))
                # On the right, where causal attention never looks back from a token.
                ids_BL = torch.tensor([one + [0] * (longest - len(one)) for one in ids], device=model.device)
                mask_BL = torch.tensor(
                    [[1] * len(one) + [0] * (longest - len(one)) for one in ids], device=model.device
                )
                states_BLD = model(
                    input_ids=ids_BL, attention_mask=mask_BL, output_hidden_states=True, use_cache=False
                ).hidden_states[-1]
                mean_BD = (states_BLD * mask_BL[..., None]).sum(dim=1) / mask_BL.sum(dim=1, keepdim=True)
                vectors += list(mean_BD.float().cpu().numpy())
        return _cosines(np.stack(vectors).astype(np.float64), texts) if vectors else np.zeros((0, 0))

    return measure


def sentences(encoder: Any) -> Similarity:
    """Cosine of the vectors of an encoder of sentence-transformers, which is no dependency.

    Raises:
        ConfigError: the library is not installed.
    """
    if isinstance(encoder, str):
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise ConfigError(
                "similarity=sentence needs sentence-transformers; install it, or write similarity=tfidf"
            ) from None
        encoder = SentenceTransformer(encoder)

    def measure(texts: Sequence[str]) -> np.ndarray:
        return _cosines(np.asarray(encoder.encode(list(texts)), dtype=np.float64), texts)

    return measure


def _grams(text: str) -> list[str]:
    words = _WORD.findall(text.lower().translate(_SAME_SIGN))
    return words + [f"{one} {two}" for one, two in pairwise(words)]


def _cosines(vectors: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return _with_identical(np.clip(units @ units.T, 0.0, 1.0), texts)


def _with_identical(found: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    """Rounding, and texts without any word, must not make identical ones look different."""
    for i, one in enumerate(texts):
        for j in range(i, len(texts)):
            if one == texts[j]:
                found[i, j] = found[j, i] = 1.0
    return found


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    union = len(one | other)
    return len(one & other) / union if union else 0.0
