"""Reward types and estimators of ours are told where users look for them."""

import re
from pathlib import Path

from verl.classmate.algorithm_config import AlgorithmConfig
from verl.classmate.config import ClassmateCotRewardConfig
from verl.classmate.estimators import OUR_ESTIMATORS
from verl.classmate.reward_types import REWARD_TYPES
from verl.classmate.typed import field_docs

METHOD = (Path(__file__).parents[2] / "docs" / "method.md").read_text()


def test_every_reward_type_and_estimator_is_told() -> None:
    reward_types = field_docs(ClassmateCotRewardConfig)["classmate_reward_type"]
    assert set(REWARD_TYPES) <= set(re.findall(r"\w+", reward_types))
    assert set(OUR_ESTIMATORS) <= set(re.findall(r"\w+", field_docs(AlgorithmConfig)["adv_estimator"]))
    for name in (*REWARD_TYPES, *OUR_ESTIMATORS):
        assert f"`{name}`" in METHOD, name


def test_parts_of_a_reward_type_fit_together() -> None:
    for name, kind in REWARD_TYPES.items():
        assert (kind.shown == "example") == (kind.partner is not None), name
        assert kind.compares_with_question_alone or kind.shown != "segments", "what the first segment is compared with"
        assert not kind.compares_with_question_alone or kind.partner is None, name
