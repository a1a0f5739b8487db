"""Upstream's vLLM server as the engine of a classmate or judge: its requests have limits, and it answers pings.

One decision: a ping goes through to the process that computes, since that one can stand still while the server lives.

    >>> replica = ClassmateVllmReplica(replica_rank=0, config=rollout, model_config=model, is_reward_model=True)
    >>> await replica.init_colocated(pool)
    >>> await replica.server_handle.set_patience.remote(600.0)
    >>> await replica.server_handle.ping.remote()
    0
"""

from typing import Any

import ray

from verl.workers.engine_health import CONCURRENT_CALLS, Patience
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica


class ClassmateVllmServer(vLLMHttpServer):
    """Runs in a Ray actor."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As upstream."""
        super().__init__(*args, **kwargs)
        self._patience = Patience()

    async def set_patience(self, seconds: float) -> None:
        """Longest time of a request; upstream's replica makes the server and has no place to say it."""
        self._patience.seconds = seconds

    async def generate(self, *args: Any, **kwargs: Any) -> Any:
        """As upstream; a request whose time is over is aborted.

        Raises:
            TimeoutError: it is over.
        """
        return await self._patience.wait(super().generate(*args, **kwargs))

    async def ping(self) -> int:
        """Returns, when the process that computes has answered, how many requests in a row ran out of time."""
        await self.engine.is_sleeping()
        return self._patience.unanswered


class ClassmateVllmReplica(vLLMReplica):
    """Starts such servers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As upstream."""
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(ClassmateVllmServer)

    @property
    def max_concurrency(self) -> int:
        """Calls that a server takes at a time."""
        return CONCURRENT_CALLS
