"""Judges of steps measured on a world whose first errors are known: a head, a likelihood, both, and one in words."""
