"""Programs on one register modulo 17, and thoughts that copy the updates and write its value after some of them. Pure.

Decision: a thought copies every update, so that it can be read without the question, and the values are what it may
leave out. A jump over several updates is followed by weak readers only if all of them are easy; that is what the styles
tell apart.

    program = make_program(seed=0, split="train", index=0)
    program.question                                # 'x is 5. a:+1 b:+1 c:*3+1 d:+1 ... What is x modulo 17?'
    write(program, (1, 2, 4, 6))                    # 'a:+1=6 b:+1=7 c:*3+1 d:+1=6 ...'
    style_of("a:+1=6 b:+1=7 c:*3+1 d:+1=6 ...", program.question)           # 'hard_skips', for c
"""

import random
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from verl.data_preprocessing.arithmetic_problems import VAL_SHARE_OF_OPERANDS, Split
from verl.data_preprocessing.common import make_row

DATA_SOURCE = "uneven_steps"
STYLES = ("every_step", "easy_skips", "hard_skips")
MODULUS = 17
LONGEST_STRIDE = {"easy_skips": 3, "hard_skips": 2}
"""Most updates that a jump of a style is over; two with a hard one among them are as much as the policy learns."""
LABELS = "abcdefghijkl"
"""Of the updates in their order; so many there are at most."""

_FEWEST = 6
_SHORT = 3
_EASY = (1, 1)
_HARD = ((2, 3), (3, 1))
_EASY_SHARE = 0.5

_SYMBOLS = {update: f"{f'*{update[0]}' if update[0] > 1 else ''}+{update[1]}" for update in (_EASY, *_HARD)}
_UPDATES = {symbol: update for update, symbol in _SYMBOLS.items()}

WORDS = (
    *(f"{label}:{symbol}" for label in LABELS for symbol in _UPDATES),
    *(str(n) for n in range(10, MODULUS)),
)
"""Updates with their labels, and values: a tokenizer keeps each whole. Small models then copy the updates in no time,
and a step costs as many tokens whatever is in it."""

_QUESTION = re.compile(r"x is (\d+)\. ((?:[a-l]:\S+ )+)What is x modulo \d+\?")
_STEP = re.compile(r"([a-l]):([*+\d]+?)(?:=(\d{1,2}))?")


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
    def steps(self) -> tuple[str, ...]:
        """The updates in words, with their labels."""
        return tuple(f"{label}:{_SYMBOLS[update]}" for label, update in zip(LABELS, self.updates, strict=False))

    @property
    def question(self) -> str:
        """The program in words."""
        return f"x is {self.start}. {' '.join(self.steps)} What is x modulo {MODULUS}?"

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
    found = _QUESTION.fullmatch(question)
    symbols = [step.partition(":")[2] for step in found[2].split()] if found else []
    if found is None or any(symbol not in _UPDATES for symbol in symbols):
        raise ValueError(f"no program: {question[:80]!r}")
    return Program(start=int(found[1]), updates=tuple(_UPDATES[symbol] for symbol in symbols))


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
        two_easy = any(pair == (_EASY, _EASY) for pair in pairwise(updates))
        if _split_of(program) == split and (short or (two_easy and program.is_hard(0, count))):
            return program


def _split_of(program: Program) -> Split:
    return "val" if zlib.crc32(program.question.encode()) % 1000 < 1000 * VAL_SHARE_OF_OPERANDS else "train"


def draw_stops(program: Program, style: str, rng: random.Random) -> tuple[int, ...]:
    """After how many updates the values of a thought stand, ascending, the last after all of them.

    Strides are 1 (`every_step`), up to 3 where they hold nothing hard (`easy_skips`), or up to 2 wherever they fall,
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
            stride = min(rng.randint(1, LONGEST_STRIDE[style]), count - at)
            while style == "easy_skips" and stride > 1 and program.is_hard(at, at + stride):
                stride -= 1
            at += stride
            stops.append(at)
        if _style_of_stops(program, stops) == style:
            return tuple(stops)


def _style_of_stops(program: Program, stops: Sequence[int]) -> str:
    wide = [(begin, end) for begin, end in pairwise([0, *stops]) if end - begin > 1]
    if not wide:
        return "every_step"
    return "hard_skips" if any(program.is_hard(begin, end) for begin, end in wide) else "easy_skips"


def write(program: Program, stops: Sequence[int], *, slip_at: int | None = None) -> str:
    """All updates, and the values after those that `stops` counts.

    Args:
        slip_at: number of the entry whose value is one too high; the later ones follow from it, so that the last one
            is wrong as well, since every update is a permutation.
    """
    written, value, at = list(program.steps), program.start, 0
    for number, stop in enumerate(stops):
        value = (program.after(value, at, stop) + (number == slip_at)) % MODULUS
        at = stop
        written[stop - 1] += f"={value}"
    return " ".join(written)


def read_entries(text: str) -> list[tuple[int, int]] | None:
    """Pairs (number of updates made, value) of a thought; None if it does not copy updates from the first one on."""
    entries = []
    for number, word in enumerate(text.split()):
        found = _STEP.fullmatch(word)
        if found is None or number >= len(LABELS) or found[1] != LABELS[number] or found[2] not in _UPDATES:
            return None
        if found[3] is not None:
            if int(found[3]) >= MODULUS:
                return None
            entries.append((number + 1, int(found[3])))
    return entries


def read_result(text: str) -> int | None:
    """The last value of a thought; None if there is none."""
    entries = read_entries(text)
    return entries[-1][1] if entries else None


def style_of(text: str, question: str) -> str:
    """The style of a thought: one of `STYLES`, "empty" without a value, "other" if it is not one of ours.

    What is left to the answer counts as a last jump. A thought that copies another update than the question's, or more
    of them, is "other".
    """
    if not re.search(r"\d", text):
        return "empty"
    entries, program = read_entries(text), parse(question)
    copied = [word.partition("=")[0] for word in text.split()]
    if entries is None or tuple(copied) != program.steps[: len(copied)]:
        return "other"
    if not entries:
        return "empty"
    return _style_of_stops(program, sorted({*(stop for stop, _ in entries), len(program.updates)}))


def without_answer(text: str, question: str) -> str:
    """A thought without the value after the last update."""
    last = re.escape(parse(question).steps[-1])
    return re.sub(rf"({last})(?:\s*=\s*\d+)+\s*\Z", r"\1", text)


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
        """Changes the last value, or adds one."""
        return re.sub(r"=\d+\Z", "", text) + f"={new}"

    def style_of(self, text: str, question: str) -> str:
        """Which updates are hard is in the question."""
        return style_of(text, question)

    def without_answer(self, text: str, question: str) -> str:
        """Cuts the value after the last update."""
        return without_answer(text, question)

    def row(self, problem: Program, *, split: Split, index: int) -> dict[str, Any]:
        """With the thought that writes every step beside the program."""
        return make_dataset_row(problem, split=split, index=index)
