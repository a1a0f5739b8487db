"""Rows put together reach the queue once each, in their own order, and a bad one spoils no other."""

import asyncio
from typing import Any

import cloudpickle
import pytest
import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf

from verl.experimental.agent_loop.queue_puts import Columns, PutsTogether
from verl.utils.tensordict_utils import list_of_dict_to_tensordict


class SlowQueue:
    """Upstream's queue as the agent loop sees it: a put takes a round trip, keys that begin with bad are refused."""

    def __init__(self) -> None:
        self.puts: list[list[str]] = []
        self.rows: dict[str, dict[str, Any]] = {}
        self.tags: dict[str, Any] = {}

    async def async_kv_batch_put(
        self,
        keys: list[str],
        partition_id: str,
        fields: Columns | None = None,
        tags: list[dict[str, Any]] | None = None,
    ) -> None:
        await asyncio.sleep(0.01)
        self.puts.append(keys)
        if any(key.startswith("bad") for key in keys):
            raise ValueError("refused")
        for i, key in enumerate(keys):
            if fields is not None:
                self.rows[f"{partition_id}/{key}"] = {name: column[i] for name, column in fields.items()}
            if tags is not None:
                self.tags[f"{partition_id}/{key}"] = tags[i]

    def kv_list(self) -> str:
        return "the queue's own"


def row(number: int, **more: Any) -> list[dict[str, Any]]:
    return [{"tokens": torch.arange(number + 1), "name": f"row {number}", **more}]


def test_rows_that_come_while_a_put_is_under_way_go_together() -> None:
    queue = SlowQueue()

    async def make() -> None:
        front = PutsTogether(queue)
        await asyncio.gather(
            *(
                front.async_kv_batch_put([f"k{i}"], "train", fields=row(i), tags=[{"status": "success", "i": i}])
                for i in range(64)
            )
        )

    asyncio.run(make())
    assert sum(map(len, queue.puts)) == 64
    assert len(queue.puts) <= 2
    for i in range(64):
        assert torch.equal(queue.rows[f"train/k{i}"]["tokens"], torch.arange(i + 1))
        assert queue.rows[f"train/k{i}"]["name"] == f"row {i}"
        assert queue.tags[f"train/k{i}"] == {"status": "success", "i": i}


def test_a_put_is_done_when_it_is_in_the_queue() -> None:
    queue = SlowQueue()

    async def make() -> None:
        front = PutsTogether(queue)

        async def one(i: int) -> None:
            await asyncio.sleep(0.003 * i)
            await front.async_kv_batch_put([f"k{i}"], "train", fields=row(i), tags=[{}])
            assert f"train/k{i}" in queue.rows

        await asyncio.gather(*map(one, range(20)))

    asyncio.run(make())
    assert len(queue.puts) < 20


def test_partitions_tags_and_rows_of_other_fields_go_apart() -> None:
    queue = SlowQueue()

    async def make() -> None:
        front = PutsTogether(queue)
        await asyncio.gather(
            front.async_kv_put(key="uid", partition_id="train", tag={"status": "running"}),
            front.async_kv_batch_put(["a"], "train", fields=row(1), tags=[{}]),
            front.async_kv_batch_put(["b"], "val", fields=row(2), tags=[{}]),
            front.async_kv_batch_put(["c", "d"], "train", fields=[*row(3, more=1), *row(4, more=2)], tags=[{}, {}]),
            front.async_kv_put(key="uid2", partition_id="train", tag={"status": "running"}),
        )

    asyncio.run(make())
    assert sorted(key for keys in queue.puts for key in keys) == ["a", "b", "c", "d", "uid", "uid2"]
    assert queue.tags["train/uid"] == {"status": "running"}
    assert queue.rows["val/b"]["name"] == "row 2"
    assert (queue.rows["train/c"]["more"], queue.rows["train/d"]["more"]) == (1, 2)
    assert "train/uid" not in queue.rows


def test_a_row_that_is_refused_spoils_no_other() -> None:
    queue = SlowQueue()

    async def make() -> list[Any]:
        front = PutsTogether(queue)
        keys = ["a", "b", "bad", "c"]
        puts = (front.async_kv_batch_put([key], "train", fields=row(i), tags=[{}]) for i, key in enumerate(keys))
        return await asyncio.gather(*puts, return_exceptions=True)

    given = asyncio.run(make())
    assert [type(one) for one in given] == [type(None), type(None), ValueError, type(None)]
    assert sorted(queue.rows) == ["train/a", "train/b", "train/c"]


@pytest.mark.parametrize("odd", [[], ["no row"]])
def test_a_put_of_no_rows_fails_alone(odd: list[Any]) -> None:
    queue = SlowQueue()

    async def make() -> list[Any]:
        front = PutsTogether(queue)
        puts = [front.async_kv_batch_put([key], "train", fields=row(1), tags=[{}]) for key in "ab"]
        puts.insert(1, front.async_kv_batch_put(["odd"], "train", fields=odd, tags=[{}]))
        return await asyncio.wait_for(asyncio.gather(*puts, return_exceptions=True), timeout=30)

    first, failed, last = asyncio.run(make())
    assert isinstance(failed, Exception)
    assert first is last is None
    assert sorted(queue.rows) == ["train/a", "train/b"]


