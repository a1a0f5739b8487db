"""Supervised fine-tuning of a chat model on pairs of a problem and an answer."""
