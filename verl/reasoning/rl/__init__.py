"""Reinforcement learning of the pipeline: stages 1 and 2, on the trainer that everything else here uses.

>>> PureRLTrainer(PureRLConfig(model_name="models/base"), reward_fn).train(problems, num_iterations=100).checkpoint
"""

from verl.reasoning.rl.config import CoTConfig, PureRLConfig
from verl.reasoning.rl.cot_trainer import ChainOfThoughtTrainer
from verl.reasoning.rl.trainer import PureRLTrainer, TrainResult

__all__ = ["ChainOfThoughtTrainer", "CoTConfig", "PureRLConfig", "PureRLTrainer", "TrainResult"]
