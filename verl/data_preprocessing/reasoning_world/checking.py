"""Which steps of a solution are right: exact, for any text.

One decision: a step is judged by what stands above it. A value that follows from a wrong one is no second error, so
the first error is where a solution goes wrong, and `labels` behind it say whether it went on consistently.

    report = check_solution(problem, "<think>\\n12 + 5 = 18\\nSo 18 - 9 = 9\\n</think>\\nThe answer is 9.")
    report.labels, report.first_error, report.kinds, report.answer_right       # (0, 1), 0, ('arithmetic', ''), False

The word with which a line begins that puts results together is not judged. Kinds of errors, the first that fits:

    form        no line of the form `a + b = c`
    arithmetic  the step that is due, with a wrong result
    slip        a step of this solution, but not the one due: one is skipped, or done a second time
    combining   numbers that the question or an earlier line holds, put together in a way that is not due
    copy        a number that stands nowhere above, in place of the one that is due
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from verl.data_preprocessing.embedded_tokenizers import THINK_END, THINK_START
from verl.data_preprocessing.reasoning_world.problems import JOINS, ChainProblem, Op, Planned, apply, value_of
from verl.utils.reward_score.cot_monitor._numbers import last_given_number

KINDS = ("copy", "arithmetic", "combining", "slip")
"""Errors that can be planted."""
FORM = "form"
"""Error of a line that is no step."""

_LONGEST_LINE = 64
_LINE = re.compile(rf"(?:{JOINS})?(-?[0-9]{{1,6}}) ([+-]) (-?[0-9]{{1,6}}) = (-?[0-9]{{1,6}})\.?")


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """What is known of a solution's steps."""

    steps: tuple[str, ...]
    """The lines of the thought that are not blank, without blanks around them."""
    labels: tuple[int, ...]
    """For each step: 1 if it is due and true given what stands above it, else 0."""
    kinds: tuple[str, ...]
    """For each step: the kind of its error; "": it has none."""
    complete: bool
    """Whether no step is missing at the end."""
    answer: int | None
    """The answer that is given behind the thought."""
    answer_right: bool
    """Whether that is the true result."""
    answer_follows: bool
    """Whether it is the result of the last step."""

    @property
    def first_error(self) -> int:
        """Place of the first step that is wrong, from 0; -1: there is none."""
        return self.labels.index(0) if 0 in self.labels else -1

    @property
    def first_kind(self) -> str:
        """Kind of the first error; "": there is none."""
        return next((kind for kind in self.kinds if kind), "")

    @property
    def sound(self) -> bool:
        """Whether every step is right, none is missing, and the answer is theirs."""
        return 0 not in self.labels and self.complete and self.answer_follows


@dataclass
class _State:
    """How far a solution has come."""

    problem: ChainProblem
    due: int = 0
    """Number of the step that is due."""
    results: list[int] = field(default_factory=list)
    """Of the steps before, as they are stated."""
    seen: set[tuple[int, str, int, int]] = field(default_factory=set)
    """Lines so far."""
    available: set[int] = field(default_factory=set)
    """Numbers that stand in the question or were a result."""

    def operands(self, step: Planned) -> tuple[int, Op, int]:
        """What a step works on, given the results so far."""
        return value_of(step.left, self.results), step.op, value_of(step.right, self.results)


def thought_and_answer(text: str) -> tuple[str, str]:
    """What stands between the markers, and what stands behind them; a text without markers is all thought."""
    thought, _, answer = text.partition(THINK_END)
    return thought.rpartition(THINK_START)[2], answer


def steps_of(thought: str) -> list[str]:
    """The lines that are not blank."""
    return [stripped for line in thought.split("\n") if (stripped := line.strip(" \t\r"))]


def check_solution(problem: ChainProblem, text: str) -> StepReport:
    """Judges a text: the thought line by line, and the answer behind it."""
    thought, said = thought_and_answer(text)
    steps = steps_of(thought)
    state = _State(problem, available=set(problem.numbers))
    kinds = tuple(_judge(state, step) for step in steps)
    answer = _answer_in(said)
    last = _read(steps[-1]) if steps else None
    return StepReport(
        steps=tuple(steps),
        labels=tuple(int(not kind) for kind in kinds),
        kinds=kinds,
        complete=state.due >= len(problem.plan),
        answer=answer,
        answer_right=answer == problem.answer,
        answer_follows=last is not None and answer == last[3],
    )


def _answer_in(text: str) -> int | None:
    """The last number that is given, as the verifier reads it; None also where none of our problems has such a one."""
    number = last_given_number(text)
    return int(number) if number is not None and abs(number) < 10**6 and number == int(number) else None


def _read(line: str) -> tuple[int, str, int, int] | None:
    """Operands, operator and result of a line; None: it is no step."""
    found = _LINE.fullmatch(line) if len(line) <= _LONGEST_LINE else None
    return None if found is None else (int(found[1]), found[2], int(found[3]), int(found[4]))


def _judge(state: _State, line: str) -> str:
    """The kind of error of the next line, "" if it has none; the state moves on."""
    claim = _read(line)
    if claim is None:
        return FORM
    kind = _judge_claim(state, claim)
    state.seen.add(claim)
    state.available.add(claim[3])
    return kind


def _judge_claim(state: _State, claim: tuple[int, str, int, int]) -> str:
    left, op, right, result = claim
    true, plan = apply(left, op, right) == result, state.problem.plan
    due = state.operands(plan[state.due]) if state.due < len(plan) else None
    if due == (left, op, right):
        _go_on(state, [result])
        return "" if true else "arithmetic"
    if claim in state.seen:
        return "slip"
    if due is None:
        # Nothing is left to do.
        return "slip" if true else "arithmetic"
    if true and ((found := _ahead(state, claim)) is not None or (found := _term_missed(state, claim)) is not None):
        _go_on(state, found)
        return "slip"
    if true and _term_again(state, claim):
        state.results[-1] = result
        return "slip"
    copied = {left, right} - state.available - set(due[::2])
    _go_on(state, [result])
    return "copy" if copied else "combining"


def _go_on(state: _State, results: Sequence[int]) -> None:
    """The next steps have these results."""
    state.results.extend(results)
    state.due += len(results)


def _ahead(state: _State, claim: tuple[int, str, int, int]) -> list[int] | None:
    """Results of the steps up to a later one that the claim is, those that are skipped computed rightly."""
    results = list(state.results)
    for step in state.problem.plan[state.due :]:
        operands = value_of(step.left, results), step.op, value_of(step.right, results)
        if operands == claim[:3]:
            return [*results, claim[3]][len(state.results) :]
        results.append(apply(*operands))
    return None


def _term_missed(state: _State, claim: tuple[int, str, int, int]) -> list[int] | None:
    """As `_ahead`, where a chain goes on with a later operand of it, as if those between were not there."""
    plan = state.problem.plan
    left = value_of(plan[state.due].left, state.results)
    results = list(state.results)
    for step in plan[state.due :]:
        if step.chain != plan[state.due].chain:
            return None
        if (left, step.op, value_of(step.right, results)) == claim[:3]:
            return [*results, claim[3]][len(state.results) :]
        results.append(left)
    return None


def _term_again(state: _State, claim: tuple[int, str, int, int]) -> bool:
    """Whether the last step of the chain that is being worked on, or of the one that just ended, is done once more."""
    if not state.due:
        return False
    before = state.problem.plan[state.due - 1]
    return claim[:3] == (state.results[-1], before.op, value_of(before.right, state.results))
