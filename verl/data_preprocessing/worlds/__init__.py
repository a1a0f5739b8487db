"""Worlds as data: a `WorldSpec` says all of a world, and its rows, its policy and its readers are built from that.

A world is a task, a policy that knows several styles of thought, and frozen readers of which each knows some of them.

    python -m verl.data_preprocessing.worlds thought_styles --output_dir data/thought_styles --seed 1
"""
