"""Tests of the measurement of step judges."""
