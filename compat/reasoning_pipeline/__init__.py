"""The original document's module of this name; the code is in `verl.reasoning.pipeline`."""

from verl.reasoning.compound import CompoundRewardFunction
from verl.reasoning.pipeline import ReasoningModelPipeline
from verl.reasoning.pipeline_config import ReasoningPipelineConfig

__all__ = ["CompoundRewardFunction", "ReasoningModelPipeline", "ReasoningPipelineConfig"]
