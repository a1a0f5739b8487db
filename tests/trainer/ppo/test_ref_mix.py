"""A reference that follows the policy: its weights on every rank, in time, and after a new start."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from verl.classmate.errors import ConfigError
from verl.trainer.ppo.ref_mix import FOLDER, MovingReference, load, mix, own_shards, store
from verl.workers.inprocess import join_alone


def model(seed: int, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """With a weight that two ranks cannot share evenly, and one that two layers share."""
    torch.manual_seed(seed)
    layers = nn.Sequential(nn.Embedding(7, 3), nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3), nn.Linear(3, 7, bias=False))
    layers[4].weight = layers[0].weight
    return layers.to(dtype)


def sharded(seed: int, mesh: Any, **options: Any) -> nn.Module:
    """As upstream's engine does it: layers first, then the whole."""
    whole = model(seed)
    fully_shard(whole[1], mesh=mesh, **options)
    fully_shard(whole[3], mesh=mesh, **options)
    fully_shard(whole, mesh=mesh, **options)
    return whole


def weights(one: nn.Module) -> dict[str, torch.Tensor]:
    """A copy of the whole weights."""
    named = {name: value.detach() for name, value in one.named_parameters()}
    return {name: (v.full_tensor() if isinstance(v, DTensor) else v).clone() for name, v in named.items()}


class Here:
    """One rank, with these two models."""

    def __init__(self, policy: nn.Module, reference: nn.Module) -> None:
        self.policy, self.reference = policy, reference
        self.actions: list[str] = []

    def __call__(self, action: Any, *arguments: Any) -> None:
        self.actions.append(action.__name__)
        action(self.policy, self.reference, *arguments)


def trainer(folder: Path, step: int, *, enable: bool = True, alpha: float = 1.0, every: int = 2) -> Any:
    node = {"enable": enable, "alpha": alpha, "every": every}
    where = {"default_local_dir": str(folder), "resume_mode": "auto", "resume_from_path": None}
    config = OmegaConf.create({"rcl": {"ref_mix": node}, "trainer": where})
    lines: list[str] = []
    return SimpleNamespace(config=config, global_steps=step, console=SimpleNamespace(line=lines.append), lines=lines)


@pytest.fixture(autouse=True)
def _alone() -> None:
    join_alone("cpu")


@pytest.mark.parametrize("alpha", [0.25, 0.9])
def test_each_weight_is_mixed_by_alpha(alpha: float) -> None:
    policy, reference = model(0), model(1)
    before, target = weights(reference), weights(policy)
    mix(policy, reference, alpha)
    for name, weight in weights(reference).items():
        torch.testing.assert_close(weight, alpha * target[name] + (1 - alpha) * before[name])
    assert all(torch.equal(weight, target[name]) for name, weight in weights(policy).items()), "the policy stays"
    assert all(not one.requires_grad or one.is_leaf for one in reference.parameters())


def test_alpha_one_is_a_copy_in_the_references_dtype() -> None:
    policy, reference = model(0), model(1, torch.bfloat16)
    mix(policy, reference, 1.0)
    target = weights(policy)
    for name, weight in weights(reference).items():
        assert weight.dtype is torch.bfloat16
        assert torch.equal(weight, target[name].bfloat16())


@pytest.mark.parametrize("reshard", [True, False])
def test_the_next_forward_pass_sees_what_was_mixed(reshard: bool) -> None:
    mesh = init_device_mesh("cpu", (1,))
    policy, reference = sharded(0, mesh), sharded(1, mesh, reshard_after_forward=reshard)
    tokens = torch.arange(7)
    with torch.no_grad():
        target, before = policy(tokens).clone(), reference(tokens).clone()
        # The pass has left whole parameters behind.
        mix(policy, reference, 1.0)
        assert torch.equal(reference(tokens), target)
    assert not torch.equal(before, target)


def test_a_policy_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"1\.weight is a shard \(5, 3\), but the policy has a shard \(4, 3\)"):
        mix(nn.Sequential(nn.Embedding(7, 3), nn.Linear(3, 4)), model(0), 0.5)


def test_it_moves_every_so_many_steps_and_is_saved_first(tmp_path: Path) -> None:
    here, run = Here(model(0), model(1)), trainer(tmp_path, 0, every=3)
    reference = MovingReference(run, here)
    moved = []
    for step in range(1, 8):
        run.global_steps, before = step, len(here.actions)
        reference.follow()
        moved += [step] if len(here.actions) > before else []
    assert moved == [3, 6]
    saved = tmp_path / "global_step_7" / FOLDER / "model_world_size_1_rank_0.safetensors"
    reference.saved_before(lambda: here.actions.append(f"upstream, {saved.exists()}"))()
    assert here.actions[-2:] == ["store", "upstream, True"]


def test_a_resumed_run_goes_on_with_the_moved_reference(tmp_path: Path) -> None:
    first = Here(model(0), model(1))
    run = trainer(tmp_path, 0, alpha=0.5)
    reference = MovingReference(run, first)
    run.global_steps = 2
    reference.follow()
    reference.saved_before(lambda: None)()
    again = Here(model(0), model(1))
    MovingReference(trainer(tmp_path, 2, alpha=0.5), again)
    expected = weights(first.reference)
    assert all(torch.equal(weight, expected[name]) for name, weight in weights(again.reference).items())
    assert not torch.equal(weights(again.reference)["1.weight"], weights(model(1))["1.weight"])

    still = trainer(tmp_path, 2, enable=False)
    with pytest.raises(ConfigError, match=r"write rcl\.ref_mix\.enable=true, or remove the folder"):
        MovingReference(still, again)


def test_a_checkpoint_without_one_is_told_of(tmp_path: Path) -> None:
    here, run = Here(model(0), model(1)), trainer(tmp_path, 2)
    before = weights(here.reference)
    MovingReference(run, here)
    assert "has none that moved" in run.lines[0]
    assert all(torch.equal(weight, before[name]) for name, weight in weights(here.reference).items())
    (tmp_path / "global_step_2" / FOLDER).mkdir(parents=True)
    with pytest.raises(FileNotFoundError):
        MovingReference(run, here)


def test_without_the_option_nothing_is_done(tmp_path: Path) -> None:
    here, run = Here(model(0), model(1)), trainer(tmp_path, 4, enable=False)
    reference, saved = MovingReference(run, here), []
    reference.follow()
    reference.saved_before(lambda: saved.append(True))()
    assert here.actions == []
    assert saved == [True]


def _rank(rank: int, folder: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    policy, reference, fresh = sharded(0, mesh), sharded(1, mesh), sharded(2, mesh)
    before, target = weights(reference), weights(policy)
    reference(torch.arange(7))
    mix(policy, reference, 0.75)
    store(policy, reference, f"{folder}/{FOLDER}")
    load(policy, fresh, f"{folder}/{FOLDER}")
    for one in (reference, fresh):
        for name, weight in weights(one).items():
            torch.testing.assert_close(weight, 0.75 * target[name] + 0.25 * before[name])
    assert own_shards(reference)["1.weight"].shape == ((3, 3) if rank == 0 else (2, 3))
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_ranks_mix_save_and_load_their_own_shards(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(_rank, (str(tmp_path),), nprocs=2)
    names = sorted(path.name for path in (tmp_path / FOLDER).iterdir())
    assert names == [f"model_world_size_2_rank_{rank}.safetensors" for rank in (0, 1)]
