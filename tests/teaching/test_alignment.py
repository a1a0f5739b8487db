"""The same text by two tokenizers: where it is cut, and that nothing of it is lost."""

import itertools
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.classmate.toy_tokenizers import TOKENIZERS
from verl.teaching.alignment import ScoredTokens, common_cuts, fit, pairs, plain


def tokens(*ends: int, start: int = 0) -> list[tuple[int, int]]:
    """Tokens that end at these places and leave nothing out."""
    return list(itertools.pairwise((start, *ends)))


def cuts(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return list(common_cuts(one, other))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (tokens(2, 5, 6), tokens(5, 6), [(2, 1), (3, 2)]),
        (tokens(2, 4, 6), tokens(2, 4, 6), [(1, 1), (2, 2), (3, 3)]),
        (tokens(6), tokens(1, 2, 3, 4, 5, 6), [(1, 6)]),
        (tokens(2, 4, 6), tokens(3, 6), [(3, 2)]),
        # One character in three tokens, and in one.
        ([(0, 1), (1, 2), (1, 2), (1, 2), (2, 3)], tokens(1, 2, 3), [(1, 1), (4, 2), (5, 3)]),
        ([(0, 1), (1, 2), (1, 2), (1, 2)], [(0, 1), (1, 2), (1, 2)], [(1, 1), (4, 3)]),
        # A blank that belongs to the next token, to no token, and to one of its own.
        ([(0, 5), (5, 11)], [(0, 5), (6, 11)], [(1, 1), (2, 2)]),
        ([(0, 5), (5, 6), (6, 11)], [(0, 5), (6, 11)], [(1, 1), (3, 2)]),
        ([(0, 6), (6, 11)], [(0, 5), (6, 11)], [(1, 1), (2, 2)]),
        # Tokens of no character.
        ([(0, 0), (0, 3), (3, 6)], tokens(3, 6), [(2, 1), (3, 2)]),
    ],
)
def test_cuts(one: list, other: list, expected: list) -> None:
    assert cuts(one, other) == expected
    assert cuts(other, one) == [(j, i) for i, j in expected]


def test_pairs_of_each_alignment() -> None:
    teacher = ScoredTokens(log_probs=[-1.0, -2.0, -3.0], spans=tokens(2, 5, 6))
    student = ScoredTokens(log_probs=[-4.0, -5.0], spans=tokens(5, 6))
    assert pairs(teacher, student, "span", characters=6) == [(-3.0, -4.0), (-3.0, -5.0)]
    assert pairs(teacher, student, "mean_per_char", characters=6) == [(-1.0, -1.5)]
    assert pairs(student, student, "token", characters=6) == [(-4.0, -4.0), (-5.0, -5.0)]


def test_scores_that_are_not_of_the_whole_text_do_not_fit() -> None:
    text = "ab cd "
    whole = ScoredTokens(log_probs=[-1.0, -2.0], spans=[(0, 2), (2, 5)])
    other = ScoredTokens(log_probs=[-1.0], spans=[(0, 6)])
    bare = ScoredTokens(log_probs=[-1.0, -2.0])
    assert fit(whole, other, "span", text)
    assert fit(bare, bare, "token", text)
    assert fit(bare, ScoredTokens(log_probs=[-1.0]), "mean_per_char", text)
    for bad in (
        ScoredTokens(log_probs=[-1.0], spans=[(0, 2)]),
        ScoredTokens(log_probs=[-1.0], spans=[(1, 6)]),
        ScoredTokens(log_probs=[-1.0], spans=[(0, 7)]),
        ScoredTokens(log_probs=[-1.0], spans=[(0, 2), (2, 5)]),
        ScoredTokens(log_probs=[], spans=[]),
    ):
        assert not fit(whole, bad, "span", text)
        assert not fit(bad, whole, "span", text)
        assert not fit(bad, whole, "mean_per_char", text)
    assert not fit(whole, ScoredTokens(log_probs=[-1.0, -2.0], spans=[(0, 3), (3, 5)]), "token", text)
    assert not fit(bare, ScoredTokens(log_probs=[-1.0]), "token", text)
    assert not fit(ScoredTokens(), ScoredTokens(), "token", text)
    with pytest.raises(ValueError, match=r"give ScoredTokens\.spans"):
        fit(bare, whole, "span", text)


