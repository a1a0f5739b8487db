"""What our overlay adds to `import verl`, which every process of a training run pays.

One decision: processor time counts, not the clock, and runs come in pairs, with our plugin and with
`VERL_USE_EXTERNAL_PLUGINS=none`, of whose differences the median is taken: so a busy machine gives the same answer.

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


def import_seconds(plugins: str) -> float:
    """Processor seconds of a new process that runs `import verl`, away from the checkout."""
    environment = {**os.environ, "VERL_USE_EXTERNAL_PLUGINS": plugins}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", "import verl"],
        check=True,
        env=environment,
        cwd=tempfile.gettempdir(),
        capture_output=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(pairs: int) -> dict[str, float]:
    """Medians in processor seconds: `import verl` without and with the overlay, and the difference within pairs."""
    import_seconds("auto")  # the first one reads the files from disk
    runs = []
    for index in range(pairs):
        order = ("none", "auto") if index % 2 else ("auto", "none")
        runs.append({plugins: import_seconds(plugins) for plugins in order})
    return {
        "without_s": statistics.median(run["none"] for run in runs),
        "with_s": statistics.median(run["auto"] for run in runs),
        "added_s": statistics.median(run["auto"] - run["none"] for run in runs),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=7, help="paired runs; their median counts (default: 7)")
    pairs = parser.parse_args().pairs
    result = measure(pairs)
    print(f"import verl, processor time, median of {pairs} pairs")
    print(f"  without the overlay  {result['without_s']:6.2f} s")
    print(f"  with the overlay     {result['with_s']:6.2f} s")
    print(f"  added                {result['added_s']:6.2f} s   (at most {LIMIT_S} s)")
    print(json.dumps({"benchmark": "import_time", "pairs": pairs, **{k: round(v, 3) for k, v in result.items()}}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
