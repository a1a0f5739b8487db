"""The world that all end-to-end tests share."""

import os
from pathlib import Path

import pytest

from tests.e2e.world import World, build_world


@pytest.fixture(scope="session")
def world(pytestconfig: pytest.Config) -> World:
    """Built once and kept in pytest's cache; or the built one that CLASSMATE_COT_TEST_WORLD names."""
    named = os.environ.get("CLASSMATE_COT_TEST_WORLD")
    return World(folder=Path(named)) if named else build_world(pytestconfig.cache.mkdir("embedded_world") / "world")
