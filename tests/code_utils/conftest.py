"""One service for all tests that need no settings of their own."""

from collections.abc import Iterator

import pytest

from tests.code_utils.services import service
from verl.code_utils.sandbox import SandboxSettings


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    with service(SandboxSettings(concurrency=4, memory_mb=256)) as address:
        yield address
