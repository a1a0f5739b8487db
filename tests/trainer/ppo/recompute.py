"""From the rows of a dump to their advantages: the formulas of docs/method.md again, in plain Python.

One decision: this shares no line with `verl/`, not even an import, and knows only lists and floats. So it can agree
with the trainer for no other reason than that both are right.

    >>> expected = advantages(rows, Options(reward_type="vanilla_reward", ...))
    >>> expected[0].off_cot, expected[0].on_cot, expected[0].segments
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.trainer.ppo.recomputed_rewards import STEP_WISE, Options, Rewards, fused, mean, rewards

EPSILON = 1e-6
OURS = ("gdpo_classmate", "gdpo_wo_bn", "grpo_main_classmate_separated", "grpo", "grpo_w_classmate")
COMPARES_ROWS = {
    "rloo",
    "rloo_vectorized",
    "opo",
    "gpg",
    "grpo_passk",
    "grpo_vectorized",
    "reinforce_plus_plus_baseline",
}
"""verl's estimators for which a row without another one of its prompt says nothing."""

Values = list[float | None]
"""One number per row; None where the row has none."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Advantages of one row."""

    off_cot: float
    """On tokens that no classmate has read."""
    on_cot: float
    """On those that were handed over."""
    segments: tuple[float, ...] = ()
    """On those of each segment, for step-wise utility."""


def deviation(values: Sequence[float]) -> float:
    """With n - 1."""
    centre = mean(values)
    return math.sqrt(math.fsum((x - centre) ** 2 for x in values) / (len(values) - 1))


# From rewards to advantages: docs/method.md#how-it-becomes-an-advantage-algorithmadv_estimator


def normalised(values: Values, groups: Sequence[str], options: Options) -> list[float]:
    """A(x): over the rows of each group that have a value; 0 for the others, and by default for a lone one."""
    result = [0.0] * len(values)
    for group in set(groups):
        rows = [i for i in range(len(values)) if groups[i] == group and values[i] is not None]
        there = [values[i] for i in rows]
        if len(rows) < 2:
            if options.singleton == "raw" and rows:
                result[rows[0]] = there[0] / (1 + EPSILON) if options.norm_by_std else there[0]
            continue
        centre, scale = mean(there), deviation(there) + EPSILON if options.norm_by_std else 1.0
        for i in rows:
            result[i] = (values[i] - centre) / scale
    return result


def normalised_segments(values: list[Values], groups: Sequence[str], options: Options) -> list[list[float]]:
    """The same for a value per segment, where all segments of a prompt are one group."""
    flat = normalised(
        [x for row in values for x in row], [g for row, g in zip(values, groups, strict=True) for _ in row], options
    )
    numbers = iter(flat)
    return [[next(numbers) for _ in row] for row in values]


def advantages(rows: Sequence[dict[str, Any]], options: Options) -> list[Expected] | None:
    """What each row's tokens are to get; None where it depends on what no dump holds (a critic).

    With `remax` the numbers of a prompt's rows are right up to a common summand, its baseline.
    """
    parts = [rewards(row, options) for row in rows]
    groups = [row["uid"] for row in rows]
    asked = [part for part in parts if part.main is not None and part.asked]
    if sum(part.classmate is not None for part in asked) < options.min_valid * len(asked):
        for part in parts:
            part.classmate, part.segments, part.consistency = None, (None,) * len(part.segments), None
    if options.estimator in OURS:
        return of_parts(parts, groups, options)
    return of_verl(parts, groups, [row["response_tokens"] for row in rows], options)


def of_parts(
    parts: list[Rewards], groups: list[str], options: Options, tokens: Sequence[Sequence[int]] = ()
) -> list[Expected]:
    """The project's own estimators.

    Of each row's `tokens`, which `batch_norm="token"` needs: 0 for one that nobody has read, else the number of its
    segment, which is 1 for all where there are none.
    """
    table = of_fused if options.estimator in ("grpo", "grpo_w_classmate") else decoupled
    result = table(parts, groups, options, tokens)
    if options.clamp == "non_neg_adv_when_main_correct":
        result = [raised(one) if part.correct else one for one, part in zip(result, parts, strict=True)]
    nothing = Expected(off_cot=0.0, on_cot=0.0, segments=(0.0,) * options.segments)
    return [nothing if part.main is None else one for one, part in zip(result, parts, strict=True)]


def on_tokens(one: Expected, tokens: Sequence[int], options: Options) -> list[float]:
    """A row's advantages token by token."""
    by_segment = one.segments if options.reward_type == STEP_WISE else (one.on_cot,)
    return [by_segment[token - 1] if token else one.off_cot for token in tokens]


def raised(one: Expected) -> Expected:
    return Expected(
        off_cot=max(one.off_cot, 0.0), on_cot=max(one.on_cot, 0.0), segments=tuple(max(x, 0.0) for x in one.segments)
    )


