"""The embedded teaching world: frozen students with different habits, a teacher who has to tell them apart.

All is generated on the CPU: problems, students, a base teacher, its supervised warm-up, and the prompts they know.

    python -m verl.data_preprocessing.teaching_world --local_dir data/teaching_world --seed 0
"""
