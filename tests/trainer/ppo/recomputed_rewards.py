"""From the rows of a dump to the parts of their rewards: the formulas of docs/method.md, symbol by symbol.

The first half of `recompute`, under the same rule: not a line of `verl/`.

    >>> rewards(row, Options(reward_type="vanilla_reward", ...)).classmate
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

NOT_ASKED = {"empty_cot", "unfinished_cot", "too_long", "no_partner"}
POLICY_FAILURES = {"unfinished_cot", "no_answer"}
STEP_WISE = "random_truncate_step_wise_utility"
COMPARES_VIEWS = ("remove_wo_cot", "random_truncate_remove_wo_cot", "likelihood_gain", STEP_WISE)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the advantages of a run depend on."""

    reward_type: str
    condition: str
    estimator: str
    token_mode: str = "classmate_partial"
    aggregation: str = "mean"
    fusion: str = "sum"
    clamp: str = "none"
    consistency: bool = False
    weight: float = 1.0
    consistency_weight: float = 1.0
    main_weight: float = 1.0
    threshold: float = 0.5
    min_valid: float = 0.5
    batch_norm: str = "sequence"
    singleton: str = "zero"
    norm_by_std: bool = True
    segments: int = 2
    token_cost: float = 0.0
    empty: str = "lowest"
    lowest: float = 0.0


@dataclass(kw_only=True)
class Rewards:
    """The parts of one row's reward; None where there is none. One segment each for what step-wise utility cuts."""

    main: float | None
    correct: bool
    asked: bool
    classmate: float | None = None
    segments: tuple[float | None, ...] = ()
    consistency: float | None = None
    fused: float | None = None


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def combined(values: Iterable[float | None], how: str) -> float | None:
    """Mean or maximum of those that there are."""
    there = [x for x in values if x is not None]
    return None if not there else max(there) if how == "max" else mean(there)


def difference(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second


def main_reward(row: dict[str, Any]) -> float | None:
    """r, the main reward."""
    if row["main_outcome"] in POLICY_FAILURES:
        return 0.0
    return row["main_score"] if row["main_outcome"] == "ok" else None


def written(row: dict[str, Any]) -> int:
    """Tokens of the policy; what tools wrote into a response is not its own."""
    turns = row.get("turns", [[0, row["response_tokens"]]])
    return sum(end - first for first, end in turns)


def condition(correct: bool, options: Options) -> float:
    """gamma, the condition."""
    return {
        "always": 1.0,
        "no_classmate": 0.0,
        "no_classmate_when_main_incorrect": 1.0 if correct else 0.0,
        "neg_classmate_when_main_incorrect": 1.0 if correct else -1.0,
    }[options.condition]


def views_of(row: dict[str, Any]) -> int:
    """How many views of the row its classmates were shown, of which the first is the fullest."""
    return 1 + max((len(one.get("further_prompts", ())) for one in row["classmates"]), default=0)


def of_view(one: dict[str, Any], view: int, key: str = "score") -> float | None:
    """The mean of one classmate's answers to a view."""
    return combined(
        (s.get(key) if s["outcome"] == "ok" else None for s in one["samples"] if s.get("view", 0) == view), "mean"
    )


def gain(row: dict[str, Any], first: int, second: int, options: Options) -> float | None:
    """Between two views, over the classmates that answered both."""
    pairs = [(of_view(one, first), of_view(one, second)) for one in row["classmates"]]
    both = [pair for pair in pairs if None not in pair]
    sides = [combined(scores, options.aggregation) for scores in zip(*both, strict=True)]
    return difference(*sides) if sides else None


def classmate_scores(row: dict[str, Any], options: Options) -> tuple[float | None, float | None]:
    """C, and that of the best classmate."""
    if options.reward_type in COMPARES_VIEWS:
        last = views_of(row) - 1
        each = [difference(of_view(one, 0), of_view(one, last)) for one in row["classmates"]]
        return gain(row, 0, last, options), combined(each, "max")
    each = [of_view(one, 0) for one in row["classmates"]]
    return combined(each, options.aggregation), combined(each, "max")


def segment_scores(row: dict[str, Any], options: Options) -> list[float | None]:
    """C of each segment. Views go from the longest prefix down to none: the first segment is the last step."""
    return [gain(row, k, k + 1, options) for k in reversed(range(views_of(row) - 1))]


def consistency(row: dict[str, Any], options: Options) -> float | None:
    """K, the consistency reward."""
    if not options.consistency:
        return None
    return combined((of_view(one, 0, "consistency") for one in row["classmates"]), options.aggregation)


def rewards(row: dict[str, Any], options: Options) -> Rewards:
    """The parts of a dumped row's reward, from scores and outcomes alone."""
    main = main_reward(row)
    correct = main is not None and main >= options.threshold
    outcomes = {sample["outcome"] for one in row["classmates"] for sample in one["samples"]}
    if main is not None:
        main -= options.token_cost * written(row)
    result = Rewards(main=main, correct=correct, asked=not outcomes <= NOT_ASKED)
    if options.reward_type == STEP_WISE:
        result.segments = (None,) * options.segments
    if main is None:
        return result
    result.fused = main
    gamma = condition(correct, options)
    is_empty = options.empty == "lowest" and outcomes == {"empty_cot"}
    if gamma == 0:
        # W is 0 whatever they answered, and whether or not they were asked; not so where nobody could be.
        result.asked = False
        score = best = 0.0 if is_empty or not outcomes <= NOT_ASKED | {"excluded"} else None
        of_segments: list[float | None] = [0.0] * (1 if is_empty else views_of(row) - 1)
    elif is_empty:
        # An empty CoT adds nothing, and scores as low as can be.
        score = best = 0.0 if options.reward_type in COMPARES_VIEWS else options.lowest
        of_segments = [0.0]
    else:
        score, best = classmate_scores(row, options)
        of_segments = segment_scores(row, options)
    if score is not None:
        result.classmate = gamma * score
        result.fused = fused(main, result.classmate, gamma * best, options)
        if options.reward_type == STEP_WISE:
            given = tuple(None if step is None else gamma * step for step in of_segments)
            result.segments = given + result.segments[len(given) :]
    result.consistency = consistency(row, options)
    if result.consistency is not None:
        result.fused += options.consistency_weight * result.consistency
    return result


def fused(main: float, classmate: float, best: float, options: Options) -> float:
    """F, the fused scalar."""
    if options.fusion == "weighted_average":
        return (1 - options.weight) * main + options.weight * classmate
    return main + options.weight * (best if options.fusion == "base_plus_max" else classmate)
