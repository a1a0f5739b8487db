"""Labels of steps from completions: a step is right if the answer can still be reached behind it (Math-Shepherd).

One decision: a labelling is a small generator that asks for the success of prefixes; whoever runs many of them puts
their questions together, so that the engine sees batches whatever the search.

    >>> labeler = MonteCarloLabeler(backend, reward, PRMConfig(mc_rollouts=8, search="binary"))
    >>> labeler.label([problem], [["3 + 4 = 7.\\n", "7 * 2 = 15.\\n", "Answer: 15"]], [False])
    [(StepLabel(hard=1, ...), StepLabel(hard=0, ...), None)]

Completions that failed, and those whose reward failed, are in no count (spec 3.4 A).
"""

import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from verl.reasoning.backends import GenBackend, SamplingParams
from verl.reasoning.prm.config import PRMConfig
from verl.reasoning.prm.outcomes import are_right
from verl.reasoning.records import Problem
from verl.reasoning.rewards import Reward
from verl.stepwise.step import StepLabel

_ROUND = 4
"""Completions at a time where the first success is enough."""


@dataclass(frozen=True)
class Count:
    """How completions of a prefix ended."""

    success: int = 0
    """Right."""
    rollouts: int = 0
    """Right or wrong; those that failed are in neither."""

    def __add__(self, other: "Count") -> "Count":
        return Count(self.success + other.success, self.rollouts + other.rollouts)


@dataclass
class Spent:
    """What labelling has cost and met so far."""

    rollouts: int = 0
    """Completions that were asked for."""
    failed: int = 0
    """Of them without a verdict: no text, or no reward."""
    tokens: int = 0
    """Generated."""
    reused: int = 0
    """Prefixes that had been judged for another solution."""
    audited: int = 0
    """Right solutions that were judged without themselves."""
    audited_wrong: int = 0
    """Of them with a step that no completion could go on from: right answers by a wrong way."""
    lock: Any = field(default_factory=threading.Lock, repr=False)
    """For threads."""


Asking = Generator[list[int], list[Count], list[StepLabel | None]]
"""Asks for prefixes (up to and with the step of each place), is told their counts, returns the labels."""


