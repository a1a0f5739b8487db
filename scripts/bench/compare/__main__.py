"""Times a training step here and in other trainers: one command, a table, one line of JSON.

    python -m scripts.bench.compare                                     # everything, hours
    python -m scripts.bench.compare --arms "*/none" --lengths equal     # a part of it

Finished runs are kept in --out and not repeated. TRL is installed into an environment of its own at its first run.
"""

import argparse
import json
import os
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from scripts.bench.compare import page, report  # noqa: E402
from scripts.bench.compare.arms import ARMS, chosen  # noqa: E402
from scripts.bench.compare.passes import WARMUP, run_passes  # noqa: E402
from scripts.bench.compare.workload import LENGTHS, MODELS  # noqa: E402

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "classmate_cot"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--arms", nargs="+", default=["*"], metavar="PATTERN", help="some of: " + ", ".join(_names()))
    parser.add_argument("--lengths", nargs="+", choices=LENGTHS, default=list(LENGTHS), help="default: both")
    parser.add_argument("--models", choices=MODELS, default="4M", help="size of the policy (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="passes through all arms (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=12, help="steps of a run; the first 2 do not count")
    parser.add_argument("--out", type=Path, default=ROOT / "outputs" / "compare", help="default: outputs/compare")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where TRL is installed (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep what runs have left, in OUT/runs")
    parser.add_argument("--write", action="store_true", help="write finished runs into docs/benchmarks.md; run nothing")
    asked = parser.parse_args()
    if asked.steps < 3 or asked.repeats < 1:
        parser.error("--steps must be at least 3, --repeats at least 1")
    try:
        arms = chosen(asked.arms)
    except ValueError as error:
        parser.error(str(error))
    counted = asked.steps - WARMUP
    out = asked.out.resolve()
    if out.exists() and not out.is_dir():
        parser.error(f"--out {asked.out} is a file; name a folder")
    if asked.write:
        page.write(arms, asked.lengths, out, counted, asked.models)
        return 0
    # So that a run does not outlive this process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        results = run_passes(
            arms,
            asked.lengths,
            repeats=asked.repeats,
            counted=counted,
            out=out,
            cache=asked.cache.resolve(),
            models=asked.models,
            keep=asked.keep,
        )
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on", file=sys.stderr)
        return 130
    text, found = report.card(arms, asked.lengths, results)
    print(text)
    print(json.dumps({"benchmark": "compare", "steps": asked.steps, "repeats": asked.repeats, **found}))
    return int(report.failed(found))


def _names() -> list[str]:
    return [arm.name for arm in ARMS]


if __name__ == "__main__":
    raise SystemExit(main())
