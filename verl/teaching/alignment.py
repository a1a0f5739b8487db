"""Where the log-probabilities of the same text by two tokenizers can be compared.

One decision: a text is cut wherever a token of both ends, so that each stretch has whole tokens of both, and there are
as many stretches as possible. One pass over the tokens' places finds the cuts; nothing searches for token lists in
token lists.

    >>> teacher = ScoredTokens(log_probs=[-1.0, -2.0, -3.0], spans=[(0, 2), (2, 5), (5, 6)])
    >>> student = ScoredTokens(log_probs=[-4.0, -5.0], spans=[(0, 5), (5, 6)])
    >>> pairs(teacher, student, "span", characters=6)
    [(-3.0, -4.0), (-3.0, -5.0)]

A token's place is its first character and one past the last. Tokens that are parts of one character have the same
place; a tokenizer may leave blanks between tokens out of all places.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from verl.teaching.reward_config import Alignment

Span = tuple[int, int]
"""First character, and one past the last."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredTokens:
    """The tokens of a text with what a model thinks of each."""

    log_probs: Sequence[float] | Any = ()
    """(T,) natural logarithms: a sequence or a tensor."""
    spans: Sequence[Span] | Any | None = None
    """(T,) the tokens' places in the text, in order, as pairs or as a tensor (T, 2); None where they are not needed
    (`token`, `mean_per_char`)."""

    @property
    def numbers(self) -> list[float]:
        """(T,) `log_probs` as plain numbers.

        Raises:
            ValueError: it has another shape.
        """
        return plain(self.log_probs)

    @property
    def places(self) -> list[Span] | None:
        """(T,) `spans` as plain numbers."""
        if self.spans is None:
            return None
        listed = self.spans.tolist() if hasattr(self.spans, "tolist") else self.spans
        return [(int(start), int(end)) for start, end in listed]


def plain(values: Sequence[float] | Any) -> list[float]:
    """(T,) numbers of a sequence or a tensor.

    Raises:
        ValueError: it has another shape.
    """
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    if not isinstance(listed, list) or any(isinstance(value, list | tuple) for value in listed):
        raise ValueError("log-probabilities of one text have the shape (T,); give those of each row alone")
    return [float(value) for value in listed]


def fit(teacher: ScoredTokens, student: ScoredTokens, how: Alignment, text: str) -> bool:
    """Whether both are scores of all of `text`, and can be compared in this way.

    Raises:
        ValueError: `span` without the tokens' places.
    """
    sizes = [len(side.numbers) for side in (teacher, student)]
    places = [side.places for side in (teacher, student)]
    if how == "span" and None in places:
        raise ValueError("kl_alignment=span needs the places of the tokens; give ScoredTokens.spans")
    if not all(spans is None or _covers(spans, size, text) for spans, size in zip(places, sizes, strict=True)):
        return False
    if how != "token":
        return min(sizes) > 0
    return sizes[0] == sizes[1] > 0 and (None in places or places[0] == places[1])


def _covers(spans: Sequence[Span], size: int, text: str) -> bool:
    """Whether tokens reach from the text's first letter to its last."""
    if len(spans) != size or not size:
        return False
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    return last <= len(text) and not text[:first].strip() and not text[last:].strip()


def pairs(
    teacher: ScoredTokens, student: ScoredTokens, how: Alignment, *, characters: int
) -> list[tuple[float, float]]:
    """Log-probabilities by both of each stretch of the text, in order. What `fit` says no to must not be given.

    Args:
        teacher: its tokens of the text.
        student: the other's tokens of the same text.
        how: `token` one stretch a token; `span` the shortest stretches with whole tokens of both; `mean_per_char` one
            stretch, per character.
        characters: of the text, 1 or more.
    """
    mine, theirs = teacher.numbers, student.numbers
    if how == "token":
        return list(zip(mine, theirs, strict=True))
    if how == "mean_per_char":
        return [(math.fsum(mine) / characters, math.fsum(theirs) / characters)]
    places = (teacher.places, student.places)
    assert places[0] is not None
    assert places[1] is not None
    result, before = [], (0, 0)
    for ends in common_cuts(places[0], places[1]):
        chunk = (mine[before[0] : ends[0]], theirs[before[1] : ends[1]])
        result.append((math.fsum(chunk[0]), math.fsum(chunk[1])))
        before = ends
    return result


def common_cuts(one: Sequence[Span], other: Sequence[Span]) -> Iterator[tuple[int, int]]:
    """Numbers of tokens of both before each place at which both can be cut; the last is behind all tokens.

    Linear in the number of tokens.

    Args:
        one: places of the tokens of a text, one or more.
        other: the same by another tokenizer.
    """
    mine, theirs = _cuts(one), _cuts(other)
    i = j = 0
    while i < len(mine) and j < len(theirs):
        (tokens, first, last), (their_tokens, their_first, their_last) = mine[i], theirs[j]
        if last < their_first:
            i += 1
        elif their_last < first:
            j += 1
        else:
            yield tokens, their_tokens
            i, j = i + 1, j + 1
    yield len(one), len(other)


def _cuts(spans: Sequence[Span]) -> list[tuple[int, int, int]]:
    """Where a text can be cut between two tokens: how many are before, and the first and last such character."""
    starts = [start for start, _ in spans]
    for i in range(len(starts) - 2, -1, -1):
        starts[i] = min(starts[i], starts[i + 1])
    found, end = [], 0
    for i in range(1, len(spans)):
        end = max(end, spans[i - 1][1])
        if end <= starts[i]:
            found.append((i, end, starts[i]))
    return found
