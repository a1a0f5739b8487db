"""The engine "hf" reads a prompt and tells how likely its tokens are, as a loop over them does, in any company."""

import asyncio
import copy
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.workers.rollout.hf_requests import LONG, POISON, PROMPTS, Prompt, generate, params_of
from verl.workers.classmates.client import told_by
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig, HFEngine
from verl.workers.rollout.hf_rollout_server.sampling import SamplingParams
from verl.workers.rollout.hf_rollout_server.server import HFServer

TEXTS = [prompt + [5 + (3 * row + column) % 40 for column in range(1 + row % 7)] for row, prompt in enumerate(PROMPTS)]
STARTS = [len(prompt) for prompt in PROMPTS]


def reads(start: int = 1, at: float = 1.0) -> SamplingParams:
    return SamplingParams(
        max_tokens=1, temperature=0, prompt_logprobs=0, logprob_start_len=start, prompt_logprobs_temperature=at
    )


def one_by_one(model: Any, ids: Prompt, start: int, at: float = 1.0) -> list[float]:
    """Token after token, in float64, at a temperature."""
    exact = copy.deepcopy(model).double()
    told = []
    for place in range(start, len(ids)):
        with torch.no_grad():
            logits_V = exact(torch.tensor([ids[:place]])).logits[0, -1]
        told.append(float(torch.log_softmax(logits_V / at, dim=-1)[ids[place]]))
    return told


def told(engine: HFEngine, requests: list[tuple[Prompt, int]]) -> list[list[float]]:
    """Of requests that arrive together."""
    return [output.prompt_log_probs for output in generate(engine, [(ids, reads(start)) for ids, start in requests])]


def test_it_is_what_a_loop_over_the_tokens_says(engine: HFEngine) -> None:
    before = engine.batches
    together = told(engine, list(zip(TEXTS, STARTS, strict=True)))
    assert engine.batches == before + 1
    for ids, start, values in zip(TEXTS, STARTS, together, strict=True):
        assert values == pytest.approx(one_by_one(engine.model, ids, start), abs=1e-5)
        assert values == pytest.approx(told(engine, [(ids, start)])[0], abs=1e-5), "alone as in company"


def test_each_request_has_a_temperature_of_its_own(engine: HFEngine, fixed: HFEngine) -> None:
    heat = [(0.3, 0.7, 1.0, 2.5)[row % 4] for row in range(len(TEXTS))]
    requests = [(ids, reads(start, at)) for ids, start, at in zip(TEXTS, STARTS, heat, strict=True)]
    for one in (engine, fixed):
        for output, ids, start, at in zip(generate(one, requests), TEXTS, STARTS, heat, strict=True):
            assert output.prompt_log_probs == pytest.approx(one_by_one(one.model, ids, start, at), abs=1e-4)
    cold, plain = (generate(engine, [(TEXTS[6], reads(2, at))])[0].prompt_log_probs for at in (0.3, 1.0))
    assert cold != pytest.approx(plain, abs=0.01)


def test_all_of_a_prompt_but_its_first_token(engine: HFEngine) -> None:
    long = LONG + LONG[:40]
    (values,) = told(engine, [(long, 1)])
    assert values == pytest.approx(one_by_one(engine.model, long, 1), abs=1e-5)


def test_readers_and_writers_run_apart(engine: HFEngine) -> None:
    writes = [(prompt, params_of(seed)) for seed, prompt in enumerate(PROMPTS[:6])]
    alone = [output.token_ids for output in generate(engine, writes)]
    mixed: list[tuple[Prompt, SamplingParams]] = []
    for row, request in enumerate(writes):
        mixed += [request, (TEXTS[row], reads(STARTS[row]))]
    before = engine.batches
    outputs = generate(engine, mixed)
    assert engine.batches == before + 2
    assert [output.token_ids for output in outputs[::2]] == alone
    expected = told(engine, list(zip(TEXTS[:6], STARTS[:6], strict=True)))
    for output, values in zip(outputs[1::2], expected, strict=True):
        assert (output.token_ids, output.finish_reason) == ([], "length")
        assert output.prompt_log_probs == pytest.approx(values, abs=1e-5)


@pytest.fixture(scope="module")
def fixed(model_path: Path) -> Iterator[HFEngine]:
    """A deterministic engine."""
    engine = HFEngine.from_config(EngineConfig(model_path=str(model_path), deterministic=True))
    yield engine
    engine.close()


def test_deterministic_numbers_are_the_same_in_any_company(fixed: HFEngine) -> None:
    requests = list(zip(TEXTS, STARTS, strict=True))
    together = told(fixed, requests)
    assert together == [told(fixed, [request])[0] for request in requests]
    assert together == told(fixed, requests[::-1])[::-1]
    for (ids, start), values in zip(requests, together, strict=True):
        assert values == pytest.approx(one_by_one(fixed.model, ids, start), abs=1e-5)


