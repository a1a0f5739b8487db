"""What a teacher's advice is worth: every option of the node `rcl.reward`, with its meaning and its one default.

One decision: a preset gives the numbers that make up a reward's shape, and a number that is typed replaces the
preset's. A number for which the chosen reward has no use is refused, since it would be a weight that nothing reads.

    >>> TeachingRewardConfig(preset="rcl", degradation_penalty=1.0).shape
    RclShape(degradation_penalty=1.0, efficiency_weight=1.0, keep_coef=0.5, brevity_of='advice')
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from verl.classmate.errors import ConfigError
from verl.classmate.typed import require

TEACHING_REWARD_NODE = "rcl.reward"
RLT_NODE = f"{TEACHING_REWARD_NODE}.rlt"

RewardKind = Literal["rcl", "rlt", "rcl+rlt"]
RclPreset = Literal["rcl_readme", "rcl", "released", "online"]
RltPreset = Literal["rlt", "rlt_class_defaults"]
Reduction = Literal["mean", "sum", "min", "max", "median", "q25", "q75"]
"""How the numbers of several tokens become one; q25 and q75 are quartiles."""
Normaliser = Literal["none", "exp", "exp_norm"]
"""What is made of each number x before the reduction: x, exp(x), or 1 - exp(-x)."""
Alignment = Literal["token", "span", "mean_per_char"]
"""Where the log-probabilities of two tokenizers are compared."""


@dataclass(frozen=True, kw_only=True)
class RclShape:
    """The numbers that tell the presets of the RCL reward apart."""

    degradation_penalty: float
    """What each part of a solve rate costs that the advice takes away."""
    efficiency_weight: float
    """Most that brevity adds, as a share of what it multiplies."""
    keep_coef: float
    """What an answer is worth that was right and stays right."""
    brevity_of: Literal["advice", "answer"] = "advice"
    """What is to be short: the advice, measured by tau / (tau + L), or the student's answers, by the share of their
    tokens that the advice saves."""


RCL_PRESETS: Mapping[RclPreset, RclShape] = {
    "rcl_readme": RclShape(degradation_penalty=2.0, efficiency_weight=1.0, keep_coef=0.0),
    "rcl": RclShape(degradation_penalty=2.0, efficiency_weight=1.0, keep_coef=0.5),
    "released": RclShape(degradation_penalty=0.0, efficiency_weight=1.0, keep_coef=0.5),
    "online": RclShape(degradation_penalty=1.0, efficiency_weight=1.0, keep_coef=0.0, brevity_of="answer"),
}
"""By the names that `preset` takes."""


@dataclass(frozen=True, kw_only=True)
class RltWeights:
    """The numbers that tell the presets of the RLT reward apart, one for each reduction."""

    answer_log_prob_coeff: tuple[float, ...]
    """Of the reductions of the solution's log-probabilities."""
    kl_penalty_reward_coeff: tuple[float, ...]
    """Of the reductions of the explanation's divergence, which is taken off."""


RLT_PRESETS: Mapping[RltPreset, RltWeights] = {
    "rlt": RltWeights(answer_log_prob_coeff=(1.0, 0.01), kl_penalty_reward_coeff=(3.0, 0.03)),
    "rlt_class_defaults": RltWeights(answer_log_prob_coeff=(5.0, 0.05), kl_penalty_reward_coeff=(5.0, 0.05)),
}
"""By the names that `rlt.preset` takes."""


@dataclass(frozen=True, kw_only=True)
class LeakConfig:
    """What is done about advice that gives the answer away."""

    mode: Literal["report", "penalize", "zero_gain"] = "report"
    """report: nothing, it is counted. penalize: takes off leak_penalty. zero_gain: what the student gains does not
    count, what it loses still does, and leak_penalty is taken off too."""


