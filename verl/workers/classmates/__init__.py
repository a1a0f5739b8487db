"""Frozen models that read the policy's CoTs: engines, where they stand, the client that asks them."""
