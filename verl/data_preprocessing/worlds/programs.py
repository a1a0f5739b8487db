"""Programs on one register modulo 17, and thoughts that write its value after some of the updates. Pure functions.

Decision: a thought names the update after which a value stands, so that a skipped update can be seen in the text. A
jump over several updates is followed by weak readers only if all of them are easy; that is what the styles tell apart.

    program = make_program(seed=0, split="train", index=0)
    program.question                                        # 'x is 5. a: +1. b: +1. c: *3+1. ... What is x modulo 17?'
    write(program, (1, 2, 3, 6))                            # 'a=6 b=7 c=5 f=1'
    style_of("a=6 b=7 c=5 f=1", program.question)           # 'hard_skips', if d, e or f is hard
"""

import itertools
import random
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verl.data_preprocessing.arithmetic_problems import VAL_SHARE_OF_OPERANDS, Split
from verl.data_preprocessing.common import make_row

DATA_SOURCE = "uneven_steps"
STYLES = ("every_step", "easy_skips", "hard_skips")
MODULUS = 17
LONGEST_STRIDE = 3
LABELS = "abcdefghijkl"
"""Of the updates in their order; so many there are at most."""
WORDS = tuple(str(n) for n in range(10, MODULUS))
"""Values that a tokenizer must be told to keep whole, so that every value is one token."""

_FEWEST = 6
_SHORT = 3
_EASY = (1, 1)
_HARD = ((2, 3), (3, 1), (5, 2))
_EASY_SHARE = 0.5

_UPDATE = re.compile(r"\b[a-l]: (?:\*(\d+))?\+(\d+)\.")
_ENTRY = re.compile(r"([a-l])=(\d{1,2})")


@dataclass(frozen=True, kw_only=True)
class Program:
    """A start value and the updates made to it."""

    start: int
    """Value before the first update."""
    updates: tuple[tuple[int, int], ...]
    """Factor and summand of each update; an easy one has the factor 1."""

    hint = None
    """No user guesses at an answer here."""

    @property
    def question(self) -> str:
        """The program in words."""
        pairs = zip(LABELS, self.updates, strict=False)
        steps = " ".join(f"{label}: {f'*{a}' if a > 1 else ''}+{b}." for label, (a, b) in pairs)
        return f"x is {self.start}. {steps} What is x modulo {MODULUS}?"

    @property
    def prompt(self) -> str:
        """What the user writes."""
        return self.question

    @property
    def answer(self) -> int:
        """The value after the last update."""
        return self.after(self.start, 0, len(self.updates))

    def after(self, value: int, begin: int, end: int) -> int:
        """What a value after `begin` updates is after `end` of them."""
        for factor, summand in self.updates[begin:end]:
            value = (value * factor + summand) % MODULUS
        return value

    def is_hard(self, begin: int, end: int) -> bool:
        """Whether a hard update is among those from `begin` to `end`."""
        return any(update != _EASY for update in self.updates[begin:end])


def parse(question: str) -> Program:
    """The program of a question. Raises ValueError if it is none."""
    start = re.match(r"x is (\d+)\. ", question)
    if start is None:
        raise ValueError(f"no program: {question[:80]!r}")
    updates = tuple((int(a or 1), int(b)) for a, b in _UPDATE.findall(question))
    return Program(start=int(start[1]), updates=updates)


def make_program(*, seed: int, split: Split, index: int, short: bool = False) -> Program:
    """The program number `index` of a split: 6 to 12 updates that allow thoughts in all styles.

    Args:
        short: 1 to 3 updates of any kind, for the first lessons; a thought about them writes every step.
    """
    rng = random.Random(f"programs/{seed}/{split}/{index}")
    lengths = (1, _SHORT) if short else (_FEWEST, len(LABELS))
    while True:
        count = rng.randint(*lengths)
        updates = tuple(_EASY if rng.random() < _EASY_SHARE else rng.choice(_HARD) for _ in range(count))
        program = Program(start=rng.randrange(MODULUS), updates=updates)
        two_easy = any(pair == (_EASY, _EASY) for pair in itertools.pairwise(updates))
        if _split_of(program) == split and (short or (two_easy and program.is_hard(0, count))):
            return program


def _split_of(program: Program) -> Split:
    return "val" if zlib.crc32(program.question.encode()) % 1000 < 1000 * VAL_SHARE_OF_OPERANDS else "train"


def draw_stops(program: Program, style: str, rng: random.Random) -> tuple[int, ...]:
    """After how many updates the values of a thought stand, ascending, the last after all of them.

    Strides are 1 (`every_step`), up to 3 where they hold nothing hard (`easy_skips`), or up to 3 wherever they fall,
    a hard update under one of them (`hard_skips`). Raises ValueError for another style.
    """
    count = len(program.updates)
    if style == "every_step":
        return tuple(range(1, count + 1))
    if style not in STYLES:
        raise ValueError(f"unknown style {style!r}: use one of {', '.join(STYLES)}")
    while True:
        stops, at = [], 0
        while at < count:
            stride = min(rng.randint(1, LONGEST_STRIDE), count - at)
            while style == "easy_skips" and stride > 1 and program.is_hard(at, at + stride):
                stride -= 1
            at += stride
            stops.append(at)
        if _style_of_stops(program, stops) == style:
            return tuple(stops)


