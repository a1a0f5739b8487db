"""What is made of a run after it was made: its rows judged again, from the dump alone."""
