"""One of several solutions of a problem, chosen by a vote, or by judges of steps.

One decision: all ways choose from the same samples, so that they are compared problem by problem.

    >>> choose(base, problems, {"both": judge}, JudgeStudy())["judges"]["both"]["less_majority"]
    {'value': 0.31, 'low': 0.26, 'high': 0.37}
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from verl.data_preprocessing.reasoning_world.checking import steps_of, thought_and_answer
from verl.data_preprocessing.reasoning_world.measure import MAX_TOKENS
from verl.evaluation.step_judges.spec import JudgeStudy
from verl.reasoning.answers import Answers
from verl.reasoning.backend_cache import CachedBackend
from verl.reasoning.backend_hf import HFBackend
from verl.reasoning.backends import SamplingParams
from verl.reasoning.estimates import difference, mean_of
from verl.reasoning.records import Problem
from verl.reasoning.search.compare import rightness
from verl.reasoning.search.driver import Search, run_all
from verl.reasoning.search.requests import Found
from verl.reasoning.search.sampling import BestOfN, Majority, WeightedBestOfN
from verl.reasoning.search.tools import AGGREGATES, Tools
from verl.reasoning.step_scorer import StepScorer


def choose(
    base: Path, problems: Sequence[Problem], judges: Mapping[str, StepScorer], study: JudgeStudy
) -> dict[str, Any]:
    """Shares of problems that are solved.

    Args:
        base: the policy that writes.
        problems: held-out ones.
        judges: by name.
        study: how many solutions, drawn how, and how a solution's number is made.

    Returns:
        `pass@1`, `any` (a solution is right), `majority`, and for each of `judges` `best`, `weighted`, and
        `less_majority`: weighted less majority with the interval of a bootstrap over problems.
    """
    with CachedBackend(HFBackend(base), base.parent / "samples.sqlite") as backend:
        tools = Tools(
            backend=backend,
            sampling=SamplingParams(temperature=1.0, max_tokens=MAX_TOKENS, seed=study.seed),
            split=_lines,
            aggregate=AGGREGATES[study.aggregation],
        )
        voted = run_all(Majority(n=study.samples), problems, tools)
        majority = _right(problems, voted, tools)
        shares = _shares(problems, voted)
        found: dict[str, Any] = {**shares, "majority": _mean(majority), "judges": {}}
        for name, judge in judges.items():
            found["judges"][name] = _of_judge(problems, judge, tools, majority, study)
    return found


def _of_judge(
    problems: Sequence[Problem], judge: StepScorer, tools: Tools, majority: list[float | None], study: JudgeStudy
) -> dict[str, Any]:
    ways: dict[str, Search] = {"best": BestOfN(n=study.samples), "weighted": WeightedBestOfN(n=study.samples)}
    judged = replace(tools, scorer=Once(judge))
    right = {name: _right(problems, run_all(way, problems, judged), judged) for name, way in ways.items()}
    less = difference(right["weighted"], majority, problems=[one.id for one in problems], seed=study.seed)
    shown = None if less is None else {"value": less.value, "low": less.low, "high": less.high}
    return {**{name: _mean(values) for name, values in right.items()}, "less_majority": shown}


class Once:
    """A `StepScorer` that asks another one only for solutions that it has not yet seen."""

    def __init__(self, judge: StepScorer) -> None:
        self._judge = judge
        self._known: dict[tuple[str, tuple[str, ...]], list[float | None]] = {}

    def score_steps(self, problems: Sequence[str], steps: Sequence[Sequence[str]]) -> list[list[float | None]]:
        """As `StepScorer.score_steps`."""
        keys = [(problem, tuple(one)) for problem, one in zip(problems, steps, strict=True)]
        new = [key for key in dict.fromkeys(keys) if key not in self._known]
        if new:
            told = self._judge.score_steps([problem for problem, _ in new], [list(one) for _, one in new])
            self._known |= dict(zip(new, told, strict=True))
        return [self._known[key] for key in keys]


def _lines(text: str) -> list[str]:
    """The steps of a thought, as those that judges learn from."""
    lines = steps_of(thought_and_answer(text)[0])
    return [f"{line}\n" for line in lines[:-1]] + lines[-1:]


def _right(problems: Sequence[Problem], found: Sequence[Found], tools: Tools) -> list[float | None]:
    return [None if one is None else float(one) for one in rightness(problems, found, tools)]


def _shares(problems: Sequence[Problem], found: Sequence[Found]) -> dict[str, float | None]:
    """Of single solutions, and of problems with a right one."""
    answers = Answers()
    told = [
        [bool(answers.right(problem, one.text)) for one in each.candidates]
        for problem, each in zip(problems, found, strict=True)
    ]
    drawn = [group for group in told if group]
    return {"pass@1": _mean([fmean(group) for group in drawn]), "any": _mean([float(any(group)) for group in drawn])}


def _mean(values: Sequence[float | None]) -> float | None:
    told = mean_of(values)
    return None if told is None else told.value
