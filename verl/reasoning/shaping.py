"""What lengths and repetitions add to a reward, and how parts of unlike scale are added up. Pure.

One decision: each is a function of plain numbers, so that any reward can use it; none is on by itself.

    >>> cosine_length(correct=True, length=0, max_length=100), cosine_length(correct=True, length=100, max_length=100)
    (1.0, 0.5)
"""

import math
from collections.abc import Mapping, Sequence


def cosine_length(
    *,
    correct: bool,
    length: int,
    max_length: int,
    right: tuple[float, float] = (1.0, 0.5),
    wrong: tuple[float, float] = (-1.0, -0.5),
) -> float:
    """A reward that follows half a cosine of the length (E. Yeo et al., 2025, arXiv 2502.03373).

    Args:
        correct: whether the answer is right.
        length: in tokens; what is beyond `max_length` counts as that.
        max_length: in tokens.
        right: of the shortest right solution, and of the longest.
        wrong: of the shortest wrong solution, and of the longest.

    Raises:
        ValueError: `max_length` is not positive.
    """
    if max_length < 1:
        raise ValueError(f"max_length={max_length}; write at least 1 token")
    short, long = right if correct else wrong
    done = min(1.0, max(0.0, length / max_length))
    return long + (short - long) * (1 + math.cos(math.pi * done)) / 2


def repetition(text: str, *, n: int = 4) -> float:
    """Share of a text's `n`-grams of words that stood there before, 0 to 1; 0 for fewer than `n` words.

    Raises:
        ValueError: `n` is not positive.
    """
    if n < 1:
        raise ValueError(f"n={n}; write at least 1 word")
    words = text.lower().split()
    grams = list(zip(*(words[i:] for i in range(n)), strict=False))
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def soft_overlong(*, length: int, max_length: int, buffer: int) -> float:
    """0 up to `max_length` - `buffer` tokens, from there in a straight line to -1 at `max_length` (DAPO, 2503.14476).

    Raises:
        ValueError: not 0 <= `buffer` <= `max_length`.
    """
    if not 0 <= buffer <= max_length:
        raise ValueError(f"buffer={buffer}, max_length={max_length}; write 0 <= buffer <= max_length")
    if length <= max_length - buffer:
        return 0.0
    return -1.0 if length >= max_length else (max_length - buffer - length) / buffer


def decoupled_sum(
    parts: Sequence[Mapping[str, float | None]], weights: Mapping[str, float], *, epsilon: float = 1e-6
) -> list[float | None]:
    """Each part normalised within the group, (x - mean) / (std + epsilon), then the weighted sum of a solution's parts.

    Args:
        parts: of each solution of a group: name -> value; None or absent: it has none.
        weights: name -> weight; other parts count as nothing.
        epsilon: beside the standard deviation (of the population).

    Returns:
        One number a solution; None for a solution that has none of the parts. A part that a solution lacks adds 0, the
        group's mean, and is left out of mean and deviation.
    """
    sums: list[float | None] = [None] * len(parts)
    for name, weight in weights.items():
        known = {i: value for i, one in enumerate(parts) if (value := one.get(name)) is not None}
        if not known:
            continue
        mean = math.fsum(known.values()) / len(known)
        std = math.sqrt(math.fsum((value - mean) ** 2 for value in known.values()) / len(known))
        for i, value in known.items():
            sums[i] = (sums[i] or 0.0) + weight * (value - mean) / (std + epsilon)
    return sums
