"""Engines that run as Ray actors: a group of them with a client, what they read of a config, and their processes.

>>> running = Running(group=create_classmate_workers(cpu_config(), reward), reward=reward, events=[])
>>> running.kill(0)
>>> running.ask(0)[0].outcome
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil
import ray
from omegaconf import DictConfig, OmegaConf

from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.classmate.frozen import frozen_classmates
from verl.workers.classmate_workers import ClassmateClient, ClassmateGroup, ClassmateWorker
from verl.workers.classmates.placement import actor_name

PROMPT = [7, 8, 9, 10]
NEW_TOKENS = 8


def process_of(name: str) -> psutil.Process:
    """The operating system's process of an actor."""
    return psutil.Process(ray.get(ray.get_actor(name).__ray_call__.remote(lambda _: os.getpid())))


def kill(name: str) -> None:
    """`kill -9` of an actor's process."""
    process = process_of(name)
    process.kill()
    process.wait()


@dataclass(frozen=True, kw_only=True)
class Running:
    """A group and a client of it."""

    group: ClassmateGroup
    """Its engines serve."""
    reward: ClassmateRewardModelConfig
    """The group's config."""
    events: list[str]
    """What the group told a person."""

    def ask(self, classmate: int = 0, *, prompt: list[int] = PROMPT, seeds: tuple[int, ...] = (1,), **how: Any) -> Any:
        """Replies of one classmate, from a client that knows nothing but the config."""
        client = ClassmateClient(self.reward, max_model_len=self.group.max_model_len)
        return asyncio.run(client.sample(classmate, prompt, seeds=seeds, **({"validate": False} | how)))

    def process(self, classmate: int = 0, replica: int = 0) -> psutil.Process:
        """The operating system's process of an engine."""
        return process_of(actor_name(frozen_classmates(self.reward)[classmate], replica))

    def kill(self, classmate: int = 0, replica: int = 0) -> None:
        """`kill -9` of an engine's process."""
        kill(actor_name(frozen_classmates(self.reward)[classmate], replica))

    def stop(self, classmate: int = 0, replica: int = 0) -> psutil.Process:
        """Lets an engine's process stand still, alive."""
        process = self.process(classmate, replica)
        process.send_signal(signal.SIGSTOP)
        return process

    def hang(self, classmate: int = 0, *, seconds: float = 10_000, times: int | None = None) -> None:
        """Lets what computes in an engine stand still, at all next forwards or so many, while it answers pings."""
        actor = ray.get_actor(actor_name(frozen_classmates(self.reward)[classmate]))

        def hang(self: ClassmateWorker) -> None:
            forward, left = self.engine.model.forward, [times]

            def slow(*args: Any, **kwargs: Any) -> Any:
                if left[0] is None or left[0] > 0:
                    left[0] = None if left[0] is None else left[0] - 1
                    time.sleep(seconds)
                return forward(*args, **kwargs)

            self.engine.model.forward = slow  # type: ignore[method-assign]

        ray.get(actor.__ray_call__.remote(hang))


Start = Callable[..., Running]


def reward_config(models: list[str], **reward_model: Any) -> ClassmateRewardModelConfig:
    return from_mapping(
        {
            "classmate_backend": "hf",
            "classmate_cot_reward_configs": {"classmate_model_name_or_path_list": models},
            "classmate_generation_configs": {"max_new_tokens": NEW_TOKENS, "temperature": 1.0, "top_p": 1.0},
            **reward_model,
        }
    )


def cpu_config(*, max_response_length: int = 16) -> DictConfig:
    """What engines on the CPU read of a run's config."""
    return OmegaConf.create(
        {
            "data": {"max_prompt_length": 32, "max_response_length": max_response_length},
            "trainer": {"deterministic": False, "device": "cpu"},
        }
    )