@pytest.mark.parametrize(("one", "other"), list(itertools.product(TOKENIZERS, repeat=2)))
def test_real_tokenizers(one: str, other: str) -> None:
    """With characters of several tokens, marks of a thought, and blanks that some leave out."""
    text = "  The café \U0001f600\U0001f44d\U0001f3fd has 1,234 items.\n\n\u0928\u092e\u0938 <think>x</think> done\t "
    sides = []
    for name in (one, other):
        places = TOKENIZERS[name]()(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        sides.append(ScoredTokens(log_probs=[-float(i) for i in range(len(places))], spans=places))
    assert fit(*sides, "span", text)
    found = pairs(*sides, "span", characters=len(text))
    assert len(found) >= 10
    assert [sum(pair[i] for pair in found) for i in (0, 1)] == [sum(side.numbers) for side in sides]


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_places_may_be_a_tensor(make) -> None:
    side = ScoredTokens(log_probs=[-1.0, -2.0], spans=make([(0, 2), (2, 4)]))
    for how in ("token", "span"):
        assert fit(side, side, how, "abcd")
        assert pairs(side, side, how, characters=4) == [(-1.0, -1.0), (-2.0, -2.0)]


def test_tensors_are_numbers_too() -> None:
    for values in (torch.tensor([-0.5, -1.0], dtype=torch.bfloat16), np.array([-0.5, -1.0]), (-0.5, -1)):
        assert plain(values) == [-0.5, -1.0]
    for values in (torch.zeros(1, 2), torch.tensor(1.0), [[1.0]]):
        with pytest.raises(ValueError, match="give those of each row alone"):
            plain(values)


@st.composite
def tokenized(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]], list[tuple[int, int]]]:
    """A text's length, and two ways to cut it into tokens, some of which are parts of one character."""
    size = draw(st.integers(1, 30))

    def one() -> list[tuple[int, int]]:
        ends = sorted({*draw(st.lists(st.integers(1, size))), size})
        return [span for span in tokens(*ends) for _ in range(draw(st.integers(1, 3)) if span[1] - span[0] == 1 else 1)]

    return size, one(), one()


@settings(deadline=None)
@given(tokenized())
def test_cuts_are_all_common_ends(texts: tuple[int, list[tuple[int, int]], list[tuple[int, int]]]) -> None:
    _, one, other = texts
    common = sorted({end for _, end in one} & {end for _, end in other})
    expected = [tuple(sum(end <= place for _, end in side) for side in (one, other)) for place in common]
    assert cuts(one, other) == expected


@settings(deadline=None)
@given(tokenized(), st.randoms(use_true_random=False))
def test_no_log_probability_is_lost(texts: tuple, random) -> None:
    size, one, other = texts
    scores = [[-random.random() for _ in side] for side in (one, other)]
    sides = [ScoredTokens(log_probs=score, spans=side) for score, side in zip(scores, (one, other), strict=True)]
    for how in ("span", "mean_per_char"):
        found = pairs(*sides, how, characters=size)
        scale = 1 if how == "span" else size
        assert [scale * sum(pair[i] for pair in found) for i in (0, 1)] == pytest.approx([sum(s) for s in scores])


@pytest.mark.guards("quadratic search for token lists")
def test_long_texts_take_time_in_proportion() -> None:
    size = 200_000
    one, other = tokens(*range(2, size + 1, 2)), tokens(*range(3, size + 1, 3), size)
    start = time.perf_counter()
    assert len(cuts(one, other)) == size // 6 + 1
    assert time.perf_counter() - start < 10
