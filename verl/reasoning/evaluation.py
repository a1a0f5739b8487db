"""What a model of the pipeline can do on held-out problems: an `EvalReport`, and how two of them differ.

One decision: a report keeps what became of every sample, so that two models are compared on the same problems, and an
interval is of problems and never of samples. A sample without a score is left out and counted.

    >>> report = evaluate("pure_rl", backend, problems, reward, EvalSettings(k=8), scorer=prm)
    >>> report.pass_at_1, report.maj_at_k, report.best_of_k
    >>> compared(report, before).value
"""

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl.reasoning import cot_rewards, estimates
from verl.reasoning.answers import Answers
from verl.reasoning.backends import GenBackend, SamplingParams
from verl.reasoning.cot_analysis import ChainOfThoughtAnalyzer
from verl.reasoning.estimates import Estimate
from verl.reasoning.reading import read_solution
from verl.reasoning.records import Problem, Solution
from verl.reasoning.scoring import score_solutions
from verl.reasoning.similarity import tfidf
from verl.reasoning.step_scorer import StepScorer
from verl.reasoning.voting import classes, vote
from verl.stepwise.first_error import SOUND

FEW_PROBLEMS = 200
"""With fewer problems an interval is wider than most gains."""


@dataclass(frozen=True, kw_only=True)
class EvalSettings:
    """How models are evaluated; the same for all stages, else they could not be compared."""

    k: int = 8
    """Samples of a problem."""
    temperature: float = 0.6
    """Of the samples."""
    top_p: float = 0.95
    """Nucleus sampling."""
    max_tokens: int = 1024
    """Most tokens of a solution."""
    greedy: bool = True
    """Whether one greedy solution of each problem is asked for as well."""
    seed: int = 0
    """Of the samples and of the bootstrap."""

    def sampling(self) -> SamplingParams:
        """Of the k samples."""
        return SamplingParams(
            temperature=self.temperature, top_p=self.top_p, max_tokens=self.max_tokens, seed=self.seed
        )

    def greedy_sampling(self) -> SamplingParams:
        """Of the greedy solution."""
        return dataclasses.replace(self.sampling(), temperature=0.0, top_p=1.0)


