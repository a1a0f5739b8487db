"""Makes training sets for students out of what was collected while a teacher taught.

One decision: a row is taken as it is or not at all. What does not fit, repeats another row or is no gain is left out
and counted by its reason; nothing is ever cut, so that no student learns to stop in the middle.

    >>> made = build_student_set(collected, "with_teaching", rules=SelectionRules(min_gain=0.25), templates=templates,
    ...                          count_tokens=templated_length, max_length=4096, evaluation_hashes=held_out)
    >>> made.rows[0]["messages"][-1]["content"], made.counts
    ('... <solution>85</solution>', {'kept': 812, 'low_gain': 131, 'too_long': 4, ...})

Modes: `self_guided` (question -> a correct guided response), `with_teaching` (question and teaching -> the same),
`rlt_trace` (explanation as the student's thought, then the solution: arXiv 2506.08388), `contrastive` (guided and
correct against alone and wrong, for DPO).
"""

import hashlib
import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from verl.classmate.errors import ConfigError
from verl.teaching.tags import is_blank
from verl.teaching.templates import Messages, Templates

Mode = Literal["self_guided", "with_teaching", "rlt_trace", "contrastive"]
MODES: tuple[Mode, ...] = ("self_guided", "with_teaching", "rlt_trace", "contrastive")
Pick = Literal["first_fit", "best_reward", "shortest_correct", "all"]
PICKS: tuple[Pick, ...] = ("first_fit", "best_reward", "shortest_correct", "all")


@dataclass(frozen=True, kw_only=True)
class StudentResponse:
    """One response of a student."""

    text: str
    """Its whole text."""
    correct: bool
    """Whether the checker found the true answer in it."""
    complete: bool = True
    """Whether it ended by itself; what was cut off is never learnt from."""


@dataclass(frozen=True, kw_only=True)
class Collected:
    """One teaching of one question, with what came of it."""

    question: str
    """As it was asked."""
    student: str
    """Which student was taught."""
    variation: int
    """Which of the several teachings of this question; the order in which `first_fit` looks at them."""
    reward: float | None
    """r; None or not finite where the row has none, since a call or the checker failed."""
    gain: float | None = None
    """D; None for RLT rows, which have none."""
    solve_rate: float | None = None
    """w; None for RLT rows."""
    teaching: str = ""
    """z, the visible part; blank where the teacher abstained."""
    baseline: tuple[StudentResponse, ...] = ()
    """The student alone."""
    guided: tuple[StudentResponse, ...] = ()
    """The student with the teaching."""
    explanation: str = ""
    """RLT: t, the text between the explanation tags."""
    solution: str = ""
    """RLT: s, the reference solution without its tags."""


@dataclass(frozen=True, kw_only=True)
class TraceFormat:
    """How a student writes its thought and its solution, in `rlt_trace`. The defaults are Bespoke-Stratos-17k's."""

    system: str | None = None
    """The student's system turn."""
    think_prefix: str = ""
    """In front of the thought."""
    think_open: str = "<|begin_of_thought|>\n\n"
    """Begins the thought."""
    think_close: str = "\n\n<|end_of_thought|>"
    """Ends it."""
    delimiter: str = "\n\n"
    """Between thought and solution."""
    solution_open: str = "<|begin_of_solution|>\n\n"
    """Begins the solution."""
    solution_close: str = "\n\n<|end_of_solution|>"
    """Ends it."""

    @property
    def marks(self) -> tuple[str, ...]:
        """The four delimiters, without blanks around them."""
        marks = (self.think_open, self.think_close, self.solution_open, self.solution_close)
        return tuple(mark.strip() for mark in marks if mark.strip())


@dataclass(frozen=True, kw_only=True)
class SelectionRules:
    """Which rows are taken.

    Raises:
        ConfigError: an impossible value.
    """

    min_gain: float | None = None
    """Lowest D; None: any, also rows without one."""
    min_solve_rate: float | None = None
    """Lowest w; None: any, also rows without one."""
    per_question: int = 1
    """Most rows of one question with `pick: all`; the others take one."""
    pick: Pick = "first_fit"
    """Which of a question's rows: the first variation that fits, the one with the highest reward, the one with the
    shortest response, or all up to the cap, those with the highest reward first. Ties go by r, then by the order."""

    def __post_init__(self) -> None:
        if self.pick not in PICKS:
            raise ConfigError(f"pick: {self.pick!r} is not possible; write one of: {', '.join(PICKS)}")
        if self.per_question < 1:
            raise ConfigError(f"per_question: {self.per_question} takes no row; write 1 or more")
        for name, value in (("min_gain", self.min_gain), ("min_solve_rate", self.min_solve_rate)):
            if value is not None and not -1 <= value <= 1:
                raise ConfigError(f"{name}: {value} is no difference or share; write a number up to 1")


