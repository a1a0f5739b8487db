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
    compare = load()
    with contextlib.suppress(EOFError, OSError):
        connection.send_bytes(b"ready")
        while True:
            answer, truth, seconds = json.loads(connection.recv_bytes())
            # The signal's own action ends the process, also inside of one long multiplication.
            signal.setitimer(signal.ITIMER_PROF, seconds)
            same = compare(answer, truth)
            signal.setitimer(signal.ITIMER_PROF, 0)
            connection.send_bytes(json.dumps(same).encode())


def load() -> Any:
    """The comparison of two LaTeX strings."""
    import sympy
    from math_verify import LatexExtractionConfig, parse, verify

    config = [LatexExtractionConfig(boxed_match_priority=0)]
    letter_i, zero = sympy.Symbol("i", real=False), sympy.Integer(0)

    def exact(value: Any) -> Any:
        """With decimals as the fractions that they are, and the letter i as the imaginary unit."""
        if not isinstance(value, sympy.Basic):
            return value
        swaps = {number: sympy.Rational(str(number)) for number in value.atoms(sympy.Float)}
        if letter_i in value.free_symbols:
            swaps[letter_i] = sympy.I
        return value.xreplace(swaps) if swaps else value

    # Its own time limits are off: they are signals too, and a comparison that swallows exceptions outlives them.
    @lru_cache(maxsize=1000)
    def parsed(latex: str) -> tuple[Any, ...]:
        return tuple(exact(value) for value in parse(f"\\boxed{{{latex}}}", config, parsing_timeout=None))

    def constant_factor(one: Any, other: Any) -> Any:
        """The finite number other than 0 that one expression is times the other; None if there is none."""
        one, other = sympy.simplify(one), sympy.simplify(other)
        if not one.free_symbols or one.free_symbols != other.free_symbols:
            return None
        factor = sympy.simplify(one / other)
        return None if factor.free_symbols or factor.is_finite is False or factor == zero else factor

    def same_relation(one: Any, other: Any) -> bool | None:
        """Whether equations or inequalities differ by a factor, None if that does not decide it."""
        if not one.free_symbols or not other.free_symbols:
            # 0 = 0 and 1 = 2 say nothing of any unknown.
            return bool(one == other)
        if isinstance(one, sympy.Eq) and isinstance(other, sympy.Eq):
            return constant_factor(one.lhs - one.rhs, other.lhs - other.rhs) is not None
        if all(isinstance(side, (sympy.Gt, sympy.Ge, sympy.Lt, sympy.Le)) for side in (one, other)):
            strict = [isinstance(side, (sympy.Gt, sympy.Lt)) for side in (one, other)]
            factor = constant_factor(one.gts - one.lts, other.gts - other.lts)
            if factor is not None:
                return bool(factor.is_positive and strict[0] == strict[1])
            return None if one.free_symbols == other.free_symbols else False
        return None

    def differ(one: Any, other: Any) -> bool:
        """Whether two values are certainly not the same: math-verify takes small ones for 0."""
        if isinstance(one, sympy.Tuple) and isinstance(other, sympy.Tuple):
            return any(differ(mine, theirs) for mine, theirs in zip(one, other, strict=True))
        if isinstance(one, sympy.MatrixBase) and isinstance(other, sympy.MatrixBase):
            return any(differ(mine, theirs) for mine, theirs in zip(one, other, strict=True))
        if isinstance(one, sympy.Interval) and isinstance(other, sympy.Interval):
            return differ(one.start, other.start) or differ(one.end, other.end)
        if not isinstance(one, sympy.Expr) or not isinstance(other, sympy.Expr):
            return False
        if one.free_symbols or other.free_symbols:
            # One of them is 0 only if both are.
            return False
        mine, theirs = sympy.N(one, 30), sympy.N(other, 30)
        gap, size = abs(mine - theirs), max(abs(mine), abs(theirs))
        return bool(gap.is_number and gap.is_finite and gap > size * sympy.Float("1e-12"))

    def compare(answer: str, truth: str) -> bool:
        mine, theirs = parsed(answer), parsed(truth)
        if mine and theirs and all(isinstance(side[0], sympy.core.relational.Relational) for side in (mine, theirs)):
            related = same_relation(mine[0], theirs[0])
            if related is not None:
                return related
        if any(isinstance(value, sympy.Basic) and value.has(sympy.Derivative) for value in (*mine, *theirs)):
            # dy/dx would be the derivative of one letter by another, 0.
            return bool(mine and theirs) and mine[0] == theirs[0]
        # The truth first: verify is not symmetric.
        same = verify(list(theirs), list(mine), allow_set_relation_comp=True, timeout_seconds=None)
        return same and not differ(mine[0], theirs[0])

    return compare


if __name__ == "__main__":
    main(int(sys.argv[1]))