@dataclass(frozen=True, kw_only=True)
class RltConfig:
    """The log-likelihood reward of reinforcement-learned teachers (RLT, arXiv 2506.08388)."""

    preset: RltPreset = "rlt"
    """Weights that are not typed. rlt: 1 and 0.01 for the solution, 3 and 0.03 for the divergence, the paper's;
    rlt_class_defaults: 5 and 0.05 for both, those of the public reward class."""
    reduction_log_prob_fn: tuple[Reduction, ...] = ("mean", "min")
    """Of the log-probabilities of the solution's tokens: mean, sum, min, max, median, q25, q75."""
    answer_log_prob_coeff: tuple[float, ...] | None = None
    """Weight of each of them; null: as the preset has it."""
    reduction_kl_fn: tuple[Reduction, ...] = ("mean", "max")
    """Of the divergences at the explanation's tokens."""
    kl_penalty_reward_coeff: tuple[float, ...] | None = None
    """Weight of each of them, which is taken off; null: as the preset has it."""
    normalize_log_prob_fn: Normaliser = "none"
    """What is made of each log-probability x before the reduction: none, exp(x), or exp_norm 1 - exp(-x)."""
    normalize_kl_fn: Normaliser = "none"
    """The same of each divergence."""
    clip_log_prob: float = field(default=1e5, metadata={"above": 0, "write": "100000"})
    """A log-probability of the solution counts as no less than minus this; none counts as less than -50."""
    clip_kl: float = field(default=1e5, metadata={"above": 0, "write": "100000"})
    """A divergence counts as no more than this."""
    use_schulman_kl_estimation: bool = False
    """Whether a divergence d becomes d - 1 + exp(-d), which is never negative (arXiv 2506.08388; Schulman's k3)."""
    include_teacher_think_entropy: bool = True
    """Whether the divergence has the teacher's own log-probability; False: minus the student's alone."""
    not_matched_penalty: float = -1.0
    """Added where the explanation is not closed."""
    unbias_teacher_log_probs: bool = True
    """Whether the teacher is scored at the temperature it wrote with, where that is not 1. False is refused there: of
    what is written, engines tell log-probs at that temperature alone."""
    unbias_student_log_probs_temp: float = field(default=0.7, metadata={"above": 0, "write": "0.7"})
    """Temperature at which the student is scored, where the teacher does not write at 1; only the engine hf can."""
    kl_alignment: Literal["auto"] | Alignment = "auto"
    """Where teacher and student are compared. token: token by token, for one tokenizer. span: over the shortest
    stretches of text at whose ends both have a token's end. mean_per_char: over the whole, per character. auto: token
    for the same vocabulary, else span."""
    r_min: float = -20.0
    """Lowest reward, and the reward of an empty explanation."""
    r_max: float = 5.0
    """Highest reward."""

    def __post_init__(self) -> None:
        _check_range(self.r_min, self.r_max, RLT_NODE, "-20 and 5")
        require(
            self.not_matched_penalty <= 0,
            f"{RLT_NODE}.not_matched_penalty: {self.not_matched_penalty:g} would pay for an explanation that is not "
            "closed; write -1",
        )
        pairs = (
            ("reduction_log_prob_fn", "answer_log_prob_coeff", self.weights.answer_log_prob_coeff),
            ("reduction_kl_fn", "kl_penalty_reward_coeff", self.weights.kl_penalty_reward_coeff),
        )
        for reductions, weights, values in pairs:
            names = getattr(self, reductions)
            require(
                len(names) == len(values) > 0,
                f"{RLT_NODE}.{weights}: {len(values)} weights for {len(names)} entries of {reductions}; write one "
                f"weight per reduction, for instance {reductions}=[mean] and {weights}=[1]",
            )

    @property
    def weights(self) -> RltWeights:
        """The weights that count."""
        ready = RLT_PRESETS[self.preset]
        answer, penalty = self.answer_log_prob_coeff, self.kl_penalty_reward_coeff
        return RltWeights(
            answer_log_prob_coeff=ready.answer_log_prob_coeff if answer is None else answer,
            kl_penalty_reward_coeff=ready.kl_penalty_reward_coeff if penalty is None else penalty,
        )

    def alignment(self, *, same_vocabulary: bool) -> Alignment:
        """Where a teacher and a student are compared.

        Args:
            same_vocabulary: whether both have the same tokens under the same ids.

        Raises:
            ConfigError: `token`, and they have not.
        """
        if self.kl_alignment == "auto":
            return "token" if same_vocabulary else "span"
        require(
            self.kl_alignment != "token" or same_vocabulary,
            f"{RLT_NODE}.kl_alignment: token needs a student with the teacher's vocabulary; write auto",
        )
        return self.kl_alignment

    def temperatures(
        self, rollout_temperature: float, *, any_temperature: bool, key: str = "actor_rollout_ref.rollout.temperature"
    ) -> tuple[float, float]:
        """Temperatures at which teacher and student are scored.

        Args:
            rollout_temperature: at which the teacher writes.
            any_temperature: whether the scorer can score at another one than 1 (vLLM's prompt log-probs can not).
            key: of the config, that says how the teacher writes.

        Raises:
            ConfigError: it would have to, and it can not.
        """
        if rollout_temperature == 1:
            return 1.0, 1.0
        require(
            any_temperature,
            f"{key}={rollout_temperature:g} biases {TEACHING_REWARD_NODE}.kind=rlt, whose student is scored at 1; "
            f"write {key}=1, or score with the engine hf",
        )
        return (rollout_temperature if self.unbias_teacher_log_probs else 1.0), self.unbias_student_log_probs_temp


