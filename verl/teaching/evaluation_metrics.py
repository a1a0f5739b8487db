"""What a teacher's evaluation says: how much its advice helps, whether it does harm, and what it costs.

One decision: a number that is not defined is None, never 0 and never NaN; so is an interval. Items are what is averaged
over: the seeds of an item, and the samples of a seed, only make its own number more exact.

    >>> report = evaluate(trials)
    >>> report.APG.value, report.APG.interval, report.NDR.value
    (0.143, (0.118, 0.169), 0.991)
    >>> report.target_met, report.failed_gates
    (False, ('NDR: the interval begins at 0.983, not at 0.99 or above',))

b and w are an item's mean scores without and with teaching, D = w - b, L the tokens of the teaching. With no effect at
all and a solve rate p, one sample of each gives NDR = 1 - p(1-p): show it beside that of the null teacher.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from verl.utils.significance import LEVEL, fewer_right, percentiles, sign_test, wilson

RESAMPLES = 2000
"""Of a bootstrap."""
NDR_GATE, APG_GATE = 0.99, 0.1
"""Where the intervals of NDR and APG must begin: at the first or above, and above the second."""
_ROUNDING = 1e-12
"""By which two equal means may differ in their last digits."""
_STRICT_LEVEL = 0.05
"""From which p on an item's harm counts as chance, in NDR_strict."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """One response of a student. Failed calls are none."""

    score: float
    """0 to 1; 0 without an answer."""
    parsed: bool
    """Whether it has an answer."""
    stopped: bool
    """Whether it ended by itself, before its budget."""
    tokens: int
    """Its whole length."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """An item at one seed, asked with and without teaching.

    Raises:
        ValueError: one side has no response, or a number is none.
    """

    item: str
    """Which question; the same at all seeds."""
    seed: int
    """Of both sides."""
    baseline: tuple[Response, ...]
    """Without teaching; at least one."""
    guided: tuple[Response, ...] | None
    """With teaching, at least one; None where the teaching was blank, so that the student was not asked again and the
    baseline stands for both sides."""
    teaching_tokens: int
    """L; 0 where the teaching was blank."""
    teacher_tokens: int
    """The teacher's whole output."""
    probe_tokens: int
    """The student's outline. All of these in the student's tokens."""
    leaked: bool | None = None
    """Whether the teaching gives the answer away; None where nobody looked."""
    question: str | None = None
    """Items of one question, such as those of several students, are resampled together; None: the item is its own."""

    def __post_init__(self) -> None:
        for side, responses in (("baseline", self.baseline), ("guided", self.after)):
            if not responses:
                raise ValueError(f"item {self.item}: no {side} response; leave the trial out and count it as excluded")
            for response in responses:
                if not (math.isfinite(response.score) and 0 <= response.score <= 1):
                    raise ValueError(f"item {self.item}: {response.score} is no score; write a number from 0 to 1")
                if response.score and not response.parsed:
                    raise ValueError(f"item {self.item}: a response without an answer is scored; give it a score of 0")
        counts = (self.teaching_tokens, self.teacher_tokens, self.probe_tokens, *(r.tokens for r in self.responses))
        if min(counts) < 0:
            raise ValueError(f"item {self.item}: {min(counts)} tokens cannot be; write 0 or more")
        if self.guided is None and self.teaching_tokens:
            raise ValueError(f"item {self.item}: it was taught and has no guided response; write these, or 0 tokens")

    @property
    def after(self) -> tuple[Response, ...]:
        """The guided responses, or those that stand for them."""
        return self.baseline if self.guided is None else self.guided

    @property
    def responses(self) -> tuple[Response, ...]:
        """Of both sides."""
        return self.baseline + self.after


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number and how sure it is."""

    value: float | None
    """None where it is not defined."""
    interval: tuple[float, float] | None = None
    """95 %; None where there is none."""


@dataclass(frozen=True, kw_only=True)
class EvaluationReport:
    """The numbers of one teacher with one student."""

    items: int
    """Questions."""
    trials: int
    """Items times seeds."""
    baseline_samples: float
    """Mean number of responses of an item, over all its seeds."""
    guided_samples: float
    """The same with teaching; those that the baseline stands for count too."""
    b: float
    """Mean score without teaching."""
    w: float
    """Mean score with teaching."""
    APG: Estimate
    """Adaptive performance gain, mean D; paired bootstrap."""
    NGain: Estimate
    """(w - b) / (1 - b) of the means; None if nothing is left to gain."""
    NDR: Estimate
    """Non-degradation rate, the share of items with D >= 0; Wilson."""
    NDR_strict: float | None
    """The share of items of which an exact test at 5 % does not say that teaching harms; None where an item has too few
    samples for that test ever to say so."""
    NDR_c: Estimate
    """P(guided right | baseline right): sum of b w over sum of b, where a blank teaching keeps all that was right;
    Wilson. None if nothing was right before."""
    Sev: float | None
    """Mean |D| of the items that were harmed; None if none was."""
    CR: float
    """Completion rate: share of guided responses that end by themselves and have an answer."""
    TES: Estimate
    """Teaching efficiency score, APG * CR / (mean L / 1000); None if mean L < 1."""
    TES_total: Estimate
    """The same with the teacher's whole output and the probe for L."""
    TokRed: float | None
    """1 - guided tokens / baseline tokens; None without baseline tokens."""
    TokRed_total: float | None
    """The same with the teacher's whole output and the probe among the guided tokens."""
    mcnemar_p: float | None
    """McNemar's exact two-sided p; None unless each item has one right or wrong response on each side."""
    parse_failures_baseline: float
    """Share of responses without an answer, without teaching. A difference of the two fakes a gain."""
    parse_failures_guided: float
    """The same with teaching."""
    leak_rate: float | None
    """Share of trials whose teaching gives the answer away; None if nobody looked."""
    failed_gates: tuple[str, ...]
    """Which gates of the target are not passed, and how they are missed."""

    @property
    def target_met(self) -> bool:
        """Whether the intervals of NDR and APG begin at or above 0.99, and above 0.1."""
        return not self.failed_gates

    def as_json(self) -> dict[str, Any]:
        """All numbers by their names; what is not defined is null."""
        return {**asdict(self), "target_met": self.target_met}


