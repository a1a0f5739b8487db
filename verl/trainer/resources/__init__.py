"""What a run needs of the machine: sizes of models, what a GPU holds, the plan shown at the start."""
