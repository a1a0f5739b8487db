"""The original document's module of this name; the code is in `verl.reasoning.rl`."""

from verl.reasoning.rl import PureRLConfig, PureRLTrainer

__all__ = ["PureRLConfig", "PureRLTrainer"]