def evaluate(trials: Iterable[Trial], *, seed: int = 0, resamples: int = RESAMPLES) -> EvaluationReport:
    """All numbers of an evaluation.

    Intervals of APG, NGain, TES and TES_total come from resampling questions, then the seeds within each of their
    items, both sides together. There is none for one question alone, nor where a resample leaves the number undefined.

    Args:
        trials: every item at least once; what had a failed call is left out and counted by the caller.
        seed: of the resampling; the same trials and seed give the same intervals.
        resamples: how many.

    Raises:
        ValueError: no trial, the same item and seed twice, or no resample.
    """
    if resamples < 1:
        raise ValueError(f"{resamples} resamples give no interval; write 1 or more")
    by_item = _by_item(trials)
    cells = [[_numbers(trial) for trial in item] for item in by_item.values()]
    item_means = np.array([np.mean(item, axis=0) for item in cells])
    whole = _derived(item_means.mean(axis=0))
    asked = _questions(by_item)
    intervals = _intervals(cells, asked, seed, resamples) if len(asked) > 1 else {}
    b_J, w_J = item_means[:, _B], item_means[:, _W]
    kept = [not _is_lower(after, before) for before, after in zip(b_J, w_J, strict=True)]
    harm = [float(before - after) for before, after, fine in zip(b_J, w_J, kept, strict=True) if not fine]
    right = math.fsum(b_J)
    right_twice = min(math.fsum(item_means[:, _STILL_RIGHT]), right)
    estimates = {name: Estimate(value=whole[name], interval=intervals.get(name)) for name in whole}
    NDR = Estimate(value=sum(kept) / len(kept), interval=wilson(sum(kept), len(kept)))
    flat = [trial for item in by_item.values() for trial in item]
    means = item_means.mean(axis=0)
    return EvaluationReport(
        items=len(cells),
        trials=len(flat),
        baseline_samples=sum(len(trial.baseline) for trial in flat) / len(cells),
        guided_samples=sum(len(trial.after) for trial in flat) / len(cells),
        b=float(means[_B]),
        w=float(means[_W]),
        NDR=NDR,
        NDR_strict=_strict(list(by_item.values())),
        NDR_c=Estimate(value=right_twice / right if right else None, interval=wilson(right_twice, right)),
        Sev=math.fsum(harm) / len(harm) if harm else None,
        CR=float(means[_COMPLETE]),
        TokRed=_reduction(means[_AFTER_TOKENS], means[_BEFORE_TOKENS]),
        TokRed_total=_reduction(means[_AFTER_TOKENS] + means[_TOTAL], means[_BEFORE_TOKENS]),
        mcnemar_p=_mcnemar(list(by_item.values())),
        parse_failures_baseline=float(means[_UNPARSED_BEFORE]),
        parse_failures_guided=float(means[_UNPARSED_AFTER]),
        leak_rate=_leak_rate(flat),
        failed_gates=_failed_gates(NDR, estimates["APG"]),
        **estimates,
    )


