"""Rivals of RL with classmates: fine-tuning on right, approved and sound traces (docs/rival_study.md)."""
