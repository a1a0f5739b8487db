"""Options of stages 1 and 2, with the names of the original document (specs/pipeline.md, 3.1 and 3.2).

One decision: the defaults are those that train well; `preset="seed"` has the original's, for whoever compares with it.
Each option acts: `rl.overrides` says on which key of the trainer.

    >>> PureRLConfig(model_name="models/base", algorithm="dr_grpo", group_size=16)
    >>> PureRLConfig.of_preset("seed", model_name="gpt2").temperature_end
    0.3
"""

from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

from verl.classmate.errors import ConfigError
from verl.reasoning.cot_reward import CoTRewardSettings
from verl.reasoning.reading import Tags
from verl.stepwise.schedules import ScheduleKind

Algorithm = Literal["grpo", "dr_grpo", "rloo", "gae"]

SEED: dict[str, Any] = {
    "learning_rate": 1e-5,
    "kl_coef": 0.02,
    "clip_epsilon": 0.2,
    "clip_epsilon_high": 0.2,
    "value_clip": 0.2,
    "temperature_start": 1.2,
    "temperature_end": 0.3,
    "entropy_coef_start": 0.1,
    "entropy_coef_end": 0.001,
    "batch_size": 4,
    "ppo_epochs": 4,
    "gamma": 0.99,
    "lam": 0.95,
    "vf_coef": 0.5,
    "critic_lr": 2e-5,
    "lr_schedule": "cosine",
}
"""The original's defaults, where ours differ."""


@dataclass(frozen=True, kw_only=True)
class PureRLConfig:
    """Options of `PureRLTrainer`."""

    model_name: str
    """Path or hub name of the model that is trained."""
    algorithm: Algorithm = "grpo"
    """How rewards become advantages; gae trains a critic, a value head on a copy of the model."""
    group_size: int = 8
    """Solutions of a problem."""
    batch_size: int = 32
    """Problems of a step."""
    mini_batch_size: int | None = None
    """Problems of an update; None: all of a step."""
    micro_batch_size: int | None = None
    """Solutions that a device works on at once; None: as there is memory for."""
    ppo_epochs: int = 1
    """Passes over a step's solutions."""
    learning_rate: float = 1e-6
    """Of AdamW; 1e-5 suits LoRA."""
    lr_schedule: Literal["constant", "cosine"] = "constant"
    """cosine: it falls to a tenth."""
    weight_decay: float = 0.01
    """Of AdamW."""
    max_grad_norm: float = 1.0
    """The gradient is cut to it."""
    kl_coef: float = 0.001
    """Of the divergence from the start model; 0: none."""
    kl_in: Literal["loss", "reward"] = "loss"
    """loss: a term of the loss (k3); reward: taken off the reward, with a coefficient that is steered."""
    target_kl: float = 0.1
    """What `kl_in="reward"` steers towards."""
    clip_epsilon: float = 0.2
    """Lower clip of the ratio."""
    clip_epsilon_high: float = 0.28
    """Upper clip (DAPO's clip-higher)."""
    value_clip: float = 0.5
    """Clip of the critic's values, for gae."""
    gamma: float = 1.0
    """Discount, for gae."""
    lam: float = 1.0
    """Lambda, for gae."""
    vf_coef: float = 1.0
    """Weight of the critic's loss, which has an optimizer of its own: a factor of its learning rate."""
    critic_lr: float = 1e-5
    """Of the critic's optimizer."""
    max_length: int = 2048
    """Tokens of prompt and solution together."""
    max_prompt_length: int | None = None
    """Tokens of a prompt; None: a quarter of `max_length`. Longer problems are left out and counted."""
    temperature_start: float = 1.0
    """With which solutions are drawn, at the first step."""
    temperature_end: float = 1.0
    """At the last, or the floor of `schedule_kind="exp"`."""
    temperature_decay: float = 0.995
    """Factor of a step, for `exp`."""
    entropy_coef_start: float = 0.0
    """Of the bonus for entropy, at the first step."""
    entropy_coef_end: float = 0.0
    """At the last, or the floor."""
    entropy_coef_decay: float = 0.99
    """Factor of a step, for `exp`."""
    schedule_kind: ScheduleKind = "exp"
    """How both go from start to end: exp, linear, cosine or constant."""
    target_entropy: float | None = None
    """Nats a token towards which the entropy's coefficient is steered; it begins at `entropy_coef_start`."""
    dynamic_sampling: bool = True
    """Groups whose rewards are all the same teach nothing: others are drawn in their place."""
    overlong_buffer: int = 0
    """Tokens before the limit in which a solution costs more and more."""
    ref_sync_every: int = 0
    """Steps after which the divergence is from the model as it is then (R1: 400); 0: never."""
    lora_rank: int = 0
    """Rank of adapters; 0: all weights are trained."""
    prompt_template: str | None = None
    """Has the slot {problem}; None: the problem as it is, in the model's chat template."""
    validation_problems: int = 0
    """Training problems that are set aside to find `best_step`; 0: the last step is taken."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Of the passes; auto: bf16 on a GPU, else fp32."""
    gradient_checkpointing: bool = False
    """Less memory, more time."""
    log_interval: int = 10
    """Steps between two lines of `history`."""
    save_interval: int = 100
    """Steps between checkpoints; 0: one at the end."""
    use_wandb: bool = False
    """Log there too."""
    seed: int = 0
    """Of data, sampling and new weights."""
    output_dir: str = "./rl_output"
    """The run's folder; a rerun goes on there."""
    overrides: tuple[str, ...] = ()
    """Further keys of the trainer, as on its command line."""

    def __post_init__(self) -> None:
        counts = ("group_size", "batch_size", "ppo_epochs", "log_interval")
        for name in counts:
            _require(getattr(self, name) >= 1, f"{name}={getattr(self, name)} is no count; write 1 or more")
        for name in ("save_interval", "lora_rank", "overlong_buffer", "ref_sync_every", "validation_problems"):
            _require(getattr(self, name) >= 0, f"{name}={getattr(self, name)} is negative; write 0 or more")
        _require(self.learning_rate > 0, f"learning_rate={self.learning_rate} learns nothing; write 1e-6")
        _require(self.kl_coef >= 0, f"kl_coef={self.kl_coef} is negative; write 0 or more")
        _require(
            self.temperature_start > 0 and self.temperature_end > 0,
            "temperature_start and temperature_end: solutions drawn at 0 are all the same; write more",
        )
        _require(
            self.algorithm == "gae" or self.group_size > 1,
            f"algorithm={self.algorithm} compares solutions of one problem; write group_size=2 or more, or gae",
        )
        _require(
            self.prompt_length < self.max_length,
            f"max_prompt_length={self.max_prompt_length} leaves no room for a solution; write less than max_length",
        )
        _require(
            self.prompt_template is None or "{problem}" in self.prompt_template,
            "prompt_template has no slot {problem}; write it where the problem belongs",
        )
        _require(self.precision != "fp16", "precision=fp16 needs a loss that is scaled, which verl has not; write bf16")
        _require(self.schedule_kind != "piecewise", "schedule_kind: write exp, linear, cosine or constant")

    @property
    def prompt_length(self) -> int:
        """`max_prompt_length`, or what None stands for."""
        return self.max_length // 4 if self.max_prompt_length is None else self.max_prompt_length

    @classmethod
    def of_preset(cls, preset: Literal["ours", "seed"], **options: Any) -> Self:
        """The defaults of ours, or of the original; options replace them."""
        known = {one.name for one in fields(cls)}
        values = {key: value for key, value in SEED.items() if key in known} if preset == "seed" else {}
        return cls(**{**values, **options})


