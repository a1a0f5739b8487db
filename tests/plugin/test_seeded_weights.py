"""What a checkpoint lacks is drawn from the engine's seed: in each process the same, with another seed another."""

from types import SimpleNamespace

import pytest
import torch

from verl.workers.engine.fsdp.transformer_impl import FSDPEngine


class Built(Exception):
    """Upstream has begun to build the model."""


def first_draw(monkeypatch: pytest.MonkeyPatch, seed: int | None) -> float:
    """What upstream would draw first for a new weight."""
    drawn: list[float] = []

    def build(engine: FSDPEngine) -> None:
        drawn.append(torch.rand(()).item())
        raise Built

    monkeypatch.setattr(FSDPEngine, "_build_model_optimizer", build)
    engine = object.__new__(FSDPEngine)
    engine.engine_config = SimpleNamespace(seed=seed)
    torch.seed()
    with pytest.raises(Built):
        engine.initialize()
    return drawn[0]


@pytest.mark.parametrize("seed", [0, 7, None])
def test_a_seed_gives_the_same_weights_each_time(monkeypatch: pytest.MonkeyPatch, seed: int | None) -> None:
    assert first_draw(monkeypatch, seed) == first_draw(monkeypatch, seed)


def test_another_seed_gives_other_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_draw(monkeypatch, 1) != first_draw(monkeypatch, 2)
