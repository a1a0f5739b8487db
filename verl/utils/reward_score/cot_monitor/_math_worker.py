"""A process that compares mathematical answers with math-verify; `_math_pool` starts it as a script.

Decision: it imports neither verl nor torch, and ends by itself in every case: when its pipe closes (the parent is gone)
and, by a timer that no computation can block, when one comparison takes too much processor time.

    python -P _math_worker.py FD       # FD: a connection; [answer, truth, seconds] comes in, true or false goes out
"""

import contextlib
import json
import logging
import resource
import signal
import sys
from functools import lru_cache
from multiprocessing.connection import Connection
from typing import Any

_MEMORY = 2 << 30
"""Most bytes of address space; `9^{9^9}` would take all there are."""


def main(descriptor: int) -> None:
    """Answers until the other end of the connection is closed."""
    # Ctrl-C is for the parent, which closes the connection.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = _MEMORY if hard == resource.RLIM_INFINITY else min(_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    logging.disable(logging.CRITICAL)
    connection = Connection(descriptor)
    compare = Comparison()
    with contextlib.suppress(EOFError, OSError):
        connection.send_bytes(b"ready")
        while True:
            answer, truth, seconds = json.loads(connection.recv_bytes())
            # The signal's own action ends the process, also inside of one long multiplication.
            signal.setitimer(signal.ITIMER_PROF, seconds)
            same = compare(answer, truth)
            signal.setitimer(signal.ITIMER_PROF, 0)
            connection.send_bytes(json.dumps(same).encode())


class Comparison:
    """The comparison of two LaTeX strings. Its libraries are imported only here, when the process has its limits."""

    def __init__(self) -> None:
        import math_verify
        import sympy

        self._math_verify, self._sympy = math_verify, sympy
        self._config = [math_verify.LatexExtractionConfig(boxed_match_priority=0)]
        self._letter_i = sympy.Symbol("i", real=False)
        self._parsed = lru_cache(maxsize=1000)(self._parse)

    def __call__(self, answer: str, truth: str) -> bool:
        """Whether both are the same."""
        sympy, mine, theirs = self._sympy, self._parsed(answer), self._parsed(truth)
        if mine and theirs and all(isinstance(side[0], sympy.core.relational.Relational) for side in (mine, theirs)):
            related = self._same_relation(mine[0], theirs[0])
            if related is not None:
                return related
        if any(isinstance(value, sympy.Basic) and value.has(sympy.Derivative) for value in (*mine, *theirs)):
            # dy/dx would be the derivative of one letter by another, 0.
            return bool(mine and theirs) and mine[0] == theirs[0]
        # The truth first: verify is not symmetric.
        same: bool = self._math_verify.verify(
            list(theirs), list(mine), allow_set_relation_comp=True, timeout_seconds=None
        )
        return same and not self._differ(mine[0], theirs[0])

    def _parse(self, latex: str) -> tuple[Any, ...]:
        # Its own time limits are off: they are signals too, and a comparison that swallows exceptions outlives them.
        found = self._math_verify.parse(f"\\boxed{{{latex}}}", self._config, parsing_timeout=None)
        return tuple(self._exact(value) for value in found)

    def _exact(self, value: Any) -> Any:
        """With decimals as the fractions that they are, and the letter i as the imaginary unit."""
        sympy = self._sympy
        if not isinstance(value, sympy.Basic):
            return value
        swaps = {number: sympy.Rational(str(number)) for number in value.atoms(sympy.Float)}
        if self._letter_i in value.free_symbols:
            swaps[self._letter_i] = sympy.I
        return value.xreplace(swaps) if swaps else value

    def _constant_factor(self, one: Any, other: Any) -> Any:
        """The finite number other than 0 that one expression is times the other; None if there is none."""
        sympy = self._sympy
        one, other = sympy.simplify(one), sympy.simplify(other)
        if not one.free_symbols or one.free_symbols != other.free_symbols:
            return None
        factor = sympy.simplify(one / other)
        return None if factor.free_symbols or factor.is_finite is False or factor == sympy.Integer(0) else factor

    def _same_relation(self, one: Any, other: Any) -> bool | None:
        """Whether equations or inequalities differ by a factor, None if that does not decide it."""
        sympy = self._sympy
        if not one.free_symbols or not other.free_symbols:
            # 0 = 0 and 1 = 2 say nothing of any unknown.
            return bool(one == other)
        if isinstance(one, sympy.Eq) and isinstance(other, sympy.Eq):
            return self._constant_factor(one.lhs - one.rhs, other.lhs - other.rhs) is not None
        if all(isinstance(side, (sympy.Gt, sympy.Ge, sympy.Lt, sympy.Le)) for side in (one, other)):
            strict = [isinstance(side, (sympy.Gt, sympy.Lt)) for side in (one, other)]
            factor = self._constant_factor(one.gts - one.lts, other.gts - other.lts)
            if factor is not None:
                return bool(factor.is_positive and strict[0] == strict[1])
            return None if one.free_symbols == other.free_symbols else False
        return None

    def _differ(self, one: Any, other: Any) -> bool:
        """Whether two values are certainly not the same: math-verify takes small ones for 0."""
        sympy = self._sympy
        for kind in (sympy.Tuple, sympy.MatrixBase):
            if isinstance(one, kind) and isinstance(other, kind):
                return any(self._differ(mine, theirs) for mine, theirs in zip(one, other, strict=True))
        if isinstance(one, sympy.Interval) and isinstance(other, sympy.Interval):
            return self._differ(one.start, other.start) or self._differ(one.end, other.end)
        if not isinstance(one, sympy.Expr) or not isinstance(other, sympy.Expr):
            return False
        if one.free_symbols or other.free_symbols:
            # One of them is 0 only if both are.
            return False
        mine, theirs = sympy.N(one, 30), sympy.N(other, 30)
        gap, size = abs(mine - theirs), max(abs(mine), abs(theirs))
        return bool(gap.is_number and gap.is_finite and gap > size * sympy.Float("1e-12"))


if __name__ == "__main__":
    main(int(sys.argv[1]))
