"""Each estimator of ours is a line in the table of the config and a file of its name."""

import importlib
import inspect
import pkgutil

import pytest

from verl.classmate.estimators import OUR_ESTIMATORS
from verl.trainer.ppo import advantage
from verl.trainer.ppo.advantage.compute import OURS, find_estimator


def test_each_name_has_its_file_and_each_file_its_name() -> None:
    files = {}
    for module in pkgutil.iter_modules(advantage.__path__):
        function = getattr(importlib.import_module(f"{advantage.__name__}.{module.name}"), module.name, None)
        if inspect.isfunction(function):
            files[module.name] = function
    assert files == OURS
    assert tuple(OURS) == OUR_ESTIMATORS


def test_a_name_without_a_file_says_what_is_missing() -> None:
    for name in ("max_of_both", "metrics"):
        with pytest.raises(ImportError, match=f"needs a function {name} in verl/trainer/ppo/advantage/{name}.py"):
            find_estimator(name)
