"""Reasoning as a series of steps: what trainer, engines and the reasoning pipeline share. Pure."""
