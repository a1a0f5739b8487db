"""The set of a rejection fine-tuning: accepted solutions in their final selection, and what was not taken, with why.

One decision: nothing is dropped silently. Rejected solutions stay, for a process reward model and for pairs of
preference; accepted ones that were not taken stay for a judge of steps to choose from, and all are counted by their
reason. Only those that a filter refused are in no set.

    >>> found = accepted_set(pools, config)
    >>> found.counts["filtered_language"], len(found.preference_pairs())
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl.reasoning.mmr import select, without_near_copies
from verl.reasoning.pools import Pool
from verl.reasoning.records import Problem, Solution, write_jsonl
from verl.reasoning.rejection_config import RejectionSamplingConfig
from verl.reasoning.similarity import Similarity, tfidf
from verl.reasoning.trace_filters import reasons
from verl.trainer.run.state import write_atomically

PROBLEMS, ACCEPTED, SPARE, REJECTED = "problems.jsonl", "accepted.jsonl", "spare.jsonl", "rejected.jsonl"
"""Files of a set."""
DIFFICULTIES = 4
"""Bins of the pass rate, for balancing."""


@dataclass(frozen=True, kw_only=True)
class AcceptedSet:
    """What a rejection sampling gave."""

    problems: tuple[Problem, ...]
    """All, in their order."""
    accepted: tuple[Solution, ...]
    """To fine-tune on; each has its `rank_in_problem` and the problem's `pass_rate` in its `meta`."""
    spare: tuple[Solution, ...]
    """As right as those, not taken: beyond `max_per_problem`, near copies, or of a difficulty that prevailed."""
    rejected: tuple[Solution, ...]
    """Those that the reward or a further test refused."""
    pass_rates: dict[str, float | None]
    """Of each problem; None: nothing was decided."""
    counts: dict[str, int]
    """Samples by what became of them."""

    def preference_pairs(self, *, most: int = 4) -> list[dict[str, Any]]:
        """Pairs (problem_id, prompt, chosen, rejected) of an accepted and a rejected solution of one problem.

        Args:
            most: of a problem; the best accepted ones first.
        """
        texts = {one.id: one.problem for one in self.problems}
        wrong: dict[str, list[Solution]] = {}
        for one in self.rejected:
            wrong.setdefault(one.problem_id, []).append(one)
        pairs: list[dict[str, Any]] = []
        for name, right in _by_problem(self.accepted).items():
            # The likeliest mistakes teach most, and are those of the most alike length.
            combined = [(one, other) for one in right for other in wrong.get(name, ())]
            combined.sort(key=lambda pair: abs(pair[0].n_tokens - pair[1].n_tokens))
            pairs += [
                {"problem_id": name, "prompt": texts[name], "chosen": one.text, "rejected": other.text}
                for one, other in combined[:most]
            ]
        return pairs

    def write(self, folder: Path) -> None:
        """`problems.jsonl`, `accepted.jsonl`, `spare.jsonl`, `rejected.jsonl`, `preferences.jsonl`, `counts.json`."""
        write_jsonl(folder / PROBLEMS, self.problems)
        write_jsonl(folder / ACCEPTED, self.accepted)
        write_jsonl(folder / SPARE, self.spare)
        write_jsonl(folder / REJECTED, self.rejected)
        write_jsonl(folder / "preferences.jsonl", self.preference_pairs())
        content = {"counts": self.counts, "pass_rates": self.pass_rates}
        write_atomically(folder / "counts.json", json.dumps(content, indent=1) + "\n")


