"""Options that depend on more than one node of the config: the estimator, and what it can make of the reward's parts.

>>> reward = from_mapping(hydra_config.reward_model)
>>> algorithm = algorithm_from_mapping(hydra_config.algorithm)
>>> advantage = check_training(hydra_config, reward, algorithm)
>>> advantage.adv_estimator
'gdpo_classmate'
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from verl.classmate.estimators import DECOUPLED_ESTIMATORS, ESTIMATORS, OUR_ESTIMATORS, PROCESS_ESTIMATORS
from verl.classmate.process_config import ProcessRewardConfig
from verl.classmate.reward_config import REWARD_NODE, Clamp, ClassmateCotRewardConfig, TokenMode
from verl.classmate.reward_model_config import ClassmateRewardModelConfig
from verl.classmate.reward_types import REWARD_TYPES
from verl.classmate.typed import parse, plain_mapping, require, value_at

_DRGRPO = {
    "algorithm.adv_estimator": "grpo",
    "algorithm.norm_adv_by_std_in_grpo": "False",
    "actor_rollout_ref.actor.loss_agg_mode": "seq-mean-token-sum-norm",
    "actor_rollout_ref.actor.use_kl_loss": "False",
}
_GDPO_WO_BN = {
    "algorithm.adv_estimator": "gdpo_wo_bn",
    "algorithm.gdpo_batch_norm": "none",
}
RECIPES = {"drgrpo": _DRGRPO, "gdpo_wo_bn": _GDPO_WO_BN}
"""Values of `algorithm.adv_estimator` that set more than that key."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig:
    """The keys under `algorithm` that this project adds, or whose default it changes."""

    adv_estimator: str = field(
        default="gdpo_classmate",
        metadata={
            "choices": tuple(ESTIMATORS),
            "value_aliases": {"gdpo": "gdpo_classmate"},
            "recipes": tuple(name for name in RECIPES if name not in ESTIMATORS),
        },
    )
    """Advantage estimator. gdpo_classmate normalises main and classmate reward separately, and their sum over the
    batch; gdpo_wo_bn leaves the second step out; grpo_main_classmate_separated is GRPO on each of the two;
    grpo_w_classmate is GRPO on the fused reward where classmates read and on the main reward elsewhere. grpo, and
    verl's gae, rloo, remax, reinforce_plus_plus and others, take the fused reward. process_grpo, min_form and prime add
    rewards of steps (reward_model.process) to it. drgrpo on the command line is a recipe around grpo."""
    norm_adv_by_std_in_grpo: bool = True
    """The estimators grpo*: divide by the group's standard deviation (False is Dr.GRPO)."""
    gdpo_batch_norm: Literal["sequence", "token", "none"] = "sequence"
    """gdpo_classmate: mean and standard deviation of the batch over sequences, over tokens, or no such step."""
    gdpo_group_norm: Literal["std", "mean_only"] = "std"
    """gdpo_classmate: divide each component by its group's standard deviation, or only subtract its mean; with the
    latter the scales of the two rewards are not decoupled."""
    singleton_group: Literal["zero", "raw"] = "zero"
    """Advantage in a group with fewer than 2 valid rows: 0, or the reward itself (as upstream does)."""
    constant_group: Literal["zero", "raw"] = "zero"
    """Advantage of equal rewards with verl's estimators that compare rows: 0, or the rounding noise that upstream
    leaves there. The project's own estimators leave none."""
    old_log_prob: Literal["auto", "always"] = "auto"
    """Whether the policy's log-probs before an update are computed in a pass of their own. auto leaves the pass out
    where exactly one optimizer step follows, which computes them itself, unless a correction needs them earlier. always
    keeps the pass, and with it verl's metrics `rollout_corr/*`."""
    use_kl_in_reward: bool = False
    """Baselines with gae, grpo, rloo or reinforce_plus_plus: the KL to the reference costs each token of its reward,
    with the coefficient of algorithm.kl_ctrl. Elsewhere use actor_rollout_ref.actor.use_kl_loss."""

    def __post_init__(self) -> None:
        taking = [name for name, one in ESTIMATORS.items() if one.takes_cost]
        require(
            not self.use_kl_in_reward or self.adv_estimator in taking,
            f"algorithm.use_kl_in_reward: not possible with {self.adv_estimator}; write False and "
            f"actor_rollout_ref.actor.use_kl_loss=True, or algorithm.adv_estimator={' or '.join(taking)}",
        )