@dataclass(frozen=True, kw_only=True)
class StudentSet:
    """What was taken, and why the rest was not."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    """`messages` for fine-tuning, or `prompt`, `chosen`, `rejected` for DPO; with question, student, variation, reward,
    gain, tokens and mode. In the order in which their questions were collected."""
    counts: dict[str, int] = field(default_factory=dict)
    """`collected` rows; `invalid`, `low_gain`, `low_solve_rate`, `unscored`, `nothing_to_learn` and
    `delimiter_in_text` of these; of what the others offer: `duplicate`, `too_long`, `not_picked`, `kept`."""


def question_hash(question: str) -> str:
    """Sha256 of a question's normalised text: what names held-out questions in the collector and here."""
    return hashlib.sha256(normalised(question).encode(errors="replace")).hexdigest()


def normalised(text: str) -> str:
    """A text of which two spellings are one: composed characters, small letters, single blanks.

    Superscripts stay what they are: x\N{SUPERSCRIPT TWO} is not x2.
    """
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def without_evaluation(rows: Iterable[Collected], evaluation_hashes: Collection[str]) -> tuple[list[Collected], int]:
    """The rows whose question is not held out, and the number of the others. For the collector.

    Args:
        evaluation_hashes: `question_hash` of each question of the evaluation.
    """
    found = list(rows)
    held_out = frozenset(evaluation_hashes)
    kept = [row for row in found if question_hash(row.question) not in held_out]
    return kept, len(found) - len(kept)


def build_student_set(
    collected: Iterable[Collected],
    mode: Mode,
    *,
    rules: SelectionRules,
    templates: Templates,
    count_tokens: Callable[[Messages], int],
    max_length: int,
    evaluation_hashes: Collection[str],
    trace_format: TraceFormat | None = None,
) -> StudentSet:
    """The rows that a student is trained on.

    Args:
        collected: in the order in which they were collected.
        mode: what a row consists of.
        rules: which ones are taken.
        templates: those that the student was asked with.
        count_tokens: length of a whole chat in the student's chat template and tokenizer.
        max_length: most tokens of a row.
        evaluation_hashes: `question_hash` of each question of the evaluation.
        trace_format: for `rlt_trace`.

    Raises:
        ConfigError: an unknown mode, a length below 1, or a held-out question among the rows.
    """
    if mode not in MODES:
        raise ConfigError(f"mode: {mode!r} is not possible; write one of: {', '.join(MODES)}")
    if max_length < 1:
        raise ConfigError(f"max_length: {max_length} takes no row; write the student's context length")
    rows = list(collected)
    _, held_out = without_evaluation(rows, evaluation_hashes)
    if held_out:
        raise ConfigError(
            f"{held_out} of {len(rows)} rows are of held-out questions; take them out with without_evaluation first"
        )
    counts: Counter[str] = Counter(collected=len(rows))
    makers = _Makers(templates, trace_format or TraceFormat())
    by_question: dict[str, list[_Candidate]] = {}
    for row in rows:
        reason = _refused(row, rules)
        offered = [] if reason else list(makers.offered(row, mode))
        if not offered:
            counts[reason or makers.nothing(row, mode)] += 1
            continue
        for chats in offered:
            lengths = [count_tokens(chat) for chat in chats]
            answer = lengths[0] - count_tokens(chats[0][:-1]) if rules.pick == "shortest_correct" else 0
            candidate = _Candidate(row=row, chats=chats, tokens=max(lengths), answer_tokens=answer)
            by_question.setdefault(normalised(row.question), []).append(candidate)
    taken: list[dict[str, Any]] = []
    for candidates in by_question.values():
        taken += [candidate.as_row(mode) for candidate in _picked(candidates, rules, max_length, counts)]
    counts["kept"] = len(taken)
    return StudentSet(rows=taken, counts=dict(counts))


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """What may become a row."""

    row: Collected
    chats: Sequence[Messages]
    """One whole chat, or the chosen and the rejected one, which have all turns but the last in common."""
    tokens: int
    """Of the longer one."""
    answer_tokens: int
    """Of the response that is learnt, where that counts."""

    @property
    def reward(self) -> float:
        return self.row.reward if self.row.reward is not None else -math.inf

    @property
    def words(self) -> tuple[str, ...]:
        """What makes it the same as another one."""
        turns = [turn["content"] for turn in self.chats[0]] + [chat[-1]["content"] for chat in self.chats]
        return tuple(normalised(turn) for turn in turns)

    def as_row(self, mode: Mode) -> dict[str, Any]:
        told = {
            "mode": mode,
            "question": self.row.question,
            "student": self.row.student,
            "variation": self.row.variation,
            "reward": self.row.reward,
            "gain": self.row.gain,
            "tokens": self.tokens,
        }
        if len(self.chats) == 1:
            return {"messages": self.chats[0], **told}
        chosen, rejected = self.chats
        return {"prompt": chosen[:-1], "chosen": chosen[-1:], "rejected": rejected[-1:], **told}


