"""What a teacher can say: sentences that help some, sentences that help nobody, and the answer itself.

Decision: advice is a closed set of sentences, each with a short and a long wording, so that what it does to a student
is known, and that brevity is worth something.

    known("Remember the carry.")                     # Advice(what='remember', about='sum')
    tells(problem(seed=0, split="train", index=0))   # '7+8=15, 4+3+1=8: 85.'
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from verl.data_preprocessing.arithmetic_problems import Problem
from verl.data_preprocessing.teaching_world.problems import KINDS, Kind, Outcome, kind_of, working

What = Literal["remember", "once", "never", "useless"]


@dataclass(frozen=True)
class Advice:
    """What a sentence says."""

    what: What
    """To make the carry, to make it only once, never to make it, or nothing at all."""
    about: Kind
    """Whether it speaks of sums or of differences."""


WORDINGS: Mapping[Advice, tuple[str, str]] = {
    Advice("remember", "sum"): ("Remember the carry.", "When the ones make ten or more, remember to carry one."),
    Advice("remember", "difference"): (
        "Remember to borrow.",
        "When the upper ones are too few, remember to borrow one.",
    ),
    Advice("once", "sum"): ("Carry only once.", "You carry a one to the tens, but do so only once."),
    Advice("once", "difference"): ("Borrow only once.", "You borrow a one of the tens, but do so only once."),
    Advice("never", "sum"): ("Never carry.", "Add column by column and never carry a one."),
    Advice("never", "difference"): ("Never borrow.", "Subtract column by column and never borrow a one."),
    Advice("useless", "sum"): ("Take your time.", "You can do this, so take your time."),
    Advice("useless", "difference"): ("Read it again.", "You can do this, so read the question again."),
}
"""The short and the long sentence of each advice."""
SENTENCES: Mapping[str, Advice] = {text: advice for advice, texts in WORDINGS.items() for text in texts}
"""What each sentence says."""


def known(text: str) -> Advice | None:
    """What a teaching says, if it is one of the sentences."""
    return SENTENCES.get(text.strip())


def tells(one: Problem, outcome: Outcome = "right") -> str:
    """The working with its result, right or wrong, as advice."""
    columns, number = working(one, outcome)
    return f"{columns}: {number}."


def tells_only(number: int) -> str:
    """A result as advice, without a working."""
    return f"The answer is {number}."


def any_sentence(what: What, one: Problem, rng: random.Random, *, fitting_share: float) -> str:
    """A wording of an advice, about the problem's kind in this share of cases and else about the other kind."""
    about = kind_of(one)
    if rng.random() >= fitting_share:
        about = KINDS[1 - KINDS.index(about)]
    return rng.choice(WORDINGS[Advice(what, about)])
