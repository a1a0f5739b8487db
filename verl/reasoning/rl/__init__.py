"""Reinforcement learning of the pipeline: `PureRLTrainer` and `ChainOfThoughtTrainer`, on the project's own trainer."""
