"""The embedded world of the reasoning pipeline: sums in brackets, solved line by line, each line a checkable claim."""
