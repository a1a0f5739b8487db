"""Options of the node `rcl.reward`: defaults, presets, and what is refused."""

import dataclasses
import math

import pytest
import yaml

from tests.classmate.test_bounds import bounded, numbers
from verl.classmate.errors import ConfigError
from verl.classmate.typed import field_docs, parse, render_yaml
from verl.teaching.reward_config import TEACHING_REWARD_NODE, LeakConfig, RltConfig, TeachingRewardConfig


def read(**values: object) -> TeachingRewardConfig:
    return parse(TeachingRewardConfig, values, TEACHING_REWARD_NODE)


def test_the_defaults_are_the_readmes() -> None:
    config = read()
    shape = config.shape
    assert (shape.degradation_penalty, shape.efficiency_weight, shape.keep_coef) == (2.0, 1.0, 0.0)
    assert (config.efficiency_tau, config.format_penalty, config.leak_penalty) == (100.0, 0.5, 0.0)
    assert (config.r_min, config.r_max, config.gate, config.gate_length_coef) == (-2.0, 2.0, "outcome", 0.1)
    assert (config.kind, config.preset, config.leak.mode) == ("rcl", "rcl_readme", "report")
    rlt = config.rlt
    assert (rlt.weights.answer_log_prob_coeff, rlt.weights.kl_penalty_reward_coeff) == ((1.0, 0.01), (3.0, 0.03))
    assert (rlt.reduction_log_prob_fn, rlt.reduction_kl_fn) == (("mean", "min"), ("mean", "max"))
    assert (rlt.clip_log_prob, rlt.clip_kl, rlt.not_matched_penalty, rlt.r_min, rlt.r_max) == (1e5, 1e5, -1, -20, 5)
    assert (rlt.use_schulman_kl_estimation, rlt.include_teacher_think_entropy) == (False, True)
    assert (rlt.unbias_teacher_log_probs, rlt.unbias_student_log_probs_temp) == (True, 0.7)


@pytest.mark.parametrize(
    ("preset", "shape"),
    [
        ("rcl_readme", (2.0, 1.0, 0.0)),
        ("rcl", (2.0, 1.0, 0.5)),
        ("released", (0.0, 1.0, 0.5)),
        ("online", (1.0, 1.0, 0.0)),
    ],
)
def test_presets(preset: str, shape: tuple[float, ...]) -> None:
    found = read(preset=preset).shape
    assert (found.degradation_penalty, found.efficiency_weight, found.keep_coef) == shape
    assert (found.brevity_of == "answer") == (preset == "online")


def test_what_is_typed_replaces_the_presets_number() -> None:
    assert read(preset="rcl", degradation_penalty=0).shape.degradation_penalty == 0.0
    assert read(preset="rcl", degradation_penalty=0).shape.keep_coef == 0.5
    assert read(preset="released", keep_coef=0.0).shape.keep_coef == 0.0
    weights = read(rlt={"preset": "rlt_class_defaults", "kl_penalty_reward_coeff": [1, 2]}).rlt.weights
    assert (weights.answer_log_prob_coeff, weights.kl_penalty_reward_coeff) == ((5.0, 0.05), (1.0, 2.0))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"r_min": 2, "r_max": 2}, "rcl.reward.r_min and r_max: 2 is not below 2; write -2 and 2"),
        ({"rlt": {"r_min": 9}}, "rcl.reward.rlt.r_min and r_max: 9 is not below 5; write -20 and 5"),
        ({"kind": "rlt", "keep_coef": 0.5}, "rcl.reward.keep_coef: kind=rlt has no such term; write null, or kind=rcl"),
        ({"preset": "online", "keep_coef": 1}, "preset=online pays for kept answers by what they save; write null"),
        ({"leak": {"mode": "penalize"}}, "which is 0; write leak_penalty=0.5"),
        ({"leak_penalty": 0.5}, "leak.mode=report does not take it off; write leak.mode=penalize, or zero_gain"),
        ({"kind": "rlt", "leak": {"mode": "zero_gain"}}, "kind=rlt only reports leaks"),
        ({"rlt": {"reduction_kl_fn": ["mean"]}}, "2 weights for 1 entries of reduction_kl_fn; write one weight per"),
        ({"rlt": {"reduction_kl_fn": [], "kl_penalty_reward_coeff": []}}, "0 weights for 0 entries"),
        ({"rlt": {"reduction_kl_fn": ["mode", "max"]}}, "write one of: mean, sum, min, max, median, q25, q75"),
        ({"rlt": {"not_matched_penalty": 1}}, "would pay for an explanation that is not closed; write -1"),
        ({"preset": "readme"}, "write one of: rcl_readme, rcl, released, online"),
        ({"degradation_penalty_multiplier": 2}, "unknown key; did you mean degradation_penalty?"),
    ],
)
def test_what_is_refused_says_what_to_write(values: dict, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(**values)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


BOUNDED = bounded(TeachingRewardConfig)


@pytest.mark.parametrize(("path", "field"), BOUNDED, ids=[".".join(path) for path, _ in BOUNDED])
def test_bounds_are_kept(path: tuple[str, ...], field: dataclasses.Field) -> None:
    outside = field.metadata["at_least"] - 1 if "at_least" in field.metadata else field.metadata["above"]
    with pytest.raises(ConfigError, match="; write ") as error:
        read(**with_value(path, outside))
    assert str(error.value).startswith(f"rcl.reward.{'.'.join(path)}: ")


def with_value(path: tuple[str, ...], value: object) -> dict:
    for name in reversed(path):
        value = {name: value}
    return value  # type: ignore[return-value]


@pytest.mark.parametrize("path", numbers(TeachingRewardConfig), ids=".".join)
def test_each_number_is_finite(path: tuple[str, ...]) -> None:
    value = [math.nan, 1] if path[-1].endswith("_coeff") else math.nan
    with pytest.raises(ConfigError, match="write a finite number"):
        read(**with_value(path, value))


def test_the_yaml_of_the_defaults_is_read_back() -> None:
    assert read(**yaml.safe_load(render_yaml(TeachingRewardConfig))) == TeachingRewardConfig()
    for cls in (TeachingRewardConfig, RltConfig, LeakConfig):
        assert set(field_docs(cls)) == {field.name for field in dataclasses.fields(cls)}


def test_alignment_follows_the_vocabularies() -> None:
    assert RltConfig().alignment(same_vocabulary=True) == "token"
    assert RltConfig().alignment(same_vocabulary=False) == "span"
    assert RltConfig(kl_alignment="mean_per_char").alignment(same_vocabulary=True) == "mean_per_char"
    with pytest.raises(ConfigError, match=r"kl_alignment: token needs .* write auto$"):
        RltConfig(kl_alignment="token").alignment(same_vocabulary=False)


def test_temperatures_of_the_scorers() -> None:
    assert RltConfig().temperatures(1.0, any_temperature=False) == (1.0, 1.0)
    assert RltConfig().temperatures(0.9, any_temperature=True) == (0.9, 0.7)
    assert RltConfig(unbias_teacher_log_probs=False).temperatures(0.9, any_temperature=True) == (1.0, 0.7)
    with pytest.raises(
        ConfigError, match=r"temperature=0\.9 biases .* write actor_rollout_ref\.rollout\.temperature=1"
    ):
        RltConfig().temperatures(0.9, any_temperature=False)
