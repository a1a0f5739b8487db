"""What a user says of a training by reinforcement: `PureRLConfig`.

One decision: every field becomes keys of the project's trainer (`overrides.py`) and has no effect of its own, so that
what a run did is in its `config.yaml`. The original's values are `preset="seed"`.

    >>> PureRLConfig(model_name="Qwen/Qwen3-0.6B", temperature_start=1.2, temperature_end=0.3)

docs/reasoning_rl.md
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from verl.reasoning.choices import check_choices
from verl.reasoning.rl.presets import with_presets
from verl.stepwise.schedules import Schedule, ScheduleKind, TargetEntropy

Algorithm = Literal["grpo", "dr_grpo", "rloo", "gae"]

SEED: dict[str, Any] = {
    "learning_rate": 1e-5,
    "kl_coef": 0.02,
    "clip_epsilon_high": 0.2,
    "value_clip": 0.2,
    "temperature_start": 1.2,
    "temperature_end": 0.3,
    "entropy_coef_start": 0.1,
    "entropy_coef_end": 0.001,
    "batch_size": 4,
    "mini_batch_size": 1,
    "ppo_epochs": 4,
    "gamma": 0.99,
    "lam": 0.95,
    "critic_learning_rate": 2e-5,
    "adam_epsilon": 1e-5,
    "lr_schedule": "cosine",
    "algorithm": "gae",
    "group_size": 1,
    "dynamic_sampling": False,
    "hold_temperature": False,
}
"""Of the original document and the code behind it: PPO with a critic, one answer to each problem."""


@with_presets({"seed": SEED})
@dataclass(frozen=True, kw_only=True)
class PureRLConfig:
    """A training on nothing but a reward (spec section 3.1)."""

    model_name: str
    """A folder or hub name."""
    output_dir: str = "./pure_rl_output"
    """Gets the run folders, the data and the reward that workers read."""
    preset: Literal["seed"] | None = None
    """"seed": fields that are not given have the original's values."""

    algorithm: Algorithm = "grpo"
    """grpo compares the answers to a problem; dr_grpo does not divide by their deviation or by an answer's length; rloo
    compares with the mean of the others; gae has a critic (verl's value head on a model of its own)."""
    group_size: int = 8
    """Answers to each problem."""
    batch_size: int = 32
    """Problems of a step; at most as many as there are."""
    mini_batch_size: int | None = None
    """Problems of an optimizer step; None: all of a step."""
    ppo_epochs: int = 1
    """Passes over a step's answers."""
    gradient_accumulation_steps: int | None = None
    """Pieces in which the rows of a mini-batch are computed on each GPU; None: as few as there is memory for."""
    dynamic_sampling: bool = True
    """Groups whose rewards are all the same are left out, and others drawn in their place (DAPO)."""

    process_model: str | None = None
    """Folder of a process reward model, as `PRMTrainer` saves it, whose judgement of each step is added to the outcome
    (algorithm grpo); None: the outcome alone counts."""
    process_credit: Literal["process_grpo", "min_form", "prime"] = "process_grpo"
    """What the steps earn (docs/reasoning_rl.md)."""
    process_coef: float = 1.0
    """Of what they earn; lowered in each step to its share of the variance."""
    process_max_share: float | None = 0.3
    """Of the variance of the outcome's advantage; None: any."""
    process_outcome_gate: bool = True
    """On a wrong answer steps earn nothing."""
    process_max_step_growth: float | None = 0.5
    """How many more steps than at first an answer may have to be rewarded for them, as a share; None: any."""
    process_stop_after: int = 20
    """The training ends with an error when steps are worth more and more, and answers right less and less, over so many
    iterations; 0: never."""
    process_max_junk: float = 0.2
    """Most that the model may give texts that solve nothing."""

    learning_rate: float | None = None
    """None: 1e-6, with adapters 1e-5."""
    critic_learning_rate: float | None = None
    """gae: None: twice the learning rate."""
    lr_schedule: Literal["constant", "cosine"] = "constant"
    """cosine: down to a tenth at the last iteration."""
    lr_warmup_steps: int = 0
    """Iterations in which the learning rate rises from 0."""
    adam_epsilon: float = 1e-8
    """Of AdamW."""
    max_grad_norm: float = 1.0
    """Longest gradient."""
    clip_epsilon: float = 0.2
    """How far below 1 a token's ratio counts."""
    clip_epsilon_high: float = 0.28
    """How far above 1 (clip-higher)."""
    policy_loss: Literal["clip", "clip_cov", "kl_cov"] = "clip"
    """clip_cov and kl_cov hold the entropy by the tokens that move it most (G. Cui et al., 2025)."""
    loss_aggregation: Literal["token-mean", "seq-mean-token-mean"] = "token-mean"
    """All tokens of a batch count the same, or all answers; dr_grpo has an aggregation of its own."""
    value_clip: float = 0.5
    """gae: how far a value may move from what it was."""
    gamma: float = 1.0
    """gae: discount of a token."""
    lam: float = 1.0
    """gae: lambda."""

    kl_coef: float = 0.001
    """Of the KL to the reference; 0: there is none."""
    kl_mode: Literal["loss", "reward", "adaptive"] = "loss"
    """loss: a term of the loss (k3); reward: a cost of each token's reward; adaptive: such a cost whose coefficient
    holds the KL at target_kl, beginning with kl_coef."""
    target_kl: float = 0.1
    """adaptive: KL of a token, in nats."""
    kl_horizon: int = 10000
    """adaptive: answers after which the coefficient can have changed by a fifth."""
    ref_sync_every: int = 0
    """Iterations after which the reference becomes the policy as it is then (R1: 400); 0: never."""

    temperature_start: float = 1.0
    """Of sampling, at the first iteration."""
    temperature_end: float = 1.0
    """As far as it goes."""
    temperature_decay: float = 0.995
    """exp: factor of each iteration."""
    hold_temperature: bool = True
    """The temperature does not fall after iterations in which more than half of the groups have no variance."""
    entropy_coef_start: float = 0.0
    """Of the bonus for entropy, at the first iteration."""
    entropy_coef_end: float = 0.0
    """As far as it goes."""
    entropy_coef_decay: float = 0.99
    """exp: factor of each iteration."""
    target_entropy: float | None = None
    """Mean entropy of a token, in nats, towards which the coefficient is steered from entropy_coef_start on."""
    schedule_kind: ScheduleKind = "exp"
    """Of both: exp, linear, cosine, constant (the start), piecewise (the points; the start for the one without)."""
    temperature_points: tuple[tuple[int, float], ...] = ()
    """piecewise: pairs (iteration from 0, temperature)."""
    entropy_points: tuple[tuple[int, float], ...] = ()
    """piecewise: pairs (iteration from 0, coefficient)."""

    max_length: int = 2048
    """Tokens of problem and answer together."""
    max_prompt_length: int | None = None
    """Tokens of a problem; None: half of max_length. Longer problems are left out, and told."""
    prompt_template: str = "{problem}"
    """What the model is asked; the problem stands in place of `{problem}`."""
    overlong_buffer: int = 0
    """Tokens before the longest answer in which an answer costs more and more; 0: none."""
    overlong_penalty: float = 1.0
    """What the longest answer costs."""
    reward_timeout_s: float = 60.0
    """Longest time of a call of the reward."""

    device: str = "auto"
    """auto, cpu or cuda."""
    num_gpus: int | None = None
    """None: all that are there."""
    engine: Literal["auto", "hf", "vllm"] = "auto"
    """What the policy answers with; auto: vllm on a GPU, hf without one."""
    precision: Literal["auto", "bf16", "fp32", "fp16"] = "auto"
    """Of training; auto: bf16 on a GPU, fp32 without one. fp16 scales its gradients."""
    fp16: bool = False
    """The original's spelling of precision="fp16"."""
    gradient_checkpointing: bool | None = None
    """Computes activations again instead of keeping them; None: as the machine's settings have it."""
    lora_rank: int = 0
    """Above 0 adapters are trained, and merged into the checkpoint."""
    lora_alpha: int = 32
    """Scale of the adapters."""

    log_interval: int = 10
    """Iterations between two lines of this process's log."""
    save_interval: int = 100
    """Iterations between two checkpoints, and between two validations; the last iteration has both."""
    use_wandb: bool = False
    """Log to Weights & Biases too."""
    loggers: tuple[str, ...] = ()
    """Further loggers of the trainer."""
    seed: int = 1
    """Of data order and sampling."""
    deterministic: bool = False
    """The same training gives the same numbers (engine hf on a CPU)."""
    resume: bool = True
    """A training that was ended goes on; False: it begins again in a folder of its own."""
    in_process: bool = False
    """The trainer's debug mode: one process, no Ray."""
    overrides: tuple[str, ...] = ()
    """Further settings of the trainer, `key=value`; they come last."""

    def __post_init__(self) -> None:
        check_choices(self)
        _check_numbers(self)
        self._check_combinations()

    def _check_combinations(self) -> None:
        if "{problem}" not in self.prompt_template:
            raise ValueError("prompt_template has no place for the problem; write {problem} where it belongs")
        if self.fp16 and self.precision not in ("auto", "fp16"):
            raise ValueError(f"fp16=True and precision={self.precision!r} disagree; write only one of them")
        if self.algorithm in ("grpo", "dr_grpo", "rloo") and self.group_size < 2:
            raise ValueError(f"{self.algorithm} compares answers to a problem; write group_size=8, or algorithm='gae'")
        if self.process_model is not None and self.algorithm != "grpo":
            raise ValueError(f"process_model is not possible with {self.algorithm!r}; write algorithm='grpo', or None")
        if self.ref_sync_every and not self.kl_coef:
            raise ValueError("ref_sync_every moves a reference, and kl_coef=0 has none; write kl_coef=0.001, or 0 here")
        if self.dynamic_sampling and self.in_process:
            raise ValueError("in_process draws no second sample; write dynamic_sampling=False")
        if self.dynamic_sampling and self.group_size < 2:
            raise ValueError("dynamic_sampling compares answers to a problem; write group_size=8, or False")
        if self.device.split(":")[0] not in ("auto", "cpu", "cuda"):
            raise ValueError(f"device={self.device!r}; write auto, cpu or cuda")
        if not 0 < self.prompt_tokens < self.max_length:
            raise ValueError(
                f"max_prompt_length={self.max_prompt_length} leaves no token of max_length={self.max_length}"
            )
        self.temperature(1)
        self.entropy(1)
        if self.target_entropy is not None and not self.entropy_coef_start:
            raise ValueError("target_entropy steers a coefficient above 0; write entropy_coef_start=0.001")

    @property
    def prompt_tokens(self) -> int:
        """Longest problem."""
        return self.max_length // 2 if self.max_prompt_length is None else self.max_prompt_length

    @property
    def response_tokens(self) -> int:
        """Longest answer."""
        return self.max_length - self.prompt_tokens

    @property
    def rate(self) -> float:
        """The learning rate, resolved."""
        if self.learning_rate is not None:
            return self.learning_rate
        return 1e-5 if self.lora_rank else 1e-6

    @property
    def number_format(self) -> str:
        """The precision, with its older spelling."""
        return "fp16" if self.fp16 else self.precision

    def temperature(self, iterations: int) -> Schedule:
        """Of sampling, in a training of so many iterations."""
        return Schedule(
            kind=self._kind(self.temperature_points),
            start=self.temperature_start,
            end=self.temperature_end,
            decay=self.temperature_decay,
            steps=iterations,
            points=self.temperature_points,
        )

    def entropy(self, iterations: int) -> Schedule:
        """Of the coefficient of the entropy, in a training of so many iterations."""
        steered = self.target_entropy is not None
        return Schedule(
            kind="constant" if steered else self._kind(self.entropy_points),
            start=self.entropy_coef_start,
            end=self.entropy_coef_start if steered else self.entropy_coef_end,
            decay=self.entropy_coef_decay,
            steps=iterations,
            points=self.entropy_points,
        )

    def _kind(self, points: Sequence[tuple[int, float]]) -> ScheduleKind:
        """Of a schedule with these points: piecewise where there are some, if any schedule is."""
        other = (*self.temperature_points, *self.entropy_points)
        return "constant" if self.schedule_kind == "piecewise" and other and not points else self.schedule_kind

    @property
    def controller(self) -> TargetEntropy | None:
        """What steers the coefficient, if anything does."""
        return None if self.target_entropy is None else TargetEntropy(target=self.target_entropy)


