"""How a teacher is distilled into a student, and where each default lives.

One decision: the names of the original document keep their meaning. `alpha`, `beta` and `temperature` are the loss of
`mode="logit"` and of nothing else; `beta` is the weight of the cross-entropy, and which divergence is taken is another
key, `jsd_beta`.

    >>> DistillationConfig(teacher_model_name="./trained_model", student_model_name="gpt2-small").student
    'gpt2'
"""

from dataclasses import dataclass
from typing import Literal

from verl.classmate.errors import ConfigError
from verl.reasoning.choices import check_choices
from verl.reasoning.sft.settings import FineTuneSettings, Precision

Mode = Literal["seq", "logit", "on_policy", "gold"]

ALIASES = {"gpt2-small": "gpt2"}
"""Names of the original document that the hub does not know."""


@dataclass(frozen=True, kw_only=True)
class DistillationConfig:
    """Settings of `ReasoningDistiller` and `ProgressiveDistiller`."""

    teacher_model_name: str
    """Folder or hub name."""
    student_model_name: str
    """Likewise; `gpt2-small` stands for `gpt2`."""
    mode: Mode = "seq"
    """`seq`: supervised training on verified traces. `logit`: on the teacher's probabilities of their tokens too.
    `on_policy`: on texts of the student's own, by the teacher's probabilities, on verl's trainer. `gold`: for a student
    with another tokenizer, which learns the texts like `seq`."""
    temperature: float = 3.0
    """Of both models in the loss of `logit`."""
    alpha: float = 0.7
    """Weight of the divergence there, times T^2."""
    beta: float = 0.3
    """Weight of the cross-entropy there."""
    jsd_beta: float | None = None
    """Divergence there; None: KL(teacher | student). 0 to 1: generalised Jensen-Shannon (`losses.divergence`)."""
    gkd_lambda: float = 0.0
    """Share of steps of `logit` that learn from texts of the student's own (R. Agarwal et al., 2024), by the divergence
    alone."""
    topk_logits: int = 64
    """Tokens of the teacher that are kept for `logit`, beside one number for all others; 0: all, with the teacher in
    memory."""
    learning_rate: float = 2e-5
    """Peak of AdamW's, with a cosine to a tenth of it; 1e-5 to 4e-5 are usual."""
    batch_size: int = 8
    """Rows that are worked on at a time."""
    gradient_accumulation_steps: int = 4
    """So many times as many rows make a step."""
    num_epochs: int = 3
    """Passes over the traces. A curriculum spends as many tokens as those have."""
    warmup_steps: int | None = None
    """Steps over which the rate rises; None: `warmup_ratio`."""
    warmup_ratio: float = 0.03
    """Share of training over which it rises."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    teacher_temperature: float = 0.6
    """With which the teacher writes traces."""
    teacher_top_p: float = 0.95
    """Likewise."""
    max_length: int = 1024
    """Most tokens of a trace as it is written, and of a problem with its trace. Longer ones are dropped, never cut."""
    n_teacher: int = 4
    """Traces that the teacher writes for each problem."""
    verify: bool = True
    """Whether only traces are kept that the reward accepts."""
    min_score: float = 0.7
    """From which score on it does, where it does not say whether the answer is correct."""
    max_per_problem: int = 4
    """Most traces of a problem, best scores first; the same text counts once."""
    curriculum_learning: bool = True
    """Whether `run_full_pipeline` goes from easy problems to hard ones."""
    difficulty_stages: int = 3
    """Of the curriculum."""
    difficulty: Literal["passrate", "heuristic"] = "passrate"
    """1 - pass@1 of the student, or a look at the problem's text."""
    difficulty_samples: int = 8
    """Texts of the student for each problem that its pass rate is measured on."""
    replay_ratio: float = 0.25
    """Share of a stage's rows that come from earlier stages."""
    min_gain: float = 0.005
    """A stage ends early where the score on held-out problems has risen by less than this ..."""
    patience: int = 2
    """... in so many looks at it after another."""
    looks_per_stage: int = 4
    """How often held-out problems are looked at while a stage spends its tokens; 0: never, only at its end."""
    eval_samples: int = 8
    """Texts for each problem in an evaluation."""
    eval_temperature: float = 0.6
    """With which they are written."""
    held_out_share: float = 0.1
    """Of the problems, for validation where none is given."""
    on_policy_loss: str = "k3"
    """verl's `distillation.distillation_loss.loss_mode`: `k3`, `k1` (by the policy gradient), `forward_kl_topk`."""
    on_policy_reward: str | None = None
    """Task reward beside it: None, `verifier` (of the problems' sources), or a Python file with `compute_score`."""
    on_policy_steps: int | None = None
    """Steps of `on_policy`; None: `num_epochs` passes over the problems."""
    on_policy_samples: int = 4
    """Texts of the student for each problem and step there."""
    save_every: int = 50
    """Steps between checkpoints."""
    precision: Precision = "auto"
    """Of the passes: auto (bf16 on a GPU, else fp32), fp32, bf16, fp16 (with a scaler, on a GPU)."""
    gradient_checkpointing: bool = False
    """Less memory, a third more time."""
    backend: Literal["auto", "verl", "transformers"] = "auto"
    """Who trains with `seq` (`FineTuneSettings.backend`)."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where."""
    seed: int = 0
    """Of samples, order and splits."""
    output_dir: str = "./distillation_output"
    """Folder of traces, models and numbers; the same command goes on in it."""

    def __post_init__(self) -> None:
        check_choices(self)
        counts = ["batch_size", "gradient_accumulation_steps", "num_epochs", "n_teacher", "max_per_problem"]
        counts += ["difficulty_stages", "difficulty_samples", "patience", "eval_samples", "max_length", "save_every"]
        for name in (*counts, "on_policy_samples"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is no count; write 1 or more")
        for name in ("gkd_lambda", "replay_ratio", "warmup_ratio", "held_out_share"):
            if not 0 <= getattr(self, name) < 1 and not (name == "gkd_lambda" and self.gkd_lambda == 1):
                raise ConfigError(f"{name}={getattr(self, name)} is no share; write 0 or more, and less than 1")
        if self.temperature <= 0:
            raise ConfigError(f"temperature={self.temperature} divides no logits; write 3.0")
        if self.alpha < 0 or self.beta < 0 or self.alpha + self.beta == 0:
            raise ConfigError(f"alpha={self.alpha}, beta={self.beta}: write weights of 0 or more, one of them above 0")
        if self.jsd_beta is not None and not 0 <= self.jsd_beta <= 1:
            raise ConfigError(f"jsd_beta={self.jsd_beta} is not possible; write None, or 0 to 1")
        if self.gkd_lambda > 0 and self.alpha == 0:
            raise ConfigError("gkd_lambda needs the teacher's probabilities; write alpha above 0, or gkd_lambda=0")

    @property
    def student(self) -> str:
        """The student's folder or hub name."""
        return ALIASES.get(self.student_model_name, self.student_model_name)

    @property
    def teacher(self) -> str:
        """The teacher's."""
        return ALIASES.get(self.teacher_model_name, self.teacher_model_name)

    def fine_tuning(self) -> FineTuneSettings:
        """Of `seq`."""
        return FineTuneSettings(
            epochs=self.num_epochs,
            batch_size=self.batch_size * self.gradient_accumulation_steps,
            micro_batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            warmup_ratio=self.warmup_ratio,
            max_grad_norm=self.max_grad_norm,
            max_length=self.max_length,
            precision=self.precision,
            gradient_checkpointing=self.gradient_checkpointing,
            save_every=self.save_every,
            seed=self.seed,
            backend=self.backend,
            device=self.device,
        )
