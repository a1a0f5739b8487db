"""What a reasoning world is, as a value; the default is the one of the studies.

spec = ReasoningWorldSpec(seed=1)
"""

import dataclasses
from dataclasses import dataclass

from verl.data_preprocessing.embedded_models import ModelSpec

_BASE = ModelSpec(name="base", tokenizer="bpe", vocab_size=320, hidden_size=64, layers=3, steps=2400, batch_size=16)
_STUDENT = ModelSpec(
    name="student", tokenizer="bpe", vocab_size=320, hidden_size=64, layers=2, steps=1500, batch_size=16
)
_READERS = (
    ModelSpec(name="reader", tokenizer="bpe", vocab_size=300, hidden_size=64, layers=2, steps=1000, batch_size=16),
    ModelSpec(
        name="reader_other",
        tokenizer="unigram",
        vocab_size=290,
        architecture="llama",
        hidden_size=64,
        layers=2,
        steps=1000,
        batch_size=16,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Flaws:
    """How often a policy's lessons go wrong."""

    trap_share: float
    """At a step that is a trap (`lessons.trap`) it is done in the wrong way, always the same, with this share."""
    random_share: float
    """Share of the other solutions that have an error anywhere."""
    kinds: tuple[tuple[str, float], ...] = (("copy", 0.05), ("arithmetic", 0.1), ("combining", 0.1), ("slip", 0.75))
    """Kinds of these errors and their weights."""


@dataclass(frozen=True, kw_only=True)
class ReasoningWorldSpec:
    """Sizes, flaws and models."""

    seed: int = 0
    """Of the problems and of base and student; readers follow from none."""
    train_rows: int = 2048
    """Problems to train on."""
    val_rows: int = 256
    """Held-out problems."""
    labelled: int = 2000
    """Labelled solutions to learn from; half as many held-out ones."""
    measured: int = 256
    """Held-out problems that models are measured on."""
    samples: int = 8
    """Solutions of each."""
    base_flaws: Flaws = Flaws(trap_share=0.72, random_share=0.16)
    """Of the policy."""
    student_flaws: Flaws = Flaws(trap_share=0.72, random_share=0.2)
    """Of the student."""
    short_share: float = 0.15
    """Share of all lessons, the first ones, on problems of one to three steps."""
    base: ModelSpec = _BASE
    """The policy that stages start from."""
    student: ModelSpec = _STUDENT
    """Who is distilled into."""
    readers: tuple[ModelSpec, ...] = _READERS
    """Who answers from a thought."""

    @property
    def models(self) -> tuple[ModelSpec, ...]:
        """All, base and student first."""
        return self.base, self.student, *self.readers

    def short(self) -> "ReasoningWorldSpec":
        """The same with a few rows and models that were hardly taught: for tests."""
        few = {model.name: dataclasses.replace(model, steps=4, batch_size=8) for model in self.models}
        return dataclasses.replace(
            self,
            train_rows=16,
            val_rows=8,
            labelled=16,
            measured=4,
            samples=2,
            base=few[self.base.name],
            student=few[self.student.name],
            readers=tuple(few[reader.name] for reader in self.readers),
        )
