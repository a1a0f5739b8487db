"""How hard problems are for a model, in which order they are learned, and that no split holds another's.

One decision: difficulty is measured, 1 less the share of the student's samples that are right; a guess from the
problem's words is only for where nothing can be sampled.

    >>> hard = pass_rate_difficulty(problems, backend, reward, n=8)
    >>> stages = quantile_bins(hard, 3)                     # 3 lists of ids, the easiest first
    >>> train, dropped = decontaminate(train, test)         # without what shares 8 words in a row with a test problem
"""

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Literal, TypeVar

from tqdm import tqdm

from verl.reasoning.backends import GenBackend, SamplingParams
from verl.reasoning.reading import read_solution
from verl.reasoning.records import Problem
from verl.reasoning.scoring import score_solutions
from verl.stepwise.lexicon import words_of

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
Level = Literal["easy", "medium", "hard"]
NGRAM = 8
"""Words in a row that two problems must not share."""
BATCH = 64
"""Problems that are sampled at a time."""

_LONG = 50
_CALCULUS = words_of(
    "calculus, derivative, derivatives, differentiate, differential, integral, integrate, limit, matrix, matrices, "
    "determinant, eigenvalue, eigenvalues, gradient"
)
_EQUATION = re.compile(
    r"=|(?<!\w)(?:equations?|solve\s{1,3}for|polynomials?|quadratic|inequality|inequalities)(?!\w)", re.IGNORECASE
)
_SEQUENCE = words_of("then, after, afterwards, before, first, next, finally, followed by, subsequently, step")
_CONSTRAINT = words_of(
    "such that, given that, subject to, at least, at most, exactly, only if, if and only if, unless, provided that, "
    "constraint, constraints, must, without, no more than, no fewer than"
)


def pass_rate_difficulty(
    problems: Sequence[Problem],
    backend: GenBackend,
    reward: Callable[..., Any],
    *,
    n: int = 8,
    sampling: SamplingParams | None = None,
    progress: bool = True,
) -> dict[str, float | None]:
    """Problem's id -> 1 - pass@1 of the model, from n samples each, 0 to 1; None where no sample could be scored.

    A sample counts as right if the reward says so, or else as its score. What fails is left out, not counted as wrong.
    """
    found: dict[str, float | None] = {}
    with tqdm(total=len(problems), desc="difficulty", disable=not progress) as bar:
        for start in range(0, len(problems), BATCH):
            part = problems[start : start + BATCH]
            written = backend.generate([one.problem for one in part], n=n, sampling=sampling)
            solutions = [
                read_solution(completion.text, problem_id=problem.id)
                for problem, completions in zip(part, written, strict=True)
                for completion in completions
                if completion.ok
            ]
            scored: dict[str, list[float]] = {one.id: [] for one in part}
            for solution in score_solutions(reward, part, solutions).solutions:
                if solution.score is not None:
                    right = solution.score if solution.correct is None else float(solution.correct)
                    scored[solution.problem_id].append(right)
            found |= {name: difficulty_of(rights) for name, rights in scored.items()}
            bar.update(len(part))
    return found


def difficulty_of(scores: Sequence[float]) -> float | None:
    """1 less the mean of a problem's scores; None without any."""
    return 1 - math.fsum(scores) / len(scores) if scores else None


def heuristic_points(problem: Problem) -> int:
    """Points of the original's rule: > 50 words 1; calculus or matrices 2, else an equation 1; a sequence 1;
    constraints 1."""
    text = problem.problem
    points = int(len(text.split()) > _LONG)
    points += 2 if _CALCULUS.search(text) else int(bool(_EQUATION.search(text)))
    return points + int(bool(_SEQUENCE.search(text))) + int(bool(_CONSTRAINT.search(text)))


def heuristic_level(problem: Problem) -> Level:
    """At most 1 point: easy; at most 3: medium; else hard."""
    points = heuristic_points(problem)
    return "easy" if points <= 1 else "medium" if points <= 3 else "hard"


