"""An evaluation's tables: what a teacher does to each student beside its rivals, and what that costs.

Decision: a table fits into 110 columns, so that it can be read in a terminal, a mail and a log; the file has all
digits. NDR never stands alone: beside it is that of the null teacher, which says what chance alone takes away.

    >>> print(View(title="...", results=results, ...).text(width=110))
"""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table
from rich.text import Text

from verl.evaluation.teaching.exam import FIXED_ALL, FIXED_OWN, NULL, REVEALS
from verl.evaluation.teaching.fixed import Candidate, FixedAdvice
from verl.evaluation.teaching.offtask import Retention, Share
from verl.evaluation.teaching.serving import TEACHER, UNTRAINED
from verl.evaluation.teaching.summary import GROUPS, Result
from verl.teaching.evaluation_metrics import APG_GATE, NDR_GATE, Estimate

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
            _block(console, _EFFECTS, shown, _effect(shown))
            console.print()
            _block(console, _COSTS, shown, _cost)
        console.print()
        for line in _EXPLAINED:
            console.print(Text(line, style="dim"))
        for line in [*self._verdicts(), *self._fixed_lines(), *self._offtask_lines(), *self.notes]:
            console.print(line)
        return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())

    def _verdicts(self) -> list[str]:
        """Whether the target is met, or where the intervals begin; and McNemar's p where it is known."""
        lines = [f"target: intervals of NDR that begin at {NDR_GATE:g} or above, and of APG above {APG_GATE:g}"]
        for one in self.results:
            numbers = one.report
            if one.tutor != TEACHER or numbers is None or one.student in GROUPS:
                continue
            missed = [f"{name} from {_begin(getattr(numbers, name))}" for name in _failed(numbers.failed_gates)]
            p = [] if numbers.mcnemar_p is None else [f"McNemar p {numbers.mcnemar_p:.2g}"]
            detail = f" ({', '.join([*missed, *p])})" if missed or p else ""
            lines.append(f"  {one.decoding}, {one.student}: {'not met' if missed else 'met'}{detail}")
        return lines

    def _fixed_lines(self) -> list[str]:
        if self.fixed is None:
            return []
        found = self.fixed
        lines = [
            f"best fixed advice, of {len(found.candidates)} candidates ({found.distinct} different teachings were "
            f"written), {found.samples} answers to each of {found.items} training questions",
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


_EFFECTS = {
    "b": 4,
    "w": 4,
    "APG  95 %": 16,
    "over it  95 %": 16,
    "NDR  95 %": 15,
    "null": 4,
    "NDR_c  95 %": 15,
    "Sev": 4,
}
"""Columns of what a teacher does, and their widths."""
_COSTS = {
    "NGain": 5,
    "advice": 6,
    "teacher": 7,
    "TES": 6,
    "total": 6,
    "TokRed": 6,
    "CR": 4,
    "strict": 6,
    "empty": 5,
    "broken": 6,
    "leak": 4,
    "unread": 8,
    "lost": 5,
}
"""Of what it costs, and of what is wrong with it."""
_LABEL_WIDTH = 20
_EXPLAINED = (
    "b, w: solved without and with advice. over it: the teacher's w less the control's. null: NDR of the null",
    "teacher, which is chance alone. advice, teacher: mean tokens of the advice, and of all that the teacher wrote",
    "and read of the student. unread: responses without an answer, before and after. lost: trials in no number.",
)
"""Of the columns."""


def _block(
    console: Console, columns: Mapping[str, int], results: Sequence[Result], row: Callable[[Result], Sequence[str]]
) -> None:
    """A table in which each student has a heading as wide as its name."""

    def table(rows: Sequence[Sequence[str]], *, header: bool) -> Table:
        made = Table(box=None, show_header=header, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
        made.add_column("", width=_LABEL_WIDTH, no_wrap=True)
        for name, width in columns.items():
            made.add_column(name, width=width, justify="right", no_wrap=True)
        for cells in rows:
            made.add_row(*cells)
        return made

    console.print(table([], header=True))
    for (student, role), of_student in _by_student(results):
        console.print(_heading(student, role))
        console.print(table([[f"  {LABELS.get(one.tutor, one.tutor)}", *row(one)] for one in of_student], header=False))


def _heading(student: str, role: str) -> Text:
    name = " ".join(student.split())[:80]
    return Text(f"{name} ({role})" if role and not name.startswith("all ") else name, style="bold")


def _effect(results: Sequence[Result]) -> Callable[[Result], list[str]]:
    """Cells of `_EFFECTS`."""
    nulls = {one.student: one.report for one in results if one.tutor == NULL}
    teachers = {one.student: one for one in results if one.tutor == TEACHER}

    def row(one: Result) -> list[str]:
        numbers, null, teacher = one.report, nulls.get(one.student), teachers.get(one.student)
        if numbers is None:
            return ["-"] * len(_EFFECTS)
        over = None if teacher is None else teacher.gain_over.get(one.tutor)
        return [
            _share_of(numbers.b),
            _share_of(numbers.w),
            _signed(numbers.APG),
            "" if over is None else _signed(over),
            _interval(numbers.NDR),
            "-" if null is None else _share_of(null.NDR.value),
            _interval(numbers.NDR_c),
            _share_of(numbers.Sev),
        ]

    return row


def _cost(one: Result) -> list[str]:
    """Cells of `_COSTS`."""
    numbers, advice = one.report, one.advice
    if numbers is None:
        return [*["-"] * (len(_COSTS) - 1), _lost(one)]
    return [
        _plus(numbers.NGain.value),
        "" if advice is None else f"{advice.tokens:.1f}",
        "" if one.cost_tokens is None else f"{one.cost_tokens:.0f}",
        _plus(numbers.TES.value),
        _plus(numbers.TES_total.value),
        _plus(numbers.TokRed),
        _share_of(numbers.CR),
        _share_of(numbers.NDR_strict),
        "" if advice is None else _share_of(advice.empty),
        "" if advice is None else _share_of(advice.broken),
        "" if advice is None else _share_of(advice.leak_rate),
        f"{_share_of(numbers.parse_failures_baseline)} {_share_of(numbers.parse_failures_guided)}",
        _lost(one),
    ]


def _by_student(results: Sequence[Result]) -> list[tuple[tuple[str, str], list[Result]]]:
    found: dict[tuple[str, str], list[Result]] = {}
    for one in results:
        found.setdefault((one.student, one.role), []).append(one)
    return list(found.items())


def _lost(one: Result) -> str:
    """Trials that are in no number."""
    lost = sum(one.excluded.values())
    return f"{lost}" if lost or not one.failed_requests else f"0 ({one.failed_requests})"


def _share_of(value: float | None) -> str:
    """`.97`; what is not quite 1 is not shown as 1."""
    if value is None:
        return "-"
    return "1" if value == 1 else f"{value:.2f}".removeprefix("0").replace("1.00", ">.99")


def _signed(one: Estimate) -> str:
    """`+.59 [.52,.66]`."""
    ends = "" if one.interval is None else f" [{','.join(_plus(end).removeprefix('+') for end in one.interval)}]"
    return _plus(one.value) + (ends if one.value is not None else "")


def _plus(value: float | None) -> str:
    """`+.59`; what rounds to 0 has no sign."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:+.0f}"
    text = f"{value:+.2f}" if abs(value) < 10 else f"{value:+.1f}"
    return ".00" if text in ("+0.00", "-0.00") else text.replace("+0.", "+.").replace("-0.", "-.").replace("1.00", "1")


def _interval(one: Estimate) -> str:
    if one.value is None:
        return "-"
    ends = "" if one.interval is None else f" [{_share_of(one.interval[0])},{_share_of(one.interval[1])}]"
    return _share_of(one.value) + ends


def _failed(gates: Sequence[str]) -> list[str]:
    """Names of the gates that are missed."""
    return [gate.partition(":")[0] for gate in gates]


def _begin(one: Estimate) -> str:
    return "nowhere" if one.interval is None else _plus(one.interval[0]).removeprefix("+")


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
