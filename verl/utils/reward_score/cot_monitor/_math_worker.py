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
    from math_verify import LatexExtractionConfig, parse, verify

    config = [LatexExtractionConfig(boxed_match_priority=0)]

    # Its own time limits are off: they are signals too, and a comparison that swallows exceptions outlives them.
    @lru_cache(maxsize=1000)
    def parsed(latex: str) -> tuple[Any, ...]:
        return tuple(parse(f"\\boxed{{{latex}}}", config, parsing_timeout=None))

    def compare(answer: str, truth: str) -> bool:
        # The truth first: verify is not symmetric.
        return verify(list(parsed(truth)), list(parsed(answer)), allow_set_relation_comp=True, timeout_seconds=None)

    return compare


if __name__ == "__main__":
    main(int(sys.argv[1]))
