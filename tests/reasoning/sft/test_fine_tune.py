"""Fine-tuning: it learns, both trainers learn the same, and a run that was killed goes on where it was."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.reasoning.sums import Sums, make_sums
from verl.classmate.errors import ConfigError
from verl.reasoning.sft.fine_tune import fine_tune, told_of
from verl.reasoning.sft.settings import FineTuneSettings
from verl.reasoning.sft.with_transformers import epochs_of

KILLED = """
import os, signal, sys, json
from transformers import TrainerCallback, Trainer
from pathlib import Path
from verl.reasoning.sft import fine_tune, with_transformers
from verl.reasoning.sft.settings import FineTuneSettings

class Killed(TrainerCallback):
    def on_step_end(self, args, state, control, **more):
        if state.global_step == 5:
            os.kill(os.getpid(), signal.SIGKILL)

made = with_transformers._trainer
def made_killed(*args):
    trainer = made(*args)
    trainer.add_callback(Killed)
    return trainer
with_transformers._trainer = made_killed
model, pairs, folder, settings = json.loads(sys.argv[1])
fine_tune.fine_tune(model, [tuple(pair) for pair in pairs], folder, FineTuneSettings(**settings))
"""


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Sums:
    return make_sums(tmp_path_factory.mktemp("sums"))


def settings(**more: Any) -> FineTuneSettings:
    usual: dict[str, Any] = {
        "backend": "transformers",
        "device": "cpu",
        "batch_size": 12,
        "micro_batch_size": 12,
        "learning_rate": 1e-2,
        "max_length": 64,
    }
    return FineTuneSettings(**{**usual, **more})


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def same_weights(one: Path, other: Path) -> bool:
    first, second = weights(one), weights(other)
    return all(torch.equal(first[name], second[name]) for name in first)


def test_it_learns_and_leaves_a_models_folder(sums: Sums, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = fine_tune(sums.model, sums.pairs, tmp_path / "tuned", settings(epochs=6))
    told = told_of(folder)
    assert told["rows"] == 36
    assert told["steps"] == 18
    assert told["losses"][-1] < 0.7 * told["losses"][0]
    assert not same_weights(folder, sums.model)
    assert AutoTokenizer.from_pretrained(folder).chat_template


def test_the_same_call_again_trains_nothing(sums: Sums, tmp_path: Path) -> None:
    folder = fine_tune(sums.model, sums.pairs, tmp_path / "tuned", settings(epochs=1))
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert fine_tune(sums.model, sums.pairs, tmp_path / "tuned", settings(epochs=1)) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match="other learning_rate"):
        fine_tune(sums.model, sums.pairs, folder, settings(epochs=1, learning_rate=1e-3))


def test_other_weights_under_the_same_name_are_noticed(tmp_path: Path) -> None:
    sums = make_sums(tmp_path, most=3)
    fine_tune(sums.model, sums.pairs, tmp_path / "tuned", settings(epochs=1))
    make_sums(tmp_path, seed=1)
    with pytest.raises(ConfigError, match="other model"):
        fine_tune(sums.model, sums.pairs, tmp_path / "tuned", settings(epochs=1))


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_weights(sums: Sums, tmp_path: Path) -> None:
    how = {"backend": "transformers", "device": "cpu", "batch_size": 12, "learning_rate": 1e-2, "max_length": 64}
    how |= {"epochs": 3, "save_every": 2, "micro_batch_size": 4}
    told = json.dumps([str(sums.model), sums.pairs, str(tmp_path / "killed"), how])
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", KILLED, told], env=environment, capture_output=True, timeout=170)
    assert done.returncode == -9
    assert (tmp_path / "killed/checkpoints/checkpoint-4").is_dir()
    assert not told_of(tmp_path / "killed")
    resumed = fine_tune(sums.model, sums.pairs, tmp_path / "killed", FineTuneSettings(**how))  # type: ignore[arg-type]
    straight = fine_tune(sums.model, sums.pairs, tmp_path / "straight", FineTuneSettings(**how))  # type: ignore[arg-type]
    assert same_weights(resumed, straight)
    assert len(told_of(resumed)["losses"]) == 9


@pytest.mark.parametrize("more", [{"precision": "bf16"}, {"gradient_checkpointing": True}], ids=str)
def test_memory_options_learn_as_well(sums: Sums, tmp_path: Path, more: dict[str, Any]) -> None:
    told = told_of(fine_tune(sums.model, sums.pairs, tmp_path / "tuned", settings(epochs=1, **more)))
    plain = told_of(fine_tune(sums.model, sums.pairs, tmp_path / "plain", settings(epochs=1)))
    assert told["losses"] == pytest.approx(plain["losses"], rel=2e-2)


def test_small_batches_add_up_to_the_same_step(sums: Sums, tmp_path: Path) -> None:
    whole = told_of(fine_tune(sums.model, sums.pairs, tmp_path / "whole", settings(epochs=1)))
    parts = told_of(fine_tune(sums.model, sums.pairs, tmp_path / "parts", settings(epochs=1, micro_batch_size=3)))
    assert parts["losses"] == pytest.approx(whole["losses"], rel=1e-5)


@pytest.mark.slow
def test_both_trainers_have_the_same_losses(sums: Sums, tmp_path: Path) -> None:
    """Each step holds all rows, so that their order is no difference."""
    told = {
        backend: told_of(
            fine_tune(
                sums.model,
                sums.pairs,
                tmp_path / backend,
                settings(backend=backend, batch_size=36, epochs=3, tokens_at_once=256),
            )
        )
        for backend in ("transformers", "verl")
    }
    assert told["verl"]["steps"] == 3
    assert told["verl"]["losses"] == pytest.approx(told["transformers"]["losses"], rel=1e-5)
    one, other = weights(tmp_path / "verl"), weights(tmp_path / "transformers")
    # verl saves a whole model in bf16.
    assert all(torch.allclose(one[name].float(), other[name].float(), rtol=1e-2, atol=5e-3) for name in one)


def test_every_epoch_shows_each_row_once_in_its_own_order() -> None:
    order = epochs_of(10, batch=5, epochs=2, seed=0)
    assert sorted(order[:10]) == sorted(order[10:]) == list(range(10))
    assert order[:10] != order[10:]
    assert len(epochs_of(11, batch=5, epochs=2, seed=0)) == 20


def test_impossible_settings_say_what_to_write() -> None:
    with pytest.raises(ConfigError, match="write bf16, or backend='transformers'"):
        FineTuneSettings(precision="fp16", backend="verl").trainer()
    with pytest.raises(ConfigError, match="needs a GPU"):
        FineTuneSettings(precision="fp16", device="cpu").trainer()
    with pytest.raises(ConfigError, match="learns nothing"):
        FineTuneSettings(learning_rate=0.0)