_POSITIVE = ("group_size", "batch_size", "ppo_epochs", "max_length", "log_interval", "save_interval", "kl_horizon",
             "temperature_start", "temperature_end", "max_grad_norm", "target_kl", "reward_timeout_s", "value_clip",
             "adam_epsilon", "lora_alpha")  # fmt: skip
_OPTIONAL = ("mini_batch_size", "gradient_accumulation_steps", "learning_rate", "critic_learning_rate", "num_gpus")
_NOT_NEGATIVE = ("kl_coef", "ref_sync_every", "overlong_buffer", "overlong_penalty", "entropy_coef_start",
                 "entropy_coef_end", "lora_rank", "lr_warmup_steps", "clip_epsilon", "clip_epsilon_high")  # fmt: skip


def _check_numbers(config: PureRLConfig) -> None:
    """Bounds of single fields."""
    for name in _POSITIVE:
        if not getattr(config, name) > 0:
            raise ValueError(f"{name}={getattr(config, name)} is not above 0")
    for name in _OPTIONAL:
        value = getattr(config, name)
        if value is not None and not value > 0:
            raise ValueError(f"{name}={value} is not above 0; write a number, or None")
    for name in _NOT_NEGATIVE:
        if not getattr(config, name) >= 0:
            raise ValueError(f"{name}={getattr(config, name)} is negative; write 0 or more")
    for name in ("gamma", "lam"):
        if not 0 <= getattr(config, name) <= 1:
            raise ValueError(f"{name}={getattr(config, name)} is not in 0..1")
