"""What a teaching world holds, as a short table for the terminal."""

from typing import Any

from verl.data_preprocessing.teaching_world.advice import WORDINGS
from verl.data_preprocessing.teaching_world.build import TEACHER, TEACHER_WARM, TeachingWorld


def summary(world: TeachingWorld) -> str:
    """Solve rates of the students, without advice and under each short sentence, and what the teachers say."""
    manifest = world.manifest
    students: dict[str, Any] = manifest["students"]
    origin = "found" if world.reused else "built"
    lines = [
        f"teaching world {origin}: {world.folder} (seed {manifest['seed']})",
        f"  {manifest['spec']['train_rows']} problems to train on, {manifest['spec']['test_rows']} held out, "
        f"{manifest['spec']['warmup_rows']} rows of warm-up",
        "",
        "  share solved, in brackets what its habits say",
        f"  {'advice':<22}" + "".join(f"{name:>20}" for name in students),
        _line("none", [(one["solves"]["all"], one["expected"]["all"]) for one in students.values()]),
    ]
    for short, _ in WORDINGS.values():
        found = [one["under"][short] for one in students.values()]
        lines.append(_line(short, [(one["all"], one["expected"]) for one in found]))
    lines += [
        _line("the right working", [(one["told"]["working"], None) for one in students.values()]),
        _line("the right result", [(one["told"]["result"], None) for one in students.values()]),
        _line("plans show the habit", [(one["plan_shows_habit"], None) for one in students.values()]),
        "",
    ]
    for name in (TEACHER, TEACHER_WARM):
        if name in manifest:
            lines.append(f"  {name}: {_teacher(manifest[name])}")
    return "\n".join(lines)


def _line(head: str, cells: list[tuple[float, float | None]]) -> str:
    shown = [f"{value:.2f}" + (f" ({beside:.2f})" if beside is not None else " " * 7) for value, beside in cells]
    return f"  {head:<22}" + "".join(f"{cell:>20}" for cell in shown)


def _teacher(start: dict[str, Any]) -> str:
    states = ", ".join(f"{state} {share:.2f}" for state, share in start["states"].items())
    shares = ", ".join(f"{key} {start[key]:.2f}" for key in ("sentences", "tells", "leaks", "diagnosis", "offtask"))
    return f"{states}; {shares}"
