"""The client of a rollout with one engine: there is nobody to choose between, so nobody is asked.

Decision: upstream's client asks a balancer before and tells it after each request, which are two more messages a row.
With one engine the answer is always the same.

    >>> client = llm_server_manager.get_client(OneServerClient)
"""

from typing import Any

import ray
from omegaconf import DictConfig

from verl.utils.read_once import ReadOnce
from verl.workers.rollout.llm_server import LLMServerClient, LLMServerManager


class OneServerClient(LLMServerClient):
    """Upstream's client, which asks the balancer once, and looks up once what it reads of the config."""

    def __init__(self, config: DictConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self.config: Any = ReadOnce(config)

    _server: tuple[str, ray.actor.ActorHandle] | None = None

    async def _acquire_server(self, request_id: str, **extra: Any) -> tuple[str, ray.actor.ActorHandle]:
        if self._server is None:
            self._server = await super()._acquire_server(request_id, **extra)
        return self._server

    def _release_server(self, server_id: str, request_id: str | None = None) -> None:
        """Nobody counts."""


def client_of(servers: LLMServerManager) -> LLMServerClient:
    """Upstream's client of the policy's engines, ours where there is one."""
    return servers.get_client(OneServerClient if len(servers.get_replicas()) == 1 else None)