def decoupled(
    parts: list[Rewards], groups: list[str], options: Options, tokens: Sequence[Sequence[int]]
) -> list[Expected]:
    """GDPO and the separated GRPO: each part normalised on its own."""
    gdpo = options.estimator != "grpo_main_classmate_separated"
    main = normalised([part.main for part in parts], groups, options)
    main = [(options.main_weight if gdpo else 1.0) * x for x in main]
    agreement = normalised([part.consistency for part in parts], groups, options)
    agreement = [options.consistency_weight * x for x in agreement]
    floor: Callable[[float], float] = (lambda x: max(x, 0.0)) if options.clamp == "non_neg_cl" else (lambda x: x)
    if options.reward_type == STEP_WISE:
        given = [list(part.segments) for part in parts]
        per_segment = [[floor(x) for x in row] for row in normalised_segments(given, groups, options)]
        counts = [sum(x is not None for x in row) for row in given]
        classmate = [math.fsum(row) / max(count, 1) for row, count in zip(per_segment, counts, strict=True)]
    else:
        per_segment = [[] for _ in parts]
        classmate = [floor(x) for x in normalised([part.classmate for part in parts], groups, options)]
    weight = options.weight
    total = [r + weight * c + k for r, c, k in zip(main, classmate, agreement, strict=True)]
    segments = [[r + weight * x + k for x in row] for r, row, k in zip(main, per_segment, agreement, strict=True)]
    everywhere = options.token_mode == "all"
    result = [
        Expected(off_cot=s if everywhere else r, on_cot=s, segments=tuple(row))
        for r, s, row in zip(main, total, segments, strict=True)
    ]
    counted = [i for i, part in enumerate(parts) if part.main is not None]
    sample: list[float] = []
    alone: list[float] = []
    if options.estimator == "gdpo_classmate" and options.batch_norm == "sequence":
        sample, alone = [total[i] for i in counted], [main[i] for i in counted]
    elif options.estimator == "gdpo_classmate" and options.batch_norm == "token":
        sample = [x for i in counted for x in on_tokens(result[i], tokens[i], options)]
        alone = [main[i] for i in counted for _ in tokens[i]]
    if len(sample) < 2:
        return result
    # docs/method.md#batch-normalisation-of-gdpo_classmate
    centre, spread = mean(sample), max(deviation(sample), deviation(alone) / 10) + EPSILON

    def scaled(x: float) -> float:
        return (x - centre) / spread

    return [
        Expected(off_cot=scaled(one.off_cot), on_cot=scaled(one.on_cot), segments=tuple(map(scaled, one.segments)))
        for one in result
    ]


def of_fused(
    parts: list[Rewards], groups: list[str], options: Options, tokens: Sequence[Sequence[int]]
) -> list[Expected]:
    """GRPO on F; `grpo_w_classmate` on F where the classmates read and on r elsewhere."""
    whole = [part.classmate is not None and (part.consistency is not None or not options.consistency) for part in parts]
    main = normalised([part.main for part in parts], groups, options)
    final = normalised([part.fused if ok else None for part, ok in zip(parts, whole, strict=True)], groups, options)
    on = [f if ok else r for f, r, ok in zip(final, main, whole, strict=True)]
    if options.estimator == "grpo" or options.token_mode == "all":
        return [Expected(off_cot=x, on_cot=x, segments=(x,) * len(p.segments)) for x, p in zip(on, parts, strict=True)]
    if options.reward_type != STEP_WISE:
        return [Expected(off_cot=r, on_cot=x) for r, x in zip(main, on, strict=True)]
    values = [
        [
            None
            if u is None or not ok
            else fused(part.main, u, u, options) + options.consistency_weight * (part.consistency or 0.0)
            for u in part.segments
        ]
        for part, ok in zip(parts, whole, strict=True)
    ]
    per_segment = normalised_segments(values, groups, options)
    return [
        Expected(
            off_cot=r,
            on_cot=math.nan,
            segments=tuple(r if u is None else x for u, x in zip(given, numbers, strict=True)),
        )
        for r, given, numbers in zip(main, values, per_segment, strict=True)
    ]


def of_verl(parts: list[Rewards], groups: list[str], lengths: list[int], options: Options) -> list[Expected] | None:
    """verl's own estimators on F, r where F lacks a part."""
    name = options.estimator
    if name == "gae":
        return None
    whole = [part.classmate is not None and (part.consistency is not None or not options.consistency) for part in parts]
    score: Values = [part.fused if ok else part.main for part, ok in zip(parts, whole, strict=True)]
    shown = [i for i, part in enumerate(parts) if part.main is not None]
    members = {group: [i for i in shown if groups[i] == group] for group in set(groups)}
    if name in COMPARES_ROWS:
        shown = [i for i in shown if len(members[groups[i]]) > 1]
    nonzero = sum(score[i] != 0 for i in shown)
    result = [0.0] * len(parts)
    for i in shown:
        rows = members[groups[i]]
        own, all_of = score[i], [score[j] for j in rows]
        if name in ("rloo", "rloo_vectorized"):
            result[i] = (own - mean(all_of)) * len(rows) / (len(rows) - 1)
        elif name == "opo":
            result[i] = own - math.fsum(lengths[j] * score[j] for j in rows) / sum(lengths[j] for j in rows)
        elif name == "gpg":
            result[i] = len(shown) / max(nonzero, 1) * (own - mean(all_of))
        elif name == "grpo_vectorized":
            result[i] = (own - mean(all_of)) / (deviation(all_of) + EPSILON)
        elif name == "grpo_passk":
            best, second = sorted(all_of, reverse=True)[:2]
            result[i] = (best - second) / (deviation(all_of) + EPSILON) if own == best else 0.0
        elif name == "reinforce_plus_plus_baseline":
            result[i] = own - mean(all_of)
        elif name in ("reinforce_plus_plus", "remax"):
            result[i] = own
        else:
            raise AssertionError(f"{name} is not known here: write its formula down")
    if name.startswith("reinforce_plus_plus"):
        tokens = [result[i] for i in shown for _ in range(lengths[i])]
        centre, spread = mean(tokens), math.sqrt(deviation(tokens) ** 2 + 1e-8)
        result = [(x - centre) / spread if i in shown else 0.0 for i, x in enumerate(result)]
    return [
        Expected(off_cot=x, on_cot=x, segments=(x,) * len(part.segments)) for x, part in zip(result, parts, strict=True)
    ]
