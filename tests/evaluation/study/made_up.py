"""Made-up results of a study, for tests of what is made from them."""

from dataclasses import replace
from pathlib import Path

from verl.evaluation.study.presets import STUDIES
from verl.evaluation.study.results import RunResult, write_result

SEEDS = (11, 12, 13, 14)
READERS = {"classmate_a": "classmate", "unseen_llama": "unseen", "unseen_dialect": "unseen", "insider": "insider"}
ARMS = ("baseline", "placebo", "two")
STUDY = replace(STUDIES["cot_transfer"].of_arms(ARMS), name="transfer", seeds=SEEDS)
PREDICTIONS = """
predictions:
  - name: unseen readers gain
    text: Readers that were never asked follow the thoughts better.
    study: transfer
    kind: exceeds
    left: two
    right: baseline
    by: 0.2
    accuracy_within: 0.02
  - name: the placebo does nothing
    text: Shuffled scores do not reach half of that.
    study: transfer
    kind: does_not_exceed
    left: placebo
    right: baseline
    by: 0.1
"""


def result(arm: str = "two", seed: int = 11, study: str = "transfer", **changed: object) -> RunResult:
    """A run; `unseen=0.5` and other single numbers change those, fields change fields."""
    gain = {"baseline": 0.0, "placebo": 0.01}.get(arm, 0.4)
    wobble = (seed - 12) / 100
    numbers = {
        "accuracy": 0.84 + wobble,
        "tokens": 20 + 100 * wobble,
        "start_accuracy": 0.6,
        "start_tokens": 20.0,
        "unseen": 0.3 + gain + wobble * (1 + gain),
        "unseen_raw": 0.35 + gain,
        "start_unseen": 0.2,
        "start_unseen_raw": 0.25,
        "classmates": 0.4 + gain,
        "insider_gap": 0.2 - gain / 4,
        "style_plain": 0.4 + gain,
        "style_shorthand": 0.6 - gain,
        **{f"reads_{name}": 0.3 + gain + wobble for name in READERS},
    }
    fields: dict[str, object] = {
        "steps": 80,
        "key": "k",
        "commit": "abc1234",
        "day": "2026-11-24",
        "seconds": {"world": 1.0, "training": 60.0, "measuring": 4.0},
        "readers": READERS,
        "curves": {name: [0.1, 0.15, 0.2, 0.25, 0.3 + gain] for name in READERS},
        "examples": [{"question": "What is 47+38?", "before": "5^8", "after": f"Ones: 7+8=15.\nTens: {gain:g} | done"}],
    }
    for name, value in changed.items():
        if name in fields:
            fields[name] = value
        elif value is None:
            del numbers[name]
        else:
            numbers[name] = value  # type: ignore[assignment]
    return RunResult(study=study, arm=arm, seed=seed, numbers=numbers, **fields)  # type: ignore[arg-type]


def all_results() -> list[RunResult]:
    """Three arms with four seeds."""
    return [result(arm, seed) for arm in ARMS for seed in SEEDS]


def write_all(folder: Path) -> None:
    """Three arms with four seeds, in files."""
    for one in all_results():
        write_result(one, folder)
