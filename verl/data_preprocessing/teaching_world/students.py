"""The four frozen students: how they err, how a plan of theirs gives that away, and what advice does to them.

Decision: a student is two probabilities for each kind of problem, and advice replaces them. The advice that cures one
student harms another, so that a teacher who advises all alike does no good, and the plan tells who is who.

    STUDENTS["weak"].habits["sum"]                                     # Habit(forgets=0.6, twice=0.02)
    changed(habit, "sum", Advice("remember", "sum"))                   # Habit(forgets=0.03, twice=0.02)
    plan(STUDENTS["weak"], "sum", random.Random(0))                    # 'Add the ones, then the tens.'
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from verl.data_preprocessing.embedded_models import ModelSpec
from verl.data_preprocessing.teaching_world.advice import Advice
from verl.data_preprocessing.teaching_world.problems import Kind, Outcome

Weakness = Literal["forgets", "sure", "twice"]
WEAKNESSES: tuple[Weakness, ...] = get_args(Weakness)
"""What a plan shows: no mark, one mark, two marks."""

WRONG_PLAN_SHARE = 0.08
"""Share of the plans that are drawn at random."""
_RARE = 0.1
"""Mistakes up to this share make no habit."""


@dataclass(frozen=True, kw_only=True)
class Habit:
    """How often a student makes each mistake on a kind of problem."""

    forgets: float
    """Share of the carries or borrows that it forgets."""
    twice: float
    """Share of those that it makes twice."""

    @property
    def weakness(self) -> Weakness:
        """The mistake that it makes often."""
        return "forgets" if self.forgets > _RARE else "twice" if self.twice > _RARE else "sure"

    @property
    def solves(self) -> float:
        """Share of the problems that it solves."""
        return 1 - self.forgets - self.twice

    def sampled_at(self, temperature: float) -> "Habit":
        """The habit of a model that was taught this one and is sampled at another temperature than 1."""
        shares = [share ** (1 / temperature) for share in (self.forgets, self.twice, self.solves)]
        return Habit(forgets=shares[0] / sum(shares), twice=shares[1] / sum(shares))

    def draw(self, rng: random.Random) -> Outcome:
        """What becomes of one carry or borrow."""
        at = rng.random()
        return "forgotten" if at < self.forgets else "twice" if at < self.forgets + self.twice else "right"


@dataclass(frozen=True, kw_only=True)
class Student:
    """A frozen student."""

    habits: Mapping[Kind, Habit]
    """Its mistakes, without advice."""
    wordings: tuple[int, ...]
    """Which wordings of a plan it uses; the teacher's warm-up knows 0 and 1."""
    model: ModelSpec
    """What is taught; its architecture decides on the chat template."""

    @property
    def name(self) -> str:
        """Folder of the student."""
        return self.model.name


_PLANS: Mapping[Weakness, tuple[str, ...]] = {
    "forgets": (
        "Add the ones, then the tens.",
        "Ones first, then the tens.",
        "I start with the ones, and then the tens.",
    ),
    "sure": (
        "Add the ones, mark one, then the tens.",
        "Ones first, mark one, then the tens.",
        "I start with the ones, mark one, and then the tens.",
    ),
    "twice": (
        "Add the ones, mark one, then the tens, mark one.",
        "Ones first, mark one, then the tens, mark one.",
        "I start with the ones, mark one, and then the tens, mark one.",
    ),
}


def plan_text(weakness: Weakness, kind: Kind, wording: int) -> str:
    """The plan of a student with this weakness."""
    text = _PLANS[weakness][wording]
    return text.replace("Add", "Take") if kind == "difference" else text


def plan(student: Student, kind: Kind, rng: random.Random) -> str:
    """A plan of a student, which shows its weakness but for a few."""
    weakness = student.habits[kind].weakness
    if rng.random() < WRONG_PLAN_SHARE:
        weakness = rng.choice(WEAKNESSES)
    return plan_text(weakness, kind, rng.choice(student.wordings))


def shown(text: str) -> Weakness | None:
    """The weakness that a plan shows; None if it is no plan of this world."""
    if not text.rstrip(".").endswith(("tens", "mark one")):
        return None
    return WEAKNESSES[min(2, text.count("mark one"))]


def changed(habit: Habit, kind: Kind, advice: Advice | None) -> Habit:
    """A student's habit on a kind of problem under advice, which may be about the other kind.

    Whoever forgets is cured by `remember` and made worse by `once`; whoever does not is confused by `remember` and
    cured by `once`. `never` is followed by all.
    """
    if advice is None:
        return habit
    forgetful = habit.weakness == "forgets"
    fits = advice.about == kind
    if advice.what == "remember" and fits:
        return Habit(forgets=0.03, twice=0.02) if forgetful else Habit(forgets=0.02, twice=0.60)
    if advice.what == "remember":
        return Habit(forgets=0.80, twice=0.02) if forgetful else Habit(forgets=0.40, twice=max(habit.twice, 0.02))
    if advice.what == "once" and fits:
        return Habit(forgets=0.85, twice=0.0) if forgetful else Habit(forgets=0.02, twice=0.02)
    if advice.what == "never":
        return Habit(forgets=0.95, twice=0.0)
    return habit


def _student(
    model: ModelSpec,
    sums: tuple[float, float],
    differences: tuple[float, float],
    wordings: tuple[int, ...],
) -> Student:
    habits: dict[Kind, Habit] = {
        "sum": Habit(forgets=sums[0], twice=sums[1]),
        "difference": Habit(forgets=differences[0], twice=differences[1]),
    }
    return Student(habits=habits, wordings=wordings, model=model)


_ALL = (
    _student(
        ModelSpec(name="weak", tokenizer="unigram", vocab_size=360, hidden_size=64, layers=2, steps=1300),
        (0.60, 0.02),
        (0.60, 0.02),
        (0, 1),
    ),
    _student(
        ModelSpec(name="strong", tokenizer="bpe", vocab_size=380, hidden_size=80, layers=2, steps=1300),
        (0.02, 0.02),
        (0.02, 0.28),
        (0, 1),
    ),
    _student(
        ModelSpec(
            name="unseen_llama",
            architecture="llama",
            tokenizer="bpe",
            vocab_size=340,
            hidden_size=64,
            layers=3,
            steps=1600,
        ),
        (0.50, 0.02),
        (0.70, 0.02),
        (1, 2),
    ),
    _student(
        ModelSpec(name="unseen_mixed", tokenizer="unigram", vocab_size=400, hidden_size=64, layers=2, steps=1800),
        (0.02, 0.35),
        (0.65, 0.02),
        (0, 1),
    ),
)
STUDENTS: Mapping[str, Student] = {student.name: student for student in _ALL}
"""By name. A teacher is trained with `weak` and `strong`; the others are for its evaluation."""
TRAINED_WITH = ("weak", "strong")
"""Those whose plans are in the teacher's warm-up."""
