"""In which order rows are learnt: in one stage, or from easy ones to hard ones with what came before mixed in.

One decision: a stage that ends early leaves its tokens to the later ones, and the last stage spends what is left. So a
curriculum and its control, which is a course of one stage, learn the same number of tokens.

    >>> course = Course(problems_of_rows=["a", "a", "b"], stages=2, budget=1000, replay_ratio=0.25, seed=0)
    >>> course.begin_stage({"a": 0.1, "b": 0.9})
    >>> course.draw(4)
    [0, 1, 1, 0]
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any


class Course:
    """Draws rows, stage after stage; what it knows is in `state`."""

    def __init__(
        self, *, problems_of_rows: Sequence[str], stages: int, budget: int, replay_ratio: float, seed: int
    ) -> None:
        """
        Args:
            problems_of_rows: id of each row's problem; all rows of a problem are in one stage.
            stages: how many; no more than there are problems.
            budget: tokens of all.
            replay_ratio: share of a stage's rows that come from earlier ones.
            seed: of the order.
        """
        self.problems_of_rows = list(problems_of_rows)
        self.stages = max(1, min(stages, len(set(problems_of_rows))))
        self.budget, self.replay_ratio, self.seed = budget, replay_ratio, seed
        self.stage = -1
        self.bins: list[list[str]] = []
        self._until = 0
        self._random = random.Random(f"{seed}/course")
        self._waiting: dict[str, list[int]] = {"new": [], "old": []}

    def untaught(self) -> list[str]:
        """Problems that no stage has begun with, in the order of their rows."""
        known = {problem for one in self.bins for problem in one}
        return list(dict.fromkeys(problem for problem in self.problems_of_rows if problem not in known))

    def begin_stage(self, difficulty: Mapping[str, float], *, tokens: int = 0) -> None:
        """The easiest of the untaught problems, an equal part of them for each stage to come, become the next stage.

        Args:
            difficulty: of the untaught problems; equal ones stay in their order.
            tokens: learnt so far.
        """
        self.stage += 1
        left, stages_left = self.untaught(), self.stages - self.stage
        ordered = sorted(left, key=lambda problem: difficulty[problem])
        self.bins.append(ordered[: -(-len(ordered) // stages_left)] if stages_left > 1 else ordered)
        self._until = self.budget if stages_left == 1 else tokens + (self.budget - tokens) // stages_left
        self._waiting = {"new": [], "old": []}

    @property
    def is_last(self) -> bool:
        """Whether no stage follows."""
        return self.stage == self.stages - 1

    def stage_tokens_left(self, tokens: int) -> int:
        """Tokens that the stage has still to spend, of `tokens` learnt so far in all."""
        return self._until - tokens

    def draw(self, rows: int) -> list[int]:
        """Places of the next rows; each comes once before any comes again."""
        drawn = []
        for _ in range(rows):
            old = self.stage > 0 and self._random.random() < self.replay_ratio
            drawn.append(self._next("old" if old else "new"))
        return drawn

    def _next(self, kind: str) -> int:
        if not self._waiting[kind]:
            bins = self.bins[:-1] if kind == "old" else self.bins[-1:]
            wanted = {problem for one in bins for problem in one}
            places = [place for place, problem in enumerate(self.problems_of_rows) if problem in wanted]
            self._random.shuffle(places)
            self._waiting[kind] = places
        return self._waiting[kind].pop()

    def state(self) -> dict[str, Any]:
        """All that the next draw depends on."""
        return {
            "stage": self.stage,
            "bins": [list(one) for one in self.bins],
            "until": self._until,
            "random": self._random.getstate(),
            "waiting": {kind: list(places) for kind, places in self._waiting.items()},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state` was taken."""
        self.stage, self.bins, self._until = state["stage"], [list(one) for one in state["bins"]], state["until"]
        self._random.setstate(state["random"])
        self._waiting = {kind: list(places) for kind, places in state["waiting"].items()}
