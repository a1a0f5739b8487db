"""From a teacher to a smaller student: on verified traces, on its probabilities, on the student's own texts."""
