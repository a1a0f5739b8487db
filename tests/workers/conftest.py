"""Classmates of which only the tokenizers exist."""

from pathlib import Path

import pytest

from tests.run_config import save_tokenizers
from tests.workers.scripted_rows import CLASSMATES


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the classmates' tokenizers."""
    return save_tokenizers(tmp_path_factory.mktemp("tokenizers"), CLASSMATES)
