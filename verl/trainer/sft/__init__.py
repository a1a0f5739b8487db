"""Supervised training on upstream's trainer: one process a GPU, a run folder like every other run's."""
