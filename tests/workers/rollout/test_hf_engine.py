"""The engine "hf" on a real model with random weights: what a caller gets, alone and among others."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.workers.rollout.hf_requests import PROMPTS, generate, params_of
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig, HFEngine
from verl.workers.rollout.hf_rollout_server.request import GenerationOutput
from verl.workers.rollout.hf_rollout_server.sampling import SamplingParams


def test_a_list_of_requests_comes_back_in_order(engine: HFEngine) -> None:
    requests = [(prompt, params_of(max_tokens=1 + i)) for i, prompt in enumerate(PROMPTS)]
    outputs = asyncio.run(engine.generate_batch(requests))
    assert [len(output.token_ids) for output in outputs] == list(range(1, 25))
    with pytest.raises(ValueError, match="prompt is empty"):
        asyncio.run(engine.generate_batch([*requests, ([], params_of())]))


def test_greedy_equals_transformers_generate(engine: HFEngine) -> None:
    params = SamplingParams(max_tokens=20, temperature=0)
    for prompt, output in zip(PROMPTS, generate(engine, [(prompt, params) for prompt in PROMPTS]), strict=True):
        expected = engine.model.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False)[0, len(prompt) :]
        assert output.token_ids == expected.tolist()


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_log_probs_equal_a_full_forwards_at_the_temperature(engine: HFEngine, temperature: float) -> None:
    for prompt, output in zip(
        PROMPTS, generate(engine, [(prompt, params_of(1, temperature=temperature)) for prompt in PROMPTS]), strict=True
    ):
        with torch.no_grad():
            logits = engine.model(torch.tensor([prompt + output.token_ids])).logits[0, len(prompt) - 1 : -1]
        expected = (logits / temperature).log_softmax(-1).gather(1, torch.tensor(output.token_ids)[:, None])[:, 0]
        assert torch.allclose(torch.tensor(output.log_probs), expected, atol=1e-4)


def test_a_seed_gives_the_same_tokens_alone_and_among_others(engine: HFEngine) -> None:
    request = (PROMPTS[3], params_of(17))
    (alone,) = generate(engine, [request])
    among = generate(engine, [(prompt, params_of(100 + i)) for i, prompt in enumerate(PROMPTS)] + [request])[-1]
    assert among.token_ids == alone.token_ids
    assert torch.allclose(torch.tensor(among.log_probs), torch.tensor(alone.log_probs), atol=1e-4)
    assert generate(engine, [(PROMPTS[3], params_of(18))])[0].token_ids != alone.token_ids


def test_requests_without_a_seed_differ(engine: HFEngine) -> None:
    first, second = generate(engine, [(PROMPTS[0], params_of(None)), (PROMPTS[0], params_of(None))])
    assert first.token_ids != second.token_ids


def test_rows_of_one_batch_keep_their_own_parameters(engine: HFEngine) -> None:
    requests = [
        (PROMPTS[0], params_of(max_tokens=3)),
        (PROMPTS[1], params_of(temperature=0, max_tokens=30)),
        (PROMPTS[2], params_of(top_k=3, max_tokens=7)),
        (PROMPTS[3], params_of(top_p=0.5, max_tokens=1)),
    ]
    together = generate(engine, requests)
    assert [len(output.token_ids) for output in together] == [3, 30, 7, 1]
    # Most rows end early, so the batch shrank on its way; the longest row must not notice.
    assert [output.token_ids for output in together] == [generate(engine, [one])[0].token_ids for one in requests]


def test_ends_at_end_of_sequence_and_at_stop_tokens(engine: HFEngine) -> None:
    (free,) = generate(engine, [(PROMPTS[0], params_of(5, max_tokens=40))])
    stop = free.token_ids[6]
    (stopped,) = generate(engine, [(PROMPTS[0], params_of(5, max_tokens=40, stop_token_ids=(stop,)))])
    assert stopped.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]
    assert (stopped.finish_reason, free.finish_reason) == ("stop", "length")

    outputs = generate(engine, [(PROMPTS[0], SamplingParams(max_tokens=100, seed=seed)) for seed in range(24)])
    ended = [output for output in outputs if output.finish_reason == "stop"]
    assert ended
    assert all(output.token_ids.index(1) == len(output.token_ids) - 1 for output in ended)


def test_ends_with_the_token_that_completes_a_stop_string(engine: HFEngine) -> None:
    (free,) = generate(engine, [(PROMPTS[0], params_of(5, max_tokens=40))])
    stop = engine.tokenizer.decode(free.token_ids[9:12])
    (stopped,) = generate(engine, [(PROMPTS[0], params_of(5, max_tokens=40, stop=("never in it", stop)))])
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == free.token_ids[:12]


def test_bad_requests_fail_alone(engine: HFEngine) -> None:
    good = (PROMPTS[0], params_of())
    outputs = generate(engine, [good, ([], params_of()), ([999], params_of()), ([5] * 128, params_of()), good])
    assert [type(output) for output in outputs] == [
        GenerationOutput, ValueError, ValueError, ValueError, GenerationOutput,
    ]  # fmt: skip
    assert "max_model_len=128" in str(outputs[3])


def test_a_response_ends_where_the_model_does(engine: HFEngine) -> None:
    (output,) = generate(engine, [([5] * 125, params_of(max_tokens=50))])
    assert (len(output.token_ids), output.finish_reason) == (3, "length")


def test_logits_that_are_not_numbers_are_an_error(engine: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = engine.model.forward

    def diverged(*args: Any, **kwargs: Any) -> Any:
        output = forward(*args, **kwargs)
        output.logits[0] = torch.nan
        return output

    monkeypatch.setattr(engine.model, "forward", diverged)
    outputs = generate(engine, [(prompt, params_of()) for prompt in PROMPTS[:3]])
    assert "NaN" in str(outputs[0])
    assert [len(output.token_ids) for output in outputs[1:]] == [12, 12]


def test_deterministic_numbers_do_not_depend_on_the_batch(model_path: Path) -> None:
    engine = HFEngine.from_config(EngineConfig(model_path=str(model_path), deterministic=True, batch_wait_s=0.05))
    requests = [(prompt, params_of(seed, max_tokens=25)) for seed, prompt in enumerate(PROMPTS)]
    together = generate(engine, requests)
    backwards = generate(engine, [(PROMPTS[0], params_of(99))] * 5 + requests[::-1])[5:][::-1]
    alone = [generate(engine, [request])[0] for request in requests[:3]]
    engine.close()
    assert backwards == together
    assert alone == together[:3]


def test_deterministic_needs_seeds_and_a_cpu(model_path: Path) -> None:
    engine = HFEngine.from_config(EngineConfig(model_path=str(model_path), deterministic=True))
    (error,) = generate(engine, [(PROMPTS[0], params_of(None))])
    engine.close()
    assert "seed" in str(error)
    with pytest.raises(ValueError, match="device='cpu'"):
        EngineConfig(model_path=str(model_path), deterministic=True, device="cuda")


def test_dummy_weights_are_not_the_files(model_path: Path, engine: HFEngine) -> None:
    dummy = HFEngine.from_config(EngineConfig(model_path=str(model_path), load_format="dummy", seed=1))
    name = "model.embed_tokens.weight"
    assert not torch.equal(dummy.model.state_dict()[name], engine.model.state_dict()[name])
    assert dummy.eos_token_ids == engine.eos_token_ids == {1}
    dummy.close()


def test_a_closed_engine_refuses(model_path: Path) -> None:
    engine = HFEngine.from_config(EngineConfig(model_path=str(model_path)))
    engine.close()
    (error,) = generate(engine, [(PROMPTS[0], params_of())])
    assert "closed" in str(error)