def heuristic_difficulty(problem: Problem) -> float:
    """A guess of 0 to 1 that orders problems: points first, then the level that the data set states, then lengths."""
    level = re.search(r"\d+", str(problem.level)) if problem.level is not None else None
    stated = min(9, int(level[0])) / 9 if level else 0.0
    solution = problem.meta.get("solution")
    length = len(str(solution if solution is not None else problem.answer or "").split()) + len(problem.problem.split())
    return (heuristic_points(problem) + 0.7 * stated + 0.3 * (1 - 1 / (1 + length / 100))) / 6


def quantile_bins(difficulties: Mapping[K, float | None], stages: int) -> list[list[K]]:
    """Names in `stages` bins of the same size (or one more), the easiest first; those without one are left out.

    Within a bin the easier come first; of equals the order is that of the mapping.

    Raises:
        ValueError: `stages` is not between 1 and the number of problems that have a difficulty.
    """
    known = [(value, name) for name, value in difficulties.items() if value is not None]
    if not 1 <= stages <= len(known):
        raise ValueError(f"{stages} stages of {len(known)} problems with a difficulty; write 1 to {len(known)}")
    ordered = [name for _, name in sorted(known, key=lambda one: one[0])]
    edges = [round(i * len(ordered) / stages) for i in range(stages + 1)]
    return [ordered[start:end] for start, end in pairwise(edges)]


def decontaminate(
    train: Sequence[Problem], *held_out: Sequence[Problem], n: int = NGRAM
) -> tuple[list[Problem], list[Problem]]:
    """Training problems without, and with, n words in a row that a held-out problem has too.

    Of a shorter problem the whole text counts. Capital letters and punctuation do not; numbers do.

    Raises:
        ValueError: `n` is not positive.
    """
    if n < 1:
        raise ValueError(f"n={n}; write at least 1 word")
    seen = {gram for split in held_out for one in split for gram in _grams(one.problem, n)}
    kept: list[Problem] = []
    dropped: list[Problem] = []
    for one in train:
        (dropped if any(gram in seen for gram in _grams(one.problem, n)) else kept).append(one)
    return kept, dropped


def split_by_problem(
    rows: Sequence[T], shares: Mapping[str, float], *, seed: int = 0, problem_id: Callable[[T], str]
) -> dict[str, list[T]]:
    """Rows in splits of about these shares; all rows of one problem are in one split, whatever other rows there are.

    Args:
        rows: of any kind, in the order that is kept.
        shares: name -> share; their sum is 1.
        seed: of the split.
        problem_id: of a row.

    Raises:
        ValueError: the shares' sum is not 1.
    """
    if not shares or min(shares.values()) < 0 or abs(sum(shares.values()) - 1) > 1e-9:
        raise ValueError(f"shares {dict(shares)}; write shares whose sum is 1")
    splits: dict[str, list[T]] = {name: [] for name in shares}
    for row in rows:
        digest = blake2b(f"{seed}|{problem_id(row)}".encode(), digest_size=8).digest()
        place, end = int.from_bytes(digest) / 2**64, 0.0
        chosen = [name for name, share in shares.items() if share > 0][-1]
        for name, share in shares.items():
            end += share
            if place < end:
                chosen = name
                break
        splits[chosen].append(row)
    return splits


def check_disjoint(**splits: Sequence[Problem]) -> None:
    """Refuses splits that share a problem, by its id or by its words.

    Raises:
        ValueError: names two splits and the problem.
    """
    owner: dict[str, str] = {}
    for name, problems in splits.items():
        for one in problems:
            for key in (f"id {one.id}", " ".join(_words(one.problem))):
                if owner.setdefault(key, name) != name:
                    raise ValueError(
                        f"{one.problem[:60]!r} is in {owner[key]} and in {name}; take it out of one of them"
                    )


def _words(text: str) -> list[str]:
    return re.findall(r"\w+(?:\.\w+)*|[-+*/=<>^]", text.lower())


def _grams(text: str, n: int) -> set[str]:
    words = _words(text)
    if len(words) <= n:
        return {" ".join(words)} if words else set()
    return {" ".join(words[i : i + n]) for i in range(len(words) - n + 1)}
