"""What a saved process reward model is, beyond its weights: the file `prm.json` in its folder.

One decision: whatever changes a score is in it, the temperature and the threshold that were fitted too, so that a
folder scores the same wherever it is loaded.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from verl.stepwise.aggregate import Aggregation

FILE = "prm.json"
Architecture = Literal["causal", "encoder", "generative"]


class ModelOptions(Protocol):
    """What a new model is made of: the part of `PRMConfig` that is not about training it."""

    @property
    def base_model_name(self) -> str: ...
    @property
    def architecture(self) -> Architecture: ...
    @property
    def implicit(self) -> bool: ...
    @property
    def implicit_beta(self) -> float: ...
    @property
    def head(self) -> str: ...
    @property
    def hidden_size(self) -> int | None: ...
    @property
    def dropout_rate(self) -> float: ...
    @property
    def template(self) -> str: ...
    @property
    def step_tag(self) -> str | None: ...
    @property
    def context_window(self) -> int | None: ...
    @property
    def max_length(self) -> int: ...
    @property
    def aggregation(self) -> Aggregation: ...
    @property
    def seed(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class PRMSpec:
    """Everything but weights and tokenizer."""

    architecture: Architecture = "causal"
    """As `PRMConfig.architecture`."""
    implicit: bool = False
    """As `PRMConfig.implicit`."""
    implicit_beta: float = 0.05
    """As `PRMConfig.implicit_beta`."""
    head: str = "linear"
    """As `PRMConfig.head`."""
    head_width: int | None = None
    """Of an MLP."""
    dropout_rate: float = 0.0
    """As `PRMConfig.dropout_rate`."""
    step_tag: str = ""
    """The token behind each step."""
    template: str = "plain"
    """`chat` or `plain`."""
    strip: bool = True
    """Whether blanks around steps are left out."""
    max_length: int = 4096
    """Most tokens."""
    context_window: int | None = None
    """As `PRMConfig.context_window`."""
    agg: Aggregation = "last"
    """How a solution's score is made."""
    temperature: float = 1.0
    """Logits are divided by it; fitted on validation rows."""
    threshold: float = 0.5
    """A step below is wrong; fitted on validation rows."""

    @classmethod
    def of(cls, config: ModelOptions, *, step_tag: str, template: str) -> "PRMSpec":
        """What a config says, with tag and template that fit the tokenizer."""
        return cls(
            architecture=config.architecture,
            implicit=config.implicit,
            implicit_beta=config.implicit_beta,
            head=config.head,
            head_width=config.hidden_size,
            dropout_rate=config.dropout_rate,
            step_tag=step_tag,
            template=template,
            max_length=config.max_length,
            context_window=config.context_window,
            agg=config.aggregation,
        )

    def write(self, folder: Path) -> None:
        """Writes `prm.json`."""
        (folder / FILE).write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "PRMSpec":
        """Reads `prm.json`.

        Raises:
            ValueError: the folder holds no process reward model.
        """
        try:
            values = json.loads((folder / FILE).read_text())
            return cls(**values)
        except FileNotFoundError:
            raise ValueError(f"{folder} holds no process reward model ({FILE} is missing); name one") from None
        except (TypeError, ValueError) as error:
            raise ValueError(f"{folder / FILE} cannot be read ({error}); train the model again") from None

    def calibrated(self, **fitted: Any) -> "PRMSpec":
        """With another temperature or threshold."""
        return replace(self, **fitted)