_B, _W, _STILL_RIGHT, _TEACHING, _TOTAL, _COMPLETE = range(6)
_BEFORE_TOKENS, _AFTER_TOKENS, _UNPARSED_BEFORE, _UNPARSED_AFTER = range(6, 10)
"""Columns of `_numbers`."""


def _numbers(trial: Trial) -> list[float]:
    """The means of one trial."""
    before, after = trial.baseline, trial.after
    b, w = (_mean(response.score for response in side) for side in (before, after))
    return [
        b,
        w,
        # After a blank teaching the same response stands on both sides: what was right is.
        b if trial.guided is None else b * w,
        trial.teaching_tokens,
        trial.teacher_tokens + trial.probe_tokens,
        _mean(response.stopped and response.parsed for response in after),
        _mean(response.tokens for response in before),
        _mean(response.tokens for response in after),
        _mean(not response.parsed for response in before),
        _mean(not response.parsed for response in after),
    ]


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)


def _by_item(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    found: dict[str, dict[int, Trial]] = {}
    for trial in trials:
        seeds = found.setdefault(trial.item, {})
        if trial.seed in seeds:
            raise ValueError(f"item {trial.item} is there twice at seed {trial.seed}; write one trial with all samples")
        seeds[trial.seed] = trial
    if not found:
        raise ValueError("there is nothing to evaluate; give at least one trial, with a student and a baseline")
    # In an order of their own, so that it does not count which one ended first.
    return {item: [seeds[seed] for seed in sorted(seeds)] for item, seeds in sorted(found.items())}


def _derived(means: np.ndarray) -> dict[str, float | None]:
    """The numbers that have a bootstrap, from the means over items; None where one is not defined."""
    gain = float(means[_W] - means[_B])
    left = 1 - float(means[_B])
    return {
        "APG": gain,
        "NGain": gain / left if left > _ROUNDING else None,
        "TES": _efficiency(gain * float(means[_COMPLETE]), float(means[_TEACHING])),
        "TES_total": _efficiency(gain * float(means[_COMPLETE]), float(means[_TOTAL])),
    }


def _efficiency(gain: float, tokens: float) -> float | None:
    return None if tokens < 1 else gain / (tokens / 1000)


def _reduction(after: float, before: float) -> float | None:
    return 1 - float(after) / float(before) if before else None


def _questions(by_item: Mapping[str, Sequence[Trial]]) -> list[np.ndarray]:
    """The places of the items of each question."""
    found: dict[tuple[bool, str], list[int]] = {}
    for place, (item, trials) in enumerate(by_item.items()):
        question = trials[0].question
        found.setdefault((question is None, item if question is None else question), []).append(place)
    return [np.array(places) for places in found.values()]


def _intervals(
    cells: Sequence[Sequence[Sequence[float]]], asked: Sequence[np.ndarray], seed: int, resamples: int
) -> Mapping[str, tuple[float, float] | None]:
    """Percentile intervals; a question is drawn with its items, and of the seeds of an item as many as it has."""
    drawn = np.random.default_rng(seed)
    even = len({len(places) for places in asked}) == 1
    together = np.stack(asked) if even else np.zeros(0, dtype=int)
    seeds_J = np.array([len(item) for item in cells])
    starts_J = np.concatenate([[0], np.cumsum(seeds_J)[:-1]])
    flat = np.array([numbers for item in cells for numbers in item])
    found: dict[str, list[float | None]] = {}
    for _ in range(resamples):
        questions = drawn.integers(len(asked), size=len(asked))
        items = together[questions].ravel() if even else np.concatenate([asked[i] for i in questions])
        sizes = seeds_J[items]
        within = np.floor(drawn.random(sizes.sum()) * np.repeat(sizes, sizes)).astype(int)
        rows = flat[np.repeat(starts_J[items], sizes) + within]
        ends = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        means = (np.add.reduceat(rows, ends, axis=0) / sizes[:, None]).mean(axis=0)
        for name, value in _derived(means).items():
            found.setdefault(name, []).append(value)
    intervals: dict[str, tuple[float, float] | None] = {}
    for name, values in found.items():
        known = [value for value in values if value is not None]
        intervals[name] = percentiles(known) if len(known) == len(values) else None
    return intervals


def _is_lower(after: float, before: float) -> bool:
    """Whether D < 0."""
    return bool(after < before - _ROUNDING)


def _strict(items: Sequence[Sequence[Trial]]) -> float | None:
    """NDR_strict: Fisher's exact test of each item, over the samples of all its seeds."""
    harmed = 0
    for trials in items:
        before = [response.score for trial in trials for response in trial.baseline]
        # A blank teaching is no effect by definition, and no second sample.
        after = [response.score for trial in trials for response in trial.guided or ()]
        if not after:
            continue
        if not {*before, *after} <= {0, 1} or fewer_right(0, len(after), len(before), len(before)) >= _STRICT_LEVEL:
            return None
        p = fewer_right(int(sum(after)), len(after), int(sum(before)), len(before))
        harmed += p < _STRICT_LEVEL
    return 1 - harmed / len(items)


def _mcnemar(items: Sequence[Sequence[Trial]]) -> float | None:
    pairs = []
    for trials in items:
        if len(trials) != 1 or len(trials[0].baseline) != 1 or len(trials[0].after) != 1:
            return None
        pairs.append((trials[0].baseline[0].score, trials[0].after[0].score))
    if not {score for pair in pairs for score in pair} <= {0, 1}:
        return None
    return sign_test(sum(after > before for before, after in pairs), sum(after < before for before, after in pairs))


def _leak_rate(trials: Sequence[Trial]) -> float | None:
    known = [trial.leaked for trial in trials if trial.leaked is not None]
    return sum(known) / len(known) if known else None


def _failed_gates(NDR: Estimate, APG: Estimate) -> tuple[str, ...]:
    failed = []
    for name, estimate, gate, strictly in (("NDR", NDR, NDR_GATE, False), ("APG", APG, APG_GATE, True)):
        wanted = f"above {gate:g}" if strictly else f"at {gate:g} or above"
        if estimate.interval is None:
            failed.append(f"{name}: it has no {LEVEL:.0%} interval, which must begin {wanted}")
        # 0.4 - 0.3 is not above 0.1.
        elif estimate.interval[0] <= gate + _ROUNDING if strictly else estimate.interval[0] < gate - _ROUNDING:
            failed.append(f"{name}: the interval begins at {estimate.interval[0]:.5g}, not {wanted}")
    return tuple(failed)
