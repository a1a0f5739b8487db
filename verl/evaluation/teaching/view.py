"""An evaluation's tables: what a teacher does to each student beside its rivals, and what that costs.

Decision: a table fits into 110 columns, so that it can be read in a terminal, a mail and a log; the file has all
digits. NDR never stands alone: beside it is that of the null teacher, which says what chance alone takes away.

    >>> print(View(title="...", results=results, ...).text(width=110))
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verl.evaluation.teaching.exam import FIXED_ALL, FIXED_OWN, NULL, REVEALS
from verl.evaluation.teaching.fixed import Candidate, FixedAdvice
from verl.evaluation.teaching.offtask import Retention, Share
from verl.evaluation.teaching.serving import TEACHER, UNTRAINED
from verl.evaluation.teaching.summary import Result
from verl.teaching.evaluation_metrics import Estimate

WIDTH = 110
"""Columns where nobody knows the terminal's, and at most."""

LABELS = {
    TEACHER: "teacher",
    NULL: "null (asked again)",
    UNTRAINED: "untrained teacher",
    REVEALS: "tells the answer",
    FIXED_ALL: "fixed, one for all",
    FIXED_OWN: "fixed, its own",
}
"""Tutors for a person."""

_LONGEST_ADVICE = 70


@dataclass(frozen=True, kw_only=True)
class View:
    """What is shown."""

    title: str
    """What was evaluated."""
    lines: Sequence[str] = ()
    """Said before the tables."""
    results: Sequence[Result]
    """All numbers."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """How each decoding asks, for its heading."""
    fixed: FixedAdvice | None = None
    """The search of fixed advice."""
    students: Sequence[str] = ()
    """Their names, by number."""
    retention: Retention | None = None
    """Off the task."""
    notes: Sequence[str] = ()
    """Lines to be printed as they are."""

    def text(self, *, width: int = WIDTH, colours: bool = False) -> str:
        """For a terminal."""
        buffer = io.StringIO()
        console = Console(
            file=buffer, force_terminal=colours, width=min(width, WIDTH), highlight=False, markup=False, emoji=False
        )
        console.print(Text(self.title, style="bold"))
        for line in self.lines:
            console.print(line)
        for decoding in dict.fromkeys(one.decoding for one in self.results):
            shown = [one for one in self.results if one.decoding == decoding]
            console.print()
            console.print(Text(f"{decoding}: {self.settings.get(decoding, '')}".rstrip(": "), style="bold"))
            console.print(_effects(shown))
            console.print(_costs(shown))
        console.print()
        for line in [*self._verdicts(), *self._fixed_lines(), *self._offtask_lines(), *self.notes]:
            console.print(line)
        return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())

    def _verdicts(self) -> list[str]:
        """Whether the target is met, per student; and McNemar's p where it is known."""
        lines = []
        for one in self.results:
            if one.tutor != TEACHER or one.report is None:
                continue
            verdict = "met" if one.report.target_met else "not met: " + "; ".join(one.report.failed_gates)
            p = "" if one.report.mcnemar_p is None else f" (McNemar p {one.report.mcnemar_p:.2g})"
            lines.append(f"target, {one.decoding}, {one.student}: {verdict}{p}")
        return lines

    def _fixed_lines(self) -> list[str]:
        if self.fixed is None:
            return []
        found = self.fixed
        lines = [
            f"best fixed advice: of {len(found.candidates)} candidates, {found.distinct} teachings were written, "
            f"tried on {found.items} questions of the training, {found.samples} answers each",
            f"  one for all: {_advice(found.for_all)}",
        ]
        return lines + [
            f"  for {name}: {_advice(one, r)}"
            for r, (name, one) in enumerate(zip(self.students, found.own, strict=True))
        ]

    def _offtask_lines(self) -> list[str]:
        if self.retention is None:
            return []
        one = self.retention
        line = f"off task, the teacher's own answers: {_share(one.after)} right after training"
        if one.before is not None:
            line += f", {_share(one.before)} before; {one.lost} lost, {one.won} won"
            line += "" if one.p is None else f" (McNemar p {one.p:.2g})"
        return [line]


