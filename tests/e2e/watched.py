"""A teacher's run in the process of the test, which sees what is sent to each model, and the weights behind it.

One decision: it is the run of `debug=true` from its command line on; only the trainer, and if wanted the client that
asks the students, are subclasses that note what passes through them.

    >>> run = watched([*make_teacher_world(tmp_path), f"trainer.default_local_dir={tmp_path / 'run'}"])
    >>> run.steps[0].rows[0]["prompts"], run.asked_students[0]
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch

from verl.trainer.ppo import inprocess_trainer
from verl.trainer.run import launch
from verl.trainer.run.command_line import compose, prepare_overrides
from verl.workers.inprocess import InProcessClient

Weights = dict[str, torch.Tensor]


@dataclass(kw_only=True)
class Step:
    """The rows of a training step."""

    weights: Weights
    """Those that the teacher is trained to before it writes them."""
    rows: list[dict[str, Any]]
    """As they go to the update."""


@dataclass(kw_only=True)
class Watched:
    """What was seen of a run."""

    steps: list[Step] = field(default_factory=list)
    asked_teacher: list[list[int]] = field(default_factory=list)
    """Token ids of each request to the teacher's engine."""
    asked_students: list[list[int]] = field(default_factory=list)
    """Likewise to the students' engines."""
    students: list[dict[str, str]] = field(default_factory=list)
    """Hash of the weights in each student's engine, by its name: before training, and after it."""


def watched(overrides: list[str], *, client: type[InProcessClient] = InProcessClient) -> Watched:
    """Trains to the end; leaves the process's environment as it was.

    Args:
        overrides: of the command line, with the run's folder.
        client: asks the students.
    """
    run, environment = Watched(), dict(os.environ)
    arguments = prepare_overrides(["hardware=cpu", "debug=true", "trainer.console=plain", *overrides])
    config = compose("rcl_trainer", arguments)
    assert config is not None
    try:
        with (
            mock.patch.object(inprocess_trainer, "InProcessTrainer", _watching(run)),
            mock.patch.object(inprocess_trainer, "InProcessClient", client),
        ):
            launch.run(config, "classmate_cot")
    finally:
        os.environ.clear()
        os.environ.update(environment)
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    return run


def _watching(run: Watched) -> type[inprocess_trainer.InProcessTrainer]:
    class Watching(inprocess_trainer.InProcessTrainer):
        """Notes what passes through it."""

        def _load_models(self) -> None:
            super()._load_models()
            _note(self.server, run.asked_teacher)
            for server in self.classmate_servers.values():
                _note(server, run.asked_students)
            run.students.append(_hashes(self.classmate_servers))

        def _answer(self, prompts: Any, *, validate: bool) -> list[dict[str, Any]]:
            weights, _ = self.actor_rollout_wg.actor.engine.get_per_tensor_param()
            trained = {name: tensor.detach().clone() for name, tensor in weights}
            rows = super()._answer(prompts, validate=validate)
            if not validate:
                run.steps.append(Step(weights=trained, rows=rows))
            return rows

        def fit(self, agent_loop_manager: Any = None) -> None:
            super().fit(agent_loop_manager)
            run.students.append(_hashes(self.classmate_servers))

    return Watching


def _note(server: Any, asked: list[list[int]]) -> None:
    generate = server.generate

    async def noted(*args: Any, **kwargs: Any) -> Any:
        asked.append([int(token) for token in kwargs["prompt_ids"]])
        return await generate(*args, **kwargs)

    server.generate = noted


def _hashes(servers: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name, server in servers.items():
        digest = hashlib.sha256()
        for key, tensor in sorted(server.engine.model.state_dict().items()):
            digest.update(key.encode() + tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes())
        found[name] = digest.hexdigest()
    return found
