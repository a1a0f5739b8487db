"""How an evaluation is taken: how often is asked, and what the teacher is compared with.

>>> Options(output=Path("evaluation.json"), seeds=(0, 1)).settings
(Setting(decoding='sampled', seed=0), Setting(decoding='sampled', seed=1), Setting(decoding='greedy', seed=0))
"""

from dataclasses import dataclass, field
from pathlib import Path

from verl.evaluation.teaching.exam import NULL, REVEALS, Numbers
from verl.evaluation.teaching.serving import UNTRAINED
from verl.evaluation.teaching.trials import Setting
from verl.evaluation.teaching.tutors import REVEAL

FIXED = "fixed"
CONTROLS = (NULL, UNTRAINED, REVEALS, FIXED)
"""What a teacher may be compared with."""
DECODINGS = ("sampled", "greedy")


@dataclass(frozen=True, kw_only=True)
class Options:
    """How an evaluation is taken."""

    output: Path
    """The document; beside it lies what an evaluation that was ended goes on from."""
    items: int | None = None
    """Most questions; None: all."""
    numbers: Numbers = field(default_factory=Numbers)
    """Answers to each."""
    seeds: tuple[int, ...] = (0,)
    """Of sampled settings; greedy ones have the first."""
    decodings: tuple[str, ...] = DECODINGS
    """Of teacher and students."""
    controls: tuple[str, ...] = CONTROLS
    """Which ones."""
    controls_chosen: bool = False
    """Whether a user named them, so that one that is not possible is an error."""
    reveal: str = REVEAL
    """What the answer-revealing teacher says."""
    candidates: str | None = None
    """File with fixed advice."""
    fixed_candidates: int = 16
    """Most of the teachers' own teachings that are tried as fixed advice."""
    search_items: int = 48
    """Questions of the training that they are tried on."""
    search_samples: int = 2
    """Answers to each."""
    offtask: str | None = None
    """File with questions that the teacher answers itself."""
    offtask_items: int | None = None
    """Most of them; None: all."""
    engine: str | None = None
    """Of the teachers; None: as the machine has it."""

    @property
    def settings(self) -> tuple[Setting, ...]:
        """All that are asked."""
        sampled = [Setting(decoding="sampled", seed=seed) for seed in self.seeds if "sampled" in self.decodings]
        greedy = [Setting(decoding="greedy", seed=self.seeds[0])] if "greedy" in self.decodings else []
        return (*sampled, *greedy)
