"""Judges whole solutions by their steps, whatever scores the steps: a head, a likelihood, both, or a judge in words.

One decision: a solution is cut by the splitter of training, and what could not be scored is said (`truncated`,
`first_error` None) instead of being counted as wrong.

    >>> evaluator = ProcessRewardEvaluator(model, tokenizer)
    >>> result = evaluator.evaluate_solution("What is 3 + 4?", "3 + 4 = 8.\\nSo the answer is 8.")
    >>> result["weakest_step"]["step_text"], result["first_error"]
    ('3 + 4 = 8.\\n', 0)
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from verl.reasoning.prm.metrics import solution_metrics, step_metrics
from verl.reasoning.reading import parted
from verl.reasoning.step_scorer import StepScorer
from verl.stepwise.aggregate import AGGREGATIONS, Aggregation, aggregate
from verl.stepwise.first_error import NONE, best_threshold, first_error, found_errors
from verl.stepwise.processbench import BenchRow, StepVerdicts, bench_row, verdicts
from verl.stepwise.steps import MAX_STEP_WORDS, MIN_STEP_WORDS, split_steps
from verl.workers.prm.head_scorer import HeadScorer
from verl.workers.prm.model import ProcessRewardModel

AnswerOf = Callable[[str], str | None]

_BOXED = re.compile(r"\\boxed\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:/\d+)?")


class ProcessRewardEvaluator:
    """Scores, ranks and measures solutions."""

    def __init__(
        self,
        prm_model: ProcessRewardModel | StepScorer | Path | str,
        tokenizer: Any = None,
        agg: Aggregation | None = None,
        threshold: float | None = None,
        *,
        answer_of: AnswerOf | None = None,
        min_step_words: int = MIN_STEP_WORDS,
        max_step_words: int = MAX_STEP_WORDS,
    ) -> None:
        """Takes what scores steps.

        Args:
            prm_model: a `ProcessRewardModel`, the folder of one, or any `StepScorer`.
            tokenizer: of a `ProcessRewardModel`.
            agg: how a solution's score is made of its steps'; None: as the model says, `min` for other scorers.
            threshold: a step below it is wrong; None: as the model says, 0.5 for other scorers.
            answer_of: the answer of a solution, for `compare_solutions`; None: the last \\boxed{} or number.
            min_step_words, max_step_words: of `split_steps`.

        Raises:
            ValueError: a model without a tokenizer, an unknown `agg`, or a folder that holds no model.
        """
        spec = None
        if isinstance(prm_model, (str, Path)):
            prm_model = HeadScorer.load(prm_model)
        elif isinstance(prm_model, ProcessRewardModel):
            if tokenizer is None:
                raise ValueError("a ProcessRewardModel has no tokenizer with it; give ProcessRewardEvaluator both")
            prm_model = HeadScorer(prm_model, tokenizer)
        if isinstance(prm_model, HeadScorer):
            spec = prm_model.model.spec
        if agg is not None and agg not in AGGREGATIONS:
            raise ValueError(f"agg={agg!r}: write one of {', '.join(AGGREGATIONS)}")
        self.scorer = prm_model
        self.agg: Aggregation = agg or (spec.agg if spec else "min")
        self.threshold = threshold if threshold is not None else (spec.threshold if spec else 0.5)
        self._answer_of = answer_of or last_answer
        self._words = min_step_words, max_step_words

    def evaluate_solution(self, problem: str, solution: str) -> dict[str, Any]:
        """What the steps of one solution are worth.

        Returns:
            overall_score: of `agg`; None where no step could be scored, 0.0 for an empty solution.
            step_scores; step_details: of each `step_index`, `step_text`, `score`.
            weakest_step, strongest_step: the details of the lowest and the highest score, the earliest of several. The
            weakest is not the first error: a later step may be worse.
            num_steps; first_error: from 0, -1 none, None where it cannot be told; aggregates: of every kind; truncated:
            whether steps could not be scored.
        """
        return self.score_batch([problem], [solution])[0]

    def score_batch(self, problems: Sequence[str], solutions: Sequence[str]) -> list[dict[str, Any]]:
        """`evaluate_solution` of many at once."""
        cut = [self._cut(solution) for solution in solutions]
        scores = self.scorer.score_steps(list(problems), cut)
        return [self._result(steps, told) for steps, told in zip(cut, scores, strict=True)]

    def score_steps(self, problems: Sequence[str], steps: Sequence[Sequence[str]]) -> list[list[float | None]]:
        """As `StepScorer.score_steps`, of whatever scores."""
        return self.scorer.score_steps(problems, steps)

    def compare_solutions(
        self, problem: str, solutions: Sequence[str], group_vote: bool = False
    ) -> list[dict[str, Any]]:
        """The solutions of a problem, the best first; those that could not be scored last.

        Args:
            problem: what they solve.
            solutions: in any order; equal ones keep theirs.
            group_vote: rank by the sum of scores of all solutions with the same answer, then by the own score.

        Returns:
            As `evaluate_solution`, with `solution_index`, `rank` from 1, `margin` to the next one (None for the last),
            `answer`, `in_majority`: whether the most frequent answer is its, and with `group_vote` `group_score`.
        """
        results = self.score_batch([problem] * len(solutions), solutions)
        answers = [self._answer_of(solution) for solution in solutions]
        votes = Counter(answer for answer in answers if answer is not None)
        most = max(votes.values(), default=0)
        sums: dict[str | None, float] = {}
        for answer, result in zip(answers, results, strict=True):
            sums[answer] = sums.get(answer, 0.0) + (result["overall_score"] or 0.0)
        for place, (answer, result) in enumerate(zip(answers, results, strict=True)):
            majority = answer is not None and votes[answer] == most
            result |= {"solution_index": place, "answer": answer, "in_majority": majority}
            if group_vote:
                # Solutions without an answer are no group.
                result["group_score"] = sums[answer] if answer is not None else (result["overall_score"] or 0.0)
        name = "group_score" if group_vote else "overall_score"
        results.sort(key=lambda one: (one["overall_score"] is None, -(one[name] or 0.0), -(one["overall_score"] or 0)))
        for rank, result in enumerate(results, 1):
            following = results[rank] if rank < len(results) else None
            known = following is not None and None not in (following[name], result[name])
            result |= {"rank": rank, "margin": result[name] - following[name] if following and known else None}
        return results

    def calibrate(self, problems: Sequence[str], steps: Sequence[Sequence[str]], first_errors: Sequence[int]) -> float:
        """Takes the threshold with the best first-error F1 on dev solutions, and returns it.

        Raises:
            ValueError: there are no solutions.
        """
        self.threshold = best_threshold(self.scorer.score_steps(problems, steps), first_errors)
        return self.threshold

    def evaluate_processbench(
        self, split: Sequence[BenchRow | Mapping[str, Any]], *, tune: bool = False
    ) -> dict[str, Any]:
        """ProcessBench's numbers, and PRMBench's where all wrong steps are known.

        Args:
            split: rows of either benchmark.
            tune: take the threshold that is best on these very rows, as the paper does on its GSM8K subset; on any
                other subset that would be cheating.

        Returns:
            error_acc, correct_acc, f1, n_error, n_correct, n_unscored, threshold, and `min_at_last_share`,
            `weakest_step_acc`, `auroc`; `right_answer_wrong_process`: of the rows whose answer is right, F1 of telling
            those with a wrong step; for rows of PRMBench `prm_score`, `step_f1`, `step_f1_neg`, and `kinds` with the
            score of each class.
        """
        rows = [one if isinstance(one, BenchRow) else bench_row(one) for one in split]
        scores = self.scorer.score_steps([row.problem for row in rows], [row.steps for row in rows])
        truths = [row.first_error for row in rows]
        if tune and rows:
            self.threshold = best_threshold(scores, truths)
        guesses = [first_error(told, self.threshold) for told in scores]
        told = found_errors(guesses, truths)
        result: dict[str, Any] = {
            "error_acc": told.error_accuracy,
            "correct_acc": told.correct_accuracy,
            "f1": told.f1,
            "n_error": told.n_error,
            "n_correct": told.n_correct,
            "n_unscored": told.n_unscored,
            "threshold": self.threshold,
            "right_answer_wrong_process": _wrong_process(rows, guesses),
        }
        whole = solution_metrics(scores, truths, self.threshold)
        result |= {name: whole[name] for name in ("min_at_last_share", "weakest_step_acc")}
        result["auroc"] = _auroc(rows, scores)
        return result | _prmbench(rows, scores, self.threshold)

    def _cut(self, solution: str) -> list[str]:
        if not solution.strip():
            return []
        least, most = self._words
        thought = parted(solution)[1]
        return [step.text for step in split_steps(thought, min_step_words=least, max_step_words=most)]

    def _result(self, steps: Sequence[str], scores: Sequence[float | None]) -> dict[str, Any]:
        details: list[dict[str, Any]] = [
            {"step_index": place, "step_text": text, "score": score}
            for place, (text, score) in enumerate(zip(steps, scores, strict=True))
        ]
        known = [detail for detail in details if detail["score"] is not None]
        return {
            "overall_score": aggregate(scores, self.agg, threshold=self.threshold) if steps else 0.0,
            "step_scores": list(scores),
            "step_details": details,
            "weakest_step": min(known, key=lambda one: one["score"]) if known else None,
            "strongest_step": max(known, key=lambda one: one["score"]) if known else None,
            "num_steps": len(steps),
            "first_error": first_error(scores, self.threshold) if steps else None,
            "aggregates": {how: aggregate(scores, how, threshold=self.threshold) for how in AGGREGATIONS},
            "truncated": len(known) < len(steps),
        }


def last_answer(solution: str) -> str | None:
    """The last \\boxed{} of a solution, else its last number; None without either."""
    boxed = _BOXED.findall(solution)
    if boxed:
        return str(boxed[-1]).strip()
    numbers = _NUMBER.findall(solution)
    return numbers[-1].replace(",", "") if numbers else None


def _wrong_process(rows: Sequence[BenchRow], guesses: Sequence[int | None]) -> float | None:
    """F1 of telling, among solutions with a right answer, those with a wrong step."""
    told = [
        (guess != NONE, row.first_error != NONE)
        for row, guess in zip(rows, guesses, strict=True)
        if row.answer_right and guess is not None
    ]
    hit = sum(said and wrong for said, wrong in told)
    total = sum(said for said, _ in told) + sum(wrong for _, wrong in told)
    return 2 * hit / total if total else None


def _auroc(rows: Sequence[BenchRow], scores: Sequence[Sequence[float | None]]) -> float | None:
    pairs = [
        (score, float(place != row.first_error))
        for row, told in zip(rows, scores, strict=True)
        for place, score in enumerate(told)
        if score is not None and (row.first_error == NONE or place <= row.first_error)
    ]
    return step_metrics([score for score, _ in pairs], [label for _, label in pairs])["auroc"] if pairs else None


def _prmbench(rows: Sequence[BenchRow], scores: Sequence[Sequence[float | None]], threshold: float) -> dict[str, Any]:
    if not rows or any(row.wrong_steps is None for row in rows) or not any(row.kind for row in rows):
        return {}
    kinds: dict[str, StepVerdicts] = {}
    for row, told in zip(rows, scores, strict=True):
        right = [None if score is None else score >= threshold for score in told]
        kinds[row.kind] = kinds.get(row.kind, StepVerdicts()) + verdicts(row, right)
    whole = sum(kinds.values(), StepVerdicts())
    return {
        "prm_score": whole.prm_score,
        "step_f1": whole.f1,
        "step_f1_neg": whole.f1_neg,
        "kinds": {kind: kinds[kind].prm_score for kind in sorted(kinds)},
    }
