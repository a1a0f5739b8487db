"""Adaptive teachers: a policy advises a frozen student, and is rewarded for what the advice changes."""
