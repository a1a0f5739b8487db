"""What an estimator can follow, and what depends on more than one node of the config."""

import re

import pytest

from verl.classmate.algorithm_config import (
    AdvantageConfig,
    AlgorithmConfig,
    algorithm_from_mapping,
    check_training,
    rollout_correction,
)
from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.classmate.errors import ConfigError
from verl.classmate.estimators import ESTIMATORS


def reward_options(**options) -> dict:
    return {"classmate_cot_reward_configs": {"classmate_model_name_or_path_list": ["a", "b"]} | options}


def test_advantage_config_takes_both_nodes() -> None:
    reward = from_mapping(reward_options(classmate_reward_weight=0.3)).classmate_cot_reward_configs
    built = AdvantageConfig.build(reward, AlgorithmConfig(gdpo_batch_norm="token"))
    assert (built.classmate_reward_weight, built.gdpo_batch_norm) == (0.3, "token")
    assert AdvantageConfig() == AdvantageConfig.build(type(reward)(), AlgorithmConfig())


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (
            {"adv_estimator": "ppo"},
            "algorithm.adv_estimator: 'ppo' is not possible; write one of: gdpo_classmate, gdpo_wo_bn, grpo_main",
        ),
        (
            {"use_kl_in_reward": True},
            "write False and actor_rollout_ref.actor.use_kl_loss=True, or algorithm.adv_estimator=grpo or gae",
        ),
        ({"gdpo_batch_norm": "batch"}, "write one of: sequence, token, none"),
    ],
)
def test_mistakes_in_the_algorithm(mapping: dict, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        algorithm_from_mapping(mapping | {"gamma": 1.0})
    assert message in str(error.value)


def test_estimators_of_verl_are_known() -> None:
    """All but those whose inputs verl's own trainer does not pass, and `gdpo`, which is a name of ours."""
    from verl.trainer.ppo.core_algos import AdvantageEstimator

    missing = {"gdpo", "optimal_token_baseline", "tir_optimal_token_baseline"}
    theirs = {name.value for name in AdvantageEstimator} - missing
    assert theirs >= {name for name, one in ESTIMATORS.items() if not one.ours}
    assert theirs <= set(ESTIMATORS)


def advantage(algorithm: str, **reward) -> AdvantageConfig:
    options = from_mapping(reward_options(**reward)).classmate_cot_reward_configs
    return AdvantageConfig.build(options, AlgorithmConfig(adv_estimator=algorithm))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_token_mode_follows_the_estimator_unless_it_is_given(estimator: str) -> None:
    ours = ESTIMATORS[estimator].ours
    assert advantage(estimator).token_level_classmate_reward_mode == ("classmate_partial" if ours else "all")
    assert advantage(estimator, token_level_classmate_reward_mode="all").token_level_classmate_reward_mode == "all"


@pytest.mark.parametrize(
    ("algorithm", "reward", "message"),
    [
        ("gae", {"token_level_classmate_reward_mode": "classmate_partial"}, "verl's gae does not; write null, or"),
        ("grpo", {"classmate_advantage_clamp": "non_neg_cl"}, "needs a classmate advantage of its own, which grpo"),
        ("grpo_w_classmate", {"classmate_advantage_clamp": "non_neg_cl"}, "which grpo_w_classmate does not have"),
        ("rloo", {"classmate_advantage_clamp": "non_neg_cl"}, "which rloo does not have; write none, or"),
        ("remax", {"classmate_advantage_clamp": "non_neg_adv_when_main_correct"}, "not possible with verl's remax"),
        ("grpo", {"main_reward_weight": 0.5}, "grpo has no weight for the main reward; write 1, or"),
        ("grpo_main_classmate_separated", {"main_reward_weight": 2}, "has no weight for the main reward"),
        (
            "grpo_w_classmate",
            {"classmate_reward_type": "random_truncate_step_wise_utility", "reward_fusion": "base_plus_max"},
            "base_plus_max is not defined for segments, and grpo_w_classmate fuses their rewards; write sum",
        ),
    ],
)
def test_options_that_an_estimator_cannot_follow(algorithm: str, reward: dict, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        advantage(algorithm, **reward)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def whole(algorithm: dict, **reward_model) -> tuple[dict, ClassmateRewardModelConfig]:
    """A whole config as far as `check_training` looks at it."""
    correction = {"rollout_is": None, "rollout_is_threshold": 2.0, "bypass_mode": False}
    config = {
        "algorithm": {"rollout_correction": correction} | algorithm,
        "actor_rollout_ref": {"rollout": {"calculate_log_probs": reward_model.pop("calculate_log_probs", True)}},
    }
    return config, from_mapping(reward_options() | reward_model)


def test_a_cap_turns_rollout_correction_on() -> None:
    config, reward = whole({}, rollout_is_threshold=4.0)
    assert rollout_correction(config, reward) == {"rollout_is": "token", "rollout_is_threshold": 4.0}
    same = {"rollout_is": "token", "rollout_is_threshold": 4.0}
    assert rollout_correction(*whole({"rollout_correction": same}, rollout_is_threshold=4.0)) == same
    assert rollout_correction(*whole({"rollout_correction": {"rollout_is": "sequence"}})) == {}


@pytest.mark.parametrize(
    ("algorithm", "reward_model", "message"),
    [
        ({"rollout_correction": {"rollout_is": "sequence"}}, {"rollout_is_threshold": 4.0}, "rollout_is=sequence dis"),
        (
            {"rollout_correction": {"rollout_is": "token", "rollout_is_threshold": 3.0}},
            {"rollout_is_threshold": 4.0},
            "algorithm.rollout_correction.rollout_is_threshold=3.0 disagree",
        ),
        ({"rollout_correction": {"bypass_mode": True}}, {"rollout_is_threshold": 4.0}, "bypass_mode=true disagree"),
        ({}, {"rollout_is_threshold": 4.0, "calculate_log_probs": False}, "write actor_rollout_ref.rollout.calculate"),
        (
            {"adv_estimator": "gdpo"},
            {"token_level_main_reward_mode": "cot_only"},
            "cot_only is for algorithm.adv_estimator=grpo, not for gdpo_classmate",
        ),
        ({"adv_estimator": "gae"}, {"token_level_main_reward_mode": "output_only"}, "not for gae"),
    ],
)
def test_nodes_that_contradict_each_other(algorithm: dict, reward_model: dict, message: str) -> None:
    config, reward = whole(algorithm, **reward_model)
    with pytest.raises(ConfigError) as error:
        check_training(config, reward, algorithm_from_mapping(config["algorithm"]))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("estimator", "model", "message"),
    [
        ("grpo", "prm", "reward_model.process.model: grpo takes no rewards of steps; write null, or algorithm.adv_est"),
        (
            "min_form",
            None,
            "min_form takes rewards of steps, and no model gives any; write reward_model.process.model=",
        ),
    ],
)
def test_rewards_of_steps_need_their_estimator(estimator: str, model: str | None, message: str) -> None:
    reward = from_mapping(reward_options() | {"process": {"model": model}})
    node = {"algorithm": {"rollout_correction": None}, "actor_rollout_ref": {"rollout": {"calculate_log_probs": True}}}
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_training(node, reward, AlgorithmConfig(adv_estimator=estimator))
