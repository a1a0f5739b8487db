"""What several files need: classmates of which only the tokenizers exist, and Ray."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from tests.run_config import save_tokenizers
from tests.workers.scripted_rows import CLASSMATES


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the classmates' tokenizers."""
    return save_tokenizers(tmp_path_factory.mktemp("tokenizers"), CLASSMATES)


@pytest.fixture(scope="module")
def _ray() -> Iterator[None]:
    """Ray, for the tests of one file."""
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()
