"""What the code sandbox answers under load: requests a second, waiting times, and whether all answers are right.

One decision: every client knows what each of its programs must give, so that a fast wrong answer counts as none.
Clients ask in turn for programs that pass, fail, exit, print, loop and read input, as answers of a policy do.

    python scripts/bench/sandbox.py --clients 50 --seconds 60          # starts a service of its own
    python scripts/bench/sandbox.py --url http://127.0.0.1:8001
"""

import argparse
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import requests

_SUM = "def total(numbers):\n    result = 0\n    for number in numbers:\n        result += number\n    return result\n"
_TESTS = ["assert total([1, 2]) == 3", "assert total([]) == 0", "assert total([1]) == 2"]
_READ = {"program": "print(sum(map(int, input().split())))", "tests": [{"input": "1 2\n", "output": "3"}]}

PROGRAMS: list[tuple[dict[str, Any], list[int]]] = [
    ({"program": _SUM, "tests": _TESTS}, [1, 1, 0]),
    ({"program": _SUM.replace("+=", "-="), "tests": _TESTS}, [0, 1, 0]),
    ({"program": f"{_SUM}print('passed')\nraise SystemExit", "tests": _TESTS}, [0, 0, 0]),
    ({"program": _SUM.replace("return", "raise"), "tests": _TESTS}, [0, 0, 0]),
    (_READ, [1]),
    ({**_READ, "program": "print(7)"}, [0]),
    ({"program": "while True: pass", "tests": ["assert True"], "max_execution_time": 0.5}, [0]),
]
"""Requests and their right results; those without a limit get one that a busy machine keeps too."""


@dataclass(kw_only=True)
class Load:
    """What became of all requests."""

    waits: list[float] = field(default_factory=list)
    """Seconds of each answered request."""
    tests: int = 0
    """Tests in them."""
    health: list[float] = field(default_factory=list)
    """Seconds of each answer of `/health` meanwhile."""
    refused: int = 0
    """Answers 503, after which the client asks again."""
    wrong: Counter[str] = field(default_factory=Counter)
    """Other statuses, and results that are not the right ones."""


def put_under_load(url: str, *, clients: int, seconds: float) -> Load:
    """`clients` threads ask for `seconds`, one request after the other each, and until they have been answered once;
    what they have begun is counted."""
    load, lock, end = Load(), threading.Lock(), time.monotonic() + seconds

    def ask(first: int) -> None:
        with requests.Session() as session:
            turn = first
            while turn == first or time.monotonic() < end:
                asked, right = PROGRAMS[turn % len(PROGRAMS)]
                kind = "test_program_stdio" if isinstance(asked["tests"][0], dict) else "test_program"
                start = time.monotonic()
                try:
                    answer = session.post(f"{url}/{kind}", json={"max_execution_time": 20, **asked}, timeout=300)
                except requests.RequestException as error:
                    with lock:
                        load.wrong[f"no answer: {type(error).__name__}"] += 1
                    turn += 1
                    continue
                wait = time.monotonic() - start
                with lock:
                    if answer.status_code == 503:
                        load.refused += 1
                        continue
                    turn += 1
                    load.waits.append(wait)
                    load.tests += len(right)
                    if answer.status_code != 200 or answer.json()["results"] != right:
                        load.wrong[f"{answer.status_code} {answer.text[:200]} instead of {right}"] += 1

    def look() -> None:
        with requests.Session() as session:
            while not load.health or time.monotonic() < end:
                start = time.monotonic()
                session.get(f"{url}/health", timeout=60).raise_for_status()
                load.health.append(time.monotonic() - start)
                time.sleep(0.02)

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(clients)]
    threads.append(threading.Thread(target=look))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return load


@contextlib.contextmanager
def own_service() -> Iterator[str]:
    """The address of a service as it starts by default."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "verl.code_utils.api", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stderr is not None
            for line in server.stderr:
                if "code sandbox:" in line:
                    print(line.strip().removeprefix("INFO:").strip())
                if "running on" in line:
                    break
            else:
                sys.exit("error: the service did not start; see `python -m verl.code_utils.api`")
            # What it goes on to say must not fill the pipe.
            threading.Thread(target=server.stderr.read, daemon=True).start()
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=50, help="clients at once (default: 50)")
    parser.add_argument("--seconds", type=float, default=60, help="seconds for which they ask (default: 60)")
    parser.add_argument("--url", help="a service that runs already (default: one of its own)")
    options = parser.parse_args()
    with contextlib.nullcontext(options.url.rstrip("/")) if options.url else own_service() as url:
        start = time.monotonic()
        load = put_under_load(url, clients=options.clients, seconds=options.seconds)
        took = time.monotonic() - start
    cuts = statistics.quantiles(load.waits, n=100)
    result = {
        "benchmark": "sandbox",
        "clients": options.clients,
        "seconds": round(took, 1),
        "requests": len(load.waits),
        "requests_per_s": round(len(load.waits) / took, 1),
        "tests_per_s": round(load.tests / took, 1),
        "wait_p50_s": round(cuts[49], 3),
        "wait_p99_s": round(cuts[98], 3),
        "health_slowest_ms": round(1000 * max(load.health), 1),
        "refused": load.refused,
        "wrong": sum(load.wrong.values()),
    }
    rates = f"{result['requests_per_s']} requests/s, {result['tests_per_s']} tests/s"
    print(f"{options.clients} clients for {took:.0f} s: {rates}, {load.refused} refused")
    print(f"answered after {result['wait_p50_s']} s (median), {result['wait_p99_s']} s (99 of 100)")
    print(f"/health answered within {result['health_slowest_ms']} ms; wrong answers: {result['wrong']}")
    for what, count in load.wrong.most_common(5):
        print(f"  {count} x {what}")
    print(json.dumps(result))
    return 1 if load.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