def accepted_set(
    pools: Sequence[Pool],
    config: RejectionSamplingConfig,
    *,
    ranks: Mapping[int, float] | None = None,
    similarity: Similarity = tfidf,
) -> AcceptedSet:
    """Filters, chooses unlike ones of each problem, and balances.

    Args:
        pools: drawn and decided.
        config: the settings.
        ranks: what solutions are ranked by, by their `id`; None: their scores.
        similarity: how alike two are.
    """
    counts: Counter[str] = Counter(drawn=sum(pool.drawn for pool in pools), failed=sum(pool.failed for pool in pools))
    counts["undecided"] = sum(one is None for pool in pools for one in pool.verdicts)
    taken: list[Solution] = []
    spare: list[Solution] = []
    for pool in pools:
        counts.update({f"refused_by_{name}": times for name, times in pool.refused_by.items()})
        passed = []
        for one in pool.accepted:
            why = reasons(one.text, config.filters)
            counts.update(f"filtered_{name}" for name in why[:1])
            if not why:
                passed.append(one)
        order = _chosen(passed, config, ranks or {}, similarity)
        left = {id(one) for one in passed} - {id(one) for one in order}
        counts["beyond_max_per_problem"] += len(left)
        spare += [one for one in passed if id(one) in left]
        taken += [
            dataclasses.replace(one, meta={**one.meta, "rank_in_problem": place, "pass_rate": pool.pass_rate})
            for place, one in enumerate(order)
        ]
    kept = balanced(taken, config.most_of_one_difficulty)
    stays = {id(one) for one in kept}
    spare += [one for one in taken if id(one) not in stays]
    counts["balanced_away"] = len(taken) - len(kept)
    rejected = [one for pool in pools for one in pool.rejected]
    counts["accepted"], counts["rejected"] = len(kept), len(rejected)
    return AcceptedSet(
        problems=tuple(pool.problem for pool in pools),
        accepted=tuple(kept),
        spare=tuple(spare),
        rejected=tuple(rejected),
        pass_rates={pool.problem.id: pool.pass_rate for pool in pools},
        counts=dict(counts),
    )


def balanced(solutions: Sequence[Solution], most: float) -> list[Solution]:
    """The solutions, so many left out that no difficulty (bin of the pass rate) has a larger share than `most`.

    What goes are further solutions of one problem, the lowest ranks first; the best one of a problem stays, so that a
    set of mostly easy problems stays mostly easy. Where `most` is less than equal shares, equal ones are the aim.
    """
    bins = Counter(_difficulty(one) for one in solutions)
    if most >= 1 or len(bins) < 2:
        return list(solutions)
    sizes = list(bins.values())

    def fits(cap: int) -> bool:
        return min(cap, max(sizes)) <= most * sum(min(size, cap) for size in sizes)

    cap = next((cap for cap in range(max(sizes), 0, -1) if fits(cap)), min(sizes))
    gone: set[int] = set()
    for difficulty in bins:
        mine = [i for i, one in enumerate(solutions) if _difficulty(one) == difficulty]
        mine.sort(key=lambda i: (_rank(solutions[i]), i))
        gone.update(i for i in mine[cap:] if _rank(solutions[i]) > 0)
    return [one for i, one in enumerate(solutions) if i not in gone]


def _rank(solution: Solution) -> int:
    return int(solution.meta.get("rank_in_problem", 0))


def _difficulty(solution: Solution) -> int:
    return min(DIFFICULTIES - 1, int(DIFFICULTIES * (solution.meta.get("pass_rate") or 0.0)))


def _chosen(
    solutions: Sequence[Solution], config: RejectionSamplingConfig, ranks: Mapping[int, float], similarity: Similarity
) -> list[Solution]:
    """At most `max_per_problem`, near copies left out, by MMR."""
    if not solutions:
        return []
    values = [ranks.get(id(one), one.score or 0.0) for one in solutions]
    sims = similarity([one.text for one in solutions])
    kept = without_near_copies(values, sims, threshold=config.dedup_threshold)
    picks = select(
        [values[i] for i in kept],
        sims[kept][:, kept],
        count=config.max_per_problem,
        weight=config.mmr_lambda,
        lengths=[solutions[i].n_tokens for i in kept],
    )
    return [solutions[kept[pick.index]] for pick in picks]


def _by_problem(solutions: Sequence[Solution]) -> dict[str, list[Solution]]:
    found: dict[str, list[Solution]] = {}
    for one in solutions:
        found.setdefault(one.problem_id, []).append(one)
    return found
