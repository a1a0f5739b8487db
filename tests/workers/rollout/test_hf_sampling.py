"""What a request may ask of the engine "hf", and what its sampler does with it."""

from typing import Any

import pytest
import torch

from verl.workers.rollout.hf_rollout_server.sampling import BatchSampler, SamplingParams

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -3.0])
DRAWS = 4000


def _frequencies(**params: Any) -> torch.Tensor:
    """Shares of each token over many rows that differ in nothing but their seeds."""
    rows = [SamplingParams(max_tokens=1, seed=seed, **params) for seed in range(DRAWS)]
    tokens_B, _ = BatchSampler(rows, vocab_size=len(LOGITS), device="cpu").pick(LOGITS.repeat(DRAWS, 1))
    return torch.bincount(tokens_B, minlength=len(LOGITS)) / DRAWS


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_from_the_tempered_softmax(temperature: float) -> None:
    expected = (LOGITS / temperature).softmax(-1)
    assert torch.allclose(_frequencies(temperature=temperature), expected, atol=0.03)


def test_top_k_keeps_the_k_most_likely() -> None:
    expected = torch.zeros(6).index_copy(0, torch.arange(2), LOGITS[:2].softmax(-1))
    assert torch.allclose(_frequencies(top_k=2), expected, atol=0.03)


def test_top_p_keeps_the_smallest_set_that_reaches_p() -> None:
    # The probabilities are 0.55, 0.20, 0.12, ...: two tokens reach 0.7, one reaches 0.5.
    expected = torch.zeros(6).index_copy(0, torch.arange(2), LOGITS[:2].softmax(-1))
    assert torch.allclose(_frequencies(top_p=0.7), expected, atol=0.03)
    assert _frequencies(top_p=0.5)[0] == 1


def test_log_probs_are_those_of_the_distribution_drawn_from() -> None:
    rows = [
        SamplingParams(max_tokens=1, seed=0, temperature=2.0),
        SamplingParams(max_tokens=1, seed=0, top_k=2),
        SamplingParams(max_tokens=1, temperature=0),
    ]
    tokens_B, log_probs_B = BatchSampler(rows, vocab_size=6, device="cpu").pick(LOGITS.repeat(3, 1))
    expected = [(LOGITS / 2).log_softmax(-1), LOGITS[:2].log_softmax(-1), LOGITS.log_softmax(-1)]
    for token, log_prob, distribution in zip(tokens_B, log_probs_B, expected, strict=True):
        assert log_prob == pytest.approx(distribution[token].item(), abs=1e-6)


def test_greedy_rows_among_sampled_ones_take_the_likeliest_token() -> None:
    rows = [SamplingParams(max_tokens=1, temperature=0), SamplingParams(max_tokens=1, seed=1)]
    for _ in range(20):
        tokens_B, _ = BatchSampler(rows, vocab_size=6, device="cpu").pick(LOGITS.repeat(2, 1))
        assert tokens_B[0] == 0


def test_the_tail_of_a_padded_vocabulary_is_never_drawn() -> None:
    rows = [SamplingParams(max_tokens=1, seed=seed) for seed in range(200)]
    tokens_B, log_probs_B = BatchSampler(rows, vocab_size=3, device="cpu").pick(LOGITS.flip(0).repeat(200, 1))
    assert tokens_B.max() < 3
    assert log_probs_B.isfinite().all()


def test_seeds_that_differ_in_their_high_bits_draw_differently() -> None:
    streams = {
        tuple(
            BatchSampler([SamplingParams(max_tokens=4, seed=seed)], vocab_size=6, device="cpu").uniforms_BT[0].tolist()
        )
        for seed in (1, 1 + 2**32, 1 + 2**62)
    }
    assert len(streams) == 3


def test_a_longer_limit_draws_the_same_first_tokens() -> None:
    short, long = (
        BatchSampler([SamplingParams(max_tokens=n, seed=9)], vocab_size=6, device="cpu").uniforms_BT[0] for n in (5, 50)
    )
    assert torch.equal(short, long[:5])


def test_reads_what_verl_sends() -> None:
    sent = {"temperature": 0.7, "top_p": 0.9, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True, "seed": 3}
    assert SamplingParams.from_dict(sent, max_tokens=7) == SamplingParams(
        max_tokens=7, temperature=0.7, top_p=0.9, top_k=-1, seed=3
    )
    stops: dict[str, Any] = {"max_new_tokens": 5, "stop": "Answer:", "stop_token_ids": [4]}
    assert SamplingParams.from_dict(stops, max_tokens=7) == SamplingParams(
        max_tokens=5, stop=("Answer:",), stop_token_ids=(4,)
    )


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"temprature": 1.0}, "temprature"),
        ({"repetition_penalty": 1.2}, "repetition_penalty=1.2"),
        ({"temperature": -1.0}, "temperature must be 0 or more"),
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\]"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"stop": [""]}, "empty string"),
        ({"seed": -5}, "seed must be"),
    ],
)
def test_refuses_what_it_cannot_do(sent: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingParams.from_dict(sent, max_tokens=7)
