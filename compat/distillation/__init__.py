"""The original document's module of this name; the code is in `verl.reasoning.distill`."""

from verl.reasoning.distill.config import DistillationConfig
from verl.reasoning.distill.distiller import ReasoningDistiller
from verl.reasoning.distill.pipeline import ReasoningDistillationPipeline
from verl.reasoning.distill.progressive import ProgressiveDistiller

__all__ = ["DistillationConfig", "ProgressiveDistiller", "ReasoningDistillationPipeline", "ReasoningDistiller"]
