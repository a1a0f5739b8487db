"""Ray workers forked from a process that has imported the libraries already."""
