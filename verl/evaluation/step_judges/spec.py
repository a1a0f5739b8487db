"""What the measurement of step judges does, as a value; the default is the one of docs/step_judges.md.

One decision: all judges learn from the same rows, and the one in words reads as many training tokens as the head; the
rows never show an error of the kind `rows.HELD_OUT_KIND`.

    JudgeStudy(seed=11).head_config(base, folder).num_epochs
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

from verl.data_preprocessing.reasoning_world.measure import MAX_TOKENS
from verl.data_preprocessing.reasoning_world.spec import ReasoningWorldSpec
from verl.reasoning.prm.config import PRMConfig
from verl.reasoning.sft.settings import FineTuneSettings
from verl.stepwise.aggregate import Aggregation

SEEDS = (11, 12, 13)
"""Of the page; settings were found with seed 0."""
MAX_LENGTH = 512
"""Tokens of the longest row of fine-tuning."""


@dataclass(frozen=True, kw_only=True)
class JudgeStudy:
    """Sizes and settings of one seed."""

    seed: int = 0
    """Of the world, and of all that is drawn and trained."""
    world: ReasoningWorldSpec = field(default_factory=lambda: ReasoningWorldSpec(train_rows=4500, labelled=4500))
    """Sizes of the world; its seed is `seed`."""
    test_rows: int = 800
    """Of the held-out solutions with labels, taken evenly."""
    mc_rows: int = 900
    """Of the solutions to learn from, taken evenly, those that are labelled by completions as well."""
    step_tag: str = "\n"
    """Read behind each step. The token that the policy itself writes there: a new one would be strange to it."""
    dev_share: float = 0.12
    """Of the problems with labels: thresholds and scales are fitted on them."""
    epochs: float = 5
    """Passes of a head through its rows."""
    mc_epochs: float = 6
    """The same where its labels are made by completions."""
    learning_rate: float = 2e-3
    """Of a head and its backbone, at the peak."""
    batch_size: int = 32
    """Solutions of a step."""
    reader_problems: int = 768
    """Problems that the base policy samples for its rejection fine-tuning."""
    reader_samples: int = 4
    """Solutions of each."""
    reader_epochs: int = 2
    """Passes through those with a right answer."""
    reader_rate: float = 1e-3
    """Learning rate of that, and of the judge in words."""
    mc_rollouts: int = 4
    """Completions of a prefix, for labels without any check of steps."""
    samples: int = 8
    """Solutions that are chosen from."""
    aggregation: Aggregation = "min"
    """How a solution's number is made of its steps'."""

    @property
    def world_spec(self) -> ReasoningWorldSpec:
        """The world with this seed."""
        return replace(self.world, seed=self.seed)

    def short(self) -> "JudgeStudy":
        """The same with models that were hardly taught and a few rows: for tests."""
        few = replace(self.world.short(), labelled=64, train_rows=64, val_rows=16)
        return replace(
            self, world=few, epochs=1, mc_epochs=1, reader_problems=8, reader_samples=2, reader_epochs=1, samples=2
        )

    def head_config(self, base: Path, folder: Path, *, exact: bool) -> PRMConfig:
        """Of a head on the model in `base`; with `exact` labels it learns from the steps behind a first error too."""
        return PRMConfig(
            base_model_name=str(base),
            output_dir=folder,
            label_mode="mc",
            step_tag=self.step_tag,
            agg=self.aggregation,
            search="binary",
            mc_rollouts=self.mc_rollouts,
            mc_max_tokens=MAX_TOKENS,
            mc_temperature=1.0,
            num_epochs=self.epochs if exact else self.mc_epochs,
            truncate_after_error=not exact,
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            micro_batch_size=self.batch_size,
            evals_per_epoch=1,
            early_stopping_patience=None,
            seed=self.seed,
            progress=False,
        )

    def tuning(self, epochs: int) -> FineTuneSettings:
        """Of the reader and of the judge in words."""
        return FineTuneSettings(
            epochs=epochs,
            batch_size=16,
            micro_batch_size=16,
            learning_rate=self.reader_rate,
            max_length=MAX_LENGTH,
            seed=self.seed,
        )
