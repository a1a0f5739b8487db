"""The engine's cache beside transformers' own: the same numbers, whatever is written and whichever rows are kept."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM
from transformers.cache_utils import DynamicCache

from verl.workers.rollout.hf_rollout_server.cache import GrowingLayer, growing_cache

SMALL = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.mark.parametrize("tokens", [[3, 1, 1], [1, 200, 1], [64, 1], [5, *[1] * 150]])
@torch.inference_mode()
def test_keys_and_values_are_those_of_transformers(tokens: list[int]) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(**SMALL)
    ours, theirs = growing_cache(config), DynamicCache(config=config)
    keep = {1: torch.tensor([0, 0, 1, 2]), 2: torch.tensor([3, 1])}
    rows = 3
    for step, count in enumerate(tokens):
        if step in keep:
            for cache in (ours, theirs):
                cache.reorder_cache(keep[step])
            rows = len(keep[step])
        for layer in range(2):
            new = torch.randn(2, rows, 2, count, 8)
            expected = theirs.update(new[0], new[1], layer)
            found = ours.update(new[0], new[1], layer)
            assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        assert ours.get_seq_length() == theirs.get_seq_length() == sum(tokens[: step + 1])


@torch.inference_mode()
def test_a_token_is_written_without_a_copy_of_the_others() -> None:
    cache = growing_cache(LlamaConfig(**SMALL))
    first, _ = cache.update(torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 8), 0)
    after, _ = cache.update(torch.randn(2, 2, 1, 8), torch.randn(2, 2, 1, 8), 0)
    assert after.data_ptr() == first.data_ptr()


def test_layers_with_a_window_stay_transformers_own() -> None:
    config = MistralConfig(**SMALL, sliding_window=4)
    cache = growing_cache(config)
    assert not any(isinstance(layer, GrowingLayer) for layer in cache.layers)
    model = MistralForCausalLM(config).eval()
    ids = torch.arange(24).view(2, 12)
    with torch.inference_mode():
        whole = model(ids).logits
        parts = [model(ids[:, i : i + 1], past_key_values=cache, use_cache=True).logits for i in range(12)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)


def test_a_model_reads_it_like_transformers_own() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(**SMALL)
    model = LlamaForCausalLM(config).eval()
    ids = torch.randint(0, 50, (4, 90))
    mask = torch.ones_like(ids)
    mask[1, :5] = 0
    found = []
    with torch.inference_mode():
        for cache in (growing_cache(config), DynamicCache(config=config)):
            steps = [
                model(ids[:, a:b], attention_mask=mask[:, :b], past_key_values=cache, use_cache=True).logits
                for a, b in [(0, 10), *((i, i + 1) for i in range(10, 90))]
            ]
            found.append(torch.cat(steps, dim=1))
    assert torch.equal(*found)
