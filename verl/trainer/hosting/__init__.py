"""Classmates on servers of their own, for runs that ask them over HTTP."""
