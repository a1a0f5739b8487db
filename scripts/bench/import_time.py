"""What our overlay adds to `import verl`, which every process of a training run pays, and `--help` to that.

One decision: processor time counts, not the clock, and runs come in rounds, with our plugin, with
`VERL_USE_EXTERNAL_PLUGINS=none` and with `--help`, of whose differences the median is taken: a busy machine gives the
same answer.

    python scripts/bench/import_time.py --pairs 9
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile

LIMIT_S = 0.2
"""Most that the overlay may add to `import verl`."""

HELP_LIMIT_S = 1.0
"""Most that `--help` of an entry point may take beyond `import verl`."""

_RUNS = {
    "without": (["-c", "import verl"], "none"),
    "with": (["-c", "import verl"], "auto"),
    "help": (["-m", "verl.trainer.classmate_cot_main_ppo", "--help"], "auto"),
}
"""name: (arguments of the interpreter, verl's plugins)."""


def processor_seconds(run: str) -> float:
    """Processor seconds of a new process, away from the checkout; `run` is a key of `_RUNS`."""
    arguments, plugins = _RUNS[run]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments],
        check=True,
        env={**os.environ, "VERL_USE_EXTERNAL_PLUGINS": plugins},
        cwd=tempfile.gettempdir(),
        capture_output=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(pairs: int) -> dict[str, float]:
    """Medians in processor seconds: each run, and the differences within rounds."""
    for run in _RUNS:
        processor_seconds(run)  # the first one reads the files from disk
    names = list(_RUNS)
    rounds = []
    for index in range(pairs):
        rounds.append({run: processor_seconds(run) for run in (names if index % 2 else names[::-1])})
    return {
        "without_s": statistics.median(one["without"] for one in rounds),
        "with_s": statistics.median(one["with"] for one in rounds),
        "help_s": statistics.median(one["help"] for one in rounds),
        "added_s": statistics.median(one["with"] - one["without"] for one in rounds),
        "help_added_s": statistics.median(one["help"] - one["with"] for one in rounds),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=7, help="rounds of runs; their median counts (default: 7)")
    pairs = parser.parse_args().pairs
    result = measure(pairs)
    print(f"import verl, processor time, median of {pairs} rounds")
    print(f"  without the overlay  {result['without_s']:6.2f} s")
    print(f"  with the overlay     {result['with_s']:6.2f} s")
    print(f"  added                {result['added_s']:6.2f} s   (at most {LIMIT_S} s)")
    print(f"  --help               {result['help_s']:6.2f} s")
    print(f"  beyond import verl   {result['help_added_s']:6.2f} s   (at most {HELP_LIMIT_S} s)")
    print(json.dumps({"benchmark": "import_time", "pairs": pairs, **{k: round(v, 3) for k, v in result.items()}}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
