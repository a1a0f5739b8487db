"""A saved process reward model: loaded, and its steps scored, wherever it is used."""
