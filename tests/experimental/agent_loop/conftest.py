"""A run's config, with classmates of which only the tokenizers exist."""

from pathlib import Path

import pytest
from omegaconf import DictConfig

from tests.experimental.agent_loop.scripted_loop import CLASSMATES, composed
from tests.run_config import save_tokenizers


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the classmates' tokenizers."""
    return save_tokenizers(tmp_path_factory.mktemp("tokenizers"), CLASSMATES)


@pytest.fixture(scope="module")
def config(models: Path) -> DictConfig:
    return composed(models)