def test_rows_of_several_types_keep_theirs() -> None:
    whole, part = 2**40 + 1, 0.5
    with pytest.raises(Exception, match="dtype"):
        Columns([{"number": torch.tensor([whole])}, {"number": torch.tensor([part])}])


def test_a_caller_that_is_cancelled_leaves_the_others_their_put() -> None:
    queue = SlowQueue()

    async def make() -> None:
        front = PutsTogether(queue)
        tasks = [
            asyncio.create_task(front.async_kv_batch_put([key], "train", fields=row(1), tags=[{}])) for key in "abc"
        ]
        await asyncio.sleep(0.005)
        tasks[0].cancel()
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await front.async_kv_batch_put(["later"], "train", fields=row(1), tags=[{}])

    asyncio.run(make())
    assert {"train/c", "train/later"} <= queue.rows.keys()


@pytest.mark.parametrize("lengths", [[5, 5, 5], [1, 7, 3]])
def test_rows_of_equal_and_of_other_lengths_keep_theirs(lengths: list[int]) -> None:
    queue = SlowQueue()

    async def make() -> None:
        front = PutsTogether(queue)
        rows = [{"tokens": torch.full((length,), length)} for length in lengths]
        await front.async_kv_batch_put([str(i) for i in range(3)], "train", fields=rows, tags=[{}] * 3)

    asyncio.run(make())
    assert [len(queue.rows[f"train/{i}"]["tokens"]) for i in range(3)] == lengths


def test_what_it_does_not_put_is_the_queues() -> None:
    assert PutsTogether(SlowQueue()).kv_list() == "the queue's own"


def test_upstreams_worker_can_be_sent_to_another_process_with_it() -> None:
    """Ray sends an actor's class by value, and so the module that its functions refer to by this name."""
    from verl.trainer.ppo.v1 import agent_loop_tq

    sent = cloudpickle.loads(cloudpickle.dumps(agent_loop_tq.tq))
    assert isinstance(sent, PutsTogether)
    assert sent.kv_list is agent_loop_tq.tq.kv_list


def test_upstreams_agent_loop_puts_through_it() -> None:
    from verl.trainer.ppo.v1 import agent_loop_tq

    assert isinstance(agent_loop_tq.tq, PutsTogether)
    assert agent_loop_tq.list_of_dict_to_tensordict([{"a": 1}]) == [{"a": 1}]


def values(column: Any) -> list[Any]:
    return column.tolist() if hasattr(column, "tolist") else list(column)


@pytest.mark.parametrize("units", [1, pytest.param(3, marks=pytest.mark.long)])
def test_the_queue_gives_back_what_it_does_of_upstreams_rows(units: int) -> None:
    """A real queue, whose storage units share the rows: every type that a row of the agent loop holds, in any order."""
    rows: list[dict[str, Any]] = [
        {
            "responses": torch.arange(number % 4 + 1),
            "score": torch.tensor(number / 3),
            "mask": torch.ones(2, 5, dtype=torch.bool),
            "text": f"row {number}\u2028\x85\ud83d".encode("utf-8", "ignore").decode(),
            "excluded": (0, number),
            "nested": {"a": [number, None, {"b": (1, 2)}], 3: {4}, "inf": float("inf")},
            "nothing": None,
            "flag": number % 2 == 0,
            "empty": {},
            "sometimes": torch.tensor([1.5]) if number % 2 else None,
            "table": torch.zeros(2).numpy(),
        }
        for number in range(7)
    ]
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        storage = {"storage_backend": "SimpleStorage", "SimpleStorage": {"num_data_storage_units": units}}
        tq.init(OmegaConf.create({"backend": storage}))
        found = []
        for prefix, fields in (("upstream", list_of_dict_to_tensordict(rows)), ("ours", Columns(rows))):
            keys = [f"{prefix}-{number}" for number in range(7)]
            meta = tq.kv_batch_put(keys=keys, partition_id="train", fields=fields, tags=[{"n": n} for n in range(7)])
            back = tq.kv_batch_get(keys=[keys[i] for i in (5, 0, 6, 2)], partition_id="train")
            found.append((sorted(meta.fields), meta.tags, back))
    finally:
        tq.close()
        ray.shutdown()
    (their_fields, their_tags, theirs), (our_fields, our_tags, ours) = found
    assert (our_fields, our_tags) == (their_fields, their_tags)
    assert our_fields == sorted(rows[0])
    for name in rows[0]:
        one, other = ours[name], theirs[name]
        assert type(one) is type(other)
        if isinstance(one, torch.Tensor):
            assert one.is_nested == other.is_nested
            assert all(torch.equal(a, b) for a, b in zip(one.unbind(), other.unbind(), strict=True))
        else:
            assert repr(values(one)) == repr(values(other))
    assert values(ours["text"]) == [rows[i]["text"] for i in (5, 0, 6, 2)]
