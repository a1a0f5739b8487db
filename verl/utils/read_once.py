"""A config of which each value is looked up once.

Decision: OmegaConf checks, and parses what stands for another key, at every access, 20 to 70 microseconds; upstream's
agent loop and client read seven keys a row. Only where nothing writes to the config meanwhile.

    >>> rollout = ReadOnce(config.actor_rollout_ref.rollout)
    >>> rollout.prompt_length                                     # the second time from the object's own dict
    256
"""

from typing import Any

from omegaconf import DictConfig


class ReadOnce:
    """`config`, read by attribute only; nodes below it are wrapped as well.

    Raises:
        AttributeError: the config lacks the key.
    """

    def __init__(self, config: DictConfig) -> None:
        self._config = config

    def __getattr__(self, name: str) -> Any:
        """Called for what is not in the object's own dict yet."""
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self._config, name)
        self.__dict__[name] = value = ReadOnce(value) if isinstance(value, DictConfig) else value
        return value
