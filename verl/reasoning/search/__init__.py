"""Search for a solution with a model that writes and one that judges, at a counted price in tokens."""
