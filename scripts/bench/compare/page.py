"""The tables of docs/benchmarks.md, out of finished runs."""

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.bench.compare import passes, report
from scripts.bench.compare.arms import Arm

PAGE = Path(__file__).resolve().parents[3] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- python -m scripts.bench.compare --write -->\n", "<!-- end -->\n"


def write(
    arms: Sequence[Arm], lengths: Sequence[str], out: Path, counted: int, models: str = "4M", page: Path = PAGE
) -> None:
    """Puts what has been measured into the page, between its marks.

    Raises:
        SystemExit: there is nothing to write.
    """
    results = passes.read(out / "results.jsonl", counted, models)
    if not results:
        raise SystemExit(f"{out / 'results.jsonl'} holds no runs of {counted + passes.WARMUP} steps; run them first")
    text = page.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    page.write_text(text[:begin] + content(arms, lengths, results) + text[end:])


def content(arms: Sequence[Arm], lengths: Sequence[str], results: Sequence[Mapping[str, Any]]) -> str:
    """What stands between the marks: machine, versions, one table for each set of lengths."""
    machine = results[-1]["conditions"]["machine"]
    versions = sorted(
        {
            f"{arm}: " + ", ".join(f"{name} {version}" for name, version in result["versions"].items())
            for result in results
            if "versions" in result
            for arm in [result["arm"].partition("/")[0]]
        }
    )
    parts = [
        f"Measured {time.strftime('%Y-%m-%d', time.gmtime(results[-1]['at']))} on {machine['processor']}, "
        f"{machine['cores']} cores, {machine['memory_gib']} GiB; models: {results[-1]['conditions']['models']}.",
        *[f"* {_without_local(line)}" for line in versions],
    ]
    for kind in lengths:
        entries = report.summary(arms, kind, results)
        parts += ["", f"### {kind.capitalize()} lengths", "", report.table(entries, markdown=True)]
        said = [f"takes {share:.0%} of `{name}`" for name, share in report.of_peers(kind, results).items()]
        parts += ["", f"`ours/none` {', '.join(said)}."] if said else []
        for name, share in report.streamed_shares(entries).items():
            parts += ["", f"`{name}`: streamed adds {share:.0%} of what batched adds."]
    return "\n".join(["", *parts, "", ""])


def _without_local(versions: str) -> str:
    """Versions as a person would install them: without `+cpu`."""
    return re.sub(r"\+\w+", "", versions)