@dataclass(frozen=True, kw_only=True)
class AdvantageConfig:
    """All that the advantage estimators need, from both nodes; combinations that mean nothing are refused here."""

    adv_estimator: str = AlgorithmConfig.adv_estimator
    """See `AlgorithmConfig`, also for the next five."""
    norm_adv_by_std_in_grpo: bool = AlgorithmConfig.norm_adv_by_std_in_grpo
    """Divide by the group's standard deviation in grpo and its kin."""
    gdpo_batch_norm: Literal["sequence", "token", "none"] = AlgorithmConfig.gdpo_batch_norm
    """Batch normalisation of gdpo_classmate."""
    gdpo_group_norm: Literal["std", "mean_only"] = AlgorithmConfig.gdpo_group_norm
    """Group normalisation of gdpo_classmate and gdpo_wo_bn."""
    singleton_group: Literal["zero", "raw"] = AlgorithmConfig.singleton_group
    """Groups with fewer than 2 valid rows."""
    use_kl_in_reward: bool = AlgorithmConfig.use_kl_in_reward
    """Whether the KL to the reference is a cost of each token."""
    constant_group: Literal["zero", "raw"] = AlgorithmConfig.constant_group
    """Groups of equal rewards under upstream's estimators."""
    classmate_reward_weight: float = ClassmateCotRewardConfig.classmate_reward_weight
    """w, see `ClassmateCotRewardConfig`, also for the rest."""
    main_reward_weight: float = ClassmateCotRewardConfig.main_reward_weight
    """v_r, the weight of the main component."""
    classmate_reward_type: str = ClassmateCotRewardConfig.classmate_reward_type
    """Whether there is a reward per segment."""
    reward_fusion: Literal["sum", "weighted_average", "base_plus_max"] | None = ClassmateCotRewardConfig.reward_fusion
    """How the segments' rewards are fused with the main one."""
    token_level_classmate_reward_mode: TokenMode | None = ClassmateCotRewardConfig.token_level_classmate_reward_mode
    """Which tokens carry the classmate's advantage; never None behind the constructor."""
    classmate_advantage_clamp: Clamp = ClassmateCotRewardConfig.classmate_advantage_clamp
    """What is raised to 0."""
    placebo: bool = ClassmateCotRewardConfig.placebo
    """Whether rows of a prompt exchange their classmate rewards."""
    add_consistency_reward: bool = ClassmateCotRewardConfig.add_consistency_reward
    """Whether there is a consistency component."""
    consistency_reward_weight: float = ClassmateCotRewardConfig.consistency_reward_weight
    """w_K, the weight of the consistency component."""
    min_classmate_valid_fraction: float = ClassmateCotRewardConfig.min_classmate_valid_fraction
    """Below this fraction of valid rows the classmate component is left out of the step."""
    process: ProcessRewardConfig = field(default_factory=ProcessRewardConfig)
    """The node `reward_model.process`."""

    @classmethod
    def build(
        cls, reward: ClassmateCotRewardConfig, algorithm: AlgorithmConfig, process: ProcessRewardConfig | None = None
    ) -> "AdvantageConfig":
        """Takes each field from the config that has it.

        Raises:
            ConfigError: options that the estimator cannot follow.
        """
        names = [f.name for f in dataclasses.fields(cls) if f.name != "process"]
        found = {name: getattr(algorithm if hasattr(algorithm, name) else reward, name) for name in names}
        return cls(**found, process=process or ProcessRewardConfig())

    @property
    def per_segment(self) -> bool:
        """Whether rows have a reward for each segment of their CoT."""
        return REWARD_TYPES[self.classmate_reward_type].shown == "segments"

    def __post_init__(self) -> None:
        name, traits = self.adv_estimator, ESTIMATORS[self.adv_estimator]
        mode = self.token_level_classmate_reward_mode or ("classmate_partial" if traits.ours else "all")
        object.__setattr__(self, "token_level_classmate_reward_mode", mode)
        where = f"{REWARD_NODE}.token_level_classmate_reward_mode"
        require(
            traits.ours or mode == "all",
            f"{where}: {mode} needs an estimator that keeps the two rewards apart, which verl's {name} does not; write "
            f"null, or algorithm.adv_estimator={DECOUPLED_ESTIMATORS[0]}",
        )
        require(
            traits.ours or self.classmate_reward_type != "likelihood",
            f"{REWARD_NODE}.classmate_reward_type: likelihood is never above 0, so that verl's {name}, which gives a "
            "row without a classmate score F = r, would pay it best; write likelihood_gain, or "
            f"algorithm.adv_estimator={' or '.join(OUR_ESTIMATORS)}",
        )
        require(
            not traits.fuses_segments or not self.per_segment or self.reward_fusion != "base_plus_max",
            f"{REWARD_NODE}.reward_fusion: base_plus_max is not defined for segments, and {name} fuses their rewards; "
            "write sum",
        )
        clamp, where = self.classmate_advantage_clamp, f"{REWARD_NODE}.classmate_advantage_clamp"
        require(
            clamp != "non_neg_cl" or traits.decoupled,
            f"{where}: non_neg_cl needs a classmate advantage of its own, which {name} does not have; write none, or "
            f"algorithm.adv_estimator={' or '.join(DECOUPLED_ESTIMATORS)}",
        )
        require(
            clamp == "none" or traits.ours,
            f"{where}: {clamp} is not possible with verl's {name}, which normalises tokens itself; write none, or "
            f"algorithm.adv_estimator={' or '.join(OUR_ESTIMATORS)}",
        )
        require(
            not self.placebo or traits.decoupled,
            f"{REWARD_NODE}.placebo: needs a classmate advantage of its own, which {name} does not have; write False, "
            f"or algorithm.adv_estimator={' or '.join(DECOUPLED_ESTIMATORS)}",
        )
        weighing = [other for other, one in ESTIMATORS.items() if one.weighs_main]
        require(
            self.main_reward_weight == 1 or traits.weighs_main,
            f"{REWARD_NODE}.main_reward_weight: {name} has no weight for the main reward; write 1, or "
            f"algorithm.adv_estimator={' or '.join(weighing)}",
        )