@dataclass(frozen=True, kw_only=True)
class CoTConfig(PureRLConfig):
    """Options of `ChainOfThoughtTrainer`: those of `PureRLConfig`, and what the thought earns."""

    mode: Literal["gated", "weighted"] = "gated"
    """gated: the thought counts only as far as the answer is right; weighted: by itself, as in the original."""
    thinking_reward_weight: float = 0.3
    """Of the thought."""
    answer_reward_weight: float = 0.7
    """Of the answer."""
    step_clarity_weight: float = 0.2
    """Of clarity in the thought; these three are divided by their sum."""
    logical_flow_weight: float = 0.3
    """Of flow in the thought."""
    completeness_weight: float = 0.2
    """Of completeness in the thought."""
    format_weight: float = 0.1
    """Of the format, in mode gated."""
    language_weight: float = 0.0
    """Of the share of words in the wanted language."""
    length_shaping: Literal["none", "cosine"] = "none"
    """cosine: short right solutions earn more."""
    penalty_repetition: float = 0.0
    """Taken off for the share of repeated 4-grams."""
    gate_floor: float = 0.0
    """What of the thought's reward a wrong answer still earns."""
    force_thinking_steps: int = 3
    """Distinct steps of a complete thought; a target, never filled in."""
    max_thinking_length: int = 1024
    """Tokens of a thought."""
    max_answer_length: int = 256
    """Tokens of an answer."""
    thinking_token: str = "<think>"
    """Opens the thought; it is closed by the same with a slash."""
    answer_token: str = "<answer>"
    """Opens the answer."""
    step_token: str = "<step>"
    """Opens a step."""
    max_length: int = field(default=1024 + 256 + 512)
    """Tokens of prompt and solution together."""

    def reward_settings(self) -> CoTRewardSettings:
        """What counts how much."""
        names = {one.name for one in fields(CoTRewardSettings)} & {one.name for one in fields(self)}
        values = {name: getattr(self, name) for name in names - {"max_length"}}
        return CoTRewardSettings(**values, max_length=self.max_thinking_length + self.max_answer_length)

    def tags(self) -> Tags:
        """The marks of the parts."""
        return Tags(
            thinking=self.thinking_token,
            thinking_end=_closing(self.thinking_token),
            answer=self.answer_token,
            answer_end=_closing(self.answer_token),
            step=self.step_token,
        )


def _closing(tag: str) -> str:
    _require(tag.startswith("<") and tag.endswith(">"), f"{tag!r} is no tag; write for instance <think>")
    return f"</{tag[1:]}"


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)
