"""Rows come out of the queue in order, and those that could not be made are counted, told, or end the run."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from verl.classmate.errors import ConfigError
from verl.experimental.agent_loop.row_reading import turns_of
from verl.trainer.ppo import queue_rows
from verl.trainer.ppo.queue_rows import AccountedRows, LostRows
from verl.trainer.ppo.v1 import replay_buffer
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer


def lost(error: str, *, is_mistake: bool = False) -> dict[str, Any]:
    """Tag of a row that could not be made."""
    return {
        "status": "lost",
        "error": error,
        "is_mistake": is_mistake,
        "data_source": "gsm8k",
        "index": "7",
        "rollout": 1,
    }


class Queue:
    """Upstream's queue as its buffer sees it."""

    def __init__(self, rows: dict[str, dict[str, Any]], prompts: dict[str, str]) -> None:
        self.items = {uid: {"is_prompt": True, "status": status, "global_steps": 1} for uid, status in prompts.items()}
        self.items |= rows

    def kv_list(self) -> dict[str, dict[str, Any]]:
        return {"train": dict(self.items)}

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        for key in keys:
            del self.items[key]


@pytest.fixture
def rows_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(queue: Queue) -> Any:
        monkeypatch.setattr(replay_buffer, "tq", queue)
        monkeypatch.setattr(queue_rows, "tq", queue)
        buffer = ReplayBuffer(
            trainer_mode="sync",
            trainer_config=SimpleNamespace(),
            max_off_policy_threshold=None,
            max_off_policy_strategy="drop",
            sampler_kwargs=None,
        )
        return AccountedRows(buffer)

    return make


def sample(rows: AccountedRows, size: int) -> list[str]:
    return rows.buffer.sample(global_steps=1, partition_id="train", batch_size=size)[0].keys


def test_rows_come_in_prompt_order_and_lost_ones_are_told(rows_of: Any) -> None:
    made = {"status": "success"}
    rows = {"10-1-b_0_0": made, "9-1-a_1_0": lost("OSError: away"), "9-1-a_0_0": made, "10-1-b_1_0": made}
    queue = Queue(rows, {"9-1-a": "failure", "10-1-b": "finished"})
    accounted = rows_of(queue)
    assert sample(accounted, 2) == ["9-1-a_0_0", "10-1-b_0_0", "10-1-b_1_0"]
    found, fetched = accounted.take_lost()
    assert [(row.error, row.index, row.rollout) for row in found] == [("OSError: away", "7", 1)]
    assert fetched == 4
    assert accounted.take_lost() == ([], 0)
    assert "9-1-a_1_0" not in queue.items, "nothing of it stays in the queue"


def test_a_mistake_of_the_users_ends_the_run_in_its_own_words(rows_of: Any) -> None:
    rows = {"0-1-a_0_0": {"status": "success"}, "0-1-a_1_0": lost("ConfigError: write another", is_mistake=True)}
    with pytest.raises(ConfigError, match=r"^write another$"):
        sample(rows_of(Queue(rows, {"0-1-a": "failure"})), 1)


@pytest.mark.parametrize(
    ("rows", "why"),
    [({"0-1-a_0_0": lost("OSError: away")}, r"\(OSError: away\)"), ({}, "materializable")],
)
def test_a_batch_without_a_row_ends_the_run_and_says_why(rows_of: Any, rows: dict[str, Any], why: str) -> None:
    with pytest.raises(RuntimeError, match=why):
        sample(rows_of(Queue(rows, {"0-1-a": "failure"})), 1)


def test_rows_that_nobody_makes_any_more_are_not_awaited(rows_of: Any) -> None:
    accounted = rows_of(Queue({}, {"0-1-a": "running"}))

    def nobody_is_left(timeout_s: float) -> None:
        raise RuntimeError("a process that makes rows died")

    accounted.wait_for_rows = nobody_is_left
    with pytest.raises(RuntimeError, match="a process that makes rows died"):
        sample(accounted, 1)


def test_rows_are_looked_for_as_soon_as_they_are_made(rows_of: Any) -> None:
    queue = Queue({}, {"0-1-a": "running"})
    accounted = rows_of(queue)
    waits = []

    def made(timeout_s: float) -> None:
        waits.append(timeout_s)
        queue.items |= {"0-1-a_0_0": {"status": "success"}}
        queue.items["0-1-a"]["status"] = "finished"

    accounted.wait_for_rows = made
    assert sample(accounted, 1) == ["0-1-a_0_0"]
    assert len(waits) == 1


@pytest.mark.parametrize(
    ("mask", "turns"),
    [
        ([1, 1, 1], ()),
        ([], ()),
        ([1, 1, 0, 0, 1], ((0, 2), (4, 5))),
        ([1, 0, 0], ((0, 1),)),
        ([0, 0], ((0, 0),)),
        ([0, 1, 1], ((1, 3),)),
        ([1, 0, 1, 0, 1, 1, 0], ((0, 1), (2, 3), (4, 6))),
    ],
)
def test_turns_are_what_the_policy_wrote(mask: list[int], turns: tuple[tuple[int, int], ...]) -> None:
    assert turns_of(mask) == turns


@pytest.mark.parametrize(("min_made", "goes_on"), [(0.5, True), (0.9, False)])
def test_too_many_lost_rows_end_the_run(tmp_path: Path, rows_of: Any, min_made: float, goes_on: bool) -> None:
    accounted = rows_of(
        Queue({"0-1-a_0_0": {"status": "success"}, "0-1-a_1_0": lost("OSError: away")}, {"0-1-a": "failure"})
    )
    sample(accounted, 1)
    (tmp_path / "logs").mkdir()
    told: list[str] = []
    run: Any = SimpleNamespace(
        folder=SimpleNamespace(path=tmp_path),
        console=SimpleNamespace(line=told.append),
        reward=SimpleNamespace(min_made_fraction=min_made),
    )
    rows = LostRows(accounted, run)
    if goes_on:
        assert rows.count(3) == 1
        assert "1 of 2 rows could not be made (last: OSError: away" in told[0]
    else:
        with pytest.raises(RuntimeError, match="1 of 2 rows could not be made"):
            rows.count(3)
    assert json.loads((tmp_path / "logs" / "lost_rows.jsonl").read_text())["step"] == 3
    assert rows.count(3) == 0, "each is told once"
