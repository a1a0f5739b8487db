"""The reference of the KL loss follows the policy: reference = alpha policy + (1 - alpha) reference, every some steps.

Decision: policy and reference are in the same process on every rank, and cut into the same shards, so each rank mixes
its own in place and nothing is sent. It is done right after the update, so a checkpoint holds what the next step uses.

    >>> reference = MovingReference(trainer, RanksOnRay(trainer.actor_rollout_wg))      # loaded, where a run resumes
    >>> reference.follow()                                                             # after each update
    >>> save_and_prune(reference.saved_before(save), ...)
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from verl.classmate.errors import ConfigError
from verl.stepwise.config import NODE, this_reasoning
from verl.teaching.config import RefMixConfig, this_teaching
from verl.trainer.run.checkpoints import checkpoint_to_resume

FOLDER = "reference"
"""Of a checkpoint `global_step_N`: the shards of a reference that has moved."""

Action = Callable[..., None]
"""What a rank does with its policy and its reference, and further arguments."""


class RanksOnRay:
    """The ranks of a worker group whose processes have both models."""

    def __init__(self, group: Any) -> None:
        """`group` is upstream's, of the role `actor_rollout_ref`."""
        self._group = group

    def __call__(self, action: Action, *arguments: Any) -> None:
        """Every rank takes the action; returns when all have."""
        # The group's own method of this name splits batches, and wants one back.
        self._group.execute_all_sync("execute_with_func_generator", _in_worker, action, *arguments)


class RankHere:
    """The one rank of a run in this process, where the two models have workers of their own."""

    def __init__(self, policy: Any, reference: Any) -> None:
        """Workers of the roles `actor` and `ref`; without a reference None."""
        self._policy, self._reference = policy, reference

    def __call__(self, action: Action, *arguments: Any) -> None:
        """Takes the action."""
        action(self._policy.actor.engine.module, self._reference.ref.engine.module, *arguments)


class MovingReference:
    """The reference of a run; it stays where it is unless `rcl.ref_mix` or `reasoning.ref_sync_every` says so."""

    def __init__(self, trainer: Any, on_ranks: Callable[..., None]) -> None:
        """Loads the reference of the checkpoint from which the run resumes.

        Args:
            trainer: whose config, `global_steps` and `console` are used; its checkpoint is loaded.
            on_ranks: `RanksOnRay` or `RankHere`.

        Raises:
            ConfigError: the checkpoint's reference has moved, and this run's shall not.
        """
        teaching, every = this_teaching(trainer.config), this_reasoning(trainer.config).ref_sync_every
        self._mix: RefMixConfig | None = None
        if teaching is not None and teaching.ref_mix.enable:
            self._mix = teaching.ref_mix
        elif every:
            self._mix = RefMixConfig(enable=True, alpha=1.0, every=every)
        self._trainer = trainer
        self._on_ranks = on_ranks
        if trainer.global_steps:
            self._load(checkpoint_to_resume(trainer.config.trainer) or self._checkpoint)

    @property
    def _checkpoint(self) -> Path:
        trainer = self._trainer
        # Absolute: workers have a working folder of their own.
        return Path(trainer.config.trainer.default_local_dir).absolute() / f"global_step_{trainer.global_steps}"

    def _load(self, checkpoint: Path) -> None:
        folder = checkpoint / FOLDER
        if self._mix is None:
            if folder.is_dir():
                teaches = this_teaching(self._trainer.config) is not None
                write = "rcl.ref_mix.enable=true" if teaches else f"{NODE}.ref_sync_every=N"
                raise ConfigError(
                    f"{folder} is a reference that followed its policy; write {write}, or remove the folder to compare "
                    "with actor_rollout_ref.model.path again"
                )
        elif folder.is_dir():
            self._on_ranks(load, str(folder))
        else:
            self._trainer.console.line(f"reference    {checkpoint} has none that moved: it starts as the model's files")

    def follow(self) -> None:
        """After an update: mixes the policy in, if this is a step for it."""
        if self._mix is not None and self._trainer.global_steps % self._mix.every == 0:
            self._on_ranks(mix, self._mix.alpha)

    def saved_before(self, save: Callable[[], None]) -> Callable[[], None]:
        """A save that puts the reference into its checkpoint first: what `save` ends with makes the whole one known."""

        def both() -> None:
            if self._mix is not None:
                self._on_ranks(store, str(self._checkpoint / FOLDER))
            save()

        return both


def _in_worker(process: Any, action: Action, *arguments: Any) -> None:
    """Takes the action in a process of Ray's, which has a dictionary of workers, or is one."""
    workers = getattr(process, "worker_dict", {"": process}).values()
    worker = next(one for one in workers if getattr(one, "ref", None) is not None)
    action(worker.actor.engine.module, worker.ref.engine.module, *arguments)


def own_shards(model: nn.Module) -> dict[str, torch.Tensor]:
    """This rank's part of each parameter by its name: the memory that the model itself uses, wherever that is."""
    for module in model.modules():
        # The last pass may have left whole parameters behind; what is written to those would be lost.
        if isinstance(module, FSDPModule):
            module.reshard()
    with torch.no_grad():
        named = {name: parameter.detach() for name, parameter in model.named_parameters()}
        return {name: one.to_local() if isinstance(one, DTensor) else one for name, one in named.items()}


@torch.no_grad()
def mix(policy: nn.Module, reference: nn.Module, alpha: float) -> None:
    """reference = alpha policy + (1 - alpha) reference, in place: in float32, kept in the reference's dtype."""
    weights, moved = own_shards(policy), own_shards(reference)
    _check_same(moved, weights, "the policy")
    for name, shard in moved.items():
        target = weights[name].to(shard.device, torch.float32)
        shard.copy_(shard.to(torch.float32).lerp(target, alpha))


def store(policy: nn.Module, reference: nn.Module, folder: str) -> None:
    """Writes this rank's part of the reference."""
    os.makedirs(folder, exist_ok=True)
    save_file({name: shard.cpu().contiguous() for name, shard in own_shards(reference).items()}, _file(folder))


@torch.no_grad()
def load(policy: nn.Module, reference: nn.Module, folder: str) -> None:
    """Reads this rank's part of the reference.

    Raises:
        ValueError: it is that of another model, or of another number of ranks.
    """
    saved, shards = load_file(_file(folder)), own_shards(reference)
    _check_same(shards, saved, folder)
    for name, shard in shards.items():
        shard.copy_(saved[name])


def _file(folder: str) -> str:
    # As upstream calls the shards of a policy.
    ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    return os.path.join(folder, f"model_world_size_{ranks}_rank_{rank}.safetensors")


def _check_same(reference: dict[str, torch.Tensor], other: dict[str, torch.Tensor], what: str) -> None:
    for name, shard in reference.items():
        if name not in other or other[name].shape != shard.shape:
            found = "no such shard" if name not in other else f"a shard {tuple(other[name].shape)}"
            raise ValueError(f"reference: {name} is a shard {tuple(shard.shape)}, but {what} has {found}")
