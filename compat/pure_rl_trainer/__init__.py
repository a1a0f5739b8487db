"""The original document's module of this name; the code is in `verl.reasoning.rl`."""

from verl.reasoning.rl.config import PureRLConfig
from verl.reasoning.rl.trainer import PureRLTrainer

__all__ = ["PureRLConfig", "PureRLTrainer"]