def _style_of_stops(program: Program, stops: Sequence[int]) -> str:
    wide = [(begin, end) for begin, end in zip([0, *stops], stops, strict=False) if end - begin > 1]
    if not wide:
        return "every_step"
    return "hard_skips" if any(program.is_hard(begin, end) for begin, end in wide) else "easy_skips"


def write(program: Program, stops: Sequence[int], *, slip_at: int | None = None) -> str:
    """The values after the updates that `stops` counts.

    Args:
        slip_at: number of the entry whose value is one too high; the later ones follow from it, so that the last one
            is wrong as well, since every update is a permutation.
    """
    entries, value, at = [], program.start, 0
    for number, stop in enumerate(stops):
        value = (program.after(value, at, stop) + (number == slip_at)) % MODULUS
        at = stop
        entries.append(f"{LABELS[stop - 1]}={value}")
    return " ".join(entries)


def read_entries(text: str) -> list[tuple[int, int]] | None:
    """Pairs (number of updates made, value) of a thought; None if it is not one of ours."""
    words = text.split()
    found = [_ENTRY.fullmatch(word) for word in words]
    pairs = [(LABELS.index(one[1]) + 1, int(one[2])) for one in found if one is not None]
    ascending = all(a < b for (a, _), (b, _) in itertools.pairwise(pairs))
    return pairs if len(pairs) == len(words) and ascending and all(v < MODULUS for _, v in pairs) else None


def read_result(text: str) -> int | None:
    """The last value of a thought; None if there is none."""
    entries = read_entries(text)
    return entries[-1][1] if entries else None


def style_of(text: str, question: str) -> str:
    """The style of a thought: one of `STYLES`, "empty" without digits, "other" if it is not one of ours.

    What is left to the answer counts as a last jump.
    """
    if not re.search(r"\d", text):
        return "empty"
    entries, program = read_entries(text), parse(question)
    count = len(program.updates)
    if entries is None or entries[-1][0] > count:
        return "other"
    return _style_of_stops(program, sorted({*(stop for stop, _ in entries), count}))


def without_answer(text: str, question: str) -> str:
    """A thought without the value after the last update."""
    last = LABELS[len(parse(question).updates) - 1]
    return re.sub(rf"(?:\s*\b{last}=\d+)+\s*\Z", "", text)


def make_dataset_row(program: Program, *, split: str, index: int) -> dict[str, Any]:
    """The program in the row format of all data sets, with the thought that writes every step beside it."""
    worked = write(program, draw_stops(program, "every_step", random.Random(0)))
    return make_row(
        data_source=DATA_SOURCE,
        question=program.question,
        ground_truth=str(program.answer),
        split=split,
        index=index,
        extra_info={"updates": len(program.updates), "worked_cot": worked},
    )


@dataclass(frozen=True)
class Programs:
    """Updates of one register."""

    data_source: str = DATA_SOURCE
    styles: tuple[str, ...] = STYLES

    def problem(self, *, seed: int, split: Split, index: int, hint_share: float = 0.0, short: bool = False) -> Program:
        """Users have no hints, so `hint_share` changes nothing."""
        return make_program(seed=seed, split=split, index=index, short=short)

    def thought(self, problem: Program, style: str, rng: random.Random, *, slip: bool) -> tuple[str, int]:
        """Strides, and the entry that goes wrong, are drawn."""
        stops = draw_stops(problem, style, rng)
        text = write(problem, stops, slip_at=rng.randrange(len(stops)) if slip else None)
        number = read_result(text)
        assert number is not None
        return text, number

    def following(self, problem: Program) -> tuple[str, int]:
        """Never asked for: no problem has a hint."""
        raise ValueError("a program has no hint to follow")

    def any_result(self, rng: random.Random) -> int:
        """Any value of the register."""
        return rng.randrange(MODULUS)

    def with_result(self, text: str, old: int, new: int) -> str:
        """Changes the last value."""
        return re.sub(r"\d+\Z", str(new), text)

    def style_of(self, text: str, question: str) -> str:
        """Which updates are hard is in the question."""
        return style_of(text, question)

    def without_answer(self, text: str, question: str) -> str:
        """Cuts the value after the last update."""
        return without_answer(text, question)

    def row(self, problem: Program, *, split: Split, index: int) -> dict[str, Any]:
        """With the thought that writes every step beside the program."""
        return make_dataset_row(problem, split=split, index=index)
