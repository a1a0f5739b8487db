"""Tests of reinforcement learning in the pipeline."""