def algorithm_from_mapping(mapping: Mapping[str, Any]) -> AlgorithmConfig:
    """The typed view of the node `algorithm`: our keys of it; upstream's other keys are left to upstream."""
    names = {f.name for f in dataclasses.fields(AlgorithmConfig)}
    known = {key: value for key, value in plain_mapping(mapping).items() if key in names}
    return parse(AlgorithmConfig, known, "algorithm")


def check_training(
    config: Mapping[str, Any], reward: ClassmateRewardModelConfig, algorithm: AlgorithmConfig
) -> AdvantageConfig:
    """What depends on more than one node of the whole, resolved config.

    Args:
        config: with upstream's keys of the nodes `algorithm` and `actor_rollout_ref`.
        reward: the typed node `reward_model`.
        algorithm: the typed node `algorithm`.

    Raises:
        ConfigError: options that contradict each other.
    """
    mode = reward.token_level_main_reward_mode
    require(
        mode == "all_tokens" or algorithm.adv_estimator == "grpo",
        f"reward_model.token_level_main_reward_mode: {mode} is for algorithm.adv_estimator=grpo, not for "
        f"{algorithm.adv_estimator}; write all_tokens, or algorithm.adv_estimator=grpo",
    )
    rollout_correction(config, reward)
    _check_process(reward.process, algorithm.adv_estimator)
    return AdvantageConfig.build(reward.classmate_cot_reward_configs, algorithm, reward.process)


def _check_process(process: ProcessRewardConfig, estimator: str) -> None:
    takes = ESTIMATORS[estimator].takes_process
    require(
        takes or process.model is None,
        f"reward_model.process.model: {estimator} takes no rewards of steps; write null, or "
        f"algorithm.adv_estimator={' or '.join(PROCESS_ESTIMATORS)}",
    )
    require(
        not takes or process.model is not None,
        f"algorithm.adv_estimator: {estimator} takes rewards of steps, and no model gives any; write "
        "reward_model.process.model=FOLDER, or algorithm.adv_estimator=grpo",
    )


def rollout_correction(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> dict[str, Any]:
    """What `reward_model.rollout_is_threshold` sets in `algorithm.rollout_correction`; empty if it is null.

    Raises:
        ConfigError: the node says something else.
    """
    key, log_probs = "algorithm.rollout_correction", "actor_rollout_ref.rollout.calculate_log_probs"
    cap, node = reward.rollout_is_threshold, value_at(config, key) or {}
    told = bool(value_at(config, log_probs))
    asks = [name for name in ("rollout_is", "rollout_rs", "bypass_mode") if node.get(name)]
    require(told or not asks, f"{key}.{''.join(asks[:1])} needs the rollout engine's log-probs; write {log_probs}=true")
    if cap is None:
        return {}
    where = f"reward_model.rollout_is_threshold={cap}"
    level, threshold = node.get("rollout_is"), node.get("rollout_is_threshold")
    require(level in (None, "token"), f"{where} and {key}.rollout_is={level} disagree; write only one of them")
    require(not node.get("bypass_mode"), f"{where} and {key}.bypass_mode=true disagree; write only one of them")
    # Upstream's YAML has a cap beside rollout_is=null, which no user has set.
    require(
        level is None or threshold == cap,
        f"{where} and {key}.rollout_is_threshold={threshold} disagree; write only one of them",
    )
    require(told, f"{where} needs the rollout engine's log-probs; write {log_probs}=true")
    return {"rollout_is": "token", "rollout_is_threshold": cap}


def group_notes(algorithm: AlgorithmConfig, *, rollouts: int) -> list[str]:
    """A line for a person where rows are compared within their group, and each group is one row.

    Args:
        algorithm: the typed node.
        rollouts: `actor_rollout_ref.rollout.n`.
    """
    name = algorithm.adv_estimator
    if rollouts != 1 or algorithm.singleton_group != "zero" or not ESTIMATORS[name].compares_group:
        return []
    return [
        f"warning: actor_rollout_ref.rollout.n=1 leaves {name} nothing to compare a row with: all advantages are 0; "
        "write actor_rollout_ref.rollout.n=8, or algorithm.adv_estimator=reinforce_plus_plus"
    ]
