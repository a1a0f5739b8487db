"""Every option of process rewards: the model, its labels, its training.

One decision: names are those of the original document; each default stands here and nowhere else.

    >>> PRMConfig(base_model_name="models/policy", num_epochs=3)
"""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from verl.classmate.errors import ConfigError
from verl.stepwise.aggregate import AGGREGATIONS, Aggregation, default_aggregation
from verl.stepwise.steps import MAX_STEP_WORDS, MIN_STEP_WORDS
from verl.workers.prm.spec import Architecture

LabelMode = Literal["mc", "perturb", "mixed", "consensus"]
Precision = Literal["fp32", "bf16", "fp16"]

SEED_KINDS = ("arithmetic_error", "logic_error", "irrelevant_step", "incomplete_step", "circular_reasoning")
"""Names of the original document; `perturb.KINDS_OF` says which kinds each stands for."""


@dataclass(frozen=True, kw_only=True)
class PRMConfig:
    """Options of `PRMDataGenerator`, `PRMTrainer` and `ProcessRewardModel` (docs/reasoning.md)."""

    base_model_name: str = "Qwen/Qwen2.5-Math-1.5B"
    """Path or hub name of a causal language model of the policy's family, or of an encoder."""
    architecture: Architecture = "causal"
    """`causal`: a head is read at a tag behind each step. `encoder`: a bidirectional model reads each step with what
    comes before it, and the head the mean of its tokens. `generative`: the language model's own head, between `+` and
    `-`."""
    implicit: bool = False
    """Learn from outcomes only: a step's reward is beta * (log-probability under the model less that under the base
    model), summed over its tokens (PRIME, arXiv:2502.01456). Architecture `causal` only."""
    implicit_beta: float = 0.05
    """Beta of `implicit`."""
    head: Literal["linear", "mlp"] = "linear"
    """One layer, or two with a ReLU between them."""
    hidden_size: int | None = None
    """Width of the MLP's middle; None: the model's own width."""
    num_labels: int = 2
    """A 2-way softmax, wrong and right; nothing else is possible."""
    dropout_rate: float = 0.0
    """In front of the head, while training."""
    template: Literal["auto", "chat", "plain"] = "auto"
    """How the problem is written: the tokenizer's chat template, or plain text; auto: chat if there is one."""
    step_tag: str | None = None
    """The token behind each step; None: a token that the tokenizer has and nobody uses, or a new one. With few rows the
    one that the base model itself writes there, such as a line break, is learnt faster."""
    learning_rate: float = 1e-5
    """Peak, of all weights; 1e-6 suits 7B."""
    head_learning_rate: float = 1e-4
    """While the backbone is frozen."""
    freeze_backbone_epochs: float = 0.0
    """Epochs in which only the head learns, before `num_epochs` of everything (PURE: 3)."""
    batch_size: int = 64
    """Solutions of a step."""
    micro_batch_size: int = 8
    """Solutions at once; the rest is accumulated. Changes memory and time, not the gradient."""
    num_epochs: float = 1
    """Passes through the training rows."""
    warmup_steps: float = 0.03
    """Of a linear warm-up: a share of all steps below 1, else their number."""
    max_grad_norm: float = 1.0
    """The gradient is cut to it."""
    weight_decay: float = 0.0
    """Of AdamW."""
    class_weight: Literal["inverse", "none"] = "inverse"
    """`inverse`: the rarer of the two labels weighs more, in inverse proportion."""
    max_class_weight: float = 4.0
    """Of `inverse`, against the other label."""
    min_step_length: int = MIN_STEP_WORDS
    """Words below which a step joins its neighbour."""
    max_step_length: int = MAX_STEP_WORDS
    """Words above which a step is cut."""
    context_window: int | None = None
    """Earlier steps that a judge of a step sees; None: all. Only an encoder can be kept from seeing them."""
    max_length: int = 4096
    """Tokens of a problem with its solution; steps behind are not scored, and counted as truncated."""
    truncate_after_error: bool = True
    """Train on a solution only up to its first error; what follows has no label anyway."""
    label_mode: LabelMode = "mc"
    """`mc`: completions from each step on. `perturb`: planted errors. `mixed`: both. `consensus`: completions, and only
    solutions where a judge finds the same first error."""
    label_kind: Literal["hard", "soft"] = "hard"
    """0 or 1, or the share of completions that end right."""
    mc_rollouts: int = 8
    """Completions of a prefix."""
    mc_threshold: float = 0.0
    """A step is right if more than this share of its completions end right."""
    mc_audit: float = 0.1
    """Share of the right solutions whose prefixes are judged without counting the solution itself as a success."""
    mc_max_tokens: int = 1024
    """Most tokens of a completion."""
    mc_temperature: float = 0.7
    """Of completions."""
    search: Literal["full", "binary"] = "full"
    """`full`: step by step up to the first failing one. `binary`: halving (OmegaPRM, arXiv:2406.06592); it trusts that
    no prefix behind a failing one succeeds."""
    num_perturbations: int = 2
    """Planted errors for each right solution."""
    perturbation_types: tuple[str, ...] = SEED_KINDS
    """Kinds of `perturb.KINDS`, or the original's five names."""
    max_synthetic: float = 0.3
    """Largest share of planted ones among the wrong steps, where there are others."""
    max_leak: float = 0.6
    """Largest AUC with which words alone may tell planted steps from others; kinds above it are left out."""
    num_workers: int = 1
    """Threads that label; each asks the engine on its own. The labels are the same with any number."""
    agg: Aggregation | None = None
    """How a solution's score is made of its steps'; None: by the kind of labels."""
    validation_share: float = 0.1
    """Of the problems, held out where no validation rows are given."""
    early_stopping_patience: int | None = 3
    """Evaluations without a better first-error F1 after which training ends; None: it never ends early."""
    evals_per_epoch: int = 2
    """How often it is evaluated, and saved."""
    precision: Precision = "fp32"
    """Of computation; weights and optimizer stay in fp32. `fp16` needs a GPU."""
    gradient_checkpointing: bool = False
    """Compute activations a second time instead of keeping them."""
    device: str = "auto"
    """`cpu`, or `cuda`; auto: a GPU if there is one."""
    seed: int = 0
    """Of everything that is drawn."""
    output_dir: Path = field(default_factory=lambda: Path("prm_output"))
    """Where training puts its checkpoints; a rerun goes on from the last."""
    save_total_limit: int = 2
    """Checkpoints that are kept."""
    progress: bool = True
    """Show progress bars."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "output_dir", Path(self.output_dir))
        object.__setattr__(self, "perturbation_types", tuple(self.perturbation_types))
        hints = get_type_hints(type(self))
        for one in fields(self):
            allowed, value = get_args(hints[one.name]), getattr(self, one.name)
            if allowed and all(isinstance(word, str) for word in allowed) and value not in allowed:
                raise ConfigError(f"PRMConfig.{one.name}={value!r}: write one of {', '.join(allowed)}")
        for name, holds, wanted in self._bounds():
            if not holds:
                raise ConfigError(f"PRMConfig.{name}={getattr(self, name)!r}: write {wanted}")

    def _bounds(self) -> list[tuple[str, bool, str]]:
        positive = ("learning_rate", "head_learning_rate", "max_grad_norm", "implicit_beta", "num_epochs")
        counts = ("batch_size", "micro_batch_size", "mc_rollouts", "mc_max_tokens", "num_workers", "evals_per_epoch")
        shares = ("mc_audit", "max_synthetic", "validation_share", "max_leak")
        return [
            *((name, getattr(self, name) > 0, "a number above 0") for name in positive),
            *((name, getattr(self, name) >= 1, "1 or more") for name in counts),
            *((name, 0 <= getattr(self, name) <= 1, "a share between 0 and 1") for name in shares),
            ("num_labels", self.num_labels == 2, "2: a step is wrong or right"),
            ("mc_threshold", 0 <= self.mc_threshold < 1, "a share from 0 to below 1"),
            ("warmup_steps", self.warmup_steps >= 0, "0 or more"),
            ("freeze_backbone_epochs", self.freeze_backbone_epochs >= 0, "0 or more"),
            (
                "freeze_backbone_epochs",
                not self.freeze_backbone_epochs or (self.architecture != "generative" and not self.implicit),
                "0: this model has no head of its own",
            ),
            ("dropout_rate", 0 <= self.dropout_rate < 1, "a share from 0 to below 1"),
            ("max_class_weight", self.max_class_weight >= 1, "1 or more"),
            ("min_step_length", 1 <= self.min_step_length <= self.max_step_length, "1 to max_step_length"),
            ("context_window", self.context_window is None or self.architecture == "encoder", "None, or an encoder"),
            ("implicit", not self.implicit or self.architecture == "causal", "False, or architecture causal"),
            ("agg", self.agg is None or self.agg in AGGREGATIONS, f"None or one of {', '.join(AGGREGATIONS)}"),
            ("micro_batch_size", self.batch_size % self.micro_batch_size == 0, "a divisor of batch_size"),
        ]

    @property
    def aggregation(self) -> Aggregation:
        """`agg`, or what suits the labels."""
        return self.agg or default_aggregation(self.label_mode)

    @classmethod
    def original(cls, **options: Any) -> "PRMConfig":
        """The defaults of the original document; options replace them."""
        return cls(
            **{
                "base_model_name": "microsoft/deberta-v3-base",
                "architecture": "encoder",
                "dropout_rate": 0.1,
                "learning_rate": 2e-5,
                "batch_size": 16,
                "num_epochs": 5,
                "warmup_steps": 500,
                "min_step_length": 10,
                "context_window": 3,
                "num_perturbations": 5,
                "label_mode": "perturb",
                **options,
            }
        )
