"""The world that all end-to-end tests share."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.world import World, build_world


@pytest.fixture(scope="session")
def world(pytestconfig: pytest.Config) -> World:
    """Built once and kept in pytest's cache; or the built one that CLASSMATE_COT_TEST_WORLD names."""
    named = os.environ.get("CLASSMATE_COT_TEST_WORLD")
    return World(folder=Path(named)) if named else build_world(pytestconfig.cache.mkdir("embedded_world") / "world")


@pytest.fixture(scope="session")
def sample_data() -> Callable[[str], Path]:
    """The path of a real sample beside this checkout; skips the test that asks for one which is not there."""

    def find(name: str) -> Path:
        path = Path(__file__).resolve().parents[2] / "shared" / "data" / name
        if not path.exists():
            pytest.skip(f"sample data {name} is not in ../shared/data, beside this checkout")
        return path

    return find
