"""From finished runs to a table.

One decision: runs of one pass stand side by side in time, so that what a reader adds is taken within a pass, and the
median of these differences over the passes is shown. A failed run is shown as such and never counts as a time.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from scripts.bench.compare.arms import Arm

Result = Mapping[str, Any]
"""A line of the results file: `arm`, `lengths`, `repeat`, and either `error` or what `runner.measure` returns."""


def summary(arms: Sequence[Arm], lengths: str, results: Sequence[Result]) -> list[dict[str, Any]]:
    """One entry an arm, with medians over its passes.

    Args:
        arms: in the order of the table.
        lengths: which set counts.
        results: of all arms and sets; where an arm has several of one pass, the last counts.
    """
    runs = _runs(lengths, results)
    errors: dict[str, dict[int, str]] = {}
    for line in results:
        if line["lengths"] == lengths and "error" in line and line["repeat"] not in runs.get(line["arm"], {}):
            errors.setdefault(line["arm"], {})[line["repeat"]] = line["error"]
    entries = []
    for arm in arms:
        own, alone = runs.get(arm.name, {}), runs.get(arm.alone, {})
        entry: dict[str, Any] = {"arm": arm.name, "runs": len(own)}
        if own:
            times = [run["median_s"] for run in own.values()]
            entry |= {"median_s": statistics.median(times), "least_s": min(times), "most_s": max(times)}
            entry |= {key: _median([run[key] for run in own.values()]) for key in ("cpu_s", "pss_mib", "start_s")}
            added = [own[k]["median_s"] - alone[k]["median_s"] for k in own.keys() & alone.keys()]
            shares = [own[k]["median_s"] / alone[k]["median_s"] - 1 for k in own.keys() & alone.keys()]
            if arm.name != arm.alone and added:
                entry |= {"adds_s": round(statistics.median(added), 3), "adds": round(statistics.median(shares), 3)}
        if arm.name in errors:
            of_passes = errors[arm.name]
            entry |= {"error": of_passes[max(of_passes)], "failed_runs": len(of_passes)}
        entries.append(entry)
    return entries


def _runs(lengths: str, results: Sequence[Result]) -> dict[str, dict[int, Result]]:
    """Good runs by arm and pass."""
    runs: dict[str, dict[int, Result]] = {}
    for result in results:
        if result["lengths"] == lengths and "error" not in result:
            runs.setdefault(result["arm"], {})[result["repeat"]] = result
    return runs


def of_peers(lengths: str, results: Sequence[Result], ours: str = "ours/none") -> dict[str, float]:
    """Median over passes of the time of `ours` as a share of that of each other arm without a reader."""
    runs = _runs(lengths, results)
    own = runs.pop(ours, {})
    shares = {
        name: [own[k]["median_s"] / other[k]["median_s"] for k in own.keys() & other.keys()]
        for name, other in runs.items()
        if name.endswith("/none")
    }
    return {name: round(statistics.median(values), 3) for name, values in shares.items() if values}


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def streamed_shares(entries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What `NAME/streamed` adds as a share of what `NAME/batched` adds, by name, where both are there."""
    added = {entry["arm"]: entry["adds_s"] for entry in entries if "adds_s" in entry}
    pairs = [(name, f"{name}/streamed", f"{name}/batched") for name in dict.fromkeys(map(_readers, added))]
    return {name: round(added[a] / added[b], 3) for name, a, b in pairs if a in added and added.get(b, 0) > 0}


def _readers(arm: str) -> str:
    return arm.rpartition("/")[0]


def card(arms: Sequence[Arm], lengths: Sequence[str], results: Sequence[Result]) -> tuple[str, dict[str, Any]]:
    """The tables for a terminal, and their numbers by set of lengths: `arms`, `streamed_share`, `of_peers`."""
    lines, found = [], {}
    for kind in lengths:
        entries = summary(arms, kind, results)
        shares = streamed_shares(entries)
        lines += [f"{kind} lengths", table(entries)]
        peers = of_peers(kind, results)
        lines += [f"  ours/none takes {share:.0%} of the time of {name}" for name, share in peers.items()]
        lines += [f"  {name}: streamed adds {share:.0%} of what batched adds" for name, share in shares.items()]
        lines += [f"  {entry['arm']} failed: {entry['error']}" for entry in entries if "error" in entry] + [""]
        found[kind] = {"arms": entries, "streamed_share": shares, "of_peers": peers}
    return "\n".join(lines), found


def failed(found: Mapping[str, Any]) -> bool:
    """Whether an arm of `card`'s numbers lacks the time of a pass because of an error."""
    return any("error" in entry for kind in found.values() for entry in kind["arms"])


def table(entries: Sequence[Mapping[str, Any]], *, markdown: bool = False) -> str:
    """One row an arm: median step with the least and the most of its passes, what reading adds, CPU, memory, start."""
    head = ["arm", "step, s", "of the passes", "reading adds", "CPU s a step", "PSS, MiB", "first step after, s"]
    rows = [_cells(entry) for entry in entries]
    if markdown:
        lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
        return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    widths = [max(len(cells[i]) for cells in [head, *rows]) for i in range(len(head))]
    return "\n".join(
        "  ".join([cells[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True))])
        for cells in [head, *rows]
    )


def _cells(entry: Mapping[str, Any]) -> list[str]:
    if "median_s" not in entry:
        return [entry["arm"], "failed" if "error" in entry else "not run", *["-"] * 5]
    adds = f"{entry['adds_s']:+.2f} s, {entry['adds']:+.0%}" if "adds" in entry else "-"
    return [
        entry["arm"],
        f"{entry['median_s']:.2f}",
        f"{entry['least_s']:.2f} to {entry['most_s']:.2f} ({entry['runs']})" + _failed(entry),
        adds,
        *("-" if entry[key] is None else f"{entry[key]:{form}}" for key, form in _NUMBERS.items()),
    ]


def _failed(entry: Mapping[str, Any]) -> str:
    return f", {entry['failed_runs']} failed" if "error" in entry else ""


_NUMBERS = {"cpu_s": ".2f", "pss_mib": ".0f", "start_s": ".0f"}
