"""`ReasoningDistillationPipeline`: traces, training, comparison, by one call.

One decision: it adds nothing of its own; each part is also a method of the distillers.

    >>> pipeline = ReasoningDistillationPipeline("./trained_model", "gpt2-small")
    >>> results = pipeline.run_full_pipeline(training_problems, validation_problems, "./distilled")
    >>> results["model"], results["evaluation"]["retention"]
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verl.reasoning.distill.config import DistillationConfig
from verl.reasoning.distill.distiller import Given
from verl.reasoning.distill.progressive import ProgressiveDistiller
from verl.trainer.run.state import write_atomically


class ReasoningDistillationPipeline:
    """A teacher and a student, by name."""

    def __init__(
        self,
        teacher_model_path: str,
        student_model_name: str,
        reward_fn: Callable[..., Any] | None = None,
        *,
        settings: dict[str, Any] | None = None,
        **parts: Any,
    ) -> None:
        """
        Args:
            teacher_model_path: folder or hub name.
            student_model_name: likewise.
            reward_fn: of (problem, solution); None: compares answers.
            settings: other fields of `DistillationConfig`.
            parts: keywords of `ReasoningDistiller`.
        """
        self._names = {"teacher_model_name": teacher_model_path, "student_model_name": student_model_name}
        self._settings, self._reward, self._parts = dict(settings or {}), reward_fn, parts

    def run_full_pipeline(
        self,
        training_problems: Given,
        validation_problems: Given | None = None,
        output_dir: str = "./distillation_output",
    ) -> dict[str, Any]:
        """Distils, with a curriculum where the settings say so, and compares the student with teacher and before.

        Args:
            training_problems: to learn from.
            validation_problems: held out, and compared on; None: a share of the training problems is held out, and
                nothing is compared.
            output_dir: of everything; the same call goes on in it.

        Returns:
            `model` (a folder), `distillation`, `evaluation` (None without validation problems), `metrics`; also written
            as `pipeline.json`.
        """
        config = DistillationConfig(**{**self._names, **self._settings, "output_dir": output_dir})
        distiller = ProgressiveDistiller(config, self._reward, **self._parts)
        if config.curriculum_learning and config.mode != "on_policy":
            told = distiller.progressive_distillation(training_problems, validation_problems)
        else:
            told = distiller.distill_with_reasoning_preservation(training_problems, validation_problems)
        evaluated = None if validation_problems is None else distiller.evaluate_distillation(validation_problems)
        results = {
            "model": str(distiller.model_path),
            "distillation": told,
            "evaluation": evaluated,
            "metrics": distiller.distillation_metrics,
        }
        write_atomically(Path(output_dir) / "pipeline.json", json.dumps(results, indent=2, default=str))
        return results