def _effects(results: Sequence[Result]) -> Table:
    """What it does."""
    table = _table("", "b", "w", "APG  95 %", "over it  95 %", "NDR  95 %", "null", "NDR_c  95 %", "strict", "Sev")
    nulls = {one.student: one for one in results if one.tutor == NULL}
    teachers = {one.student: one for one in results if one.tutor == TEACHER}
    for student, of_student in _by_student(results):
        _heading(table, student)
        null = nulls.get(student[0])
        for one in of_student:
            numbers = one.report
            if numbers is None:
                table.add_row(_label(one), *("-" for _ in range(9)))
                continue
            over = teachers[student[0]].gain_over.get(one.tutor) if student[0] in teachers else None
            table.add_row(
                _label(one),
                _share_of(numbers.b),
                _share_of(numbers.w),
                _signed(numbers.APG),
                _signed(over) if over is not None else "",
                _interval(numbers.NDR),
                "-" if null is None or null.report is None else _share_of(null.report.NDR.value),
                _interval(numbers.NDR_c),
                _share_of(numbers.NDR_strict),
                _share_of(numbers.Sev),
            )
    return table


def _costs(results: Sequence[Result]) -> Table:
    """What it costs, and what is wrong with it."""
    names = (
        "NGain",
        "advice",
        "teacher",
        "TES",
        "total",
        "TokRed",
        "CR",
        "empty",
        "broken",
        "leak",
        "no answer",
        "lost",
    )
    table = _table("", *names)
    for student, of_student in _by_student(results):
        _heading(table, student)
        for one in of_student:
            numbers, advice = one.report, one.advice
            if numbers is None:
                table.add_row(_label(one), *("-" for _ in range(11)), _lost(one))
                continue
            table.add_row(
                _label(one),
                _number(numbers.NGain.value),
                "" if advice is None else f"{advice.tokens:.1f}",
                "" if one.cost_tokens is None else f"{one.cost_tokens:.0f}",
                _number(numbers.TES.value),
                _number(numbers.TES_total.value),
                _number(numbers.TokRed),
                _share_of(numbers.CR),
                "" if advice is None else _share_of(advice.empty),
                "" if advice is None else _share_of(advice.broken),
                "" if advice is None else _share_of(advice.leak_rate),
                f"{_share_of(numbers.parse_failures_baseline)} {_share_of(numbers.parse_failures_guided)}",
                _lost(one),
            )
    return table


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place else "left", no_wrap=True, overflow="ellipsis")
    return table


def _heading(table: Table, student: tuple[str, str]) -> None:
    name, role = student
    table.add_row(Text(f"{name[:60]} ({role})" if role and not name.startswith("all ") else name[:60], style="bold"))


def _by_student(results: Sequence[Result]) -> list[tuple[tuple[str, str], list[Result]]]:
    found: dict[tuple[str, str], list[Result]] = {}
    for one in results:
        found.setdefault((one.student, one.role), []).append(one)
    return list(found.items())


def _label(one: Result) -> str:
    return f"  {LABELS.get(one.tutor, one.tutor)}"


def _lost(one: Result) -> str:
    """Trials that are in no number."""
    lost = sum(one.excluded.values())
    return f"{lost}" if lost or not one.failed_requests else f"0 ({one.failed_requests})"


def _share_of(value: float | None) -> str:
    """`.97`; what is not quite 1 is not shown as 1."""
    if value is None:
        return "-"
    return "1" if value == 1 else f"{value:.2f}".removeprefix("0").replace("1.00", ">.99")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f}" if abs(value) < 100 else f"{value:+.0f}"


def _signed(one: Estimate) -> str:
    if one.value is None:
        return "-"
    return _plus(one.value) + ("" if one.interval is None else f" [{_plus(one.interval[0])},{_plus(one.interval[1])}]")


def _plus(value: float) -> str:
    """`+.59`; what rounds to 0 has no sign."""
    text = f"{value:+.2f}"
    return ".00" if text in ("+0.00", "-0.00") else text.replace("0.", ".", 1)


def _interval(one: Estimate) -> str:
    if one.value is None:
        return "-"
    ends = "" if one.interval is None else f" [{_share_of(one.interval[0])},{_share_of(one.interval[1])}]"
    return _share_of(one.value) + ends


def _advice(one: Candidate, reader: int | None = None) -> str:
    text = " ".join(one.text.split())
    shown = "(no advice)" if not text else f"{text[:_LONGEST_ADVICE]!r}{'...' if len(text) > _LONGEST_ADVICE else ''}"
    gain = None if reader is None else one.gains[reader]
    told = "" if gain is None else f", {gain:+.3f} there"
    return f"{shown} ({one.origin}, {one.times} times{told})" if text else f"{shown}{told}"


def _share(one: Share) -> str:
    if one.share is None or one.interval is None:
        return f"none of {one.failed} could be asked,"
    ends = f"[{_share_of(one.interval[0])},{_share_of(one.interval[1])}]"
    failed = f", {one.failed} not asked" if one.failed else ""
    return f"{_share_of(one.share)} {ends} of {one.answered}{failed}"
