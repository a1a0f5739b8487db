"""`ProgressiveDistiller`: from problems that are easy for the student to those that are hard, in one training.

One decision: a curriculum is worth something only beside a training without it that learns as many tokens, from
the same traces, with the same schedule: `control=True` makes that one too.

    >>> distiller = ProgressiveDistiller(DistillationConfig(teacher_model_name="./big", student_model_name="./small"))
    >>> told = distiller.progressive_distillation(problems, control=True)
    >>> told["stages"][0]["easy_avg"], told["control"]["difference"]
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from verl.classmate.errors import ConfigError
from verl.reasoning.distill import preservation
from verl.reasoning.distill.distiller import Given, ReasoningDistiller
from verl.reasoning.distill.on_traces import Trace, learn
from verl.reasoning.distill.own_texts import own_rows
from verl.reasoning.distill.sampling import pass_rate
from verl.reasoning.distill.training import Hooks
from verl.reasoning.records import Problem


class ProgressiveDistiller(ReasoningDistiller):
    """A distiller with a curriculum; its modes are `seq`, `logit` and `gold`."""

    def progressive_distillation(
        self, problems: Given, validation_problems: Given | None = None, control: bool = False
    ) -> dict[str, Any]:
        """Trains the student stage by stage; problems that the teacher never solves are left out.

        Args:
            problems: to learn from.
            validation_problems: held out; None: a share of the problems is. They say when a stage ends early.
            control: whether a second student learns the same traces in one stage, with as many tokens.

        Returns:
            `stages`: for each `stage`, `problems`, `tokens`, `ended_early` and, on held-out problems, `score` and that
            of each level (`easy_avg`, `medium_avg`, `hard_avg` with three stages). `final`: `model`, `tokens`,
            `budget`, `metrics` and the scores at the end. With a control, `control`: its `model`, `tokens` and scores,
            and the paired `difference` of the curriculum to it with `difference_ci`.

        Raises:
            ConfigError: `mode="on_policy"`, which has no traces to order.
            ValueError: there are no traces, or a problem is in both sets.
        """
        config = self.config
        if config.mode == "on_policy":
            raise ConfigError(
                "mode='on_policy' has no traces that could be ordered; write mode='seq' or 'logit', or call "
                "ReasoningDistiller.distill_with_reasoning_preservation"
            )
        train, held_out = self._split(problems, validation_problems)
        traces = self.traces(train)
        levels = self._levels(held_out)
        stages = config.difficulty_stages if config.curriculum_learning else 1
        told = self._learn(traces, train, levels, stages=stages, folder=self.folder / "student", title="curriculum")
        self.model_path = Path(told["model"])
        self.distillation_metrics = self._measure(held_out)
        last = told["stages"][-1]
        final = {key: told[key] for key in ("model", "tokens", "budget", "steps", "rows", "left_out")}
        final |= {key: value for key, value in last.items() if key == "score" or key.endswith("_avg")}
        final |= {"metrics": self.distillation_metrics}
        result = {"stages": told["stages"], "final": final, "teacher": self.teacher_report}
        if control:
            result["control"] = self._control(traces, train, held_out, levels)
        return self._kept("progressive.json", result)

    def _control(
        self,
        traces: Sequence[Trace],
        train: Sequence[Problem],
        held_out: Sequence[Problem],
        levels: Mapping[str, Sequence[Problem]],
    ) -> dict[str, Any]:
        told = self._learn(traces, train, levels, stages=1, folder=self.folder / "control", title="control")
        last = told["stages"][-1]
        found = {key: told[key] for key in ("model", "tokens", "budget", "steps")}
        found |= {key: value for key, value in last.items() if key == "score" or key.endswith("_avg")}
        if not held_out:
            return found
        rates = [
            [pass_rate(some, self.config.min_score) for some in self._evaluated(str(model), held_out, "held_out")]
            for model in (told["model"], self._student())
        ]
        both = [(one, other) for one, other in zip(*rates, strict=True) if one is not None and other is not None]
        if both:
            compared = preservation.retention(*map(list, zip(*both, strict=True)), seed=self.config.seed)  # type: ignore[arg-type]
            found |= {"difference": compared["difference"], "difference_ci": compared["difference_ci"]}
        return found

    def _learn(
        self,
        traces: Sequence[Trace],
        problems: Sequence[Problem],
        levels: Mapping[str, Sequence[Problem]],
        *,
        stages: int,
        folder: Path,
        title: str,
    ) -> dict[str, Any]:
        by_id = {one.id: one for one in problems}

        def hooks(tokenizer: Any, kept: Sequence[Trace]) -> Hooks:
            def difficulty(model: Any, ids: Sequence[str]) -> Mapping[str, float]:
                if stages == 1:
                    return dict.fromkeys(ids, 0.0)
                return self.difficulty(model, tokenizer, [by_id[one] for one in ids], "difficulty")

            return Hooks(
                difficulty=difficulty,
                look=partial(self._look, tokenizer, levels),
                own_rows=own_rows(self.config, self._open, tokenizer, [one.problem for one in kept]),
            )

        revision = self.teacher_revision()
        return learn(self.config, traces, folder, stages=stages, hooks=hooks, revision=revision, title=title)

    def _levels(self, problems: Sequence[Problem]) -> dict[str, list[Problem]]:
        """Held-out problems, easy ones first, in as many equal parts as there are stages."""
        names = level_names(self.config.difficulty_stages)
        if not problems:
            return {}
        hard = self.difficulty(self.config.student, None, problems, "difficulty")
        ordered = sorted(problems, key=lambda one: hard[one.id])
        parts = np.array_split(np.arange(len(ordered)), len(names))
        return {name: [ordered[place] for place in part] for name, part in zip(names, parts, strict=True)}

    def _look(self, tokenizer: Any, levels: Mapping[str, Sequence[Problem]], model: Any) -> Mapping[str, float] | None:
        """Accuracy of a model on held-out problems: `score` of all, and that of each level."""
        problems = [problem for part in levels.values() for problem in part]
        if not problems:
            return None
        samples = self._evaluated(model, problems, "look", tokenizer)
        rates = {one.id: pass_rate(some, self.config.min_score) for one, some in zip(problems, samples, strict=True)}
        known = [rate for rate in rates.values() if rate is not None]
        if not known:
            return None
        scores = {"score": float(np.mean(known))}
        for name, part in levels.items():
            found = [rate for one in part if (rate := rates[one.id]) is not None]
            if found:
                scores[f"{name}_avg"] = float(np.mean(found))
        return scores


def level_names(levels: int) -> list[str]:
    """Names of levels of difficulty, the easiest first: easy, medium and hard where there are three."""
    usual = {1: ["all"], 2: ["easy", "hard"], 3: ["easy", "medium", "hard"]}
    return usual.get(levels) or [f"level_{level + 1}" for level in range(levels)]