@dataclass(frozen=True, kw_only=True)
class TeachingRewardConfig:
    """How a frozen student's answers become the teacher's reward."""

    kind: RewardKind = "rcl"
    """rcl: what the advice changes in the student's solve rate. rlt: how likely the student finds the solution behind
    the explanation, and how likely the explanation. rcl+rlt: both, each normalised in its group before they are
    added."""
    preset: RclPreset = "rcl_readme"
    """Numbers that are not typed, as (degradation_penalty, efficiency_weight, keep_coef): rcl_readme (2, 1, 0),
    rcl (2, 1, 0.5), released (0, 1, 0.5). online: 1 for each answer gained and -1 for each lost, and the share of the
    student's tokens that the advice saves for each right answer."""
    degradation_penalty: float | None = field(default=None, metadata={"at_least": 0, "write": "2"})
    """Penalty for each part of the solve rate that the advice takes away; null: as the preset has it."""
    efficiency_weight: float | None = field(default=None, metadata={"at_least": 0, "write": "1"})
    """Weight of conciseness, which only multiplies what was gained or kept; null: as the preset has it."""
    keep_coef: float | None = field(default=None, metadata={"at_least": 0, "write": "0.5"})
    """Value of an answer that was right without the advice and is right with it; null: as the preset has it."""
    efficiency_tau: float = field(default=100.0, metadata={"above": 0, "write": "100"})
    """Tokens of the student's tokenizer at which advice is half as concise as none."""
    format_penalty: float = field(default=0.5, metadata={"at_least": 0})
    """Taken off where the visible tag is missing, not closed or malformed, and where the advice is over its cap."""
    leak_penalty: float = field(default=0.0, metadata={"at_least": 0})
    """Taken off where the advice gives the answer away, with leak.mode=penalize or zero_gain."""
    leak: LeakConfig = field(default_factory=LeakConfig)
    """What is done about advice that gives the answer away."""
    r_min: float = -2.0
    """Lowest RCL reward."""
    r_max: float = 2.0
    """Highest RCL reward."""
    gate: Literal["outcome", "none"] = "outcome"
    """outcome: where all answers to a prompt come to the same, brevity is not normalised, which would blow it up, but
    counts gate_length_coef. none: advantages as the estimator makes them."""
    gate_length_coef: float = field(default=0.1, metadata={"at_least": 0})
    """Weight of conciseness in such a group, if the student solves any of it."""
    drop_unsolved_groups: bool = True
    """Leave out groups whose student solves nothing, with and without advice."""
    rlt: RltConfig = field(default_factory=RltConfig)
    """The log-likelihood reward."""

    def __post_init__(self) -> None:
        _check_range(self.r_min, self.r_max, TEACHING_REWARD_NODE, "-2 and 2")
        typed = [name for name in ("degradation_penalty", "efficiency_weight", "keep_coef") if _is_typed(self, name)]
        for name in typed:
            where = f"{TEACHING_REWARD_NODE}.{name}"
            require(self.uses_rcl, f"{where}: kind={self.kind} has no such term; write null, or kind=rcl")
            require(
                name != "keep_coef" or self.preset != "online",
                f"{where}: preset=online pays for kept answers by what they save; write null, or preset=rcl",
            )
        mode, where = self.leak.mode, f"{TEACHING_REWARD_NODE}.leak.mode"
        require(
            self.uses_rcl or mode == "report",
            f"{where}: kind={self.kind} only reports leaks, its divergence term is against them; write report",
        )
        require(
            mode != "penalize" or self.leak_penalty > 0,
            f"{where}: penalize takes off {TEACHING_REWARD_NODE}.leak_penalty, which is 0; write leak_penalty=0.5",
        )
        require(
            mode != "report" or self.leak_penalty == 0,
            f"{TEACHING_REWARD_NODE}.leak_penalty: leak.mode={mode} does not take it off; write leak.mode=penalize, or "
            "zero_gain",
        )

    @property
    def uses_rcl(self) -> bool:
        """Whether the student answers with the advice."""
        return self.kind != "rlt"

    @property
    def uses_rlt(self) -> bool:
        """Whether the student scores the explanation."""
        return self.kind != "rcl"

    @property
    def shape(self) -> RclShape:
        """The preset, with what was typed in its place."""
        ready = RCL_PRESETS[self.preset]
        penalty, weight, keep = self.degradation_penalty, self.efficiency_weight, self.keep_coef
        return RclShape(
            degradation_penalty=ready.degradation_penalty if penalty is None else penalty,
            efficiency_weight=ready.efficiency_weight if weight is None else weight,
            keep_coef=ready.keep_coef if keep is None else keep,
            brevity_of=ready.brevity_of,
        )


def _is_typed(config: TeachingRewardConfig, name: str) -> bool:
    return getattr(config, name) is not None


def _check_range(low: float, high: float, node: str, example: str) -> None:
    if not low < high:
        raise ConfigError(f"{node}.r_min and r_max: {low:g} is not below {high:g}; write {example}")
