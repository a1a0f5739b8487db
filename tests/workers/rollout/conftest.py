"""Engines "hf" on a real model with random weights."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.tiny import make_tiny_world
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig, HFEngine


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_world(tmp_path_factory.mktemp("world")).model


@pytest.fixture(scope="module")
def engine(model_path: Path) -> Iterator[HFEngine]:
    engine = HFEngine.from_config(EngineConfig(model_path=str(model_path), batch_wait_s=0.05))
    yield engine
    engine.close()


@pytest.fixture
def quick(model_path: Path) -> Iterator[HFEngine]:
    """An engine that does not wait long for company."""
    engine = HFEngine.from_config(EngineConfig(model_path=str(model_path), batch_wait_s=0.01))
    yield engine
    engine.close()
