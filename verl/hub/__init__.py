"""Checkpoints of runs on the Hugging Face hub."""
