"""Tests of faithfulness."""
