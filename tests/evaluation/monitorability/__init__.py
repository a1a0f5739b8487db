"""Tests of monitorability."""
