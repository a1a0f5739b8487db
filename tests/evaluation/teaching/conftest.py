"""Ray, for tests with engines of their own."""

from tests.workers.conftest import _ray

__all__ = ["_ray"]