def test_a_row_that_breaks_the_batch_fails_alone(quick: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = quick.model.forward

    def fragile(*args: Any, **kwargs: Any) -> Any:
        if (kwargs["input_ids"] == POISON).any():
            raise RuntimeError("out of memory")
        return forward(*args, **kwargs)

    monkeypatch.setattr(quick.model, "forward", fragile)
    outputs = generate(quick, [(TEXTS[0], reads(2)), ([5, POISON, 6], reads(2)), (TEXTS[1], reads(2))])
    assert isinstance(outputs[1], RuntimeError)
    assert [len(outputs[i].prompt_log_probs) for i in (0, 2)] == [len(text) - 2 for text in TEXTS[:2]]


def test_what_is_refused(quick: HFEngine) -> None:
    for arguments in (
        {"prompt_logprobs": 1},
        {"prompt_logprobs": 0, "max_tokens": 2},
        {"logprob_start_len": 0},
        {"prompt_logprobs_temperature": 0},
    ):
        with pytest.raises(ValueError, match="sampling_params"):
            SamplingParams(**{"max_tokens": 1, **arguments})
    with pytest.raises(ValueError, match="leaves none of its prompt's 3 tokens"):
        asyncio.run(quick.generate([5, 6, 7], reads(3), "r"))


def test_the_server_answers_as_upstreams_vllm_does(model_path: Path) -> None:
    server = HFServer(EngineConfig(model_path=str(model_path), own_thread=False))
    ids = TEXTS[3]
    params = {"temperature": 0.0, "max_tokens": 1, "prompt_logprobs": 0}
    whole = asyncio.run(server.generate(ids, params, "a"))
    part = asyncio.run(server.generate(ids, params | {"logprob_start_len": len(ids) - 2}, "b"))
    assert len(whole.extra_fields["prompt_logprobs"]) == len(ids), "one for each token, the first of which has none"
    assert len(part.extra_fields["prompt_logprobs"]) == 3
    assert whole.extra_fields["prompt_ids"] == [[token] for token in [*ids[1:], 0]], "of which tokens it tells"
    assert part.extra_fields["prompt_ids"] == [[token] for token in [*ids[-2:], 0]]
    expected = one_by_one(server.engine.model, ids, len(ids) - 2)
    for output in (whole, part):
        assert told_by(output, count=2).log_probs == pytest.approx(expected, abs=1e-5)
    assert (whole.stop_reason, whole.token_ids) == ("completed", [])
    assert "no log-probs" in (told_by(part, count=3).error or "")
    assert all(math.isfinite(entry[0]) for entry in whole.extra_fields["prompt_logprobs"])


@pytest.mark.guards("log-softmax in bfloat16")
def test_models_of_16_bits_tell_log_probs_of_32(model_path: Path) -> None:
    """Their logits have 8 bits; a log-softmax in them would put hundreds of tokens at the same few numbers."""
    engine = HFEngine.from_config(EngineConfig(model_path=str(model_path), dtype="bfloat16"))
    ids = LONG + LONG[:40]
    try:
        (values,) = told(engine, [(ids, 1)])
        (written,) = generate(engine, [(PROMPTS[0], params_of(3))])
        with torch.no_grad():
            logits = engine.model(torch.tensor([ids])).logits[0, :-1]
    finally:
        engine.close()
    assert logits.dtype is torch.bfloat16
    exact = torch.log_softmax(logits.float(), dim=-1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
    assert values == pytest.approx(exact.tolist(), abs=0.05), "passes of other shapes round otherwise"
    for numbers in (values, written.log_probs):
        rounded = torch.tensor(numbers).bfloat16().float()
        assert (rounded != torch.tensor(numbers)).float().mean() > 0.8


@pytest.mark.guards("dense log-probs of a whole sequence")
def test_a_long_text_is_never_whole_in_float32(engine: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens by vocabulary are there for 64 tokens at a time."""
    softmax, sizes = torch.log_softmax, []

    def noted(values: torch.Tensor, dim: int) -> torch.Tensor:
        sizes.append((values.dtype, values.shape[1]))
        return softmax(values, dim=dim)

    long = LONG + LONG[:40]
    expected = one_by_one(engine.model, long, 1)
    monkeypatch.setattr(torch, "log_softmax", noted)
    (values,) = told(engine, [(long, 1)])
    assert values == pytest.approx(expected, abs=1e-5)
    assert sum(size for _, size in sizes) == len(long) - 1 > 64
    assert max(size for _, size in sizes) == 64
    assert {kind for kind, _ in sizes} == {torch.float32}
