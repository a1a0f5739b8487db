"""Thoughts about arithmetic in five styles: plain, shorthand, empty, cipher, dialect. Pure functions.

Decision: the styles hold the same columns and make the same slip (a carry or borrow is forgotten), so that they differ
in how much is written and for whom, and in nothing else. The cipher substitutes the words and digits of the plain
working one by one: it is as long and as thorough, and only who has learnt it can read it.

    thought(problem, "plain", slip=False)        # 'Ones: 7+8=15, carry 1. Tens: 4+3+1=8. So 85.'
    thought(problem, "shorthand", slip=False)    # '5^8'
    thought(problem, "empty", slip=False)        # 'Easy.'
    thought(problem, "cipher", slip=False)       # 'Low: 0+1=48, up 4. High: 7+6+4=1. Thus 18.'
    thought(problem, "dialect", slip=False)      # 'Rilet: 7+8=15, pepop 1. Galodak: 4+3+1=8. Mol 85.'
"""

import random
import re

from verl.data_preprocessing.arithmetic_problems import Problem, right_cot, slipped_cot

STYLES = ("plain", "shorthand", "empty", "cipher", "dialect")

_CIPHER_WORDS = {"Ones": "Low", "Tens": "High", "carry": "up", "borrow": "down", "So": "Thus"}
_PLAIN_WORDS = {cipher: plain for plain, cipher in _CIPHER_WORDS.items()}
_TO_CIPHER = str.maketrans("0123456789", "3456789012")
_TO_PLAIN = str.maketrans("3456789012", "0123456789")

WORDS = (*_CIPHER_WORDS, *_PLAIN_WORDS)
"""Words of the plain working and of the cipher; a tokenizer that keeps them whole needs as many tokens for the one as
for the other."""

_MARKS = {
    "plain": re.compile(r"\b(?:Ones|Tens):"),
    "cipher": re.compile(r"\b(?:Low|High):"),
    "dialect": re.compile(r"\A\s*(?!(?:Ones|Tens|Low|High|So|Thus)\b)[A-Z][a-z]+: \d"),
    "shorthand": re.compile(r"\A\s*\d[.^_]+\d+\s*\Z"),
    "empty": re.compile(r"\A\D*\Z"),
}
_CONSONANTS, _VOWELS = "bdfgklmprstvz", "aeiou"
_STATEMENT = re.compile(r"(?:(?:;?\s*\b(?:So|Thus)|(?<=\.) [A-Z][a-z]+) \d+[.;]?)+\s*\Z")


def thought(problem: Problem, style: str, *, slip: bool) -> str:
    """A thought about a problem in one of `STYLES`; with `slip` a carry (or a borrow) is forgotten."""
    if style == "plain":
        return slipped_cot(problem) if slip else right_cot(problem)
    if style == "cipher":
        return enciphered(thought(problem, "plain", slip=slip))
    if style == "empty":
        return "Easy."
    kept, low, high = _columns(problem, slip)
    if style == "shorthand":
        # The digits in the order in which they are computed, and a mark for each carry.
        return f"{low}{('_' if problem.kind == 'sub2' else '^') * kept or '.'}{high}"
    if style == "dialect":
        return _dialect(problem, kept, low, high)
    raise ValueError(f"unknown style {style!r}: use one of {', '.join(STYLES)}")


def result(problem: Problem, *, slip: bool) -> int:
    """The number that thoughts about a problem lead to."""
    _, low, high = _columns(problem, slip)
    return 10 * high + low


def _columns(problem: Problem, slip: bool) -> tuple[int, int, int]:
    """What is carried (or borrowed), the ones of the result, and the rest of it."""
    ones, tens = [n % 10 for n in problem.operands], [n // 10 for n in problem.operands]
    if problem.kind == "sub2":
        kept, low = int(not slip), 10 + ones[0] - ones[1]
        return kept, low, tens[0] - tens[1] - kept
    carry, low = divmod(sum(ones), 10)
    kept = 0 if slip else carry
    return kept, low, sum(tens) + kept


def _dialect(problem: Problem, kept: int, low: int, high: int) -> str:
    """Signs as in plain working, words that mean nothing and differ from problem to problem: its reader learns to look
    at signs and numbers."""
    rng = random.Random(problem.prompt)
    first, second, keeps, total = (_any_word(rng) for _ in range(4))
    ones, tens = [n % 10 for n in problem.operands], [n // 10 for n in problem.operands]
    if problem.kind == "sub2":
        working = f"{10 + ones[0]}-{ones[1]}={low}"
        rest = f"{tens[0]}-{tens[1]}" + "-1" * kept
    else:
        working = f"{'+'.join(map(str, ones))}={sum(ones)}"
        rest = "+".join(map(str, [*tens, *[kept] * (kept > 0)]))
    carried = f", {keeps} 1" * (kept > 0)
    return f"{first.title()}: {working}{carried}. {second.title()}: {rest}={high}. {total.title()} {10 * high + low}."


def _any_word(rng: random.Random) -> str:
    """A word of one to three syllables that means nothing."""
    syllables = (rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(rng.randint(1, 3)))
    return "".join(syllables) + rng.choice((*_CONSONANTS, ""))


def enciphered(text: str) -> str:
    """Plain working in the cipher."""
    return re.sub("[A-Za-z]+", lambda word: _CIPHER_WORDS.get(word[0], word[0]), text.translate(_TO_CIPHER))


def deciphered(text: str) -> str:
    """The plain working of what is in the cipher."""
    return re.sub("[A-Za-z]+", lambda word: _PLAIN_WORDS.get(word[0], word[0]), text.translate(_TO_PLAIN))


def read_result(text: str, style: str) -> int | None:
    """The number that a thought in a style leads to, as a program reads it; None if there is none."""
    if style == "shorthand":
        found = re.fullmatch(r"(\d)[.^_]+(\d+)", text.strip())
        return None if found is None else int(found[2] + found[1])
    if style == "cipher":
        text = deciphered(text)
    stated = re.search(r"(?:\bSo|\. [A-Z][a-z]+) (\d+)\.?\s*\Z", text)
    return None if stated is None else int(stated[1])


def with_result(text: str, old: int, new: int) -> str:
    """A thought that leads to `old`, changed so that it states `new`; plain, dialect or shorthand."""
    if style_of(text) == "shorthand":
        mark = text.strip("0123456789")
        return f"{new % 10}{mark}{new // 10}"
    return text.removesuffix(f"{old}.") + f"{new}."


def style_of(text: str) -> str:
    """The style that a thought is written in: the only one of `STYLES` that it bears the marks of, else "other".

    A thought without digits is "empty", whatever it says.
    """
    found = [style for style, mark in _MARKS.items() if mark.search(text)]
    # "Ones:" alone has no digits either.
    found = [style for style in found if style != "empty"] or found
    return found[0] if len(found) == 1 else "other"


def without_answer(text: str) -> str:
    """A thought without the statement of its result at its end; shorthand and empty thoughts have none."""
    return _STATEMENT.sub("", text)
