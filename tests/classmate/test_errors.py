"""Errors cross process borders with their message."""

import pickle

import pytest

from verl.classmate import errors


@pytest.mark.parametrize("name", [name for name in vars(errors) if isinstance(getattr(errors, name), type)])
def test_picklable(name: str) -> None:
    error = pickle.loads(pickle.dumps(getattr(errors, name)("write this instead")))
    assert type(error) is getattr(errors, name)
    assert str(error) == "write this instead"
