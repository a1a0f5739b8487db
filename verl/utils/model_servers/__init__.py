"""Servers of others: which one answers for which model, and how a request is sent."""
