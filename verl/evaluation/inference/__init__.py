"""A model answers a file of questions, and verifiers score what it wrote; resumable by row."""
