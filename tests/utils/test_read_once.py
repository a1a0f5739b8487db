import pickle

import pytest
from omegaconf import OmegaConf

from verl.utils.read_once import ReadOnce


def config():
    return OmegaConf.create({"limit": 7, "rollout": {"length": "${limit}", "names": ["a"], "none": None}})


def test_values_are_those_of_the_config_and_looked_up_once():
    given = config()
    read = ReadOnce(given)
    assert (read.limit, read.rollout.length, list(read.rollout.names), read.rollout.none) == (7, 7, ["a"], None)
    given.rollout.none = 1
    given.limit = 8
    assert (read.limit, read.rollout.length, read.rollout.none) == (7, 7, None)


def test_a_key_that_is_not_there_is_no_attribute():
    given = config()
    OmegaConf.set_struct(given, True)
    assert getattr(ReadOnce(given).rollout, "determinism", False) is False
    with pytest.raises(AttributeError, match="determinism"):
        _ = ReadOnce(given).determinism


def test_it_travels_to_other_processes():
    read = ReadOnce(config())
    assert read.rollout.length == 7
    there = pickle.loads(pickle.dumps(read))
    assert (there.rollout.length, there.limit) == (7, 7)
