"""Frozen models that read the policy's thoughts: engines, where they stand, the client that asks them."""
