"""What ranks fetch of a batch, from a real queue through upstream's own bridge."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from transfer_queue import KVBatchMeta

from verl.trainer.ppo.fetched_fields import fetch_for_models
from verl.utils.transferqueue_utils import tqbridge


@pytest.fixture
def batch() -> Iterator[KVBatchMeta]:
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    storage = {"storage_backend": "SimpleStorage", "SimpleStorage": {"num_data_storage_units": 1}}
    tq.init(OmegaConf.create({"backend": storage}))
    rows = TensorDict(
        {
            "responses": torch.nested.as_nested_tensor([torch.arange(3), torch.arange(5)], layout=torch.jagged),
            "advantages": torch.ones(2, 1),
            "rm_scores": torch.ones(2, 1),
            "raw_prompt": NonTensorStack("How many?", "And then?"),
            "extra_fields": NonTensorStack({"record": "long"}, {"record": "longer"}),
            "multi_modal_inputs": NonTensorStack({}, {}),
        },
        batch_size=2,
    )
    keys = ["0-1-a_0_0", "1-1-b_0_0"]
    yield tq.kv_batch_put(keys=keys, partition_id="train", fields=rows, tags=[{}, {}])
    tq.close()
    ray.shutdown()


def test_ranks_fetch_what_models_read(batch: KVBatchMeta) -> None:
    seen = []

    @tqbridge()
    def update_actor(data: TensorDict) -> None:
        seen.append(set(data.keys()) - {"temperature"})
        assert [len(row) for row in data["responses"].unbind()] == [3, 5]

    group = SimpleNamespace(update_actor=update_actor)
    batch.extra_info["temperature"] = 0.7
    update_actor(batch)
    fetch_for_models([group, None, group], without={"rm_scores"})
    group.update_actor(batch)
    everything = {"responses", "advantages", "rm_scores", "raw_prompt", "extra_fields", "multi_modal_inputs"}
    assert seen == [everything, everything - {"raw_prompt", "extra_fields", "rm_scores"}]
    # What comes after sees the whole batch again; a column that was added meanwhile is fetched.
    assert set(batch.fields) == everything
    added = TensorDict({"returns": torch.ones(2, 1)}, batch_size=2)
    group.update_actor(tq.kv_batch_put(keys=batch.keys, partition_id="train", fields=added))
    assert seen[-1] == {"responses", "advantages", "multi_modal_inputs", "returns"}
