"""What classmates add to a step with each schedule: short real trainings, with classmates that take time and no CPU.

One decision: only the classmates are played, by servers that answer 4 requests at a time in 0.25 s each, 2 s for the 32
rows of a step. Everything between them and the policy is a run's own: Ray, queue, engine, trainer.

    python scripts/bench/schedules.py                      # about half an hour on 2 cores

Finished runs are kept in --out and not repeated. Prints a table and ends with one line of JSON. Exit code 1 when with
real lengths `streamed` adds more than 40 % of what `batched` adds, or a run failed.
"""

import argparse
import json
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.compare import report  # noqa: E402
from scripts.bench.compare.arms import Arm  # noqa: E402
from scripts.bench.compare.passes import WARMUP, run_passes  # noqa: E402
from scripts.bench.compare.workload import LENGTHS  # noqa: E402

LIMIT = 0.4
"""Most that `streamed` may add with real lengths, as a share of what `batched` adds."""

ARMS = (
    Arm(name="ours/none", peer="ours"),
    Arm(name="ours/stub/streamed", peer="ours", helpers=1, how="streamed", stub=True),
    Arm(name="ours/stub/batched", peer="ours", helpers=1, how="batched", stub=True),
    Arm(name="ours/two-stubs/streamed", peer="ours", helpers=2, how="streamed", stub=True),
    Arm(name="ours/two-stubs/batched", peer="ours", helpers=2, how="batched", stub=True),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", nargs="+", choices=LENGTHS, default=list(LENGTHS), help="default: both")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each kind, in turn (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=12, help="steps of a run; the first 2 do not count")
    parser.add_argument("--out", type=Path, default=ROOT / "outputs" / "schedules", help="default: outputs/schedules")
    asked = parser.parse_args()
    counted, out = asked.steps - WARMUP, asked.out.resolve()
    if out.exists() and not out.is_dir():
        parser.error(f"--out {asked.out} is a file; name a folder")
    if counted < 1 or asked.repeats < 1:
        parser.error(f"--steps must be at least {WARMUP + 1}, --repeats at least 1")
    # So that a run does not outlive this process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        results = run_passes(ARMS, asked.lengths, repeats=asked.repeats, counted=counted, out=out, cache=out)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on", file=sys.stderr)
        return 130
    text, found = report.card(ARMS, asked.lengths, results)
    print(text)
    print(json.dumps({"benchmark": "schedules", "steps": asked.steps, "repeats": asked.repeats, **found}))
    if report.failed(found):
        return 1
    if "real" not in found:
        return 0
    # There is no share where `batched` adds nothing, which cannot be.
    return int(found["real"]["streamed_share"].get("ours/stub", 1.0) > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
