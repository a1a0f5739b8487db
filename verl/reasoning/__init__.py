"""The five-stage reasoning pipeline: pure RL, CoT emergence, rejection sampling, process rewards, distillation.

`records` is what stages exchange, `backends` what samples, `search` what chooses, `prm` what judges steps; a stage that
trains by reinforcement starts the trainer of everything else (docs/reasoning.md).
"""
