"""The estimators of the specification in plain Python, token by token: what the real ones are tested against.

One decision: nothing of the implementation is used here, and no tensor; formulas are written as section 4 has them.

    >>> expected = reference(rows, Options(estimator="gdpo_classmate"))      # list of rows of token advantages
"""

import statistics
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """One response."""

    group: str
    """Its prompt."""
    r: float
    """Main reward."""
    w: float
    """Classmate reward W."""
    f: float
    """Fused reward."""
    k: float = 0.0
    """Consistency reward."""
    greedy: float | None = None
    """Reward of the prompt's greedy response."""
    main_valid: bool = True
    """Whether r is."""
    classmate_valid: bool = True
    """Whether W is."""
    consistency_valid: bool = True
    """Whether K is."""
    padding: bool = False
    """A copy that fills the batch."""
    correct: bool = False
    """Whether the main answer is."""
    response: tuple[int, ...] = (1, 1, 0)
    """m."""
    cot: tuple[int, ...] = (1, 0, 0)
    """k."""
    segment: tuple[int, ...] = (0, 0, 0)
    """Segment of each token."""
    utilities: tuple[float | None, ...] = ()
    """Reward of each segment."""

    @property
    def counts(self) -> bool:
        """Whether it is in any statistics."""
        return self.main_valid and not self.padding

    @property
    def has_classmate(self) -> bool:
        """Whether it has a classmate component."""
        return self.counts and self.classmate_valid


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user sets."""

    estimator: str
    """Name."""
    mode: str = "classmate_partial"
    """token_level_classmate_reward_mode."""
    clamp: str = "none"
    """classmate_advantage_clamp."""
    batch_norm: str = "sequence"
    """gdpo_batch_norm."""
    std: bool = True
    """Whether the group's standard deviation divides."""
    singleton: str = "zero"
    """singleton_group."""
    weight: float = 0.5
    """w."""
    main_weight: float = 1.0
    """v_r."""
    consistency: bool = False
    """Whether there is a consistency component."""
    consistency_weight: float = 1.0
    """w_K."""
    segments: bool = False
    """Whether the classmate reward belongs to segments."""


def normalised(values: dict[object, float], groups: dict[object, str], options: Options) -> dict[object, float]:
    """A(x) of the members of each group."""
    result = {}
    for group in {groups[key] for key in values}:
        members = [key for key in values if groups[key] == group]
        x = [values[key] for key in members]
        if len(x) < 2:
            raw = x[0] / (1 + 1e-6) if options.std else x[0]
            result[members[0]] = 0.0 if options.singleton == "zero" else raw
            continue
        mean = statistics.fmean(x)
        deviation = statistics.stdev(x) if options.std else None
        for key, value in zip(members, x, strict=True):
            result[key] = (value - mean) / (deviation + 1e-6 if deviation is not None else 1)
    return result


def reference(rows: list[Row], options: Options) -> list[list[float]]:
    """Advantages by row and token."""
    numbers = range(len(rows))
    groups: dict[object, str] = {i: rows[i].group for i in numbers}
    groups |= {(i, s): rows[i].group for i in numbers for s in range(1, len(rows[i].utilities) + 1)}
    main = normalised({i: rows[i].r for i in numbers if rows[i].counts}, groups, options)
    table = _fused if options.estimator in ("grpo", "grpo_w_classmate") else _separate
    result = table(rows, options, groups, main)
    if options.clamp == "non_neg_adv_when_main_correct":
        result = [[max(0.0, x) if row.correct else x for x in tokens] for row, tokens in zip(rows, result, strict=True)]
    return [
        [x * m if row.counts else 0.0 for x, m in zip(tokens, row.response, strict=True)]
        for row, tokens in zip(rows, result, strict=True)
    ]


def _carries(row: Row, token: int, options: Options) -> bool:
    if options.mode == "all":
        return True
    return bool(row.segment[token] if options.segments else row.cot[token])


def _segments(rows: list[Row]) -> dict[object, float]:
    return {
        (i, s): u
        for i, row in enumerate(rows)
        if row.has_classmate
        for s, u in enumerate(row.utilities, start=1)
        if u is not None
    }


def _fused(rows: list[Row], options: Options, groups: dict, main: dict) -> list[list[float]]:
    whole = {
        i: row.f
        for i, row in enumerate(rows)
        if row.has_classmate and (row.consistency_valid or not options.consistency)
    }
    fused = normalised(whole, groups, options)
    pieces = {}
    if options.segments:
        for (i, s), u in _segments(rows).items():
            if i in whole:
                extra = options.consistency_weight * rows[i].k if options.consistency else 0.0
                pieces[i, s] = rows[i].r + options.weight * u + extra
        pieces = normalised(pieces, groups, options)
    result = []
    for i, row in enumerate(rows):
        tokens = []
        for t in range(len(row.response)):
            if options.estimator == "grpo":
                value = fused.get(i, main.get(i, 0.0))
            elif not _carries(row, t, options):
                value = main.get(i, 0.0)
            elif options.segments:
                value = pieces.get((i, row.segment[t]), main.get(i, 0.0))
            else:
                value = fused.get(i, main.get(i, 0.0))
            tokens.append(value)
        result.append(tokens)
    return result


def _separate(rows: list[Row], options: Options, groups: dict, main: dict) -> list[list[float]]:
    numbers = range(len(rows))
    if options.segments:
        parts = normalised(_segments(rows), groups, options)
    else:
        parts = normalised({i: rows[i].w for i in numbers if rows[i].has_classmate}, groups, options)
    if options.clamp == "non_neg_cl":
        parts = {key: max(0.0, value) for key, value in parts.items()}
    agreement = {}
    if options.consistency:
        valid = {i: rows[i].k for i in numbers if rows[i].counts and rows[i].consistency_valid}
        agreement = normalised(valid, groups, options)

    def base(i: int) -> float:
        return options.main_weight * main.get(i, 0.0)

    def total(i: int, part: float) -> float:
        return base(i) + options.weight * part + options.consistency_weight * agreement.get(i, 0.0)

    def row_part(i: int) -> float:
        if not options.segments:
            return parts.get(i, 0.0)
        own = [value for key, value in parts.items() if key[0] == i]
        return statistics.fmean(own) if own else 0.0

    result = []
    for i, row in enumerate(rows):
        tokens = []
        for t in range(len(row.response)):
            part = parts.get((i, row.segment[t]), 0.0) if options.segments else parts.get(i, 0.0)
            tokens.append(total(i, part) if _carries(row, t, options) else base(i))
        result.append(tokens)

    sample: list[float] = []
    if options.estimator == "gdpo_classmate" and options.batch_norm == "sequence":
        sample = [total(i, row_part(i)) for i in numbers if rows[i].counts]
    elif options.estimator == "gdpo_classmate" and options.batch_norm == "token":
        sample = [
            x
            for row, tokens in zip(rows, result, strict=True)
            if row.counts
            for x, m in zip(tokens, row.response, strict=True)
            if m
        ]
    if len(sample) > 1:
        mean, deviation = statistics.fmean(sample), statistics.stdev(sample)
        result = [[(x - mean) / (deviation + 1e-6) for x in tokens] for tokens in result]
    return result