class MonteCarloLabeler:
    """Labels the steps of solutions by completing their prefixes."""

    def __init__(self, backend: GenBackend, reward: Reward, config: PRMConfig) -> None:
        """Asks nothing yet.

        Args:
            backend: the completer; at least as good as the policy, or right steps are called wrong.
            reward: of `as_reward`; says whether a completed solution is right.
            config: `mc_*`, `search`, `label_kind`, `seed`.
        """
        self._backend, self._reward, self._config = backend, reward, config
        self._known: dict[tuple[str, str], Count] = {}
        self.spent = Spent()

    def label(
        self,
        problems: Sequence[Problem],
        steps: Sequence[Sequence[str]],
        correct: Sequence[bool | None],
        around: Sequence[tuple[str, str]] | None = None,
    ) -> list[tuple[StepLabel | None, ...]]:
        """The labels of each solution's steps; None: not known. What follows the first wrong step has none.

        Args:
            problems: one for each solution.
            steps: of each solution; joined, with what stands around them, they are its text.
            correct: whether its answer is right; None: the reward is asked.
            around: what stands before and behind the steps of each, for instance the marks of a thought and the answer;
                None: nothing.
        """
        around = around or [("", "")] * len(steps)
        told = self._ends(problems, steps, correct, around)
        askings = [
            self._ask(problem, some, right, ends_there=not behind)
            for problem, some, right, (_, behind) in zip(problems, steps, told, around, strict=True)
        ]
        labels: list[list[StepLabel | None]] = [[] for _ in askings]
        wanted: dict[int, list[int]] = {}
        for number, asking in enumerate(askings):
            _advance(asking, None, number, wanted, labels)
        while wanted:
            pairs = [(number, place) for number, places in wanted.items() for place in places]
            counts = self._counts([(problems[n], around[n][0] + "".join(steps[n][: place + 1])) for n, place in pairs])
            answers: dict[int, list[Count]] = {}
            for (number, _), count in zip(pairs, counts, strict=True):
                answers.setdefault(number, []).append(count)
            wanted = {}
            for number, given in answers.items():
                _advance(askings[number], given, number, wanted, labels)
        return [tuple(one) for one in labels]

    def success(self, problem: Problem, prefixes: Sequence[str]) -> list[Count]:
        """How completions of these beginnings of a solution end; all of them are drawn."""
        return self._counts([(problem, prefix) for prefix in prefixes], all_of_them=True)

    def _ends(
        self,
        problems: Sequence[Problem],
        steps: Sequence[Sequence[str]],
        correct: Sequence[bool | None],
        around: Sequence[tuple[str, str]],
    ) -> list[bool | None]:
        asked = [place for place, right in enumerate(correct) if right is None and steps[place]]
        texts = ["".join((around[place][0], *steps[place], around[place][1])) for place in asked]
        verdicts = are_right(self._reward, list(zip((problems[place] for place in asked), texts, strict=True)))
        known = dict(zip(asked, verdicts, strict=True))
        return [known.get(place) if right is None else right for place, right in enumerate(correct)]

    def _ask(self, problem: Problem, steps: Sequence[str], right: bool | None, *, ends_there: bool) -> Asking:
        """Labels one solution.

        If it ends with its last step, that is labelled by the verdict on the solution, and costs no completion.
        """
        config = self._config
        if not steps:
            return []
        audited = bool(right) and _drawn(config.seed, problem.id, "".join(steps)) < config.mc_audit
        # A right solution is itself one completion of each of its prefixes, and one that succeeded.
        own = Count(1, 1) if right and not audited else Count()
        if own.success and not config.mc_threshold and config.label_kind == "hard":
            return [_label(own, config, source="propagated") for _ in steps]
        search = self._halving if config.search == "binary" else self._in_order
        labels = yield from search(len(steps) - int(ends_there), own)
        if (
            ends_there
            and len(labels) == len(steps) - 1
            and not any(label is not None and label.hard == 0 for label in labels)
        ):
            end = None if right is None else Count(int(right), 1)
            labels.append(None if end is None else _label(end, config))
        if audited:
            wrong = any(map(_fails, labels))
            with self.spent.lock:
                self.spent.audited += 1
                self.spent.audited_wrong += int(wrong)
        return [*labels, *[None] * (len(steps) - len(labels))]

    def _in_order(self, n: int, own: Count) -> Asking:
        labels: list[StepLabel | None] = []
        for place in range(n):
            (count,) = yield [place]
            labels.append(_label(count + own, self._config))
            if _fails(labels[-1]):
                break
        return labels

    def _halving(self, n: int, own: Count) -> Asking:
        """The first failing prefix in about log2(n) questions; steps in between have no rollouts of their own."""
        labels: list[StepLabel | None] = [None] * n
        low, high = -1, n
        while high - low > 1:
            middle = (low + high) // 2
            (count,) = yield [middle]
            labels[middle] = _label(count + own, self._config)
            if labels[middle] is None:
                # Nothing came back: neither half can be chosen, and only what is known remains.
                break
            low, high = (low, middle) if _fails(labels[middle]) else (middle, high)
        for place in range(n):
            if place <= low and labels[place] is None:
                labels[place] = StepLabel(hard=1, value=_soft(1.0, self._config), source="propagated")
            elif place > high or (place > low and not _fails(labels[place])):
                labels[place] = None
        return labels[: high + 1] if high < n and high - low == 1 else labels

    def _counts(self, prefixes: Sequence[tuple[Problem, str]], *, all_of_them: bool = False) -> list[Count]:
        keys = [(problem.id, prefix) for problem, prefix in prefixes]
        fresh = {key: pair for key, pair in zip(keys, prefixes, strict=True) if key not in self._known}
        with self.spent.lock:
            self.spent.reused += len(keys) - len(fresh)
        config = self._config
        first_counts = not all_of_them and not config.mc_threshold and config.label_kind == "hard"
        size = min(_ROUND, config.mc_rollouts) if first_counts else config.mc_rollouts
        found = dict.fromkeys(fresh, Count())
        drawn = 0
        while drawn < config.mc_rollouts:
            open_keys = [key for key in found if not (first_counts and found[key].success)]
            if not open_keys:
                break
            n = min(size, config.mc_rollouts - drawn)
            for key, count in zip(open_keys, self._draw([fresh[key] for key in open_keys], n, drawn), strict=True):
                found[key] += count
            drawn += n
        self._known.update(found)
        return [self._known[key] for key in keys]

    def _draw(self, prefixes: Sequence[tuple[Problem, str]], n: int, first: int) -> list[Count]:
        config = self._config
        drawn = self._backend.continue_from(
            [problem.problem for problem, _ in prefixes],
            [prefix for _, prefix in prefixes],
            n=n,
            sampling=SamplingParams(
                temperature=config.mc_temperature, max_tokens=config.mc_max_tokens, seed=config.seed, first_index=first
            ),
        )
        whole = [
            (number, problem, prefix + one.text)
            for number, ((problem, prefix), completions) in enumerate(zip(prefixes, drawn, strict=True))
            for one in completions
            if one.ok
        ]
        verdicts = are_right(self._reward, [(problem, text) for _, problem, text in whole])
        counts = [Count()] * len(prefixes)
        for (number, _, _), right in zip(whole, verdicts, strict=True):
            if right is not None:
                counts[number] += Count(int(right), 1)
        with self.spent.lock:
            self.spent.rollouts += n * len(prefixes)
            self.spent.failed += n * len(prefixes) - sum(count.rollouts for count in counts)
            self.spent.tokens += sum(len(one.token_ids) for completions in drawn for one in completions)
        return counts


def _advance(
    asking: Asking,
    given: list[Count] | None,
    number: int,
    wanted: dict[int, list[int]],
    labels: list[list[StepLabel | None]],
) -> None:
    """Lets a labelling go on: it wants more, or is done."""
    try:
        wanted[number] = next(asking) if given is None else asking.send(given)
    except StopIteration as done:
        labels[number] = done.value


def _label(count: Count, config: PRMConfig, source: Any = "mc") -> StepLabel | None:
    if not count.rollouts:
        return None
    share = count.success / count.rollouts
    return StepLabel(
        hard=int(share > config.mc_threshold),  # type: ignore[arg-type]
        value=_soft(share, config),
        source=source,
        n_success=count.success,
        n_rollouts=count.rollouts,
    )


def _soft(share: float, config: PRMConfig) -> float | None:
    return share if config.label_kind == "soft" else None


def _fails(label: StepLabel | None) -> bool:
    return label is not None and label.hard == 0


def _drawn(seed: int, *names: str) -> float:
    """A number of 0 to 1 that follows from the names."""
    digest = blake2b("/".join([str(seed), *names]).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
