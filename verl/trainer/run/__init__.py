"""A run around the trainer: command line, folder, lock, checkpoints, terminal, loggers."""
