"""The pipeline's judge of steps: the trained head, the likelihood under a model that solves such problems, or the
smaller of both.

One decision: unless the user names one, the three are compared by first-error F1 on labelled solutions that the head
was not trained on, and the best judges from then on; `judge.json` says which, and what each had.

    >>> made = make_judge(folder, rows, head=folder / "model", reader="models/rft")
    >>> made["f1"]
    {'head': 0.71, 'likelihood': 0.78, 'both': 0.83}
    >>> load_judge(folder).score_steps(["What is 3 + 4?"], [["3 + 4 = 7.\\n", "So it is 8."]])
    [[0.93, 0.04]]

A step that scores below `SOUND` is wrong: scores are calibrated so.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from verl.reasoning.backend_hf import HFBackend
from verl.reasoning.prm.both import Raw, SmallerOfBoth
from verl.reasoning.prm.likelihood import LikelihoodScorer
from verl.reasoning.prm.rows import LabelledSolution
from verl.reasoning.step_scorer import StepScorer
from verl.stepwise.first_error import SOUND, first_error, found_errors
from verl.trainer.run.state import write_atomically
from verl.workers.prm.head_scorer import HeadScorer

FILE = "judge.json"
Signal = Literal["head", "likelihood", "both"]
_PARTS: dict[Signal, tuple[str, ...]] = {
    "both": ("head", "likelihood"),
    "head": ("head",),
    "likelihood": ("likelihood",),
}


def make_judge(
    folder: Path,
    rows: Sequence[LabelledSolution],
    *,
    head: Path,
    reader: str,
    opening: str = "",
    signal: Literal["auto", "head", "likelihood", "both"] = "auto",
    device: str = "auto",
) -> dict[str, Any]:
    """Calibrates all three, chooses one, and writes `judge.json`.

    Args:
        folder: where it is written.
        rows: labelled solutions that the head was not trained on; those without a known first error are left out.
        head: folder of the trained head.
        reader: model whose likelihood is taken, best one that was fine-tuned on such problems.
        opening: what the reader's answers begin with before the first step.
        signal: who judges; auto: the best of the three.
        device: where both read.

    Returns:
        What it wrote: `signal`, `f1` of each (None where the rows do not tell), `reader`, `opening`, `n_solutions`,
        `calibrations`.
    """
    known = [row for row in rows if row.first_error_known]
    problems, steps = [row.prompt for row in known], [row.completions for row in known]
    truths = [row.first_error for row in known]
    scorers = _scorers(head, reader, opening, device)
    # Both are needed twice: alone, and in the smaller one.
    told = {name: _Told(scorer.score_steps(problems, steps)) for name, scorer in scorers.items()}
    made, f1 = {}, {}
    for name, parts in _PARTS.items():
        judge = SmallerOfBoth([told[part] for part in parts])
        if known:
            judge.calibrate(problems, steps, truths)
        guesses = [first_error(scores, SOUND) for scores in judge.score_steps(problems, steps)]
        made[name], f1[name] = judge.as_dict(), found_errors(guesses, truths).f1
    chosen = max(_PARTS, key=lambda name: f1[name] or 0.0) if signal == "auto" else signal
    said = {
        "signal": chosen,
        "f1": f1,
        "reader": reader,
        "opening": opening,
        "head": str(head.relative_to(folder) if head.is_relative_to(folder) else head),
        "n_solutions": len(known),
        "calibrations": made,
    }
    write_atomically(folder / FILE, json.dumps(said, indent=1) + "\n")
    return said


def load_judge(folder: Path, *, device: str = "auto") -> SmallerOfBoth:
    """The judge that `make_judge` chose.

    Raises:
        FileNotFoundError: there is none.
    """
    said = json.loads((folder / FILE).read_text())
    scorers = _scorers(folder / said["head"], said["reader"], said["opening"], device)
    parts = [scorers[part] for part in _PARTS[said["signal"]]]
    return SmallerOfBoth.of_dict(parts, said["calibrations"][said["signal"]])


def _scorers(head: Path, reader: str, opening: str, device: str) -> dict[str, StepScorer]:
    backend = HFBackend(reader, device=device)
    return {"head": HeadScorer.load(head, device=device), "likelihood": LikelihoodScorer(backend, opening=opening)}


@dataclass(frozen=True)
class _Told:
    """A scorer that has already said what it says."""

    scores: Raw

    def score_steps(self, problems: Sequence[str], steps: Sequence[Sequence[str]]) -> Raw:
        return self.scores
