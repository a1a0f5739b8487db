"""The engine "hf" on a real model with random weights: what a caller gets, alone and among others."""

import asyncio
import dataclasses
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.e2e.tiny import make_tiny_world
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig, GenerationOutput, HFEngine
from verl.workers.rollout.hf_rollout_server.sampling import SamplingParams

Prompt = list[int]
PROMPTS: list[Prompt] = [[5 + (7 * row + 3 * column) % 40 for column in range(2 + row % 9)] for row in range(24)]
POISON = 51
"""A token that a broken model cannot stand."""


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_world(tmp_path_factory.mktemp("world")).model


@pytest.fixture(scope="module")
def engine(model_path: Path) -> Iterator[HFEngine]:
    engine = HFEngine.from_config(EngineConfig(model_path=str(model_path), batch_wait_s=0.05))
    yield engine
    engine.close()


def _params(seed: int | None = 0, **values: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 12, "seed": seed, "ignore_eos": True, **values})


def _generate(engine: HFEngine, requests: list[tuple[Prompt, SamplingParams]]) -> list[Any]:
    """Outputs (or errors) of requests that arrive together."""

    async def run() -> list[Any]:
        engine.hold("arriving")
        tasks = [
            asyncio.create_task(engine.generate(prompt, params, str(index)))
            for index, (prompt, params) in enumerate(requests)
        ]
        await asyncio.sleep(0)  # all have been submitted
        engine.release("arriving")
        return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(run())


