"""The original document's module of this name; the code is in `verl.reasoning.rejection`, `diverse` and `beam`."""

from verl.reasoning.beam import BeamSearchSampler
from verl.reasoning.diverse import DiversityAwareSampler
from verl.reasoning.rejection import RejectionSampler
from verl.reasoning.rejection_config import RejectionSamplingConfig

__all__ = ["BeamSearchSampler", "DiversityAwareSampler", "RejectionSampler", "RejectionSamplingConfig"]
