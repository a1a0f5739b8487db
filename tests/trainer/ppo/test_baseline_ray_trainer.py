"""What the trainer does to rows between the queue and the actor (greedy rows out, masks narrowed), and how it saves."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from transfer_queue import KVBatchMeta

from tests.trainer.saved import save, saved_steps
from verl.classmate.algorithm_config import AdvantageConfig
from verl.trainer.ppo import baseline_ray_trainer
from verl.trainer.ppo.advantage.rows import Greedy
from verl.trainer.ppo.baseline_ray_trainer import BaselineRayPPOTrainer, narrow_masks, take_out_greedy
from verl.trainer.ppo.core_algos import agg_loss
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.trainer.run.folder import RunFolder


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """Rows by key, in the place of the queue's process."""
    rows: dict[str, dict[str, Any]] = {}

    def get(keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, list[Any]]:
        return {name: [rows[key][name] for key in keys] for name in select_fields}

    def clear(keys: list[str], partition_id: str) -> None:
        for key in keys:
            del rows[key]

    monkeypatch.setattr(baseline_ray_trainer, "tq", SimpleNamespace(kv_batch_get=get, kv_clear=clear))
    return rows


def test_greedy_rows_leave_the_batch_and_the_queue(queue: dict[str, dict[str, Any]]) -> None:
    """Two rows of each prompt were sampled; the greedy ones were: scored, without classmates, not scored, lost."""
    config = AdvantageConfig(adv_estimator="remax")
    greedy = {"a": (0.75, 0.5, True, True), "b": (0.75, 0.5, True, False), "c": (0.0, 0.0, False, False)}
    for uid in "abcd":
        for session in range(3 if uid in greedy else 2):
            final, base, main, classmate = greedy[uid] if session == 2 else (9.0, 9.0, True, True)
            queue[f"{uid}_{session}_0"] = {
                "greedy_session": 2,
                "session_id": session,
                "uid": uid,
                "final_reward": torch.tensor(final),
                "base_reward": torch.tensor(base),
                "main_valid": torch.tensor(main),
                "classmate_valid": torch.tensor(classmate),
                "consistency_valid": torch.tensor(False),
            }
    keys = list(queue)
    tags = [{"seq_len": i} for i in range(len(keys))]
    batch = KVBatchMeta(partition_id="train", keys=keys, tags=tags, extra_info={"temperature": 1.0})
    kept, rewards = take_out_greedy(batch, config)
    assert kept.keys == [key for key in keys if not key.endswith("_2_0")] == list(queue)
    assert [tag["seq_len"] for tag in kept.tags] == [i for i, key in enumerate(keys) if not key.endswith("_2_0")]
    assert kept.extra_info == {"temperature": 1.0}
    assert rewards["a"] == (0.5, 0.75)
    assert (rewards["b"].base, math.isnan(rewards["b"].final)) == (0.5, True)
    assert set(rewards) == {"a", "b"}


def test_a_greedy_row_without_consistency_has_no_fused_reward() -> None:
    row = {
        "main_valid": True,
        "classmate_valid": True,
        "consistency_valid": False,
        "base_reward": 1.0,
        "final_reward": 2.0,
    }
    with_consistency = AdvantageConfig(adv_estimator="remax", add_consistency_reward=True)
    assert Greedy.of_row(row, AdvantageConfig(adv_estimator="remax")) == (1.0, 2.0)
    found = Greedy.of_row(row, with_consistency)
    assert found is not None
    assert math.isnan(found.final)


