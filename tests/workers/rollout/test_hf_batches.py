"""The engine "hf": which requests run as one batch, who joins it, who leaves it, and who breaks it."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.workers.rollout.hf_requests import LONG, POISON, PROMPTS, Steps, generate, generate_late, params_of
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig, HFEngine
from verl.workers.rollout.hf_rollout_server.request import GenerationOutput


def test_requests_that_arrive_together_run_as_one_batch(engine: HFEngine) -> None:
    before = engine.batches
    outputs = generate(engine, [(prompt, params_of(seed)) for seed, prompt in enumerate(PROMPTS)])
    assert engine.batches == before + 1
    assert [len(output.token_ids) for output in outputs] == [12] * len(PROMPTS)


def test_a_prompt_of_several_rows_is_read_once(engine: HFEngine) -> None:
    requests = [(PROMPTS[row % 3], params_of(seed=row, max_tokens=4 + row)) for row in range(12)]
    alone = [generate(engine, [request])[0] for request in requests]
    shapes = []
    hook = engine.model.register_forward_pre_hook(
        lambda _, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    together = generate(engine, requests)
    hook.remove()
    assert shapes[:2] == [(3, len(PROMPTS[2])), (12, 1)]
    for one, other in zip(together, alone, strict=True):
        assert one.token_ids == other.token_ids
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-5)


def test_without_its_own_thread_batches_run_where_they_are_asked(
    engine: HFEngine, model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [(prompt, params_of(seed)) for seed, prompt in enumerate(PROMPTS)]
    expected = generate(engine, requests)
    here = HFEngine.from_config(EngineConfig(model_path=str(model_path), own_thread=False))
    threads = set()
    here.model.register_forward_pre_hook(lambda *_: threads.add(threading.current_thread()))
    outputs = generate(here, requests)
    assert [output.token_ids for output in outputs] == [output.token_ids for output in expected]
    assert here.batches == 1
    assert threads == {threading.current_thread()}

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError("in the model")

    monkeypatch.setattr(here.model, "forward", broken)
    with pytest.raises(ZeroDivisionError, match="in the model"):
        asyncio.run(here.generate(PROMPTS[0], params_of(), "r"))
    here.close()


@pytest.mark.guards("one padded forward for everything")
@pytest.mark.parametrize(("limit", "batches"), [({"max_batch_size": 6}, 4), ({"max_batch_tokens": 12 * (10 + 12)}, 2)])
def test_batch_size_and_token_budget_are_kept(model_path: Path, limit: dict[str, Any], batches: int) -> None:
    engine = HFEngine.from_config(EngineConfig(model_path=str(model_path), batch_wait_s=0.05, **limit))
    outputs = generate(engine, [(prompt, params_of()) for prompt in PROMPTS])
    engine.close()
    assert engine.batches == batches
    assert all(len(output.token_ids) == 12 for output in outputs)


@pytest.mark.guards("broad except hiding generation errors")
def test_a_row_that_breaks_the_batch_fails_alone(engine: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = engine.model.forward

    def fragile(*args: Any, **kwargs: Any) -> Any:
        if (kwargs["input_ids"] == POISON).any():
            raise RuntimeError("out of memory")
        return forward(*args, **kwargs)

    monkeypatch.setattr(engine.model, "forward", fragile)
    requests = [(prompt, params_of(seed, stop_token_ids=(POISON,))) for seed, prompt in enumerate(PROMPTS[:7])]
    outputs = generate(engine, [*requests[:4], ([5, POISON, 6], params_of()), *requests[4:]])
    assert isinstance(outputs.pop(4), RuntimeError)
    monkeypatch.undo()
    assert [output.token_ids for output in outputs] == [output.token_ids for output in generate(engine, requests)]


def test_aborted_requests_keep_what_they_have(engine: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(engine, monkeypatch)

    async def run() -> list[GenerationOutput]:
        tasks = [
            asyncio.create_task(engine.generate(PROMPTS[i], params_of(max_tokens=length), f"r{i}"))
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
    steps = Steps(engine, monkeypatch)

    async def run() -> None:
        task = asyncio.create_task(engine.generate(PROMPTS[0], params_of(max_tokens=100), "r"))
        await steps.after(5)
        task.cancel()
        await asyncio.to_thread(engine.wait_idle)

    asyncio.run(run())
    assert steps.count < 100, "it was generated to its end"


def test_requests_that_come_meanwhile_join_the_batch(quick: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    sampled = {"temperature": 0.8, "top_p": 0.9}
    first = [(PROMPTS[i], params_of(i, max_tokens=12 + 8 * i, **sampled)) for i in range(3)]
    late = [
        (4, LONG, params_of(10, max_tokens=30, **sampled)),
        (8, PROMPTS[4], params_of(11, max_tokens=1)),
        (8, PROMPTS[5], params_of(temperature=0)),
        (16, PROMPTS[6], params_of(12, max_tokens=40, top_k=5)),
        (24, PROMPTS[6], params_of(13, max_tokens=5)),
    ]
    alone = [generate(quick, [(prompt, params)])[0] for prompt, params in first + [one[1:] for one in late]]
    before = quick.batches
    outputs = generate_late(quick, Steps(quick, monkeypatch), first, late)
    assert quick.batches == before + 1
    for one, other in zip(outputs, alone, strict=True):
        assert one.token_ids == other.token_ids
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)


def test_nobody_joins_a_held_engine_and_all_are_served_after(quick: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(quick, monkeypatch)

    async def run() -> None:
        first = asyncio.create_task(quick.generate(PROMPTS[0], params_of(max_tokens=25), "first"))
        await steps.after(3)
        quick.hold("weights")
        late = asyncio.create_task(quick.generate(PROMPTS[1], params_of(), "late"))
        await asyncio.to_thread(quick.wait_idle)
        assert (await first).finish_reason == "length"
        assert steps.count == 25
        assert not late.done()
        quick.release("weights")
        assert len((await late).token_ids) == 12

    asyncio.run(run())


def test_who_joins_and_breaks_the_batch_fails_alone(quick: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    first = [(PROMPTS[i], params_of(i, max_tokens=30)) for i in range(3)]
    alone = [generate(quick, [request])[0].token_ids for request in first]
    forward = quick.model.forward

    def poisoned(*args: Any, **kwargs: Any) -> Any:
        if kwargs["input_ids"].shape[1] > 1 and (kwargs["input_ids"] == POISON).any():
            raise RuntimeError("the model cannot read this")
        return forward(*args, **kwargs)

    monkeypatch.setattr(quick.model, "forward", poisoned)
    outputs = generate_late(quick, Steps(quick, monkeypatch), first, [(5, [5, POISON, 6], params_of())])
    assert isinstance(outputs.pop(), RuntimeError)
    assert [output.token_ids for output in outputs] == alone


def test_a_batch_that_is_joined_again_and_again_does_not_grow(quick: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    widths = []
    steps = Steps(quick, monkeypatch)
    hook = quick.model.register_forward_pre_hook(
        lambda _, args, kwargs: widths.append(kwargs["attention_mask"].shape[1]), with_kwargs=True
    )
    late = [(5 * i, PROMPTS[i % 9], params_of(i, max_tokens=15)) for i in range(1, 30)]
    before = quick.batches
    outputs = generate_late(quick, steps, [(PROMPTS[0], params_of(max_tokens=15))], late)
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
    first = [(PROMPTS[i], params_of(i, max_tokens=20)) for i in range(2)]
    late = [(5, PROMPTS[i], params_of(i, max_tokens=20)) for i in range(2, 8)]
    outputs = generate_late(engine, Steps(engine, monkeypatch), first, late)
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
    late = [(30, PROMPTS[i], params_of(i, max_tokens=40)) for i in range(1, 6)]
    outputs = generate_late(engine, Steps(engine, monkeypatch), [(PROMPTS[0], params_of(max_tokens=40))], late)
    hook.remove()
    engine.close()
    assert all(len(output.token_ids) == 40 for output in outputs)
    assert 2 * 40 < max(tokens) <= budget


def test_who_waits_to_join_can_be_aborted(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = HFEngine.from_config(EngineConfig(model_path=str(model_path), batch_wait_s=0.01, max_batch_size=1))
    steps = Steps(quick, monkeypatch)

    async def run() -> None:
        first = asyncio.create_task(quick.generate(PROMPTS[0], params_of(max_tokens=60), "first"))
        await steps.after(3)
        late = asyncio.create_task(quick.generate(PROMPTS[1], params_of(), "late"))
        await steps.after(6)
        assert quick.abort(["late"]) == ["late"]
        assert (await late).finish_reason == "abort"
        assert not first.done(), "it waited for the batch"
        quick.abort()
        await first

    asyncio.run(run())
    quick.close()


def test_a_held_engine_serves_later(engine: HFEngine) -> None:
    async def run() -> GenerationOutput:
        engine.hold("a")
        engine.hold("b")
        task = asyncio.create_task(engine.generate(PROMPTS[0], params_of(), "r"))
        for reason in ("a", "b"):
            await asyncio.sleep(0.1)
            assert not task.done()
            engine.release(reason)
        return await task

    assert asyncio.run(run()).finish_reason == "length"
