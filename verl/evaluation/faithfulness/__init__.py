"""What of an answer comes from the thought: readers are shown thoughts cut, changed, rewritten and replaced."""
