"""Weights that arrive at a running engine: all of them, under their names, in the model's dtype."""

import asyncio
import copy
from pathlib import Path

import pytest
import torch
from transformers import Qwen3ForCausalLM

from tests.e2e.tiny import make_tiny_world
from tests.tiny_qwen3 import tiny_qwen3
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig, HFEngine
from verl.workers.rollout.hf_rollout_server.sampling import SamplingParams
from verl.workers.rollout.hf_rollout_server.weights import PackedTensor, WeightLoader, buckets, pack, unpack


def _model(*, seed: int = 0, tied: bool = False) -> Qwen3ForCausalLM:
    torch.manual_seed(seed)
    config = tiny_qwen3(32, width=16, layers=1, max_position_embeddings=32, tie_word_embeddings=tied)
    return Qwen3ForCausalLM(config)


def _packed(model: torch.nn.Module) -> list[PackedTensor]:
    return [pack(name, tensor) for name, tensor in model.state_dict().items()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_a_tensor_survives_packing(dtype: torch.dtype) -> None:
    tensor = torch.arange(6).reshape(2, 3).T.to(dtype)
    name, restored = unpack(pack("w", tensor))
    assert name == "w"
    assert restored.dtype == dtype
    assert torch.equal(restored, tensor)


def test_buckets_keep_order_and_size() -> None:
    weights = [(str(i), torch.zeros(size)) for i, size in enumerate((10, 10, 100, 5, 5))]

    async def run() -> list[list[str]]:
        return [[name for name, *_ in bucket] async for bucket in buckets(weights, bucket_bytes=80)]

    assert asyncio.run(run()) == [["0", "1"], ["2"], ["3", "4"]]


@pytest.mark.parametrize("tied", [False, True])
def test_loading_makes_the_models_equal(tied: bool) -> None:
    source, target = _model(seed=1, tied=tied), _model(seed=2, tied=tied).bfloat16()
    loader = WeightLoader(target)
    loader.load(_packed(source))
    loader.finish()
    for name, tensor in target.state_dict().items():
        assert torch.equal(tensor, source.state_dict()[name].to(torch.bfloat16))


def test_one_name_of_tied_weights_is_enough() -> None:
    loader = WeightLoader(_model(tied=True))
    loader.load(item for item in _packed(_model(tied=True)) if item[0] != "lm_head.weight")
    loader.finish()


def test_unknown_missing_and_misshapen_weights_are_errors() -> None:
    packed = _packed(_model())
    with pytest.raises(ValueError, match=r"no parameter 'model\.extra'"):
        WeightLoader(_model()).load([pack("model.extra", torch.zeros(1))])
    with pytest.raises(ValueError, match=r"expected \(16,\)"):
        WeightLoader(_model()).load([pack("model.norm.weight", torch.zeros(3))])
    loader = WeightLoader(_model())
    loader.load(item for item in packed if item[0] != "lm_head.weight")
    with pytest.raises(ValueError, match=r"1 parameters got no weight: lm_head\.weight"):
        loader.finish()


def test_a_running_engine_answers_with_the_new_weights(tmp_path: Path) -> None:
    engine = HFEngine.from_config(EngineConfig(model_path=str(make_tiny_world(tmp_path).model)))
    params = SamplingParams(max_tokens=20, temperature=0)

    def answer() -> list[int]:
        return asyncio.run(engine.generate([7, 8, 9], params, "r")).token_ids

    other = copy.deepcopy(engine.model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    before = answer()
    loader = WeightLoader(engine.model)
    loader.load(_packed(other))
    loader.finish()
    after = answer()
    engine.close()
    expected = other.generate(torch.tensor([[7, 8, 9]]), max_new_tokens=20, do_sample=False)[0, 3:].tolist()
    assert after == expected
    assert after != before