class Saver(BaselineRayPPOTrainer):
    """A trainer that saves and does nothing else."""

    def __init__(self, run: Path, **trainer: Any) -> None:
        defaults = {"resume_mode": "auto", "max_actor_ckpt_to_keep": 3, "max_critic_ckpt_to_keep": 3}
        self.config = OmegaConf.create({"trainer": defaults | trainer})
        self.folder = RunFolder(path=run, resumed_from=None)

    def save(self, step: int) -> list[int]:
        """The steps that are there afterwards."""
        self.global_steps = step
        self._save_and_prune()
        return saved_steps(self.folder.path)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Steps that are there at the end of each save, before upstream writes the tracker."""
    found: list[list[int]] = []

    def upstream(self: Saver) -> None:
        assert self.config.trainer.max_actor_ckpt_to_keep is self.config.trainer.max_critic_ckpt_to_keep is None
        save(self.folder.path, self.global_steps)
        found.append(saved_steps(self.folder.path))

    monkeypatch.setattr(PPOTrainerSync, "_save_checkpoint", upstream)
    return found


def test_a_run_keeps_its_number_of_checkpoints_over_all_starts(tmp_path: Path, seen: list[list[int]]) -> None:
    first = Saver(tmp_path)
    assert [first.save(step) for step in (20, 40, 60, 80)] == [[20], [20, 40], [20, 40, 60], [40, 60, 80]]
    second = Saver(tmp_path)
    assert second.save(100) == [60, 80, 100]
    assert max(map(len, seen)) == 3, "never more on the disk than are kept"
    assert second.config.trainer.max_actor_ckpt_to_keep == 3, "what the user wrote"
    assert Saver(tmp_path, max_actor_ckpt_to_keep=None).save(120) == [60, 80, 100, 120]


def test_the_only_checkpoint_stays_until_the_next_is_whole(tmp_path: Path, seen: list[list[int]]) -> None:
    saver = Saver(tmp_path, max_actor_ckpt_to_keep=1, max_critic_ckpt_to_keep=1)
    assert [saver.save(step) for step in (20, 40, 60)] == [[20], [40], [60]]
    assert seen == [[20], [20, 40], [40, 60]]


def test_the_checkpoint_that_the_user_named_stays(tmp_path: Path, seen: list[list[int]]) -> None:
    named = save(tmp_path, 20)
    keep_one = {"max_actor_ckpt_to_keep": 1, "max_critic_ckpt_to_keep": 1}
    saver = Saver(tmp_path, **keep_one, resume_mode="resume_path", resume_from_path=str(named))
    assert [saver.save(step) for step in (40, 60)] == [[20, 40], [20, 60]]


def rows(*masks: list[int]) -> list[torch.Tensor]:
    return [torch.tensor(mask) for mask in masks]


def test_masks_are_narrowed_to_the_tokens_that_count() -> None:
    result = narrow_masks(rows([1, 1, 1], [1, 0, 1], [0]), rows([1, 0, 1], [0, 1, 1], [1, 1, 1]), rows_of_update=4)
    for name in ("response_mask", "loss_mask"):
        assert [mask.tolist() for mask in result[name]] == [[1, 0, 1], [0, 0, 1], [0]]


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"])
def test_nothing_to_count_is_a_loss_of_zero(mode: str) -> None:
    """As upstream's actor does: the loss over `response_mask`, divided by the tokens of `loss_mask`."""
    result = narrow_masks(rows([1, 1], [1, 1]), rows([0, 0], [0, 0]), rows_of_update=2)
    loss = agg_loss(
        torch.full((2, 2), 3.0, requires_grad=True),
        torch.stack(result["response_mask"]).bool(),
        mode,
        batch_num_tokens=int(torch.stack(result["loss_mask"]).sum()),
        global_batch_size=2,
    )
    assert loss.item() == 0.0
    # Fewer empty rows than a mini-batch has cannot fill one: the divisor is exact.
    some = narrow_masks(rows([1, 1], [1, 1]), rows([0, 0], [0, 1]), rows_of_update=2)
    assert [mask.tolist() for mask in some["loss_mask"]] == [[0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("test_freq", "profiled", "begun_before_written"),
    [(-1, None, [2, 3, 4]), (2, None, [2, 4]), (1, None, []), (-1, [2], [])],
    ids=["no validation", "every second step", "every step", "profiled"],
)
def test_the_next_answers_begin_before_this_step_is_written(
    monkeypatch: pytest.MonkeyPatch, test_freq: int, profiled: list[int] | None, begun_before_written: list[int]
) -> None:
    """Not where the policy validates first, not behind the last step, and each step's prompts are handed out once."""
    told: list[tuple[str, int]] = []
    monkeypatch.setattr(
        PPOTrainerSync, "prepare_step", lambda self: told.append(("begun", self.global_steps)) or {"asked": 1.0}
    )
    monkeypatch.setattr(PPOTrainerSync, "on_step_end", lambda self: told.append(("weights", self.global_steps)))
    trainer = object.__new__(BaselineRayPPOTrainer)
    trainer.config = OmegaConf.create({"trainer": {"test_freq": test_freq}, "global_profiler": {"steps": profiled}})
    trainer.classmates, trainer.total_training_steps, trainer._next_under_way = None, 4, False
    for step in range(1, 5):
        # As upstream's `fit` does.
        trainer.global_steps = step
        trainer.prepare_step()
        trainer.on_step_end()
        told.append(("written", step))
    assert [step for what, step in told if what == "begun"] == [1, 2, 3, 4]
    for step in range(1, 5):
        assert told.index(("weights", step)) < told.index(("written", step))
    early = [step for step in range(2, 5) if told.index(("begun", step)) < told.index(("written", step - 1))]
    assert early == begun_before_written
    assert all(told.index(("begun", step)) > told.index(("weights", step - 1)) for step in range(2, 5))
