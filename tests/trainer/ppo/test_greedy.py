"""Greedy rows of `remax`: out of the batch and the queue, and what becomes of their rewards."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transfer_queue import KVBatchMeta

from verl.classmate.algorithm_config import AdvantageConfig
from verl.trainer.ppo import greedy as greedy_rows
from verl.trainer.ppo.advantage.rows import Greedy
from verl.trainer.ppo.greedy import take_out_greedy


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """Rows by key, in the place of the queue's process."""
    rows: dict[str, dict[str, Any]] = {}

    def get(keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, list[Any]]:
        return {name: [rows[key][name] for key in keys] for name in select_fields}

    def clear(keys: list[str], partition_id: str) -> None:
        for key in keys:
            del rows[key]

    monkeypatch.setattr(greedy_rows, "tq", SimpleNamespace(kv_batch_get=get, kv_clear=clear))
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