class _Steps:
    """Forward passes of an engine, each a little slower than it is, and counted."""

    def __init__(self, engine: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._forward = engine.model.forward
        monkeypatch.setattr(engine.model, "forward", self._slow)

    def _slow(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        time.sleep(0.02)
        return self._forward(*args, **kwargs)

    async def after(self, count: int) -> None:
        """Returns when so many have begun."""
        while self.count < count:
            await asyncio.sleep(0.005)


def test_requests_that_arrive_together_run_as_one_batch(engine: HFEngine) -> None:
    before = engine.batches
    outputs = _generate(engine, [(prompt, _params(seed)) for seed, prompt in enumerate(PROMPTS)])
    assert engine.batches == before + 1
    assert [len(output.token_ids) for output in outputs] == [12] * len(PROMPTS)


def test_a_prompt_of_several_rows_is_read_once(engine: HFEngine) -> None:
    requests = [(PROMPTS[row % 3], _params(seed=row, max_tokens=4 + row)) for row in range(12)]
    alone = [_generate(engine, [request])[0] for request in requests]
    shapes = []
    hook = engine.model.register_forward_pre_hook(
        lambda _, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    together = _generate(engine, requests)
    hook.remove()
    assert shapes[:2] == [(3, len(PROMPTS[2])), (12, 1)]
    for one, other in zip(together, alone, strict=True):
        assert one.token_ids == other.token_ids
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-5)


def test_without_a_thread_of_its_own_batches_run_where_they_are_asked(
    engine: HFEngine, model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [(prompt, _params(seed)) for seed, prompt in enumerate(PROMPTS)]
    expected = _generate(engine, requests)
    here = HFEngine.from_config(EngineConfig(model_path=str(model_path), own_thread=False))
    threads = set()
    here.model.register_forward_pre_hook(lambda *_: threads.add(threading.current_thread()))
    outputs = _generate(here, requests)
    assert [output.token_ids for output in outputs] == [output.token_ids for output in expected]
    assert here.batches == 1
    assert threads == {threading.current_thread()}

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError("in the model")

    monkeypatch.setattr(here.model, "forward", broken)
    with pytest.raises(ZeroDivisionError, match="in the model"):
        asyncio.run(here.generate(PROMPTS[0], _params(), "r"))
    here.close()


@pytest.mark.parametrize(("limit", "batches"), [({"max_batch_size": 6}, 4), ({"max_batch_tokens": 12 * (10 + 12)}, 2)])
def test_batch_size_and_token_budget_are_kept(model_path: Path, limit: dict[str, Any], batches: int) -> None:
    engine = HFEngine.from_config(EngineConfig(model_path=str(model_path), batch_wait_s=0.05, **limit))
    outputs = _generate(engine, [(prompt, _params()) for prompt in PROMPTS])
    engine.close()
    assert engine.batches == batches
    assert all(len(output.token_ids) == 12 for output in outputs)


def test_a_list_of_requests_comes_back_in_order(engine: HFEngine) -> None:
    requests = [(prompt, _params(max_tokens=1 + i)) for i, prompt in enumerate(PROMPTS)]
    outputs = asyncio.run(engine.generate_batch(requests))
    assert [len(output.token_ids) for output in outputs] == list(range(1, 25))
    with pytest.raises(ValueError, match="prompt is empty"):
        asyncio.run(engine.generate_batch([*requests, ([], _params())]))


def test_greedy_equals_transformers_generate(engine: HFEngine) -> None:
    params = SamplingParams(max_tokens=20, temperature=0)
    for prompt, output in zip(PROMPTS, _generate(engine, [(prompt, params) for prompt in PROMPTS]), strict=True):
        expected = engine.model.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False)[0, len(prompt) :]
        assert output.token_ids == expected.tolist()


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_log_probs_equal_those_of_a_full_forward_at_the_temperature(engine: HFEngine, temperature: float) -> None:
    for prompt, output in zip(
        PROMPTS, _generate(engine, [(prompt, _params(1, temperature=temperature)) for prompt in PROMPTS]), strict=True
    ):
        with torch.no_grad():
            logits = engine.model(torch.tensor([prompt + output.token_ids])).logits[0, len(prompt) - 1 : -1]
        expected = (logits / temperature).log_softmax(-1).gather(1, torch.tensor(output.token_ids)[:, None])[:, 0]
        assert torch.allclose(torch.tensor(output.log_probs), expected, atol=1e-4)


def test_a_seed_gives_the_same_tokens_alone_and_among_others(engine: HFEngine) -> None:
    request = (PROMPTS[3], _params(17))
    (alone,) = _generate(engine, [request])
    among = _generate(engine, [(prompt, _params(100 + i)) for i, prompt in enumerate(PROMPTS)] + [request])[-1]
    assert among.token_ids == alone.token_ids
    assert torch.allclose(torch.tensor(among.log_probs), torch.tensor(alone.log_probs), atol=1e-4)
    assert _generate(engine, [(PROMPTS[3], _params(18))])[0].token_ids != alone.token_ids


def test_requests_without_a_seed_differ(engine: HFEngine) -> None:
    first, second = _generate(engine, [(PROMPTS[0], _params(None)), (PROMPTS[0], _params(None))])
    assert first.token_ids != second.token_ids


def test_rows_of_one_batch_keep_their_own_parameters(engine: HFEngine) -> None:
    requests = [
        (PROMPTS[0], _params(max_tokens=3)),
        (PROMPTS[1], _params(temperature=0, max_tokens=30)),
        (PROMPTS[2], _params(top_k=3, max_tokens=7)),
        (PROMPTS[3], _params(top_p=0.5, max_tokens=1)),
    ]
    together = _generate(engine, requests)
    assert [len(output.token_ids) for output in together] == [3, 30, 7, 1]
    # Most rows end early, so the batch shrank on its way; the longest row must not notice.
    assert [output.token_ids for output in together] == [_generate(engine, [one])[0].token_ids for one in requests]


def test_ends_at_end_of_sequence_and_at_stop_tokens(engine: HFEngine) -> None:
    (free,) = _generate(engine, [(PROMPTS[0], _params(5, max_tokens=40))])
    stop = free.token_ids[6]
    (stopped,) = _generate(engine, [(PROMPTS[0], _params(5, max_tokens=40, stop_token_ids=(stop,)))])
    assert stopped.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]
    assert (stopped.finish_reason, free.finish_reason) == ("stop", "length")

    outputs = _generate(engine, [(PROMPTS[0], SamplingParams(max_tokens=100, seed=seed)) for seed in range(24)])
    ended = [output for output in outputs if output.finish_reason == "stop"]
    assert ended
    assert all(output.token_ids.index(1) == len(output.token_ids) - 1 for output in ended)


def test_ends_with_the_token_that_completes_a_stop_string(engine: HFEngine) -> None:
    (free,) = _generate(engine, [(PROMPTS[0], _params(5, max_tokens=40))])
    stop = engine.tokenizer.decode(free.token_ids[9:12])
    (stopped,) = _generate(engine, [(PROMPTS[0], _params(5, max_tokens=40, stop=("never in it", stop)))])
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == free.token_ids[:12]


def test_bad_requests_fail_alone(engine: HFEngine) -> None:
    good = (PROMPTS[0], _params())
    outputs = _generate(engine, [good, ([], _params()), ([999], _params()), ([5] * 128, _params()), good])
    assert [type(output) for output in outputs] == [
        GenerationOutput, ValueError, ValueError, ValueError, GenerationOutput,
    ]  # fmt: skip
    assert "max_model_len=128" in str(outputs[3])


def test_a_response_ends_where_the_model_does(engine: HFEngine) -> None:
    (output,) = _generate(engine, [([5] * 125, _params(max_tokens=50))])
    assert (len(output.token_ids), output.finish_reason) == (3, "length")


def test_a_row_that_breaks_the_batch_fails_alone(engine: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = engine.model.forward

    def fragile(*args: Any, **kwargs: Any) -> Any:
        if (kwargs["input_ids"] == POISON).any():
            raise RuntimeError("out of memory")
        return forward(*args, **kwargs)

    monkeypatch.setattr(engine.model, "forward", fragile)
    requests = [(prompt, _params(seed, stop_token_ids=(POISON,))) for seed, prompt in enumerate(PROMPTS[:7])]
    outputs = _generate(engine, [*requests[:4], ([5, POISON, 6], _params()), *requests[4:]])
    assert isinstance(outputs.pop(4), RuntimeError)
    monkeypatch.undo()
    assert [output.token_ids for output in outputs] == [output.token_ids for output in _generate(engine, requests)]


def test_logits_that_are_not_numbers_are_an_error(engine: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = engine.model.forward

    def diverged(*args: Any, **kwargs: Any) -> Any:
        output = forward(*args, **kwargs)
        output.logits[0] = torch.nan
        return output

    monkeypatch.setattr(engine.model, "forward", diverged)
    outputs = _generate(engine, [(prompt, _params()) for prompt in PROMPTS[:3]])
    assert "NaN" in str(outputs[0])
    assert [len(output.token_ids) for output in outputs[1:]] == [12, 12]


def test_aborted_requests_keep_what_they_have(engine: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = _Steps(engine, monkeypatch)

    async def run() -> list[GenerationOutput]:
        tasks = [
            asyncio.create_task(engine.generate(PROMPTS[i], _params(max_tokens=length), f"r{i}"))
            for i, length in enumerate((100, 100, 50))
        ]
        await steps.after(5)
        assert engine.abort(["r0", "unknown"]) == ["r0"]
        first = await tasks[0]
        assert steps.count < 50, "it waited for its batch"
        last = await tasks[2]
        assert engine.abort() == ["r1"]
        return [first, await tasks[1], last]

    first, second, last = asyncio.run(run())
    assert (first.finish_reason, second.finish_reason, last.finish_reason) == ("abort", "abort", "length")
    assert 0 < len(first.token_ids) < len(second.token_ids) < 100
    assert len(last.token_ids) == 50


def test_a_cancelled_request_leaves_its_batch(engine: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = _Steps(engine, monkeypatch)

    async def run() -> None:
        task = asyncio.create_task(engine.generate(PROMPTS[0], _params(max_tokens=100), "r"))
        await steps.after(5)
        task.cancel()
        await asyncio.to_thread(engine.wait_idle)

    asyncio.run(run())
    assert steps.count < 100, "it was generated to its end"


LONG = [5 + (3 * column) % 40 for column in range(60)]
"""A prompt that is longer than what others have got so far."""


def _generate_late(
    engine: HFEngine,
    steps: _Steps,
    first: list[tuple[Prompt, SamplingParams]],
    late: list[tuple[int, Prompt, SamplingParams]],
) -> list[Any]:
    """Outputs (or errors) of requests that arrive together, and of those that come after so many forward passes."""

    async def ask(number: int, after: int, prompt: Prompt, params: SamplingParams) -> GenerationOutput:
        await steps.after(after)
        return await engine.generate(prompt, params, str(number))

    async def run() -> list[Any]:
        requests = [(0, *request) for request in first] + late
        return await asyncio.gather(*(ask(i, *one) for i, one in enumerate(requests)), return_exceptions=True)

    return asyncio.run(run())


@pytest.fixture
def quick(model_path: Path) -> Iterator[HFEngine]:
    """An engine that does not wait long for company."""
    engine = HFEngine.from_config(EngineConfig(model_path=str(model_path), batch_wait_s=0.01))
    yield engine
    engine.close()


def test_requests_that_come_meanwhile_join_the_batch(quick: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    sampled = {"temperature": 0.8, "top_p": 0.9}
    first = [(PROMPTS[i], _params(i, max_tokens=12 + 8 * i, **sampled)) for i in range(3)]
    late = [
        (4, LONG, _params(10, max_tokens=30, **sampled)),
        (8, PROMPTS[4], _params(11, max_tokens=1)),
        (8, PROMPTS[5], _params(temperature=0)),
        (16, PROMPTS[6], _params(12, max_tokens=40, top_k=5)),
        (24, PROMPTS[6], _params(13, max_tokens=5)),
    ]
    alone = [_generate(quick, [(prompt, params)])[0] for prompt, params in first + [one[1:] for one in late]]
    before = quick.batches
    outputs = _generate_late(quick, _Steps(quick, monkeypatch), first, late)
    assert quick.batches == before + 1
    for one, other in zip(outputs, alone, strict=True):
        assert one.token_ids == other.token_ids
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)


def test_nobody_joins_a_held_engine_and_all_are_served_after(quick: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = _Steps(quick, monkeypatch)

    async def run() -> None:
        first = asyncio.create_task(quick.generate(PROMPTS[0], _params(max_tokens=25), "first"))
        await steps.after(3)
        quick.hold("weights")
        late = asyncio.create_task(quick.generate(PROMPTS[1], _params(), "late"))
        await asyncio.to_thread(quick.wait_idle)
        assert (await first).finish_reason == "length"
        assert steps.count == 25
        assert not late.done()
        quick.release("weights")
        assert len((await late).token_ids) == 12

    asyncio.run(run())


def test_who_joins_and_breaks_the_batch_fails_alone(quick: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    first = [(PROMPTS[i], _params(i, max_tokens=30)) for i in range(3)]
    alone = [_generate(quick, [request])[0].token_ids for request in first]
    forward = quick.model.forward

    def poisoned(*args: Any, **kwargs: Any) -> Any:
        if kwargs["input_ids"].shape[1] > 1 and (kwargs["input_ids"] == POISON).any():
            raise RuntimeError("the model cannot read this")
        return forward(*args, **kwargs)

    monkeypatch.setattr(quick.model, "forward", poisoned)
    outputs = _generate_late(quick, _Steps(quick, monkeypatch), first, [(5, [5, POISON, 6], _params())])
    assert isinstance(outputs.pop(), RuntimeError)
    assert [output.token_ids for output in outputs] == alone


def test_a_batch_that_is_joined_again_and_again_does_not_grow(quick: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    widths = []
    steps = _Steps(quick, monkeypatch)
    hook = quick.model.register_forward_pre_hook(
        lambda _, args, kwargs: widths.append(kwargs["attention_mask"].shape[1]), with_kwargs=True
    )
    late = [(5 * i, PROMPTS[i % 9], _params(i, max_tokens=15)) for i in range(1, 30)]
    before = quick.batches
    outputs = _generate_late(quick, steps, [(PROMPTS[0], _params(max_tokens=15))], late)
    hook.remove()
    assert quick.batches == before + 1
    assert all(len(output.token_ids) == 15 for output in outputs)
    # The longest prompt and its tokens, and what rows that have ended are kept for at most.
    assert max(widths) <= 10 + 2 * 15


def test_company_is_limited_too(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = HFEngine.from_config(EngineConfig(model_path=str(model_path), batch_wait_s=0.01, max_batch_size=3))
    rows = []
    hook = engine.model.register_forward_pre_hook(
        lambda _, args, kwargs: rows.append(kwargs["input_ids"].shape[0]), with_kwargs=True
    )
    first = [(PROMPTS[i], _params(i, max_tokens=20)) for i in range(2)]
    late = [(5, PROMPTS[i], _params(i, max_tokens=20)) for i in range(2, 8)]
    outputs = _generate_late(engine, _Steps(engine, monkeypatch), first, late)
    hook.remove()
    engine.close()
    assert all(len(output.token_ids) == 20 for output in outputs)
    assert max(rows) == 3


def test_late_company_keeps_the_token_budget(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that join near another one's end start behind its tokens, and write as many again."""
    budget = 4 * (10 + 40)
    engine = HFEngine.from_config(EngineConfig(model_path=str(model_path), batch_wait_s=0.01, max_batch_tokens=budget))
    tokens = []
    hook = engine.model.register_forward_pre_hook(
        lambda _, args, kwargs: tokens.append(kwargs["attention_mask"].numel()), with_kwargs=True
    )
    late = [(30, PROMPTS[i], _params(i, max_tokens=40)) for i in range(1, 6)]
    outputs = _generate_late(engine, _Steps(engine, monkeypatch), [(PROMPTS[0], _params(max_tokens=40))], late)
    hook.remove()
    engine.close()
    assert all(len(output.token_ids) == 40 for output in outputs)
    assert 2 * 40 < max(tokens) <= budget


def test_who_waits_to_join_can_be_aborted(quick: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = _Steps(quick, monkeypatch)
    quick.config = dataclasses.replace(quick.config, max_batch_size=1)

    async def run() -> None:
        first = asyncio.create_task(quick.generate(PROMPTS[0], _params(max_tokens=60), "first"))
        await steps.after(3)
        late = asyncio.create_task(quick.generate(PROMPTS[1], _params(), "late"))
        await steps.after(6)
        assert quick.abort(["late"]) == ["late"]
        assert (await late).finish_reason == "abort"
        assert not first.done(), "it waited for the batch"
        quick.abort()
        await first

    asyncio.run(run())


def test_a_held_engine_serves_later(engine: HFEngine) -> None:
    async def run() -> GenerationOutput:
        engine.hold("a")
        engine.hold("b")
        task = asyncio.create_task(engine.generate(PROMPTS[0], _params(), "r"))
        for reason in ("a", "b"):
            await asyncio.sleep(0.1)
            assert not task.done()
            engine.release(reason)
        return await task

    assert asyncio.run(run()).finish_reason == "length"


def test_deterministic_numbers_do_not_depend_on_the_batch(model_path: Path) -> None:
    engine = HFEngine.from_config(EngineConfig(model_path=str(model_path), deterministic=True, batch_wait_s=0.05))
    requests = [(prompt, _params(seed, max_tokens=25)) for seed, prompt in enumerate(PROMPTS)]
    together = _generate(engine, requests)
    backwards = _generate(engine, [(PROMPTS[0], _params(99))] * 5 + requests[::-1])[5:][::-1]
    alone = [_generate(engine, [request])[0] for request in requests[:3]]
    engine.close()
    assert backwards == together
    assert alone == together[:3]


def test_deterministic_needs_seeds_and_a_cpu(model_path: Path) -> None:
    engine = HFEngine.from_config(EngineConfig(model_path=str(model_path), deterministic=True))
    (error,) = _generate(engine, [(PROMPTS[0], _params(None))])
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
    (error,) = _generate(engine, [(PROMPTS[0], _params())])
    assert "closed" in str(error)