@dataclass(frozen=True, kw_only=True)
class EvalReport:
    """What a model did. Numbers that were not measured are None, never 0."""

    stage: str
    """Which stage made the model; `base` for the one that it all starts from."""
    model: str
    """Path or hub name."""
    settings: EvalSettings
    """How it was asked."""
    num_evaluated: int
    """Problems."""
    excluded: int
    """Samples without a score: nothing was written, or the reward failed."""
    pass_at_1: Estimate | None
    """Share of right samples, mean over problems."""
    greedy: Estimate | None = None
    """Share of right greedy solutions."""
    pass_at_k: Estimate | None = None
    """Problems of which one of k samples is right."""
    maj_at_k: Estimate | None = None
    """Problems whose most frequent answer is right."""
    best_of_k: Estimate | None = None
    """Problems whose sample with the best steps is right."""
    weighted_of_k: Estimate | None = None
    """Problems whose answer with the largest sum of scores of steps is right (*weighted* best-of-k)."""
    avg_score: float | None = None
    """Mean reward."""
    std_score: float | None = None
    """Its standard deviation over samples."""
    avg_length: float | None = None
    """Tokens of a sample."""
    tokens_per_correct: float | None = None
    """Tokens for one right sample."""
    truncated: float | None = None
    """Share of samples that were cut off."""
    reasoning: Mapping[str, float | None] = field(default_factory=dict)
    """`clarity`, `flow`, `steps`; with a scorer `prm_score`, `first_error_rate` and `right_answer_wrong_process`."""
    diversity: Mapping[str, float | None] = field(default_factory=dict)
    """`pattern_diversity`, `distinct_answers` of a problem, `dissimilarity` (1 less the mean similarity)."""
    right: Mapping[str, tuple[bool | None, ...]] = field(default_factory=dict)
    """Problem id -> whether each of its samples is right; None: it has no score."""
    chosen: Mapping[str, Mapping[str, bool | None]] = field(default_factory=dict)
    """`greedy`, `majority`, `best`, `weighted` -> problem id -> whether that choice is right."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "EvalReport":
        """From what `as_dict` gave."""
        found = dict(values, settings=EvalSettings(**values["settings"]))
        for name in ("pass_at_1", "greedy", "pass_at_k", "maj_at_k", "best_of_k", "weighted_of_k"):
            found[name] = Estimate(**values[name]) if values.get(name) is not None else None
        found["right"] = {name: tuple(some) for name, some in values["right"].items()}
        return cls(**found)


def draw(
    backend: GenBackend,
    problems: Sequence[Problem],
    reward: Callable[..., Any],
    *,
    n: int,
    sampling: SamplingParams,
    answers: Answers | None = None,
) -> tuple[list[Solution], int]:
    """Scored solutions of all problems, n of each but for those that were not written, of which there are so many."""
    answers = answers or Answers()
    written = backend.generate([one.problem for one in problems], n=n, sampling=sampling)
    solutions = [
        read_solution(
            one.text,
            problem_id=problem.id,
            n_tokens=len(one.token_ids),
            finish_reason=one.finish_reason,
            final_answer=answers.read(problem, one.text),
            log_prob=statistics.fmean(one.log_probs) if one.log_probs else None,
            seed=one.seed,
            model=backend.model,
        )
        for problem, group in zip(problems, written, strict=True)
        for one in group
        if one.ok
    ]
    return list(score_solutions(reward, problems, solutions).solutions), n * len(problems) - len(solutions)


def evaluate(
    stage: str,
    backend: GenBackend,
    problems: Sequence[Problem],
    reward: Callable[..., Any],
    settings: EvalSettings,
    *,
    scorer: StepScorer | None = None,
    threshold: float = SOUND,
    answers: Answers | None = None,
) -> EvalReport:
    """Asks a model, scores what it wrote, and counts.

    Args:
        stage: of the model, for the report.
        backend: who writes.
        problems: held-out ones, with different ids.
        reward: says what is right; one that gives only a score counts as right from 0.5 on.
        settings: how.
        scorer: judges steps; None: the numbers that need one are None.
        threshold: of `scorer`: a lower score is a wrong step.
        answers: how answers are read and compared.

    Raises:
        ValueError: there are no problems.
    """
    if not problems:
        raise ValueError("no problems to evaluate on; give some")
    answers = answers or Answers()
    solutions, lost = draw(backend, problems, reward, n=settings.k, sampling=settings.sampling(), answers=answers)
    groups: dict[str, list[Solution]] = {one.id: [] for one in problems}
    for one in solutions:
        groups[one.problem_id].append(one)
    votes = {name: _majority(group, answers) for name, group in groups.items()}
    chosen: dict[str, dict[str, bool | None]] = {"majority": votes}
    if settings.greedy:
        one_each, _ = draw(backend, problems, reward, n=1, sampling=settings.greedy_sampling(), answers=answers)
        chosen["greedy"] = {one.problem_id: is_right(one) for one in one_each}
    steps = step_scores(scorer, problems, solutions) if scorer is not None else None
    if steps is not None:
        chosen |= _by_steps(groups, steps, answers)
    known = {name: tuple(is_right(one) for one in group) for name, group in groups.items()}
    return EvalReport(
        stage=stage,
        model=backend.model,
        settings=settings,
        num_evaluated=len(problems),
        excluded=lost + sum(one.score is None for one in solutions),
        pass_at_1=_shares({name: _mean(group) for name, group in known.items()}, settings.seed),
        pass_at_k=_shares({name: _any(group) for name, group in known.items()}, settings.seed),
        greedy=_share_of(chosen.get("greedy")),
        maj_at_k=_share_of(votes),
        best_of_k=_share_of(chosen.get("best")),
        weighted_of_k=_share_of(chosen.get("weighted")),
        **_totals(solutions),
        reasoning=_reasoning(solutions, steps, threshold),
        diversity=_diversity(groups),
        right=known,
        chosen=chosen,
    )


def _totals(solutions: Sequence[Solution]) -> dict[str, Any]:
    """Scores, lengths and prices over all samples."""
    scores = [one.score for one in solutions if one.score is not None]
    rights = sum(is_right(one) is True for one in solutions)
    tokens = sum(one.n_tokens for one in solutions)
    return {
        "avg_score": statistics.fmean(scores) if scores else None,
        "std_score": statistics.pstdev(scores) if scores else None,
        "avg_length": tokens / len(solutions) if solutions else None,
        "tokens_per_correct": tokens / rights if rights else None,
        "truncated": _mean([one.finish_reason == "length" for one in solutions]),
    }


def compared(report: EvalReport, other: EvalReport) -> Estimate | None:
    """Mean share of right samples less that of another model, paired by problem, with a bootstrap interval."""
    ids = [name for name in report.right if name in other.right]
    one, two = ([_mean(some.right[name]) for name in ids] for some in (report, other))
    return estimates.difference(one, two, problems=ids, seed=report.settings.seed)


def chosen_less(report: EvalReport, choice: str, other: str) -> Estimate | None:
    """Right choices of one kind less those of another, of the same samples: for instance `weighted` and `majority`."""
    one, two = report.chosen.get(choice, {}), report.chosen.get(other, {})
    ids = [name for name in one if name in two]
    values = ([_number(some[name]) for name in ids] for some in (one, two))
    return estimates.difference(*values, problems=ids, seed=report.settings.seed)


def is_right(solution: Solution) -> bool | None:
    """Whether a scored solution is right; None: it has no score."""
    if solution.correct is not None or solution.score is None:
        return solution.correct
    return solution.score >= 0.5


def step_scores(
    scorer: StepScorer, problems: Sequence[Problem], solutions: Sequence[Solution]
) -> dict[int, list[float | None]]:
    """`id` of a solution -> what the scorer says of its steps; solutions without steps are left out."""
    texts = {one.id: one.problem for one in problems}
    asked = [one for one in solutions if one.steps]
    found = scorer.score_steps(
        [texts[one.problem_id] for one in asked], [[step.text for step in one.steps] for one in asked]
    )
    return {id(one): scores for one, scores in zip(asked, found, strict=True)}


def _majority(group: Sequence[Solution], answers: Answers) -> bool | None:
    known = [one for one in group if is_right(one) is not None]
    best = vote([one.final_answer for one in known], [1.0] * len(known), same=answers.same).best
    return (False if known else None) if best is None else is_right(known[best])


def _by_steps(
    groups: Mapping[str, Sequence[Solution]], steps: Mapping[int, Sequence[float | None]], answers: Answers
) -> dict[str, dict[str, bool | None]]:
    """What the scores of steps choose: the best sample, and the answer with the largest sum."""
    best: dict[str, bool | None] = {}
    weighted: dict[str, bool | None] = {}
    for name, group in groups.items():
        judged = [(one, _product(steps.get(id(one), ()))) for one in group if is_right(one) is not None]
        known = [(one, score) for one, score in judged if score is not None]
        if not known:
            best[name] = weighted[name] = None
            continue
        best[name] = is_right(max(known, key=lambda pair: pair[1])[0])
        sums: dict[int, float] = {}
        labels = classes([one.final_answer for one, _ in known], answers.same)
        for label, (_, score) in zip(labels, known, strict=True):
            if label is not None:
                sums[label] = sums.get(label, 0.0) + score
        if not sums:
            weighted[name] = False
            continue
        winner = max(sums, key=lambda label: sums[label])
        weighted[name] = is_right(known[labels.index(winner)][0])
    return {"best": best, "weighted": weighted}


def _product(scores: Sequence[float | None]) -> float | None:
    total = 1.0
    for score in scores:
        if score is None:
            return None
        total *= score
    return total if scores else None


def _reasoning(
    solutions: Sequence[Solution], steps: Mapping[int, Sequence[float | None]] | None, threshold: float
) -> dict[str, float | None]:
    texts = [[step.text for step in one.steps] for one in solutions if one.steps]
    found: dict[str, float | None] = {
        "clarity": _mean([cot_rewards.clarity(one) for one in texts]),
        "flow": _mean([cot_rewards.flow(one) for one in texts]),
        "steps": _mean([float(len(one)) for one in texts]),
    }
    if steps is None:
        return found
    judged = [(one, [s for s in steps[id(one)] if s is not None]) for one in solutions if id(one) in steps]
    judged = [(one, scores) for one, scores in judged if scores]
    wrong = [(one, min(scores) < threshold) for one, scores in judged]
    found["prm_score"] = _mean([statistics.fmean(scores) for _, scores in judged])
    found["first_error_rate"] = _mean([has for _, has in wrong])
    found["right_answer_wrong_process"] = _mean([has for one, has in wrong if is_right(one)])
    return found


def _diversity(groups: Mapping[str, Sequence[Solution]]) -> dict[str, float | None]:
    every = [one for group in groups.values() for one in group]
    apart = []
    for group in groups.values():
        if len(group) > 1:
            alike = tfidf([one.text for one in group])
            n = len(group)
            apart.append(1 - (float(alike.sum()) - n) / (n * (n - 1)))
    return {
        "pattern_diversity": ChainOfThoughtAnalyzer().analyze_cot_patterns(every)["pattern_diversity"],
        "distinct_answers": _mean([float(len({one.final_answer for one in group})) for group in groups.values()]),
        "dissimilarity": _mean(apart),
    }


def _shares(values: Mapping[str, float | None], seed: int) -> Estimate | None:
    return estimates.mean_of(list(values.values()), problems=list(values), seed=seed)


def _share_of(choices: Mapping[str, bool | None] | None) -> Estimate | None:
    known = [right for right in (choices or {}).values() if right is not None]
    return estimates.accuracy(sum(known), len(known)) if known else None


def _any(values: Sequence[bool | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(any(known)) if known else None


def _mean(values: Sequence[float | bool | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _number(value: bool | None) -> float | None:
    return None if value is None else float(value)