class _Makers:
    """Makes chats out of a row, one function a mode."""

    def __init__(self, templates: Templates, trace_format: TraceFormat) -> None:
        self._templates, self._format = templates, trace_format

    def offered(self, row: Collected, mode: Mode) -> Iterator[Sequence[Messages]]:
        """All that a row can become."""
        right = [response.text for response in row.guided if response.correct and _whole(response)]
        if mode == "rlt_trace":
            if not is_blank(row.explanation) and not is_blank(row.solution) and not self._holds_mark(row):
                yield [self._trace(row)]
        elif mode == "contrastive":
            wrong = [response.text for response in row.baseline if not response.correct and _whole(response)]
            prompt = self._templates.baseline(row.question)
            for chosen, rejected in zip(right, wrong, strict=False):
                if normalised(chosen) != normalised(rejected):
                    yield [_answered(prompt, chosen), _answered(prompt, rejected)]
        elif right and not is_blank(row.teaching):
            if mode == "self_guided":
                prompt = self._templates.baseline(row.question)
            else:
                prompt = self._templates.with_teaching(row.question, row.teaching)
            for text in right:
                yield [_answered(prompt, text)]

    def nothing(self, row: Collected, mode: Mode) -> str:
        """Why a row offers nothing."""
        return "delimiter_in_text" if mode == "rlt_trace" and self._holds_mark(row) else "nothing_to_learn"

    def _holds_mark(self, row: Collected) -> bool:
        """Whether a text of a trace would be read as its end."""
        return any(
            mark in text for mark in self._format.marks for text in (row.question, row.explanation, row.solution)
        )

    def _trace(self, row: Collected) -> Messages:
        form = self._format
        thought = f"{form.think_prefix}{form.think_open}{row.explanation.strip()}{form.think_close}"
        answer = f"{form.solution_open}{row.solution.strip()}{form.solution_close}"
        system = [] if form.system is None else [{"role": "system", "content": form.system}]
        question = [{"role": "user", "content": row.question}]
        return _answered(system + question, f"{thought}{form.delimiter}{answer}")


def _whole(response: StudentResponse) -> bool:
    return response.complete and not is_blank(response.text)


def _answered(prompt: Messages, text: str) -> Messages:
    return [*prompt, {"role": "assistant", "content": text}]


def _refused(row: Collected, rules: SelectionRules) -> str | None:
    """Why a row is not looked at; None if it is."""
    told = (row.reward, row.gain, row.solve_rate)
    if row.reward is None or not all(math.isfinite(number) for number in told if number is not None):
        return "invalid"
    for number, lowest, reason in (
        (row.gain, rules.min_gain, "low_gain"),
        (row.solve_rate, rules.min_solve_rate, "low_solve_rate"),
    ):
        if lowest is not None and number is None:
            return "unscored"
        if lowest is not None and number is not None and number < lowest:
            return reason
    return None


def _picked(
    candidates: Sequence[_Candidate], rules: SelectionRules, max_length: int, counts: Counter[str]
) -> list[_Candidate]:
    """The rows of one question; the others are counted."""
    order = {
        "first_fit": lambda one: (one.row.variation, -one.reward),
        "best_reward": lambda one: (-one.reward, one.row.variation),
        "shortest_correct": lambda one: (one.answer_tokens, -one.reward),
        "all": lambda one: (-one.reward, one.row.variation),
    }[rules.pick]
    most = rules.per_question if rules.pick == "all" else 1
    taken: list[_Candidate] = []
    seen: set[tuple[str, ...]] = set()
    for candidate in sorted(candidates, key=order):
        if candidate.tokens > max_length:
            counts["too_long"] += 1
        elif candidate.words in seen:
            counts["duplicate"] += 1
        elif len(taken) == most:
            counts["not_picked"] += 1
        else:
            taken.append(candidate)
            seen.add(candidate.words)
    return taken
