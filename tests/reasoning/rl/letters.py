"""A task for a policy that knows nothing: to write letters of the alphabet's first half.

>>> letters("1 + 1 = ?", "am")
1.0
"""

PROBLEMS = [{"problem": f"{a} + {a} = ?", "answer": str(2 * a)} for a in range(8)]


def letters(problem: str, solution: str) -> float | None:
    """Share of the letters a to m; a text that begins with z cannot be scored."""
    if solution.startswith("z"):
        return None
    return sum("a" <= letter <= "m" for letter in solution) / max(1, len(solution))
