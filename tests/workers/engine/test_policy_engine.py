"""The policy's engine under real FSDP2, beside upstream's: the same numbers, without a prompt's logits."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from tests.e2e.tiny import make_tiny_world
from tests.run_config import run_config
from verl.utils import tensordict_utils as tu
from verl.workers.engine.fsdp.policy_engine import ENTROPY_ASIDE, PolicyEngine, entropy_without_gradient
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.inprocess import join_alone, training_worker
from verl.workers.utils.padding import response_from_nested

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="rows are padded where there is no GPU")

VOCABULARY = 52


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolicyEngine]:
    folder = tmp_path_factory.mktemp("policy")
    model = make_tiny_world(folder).model
    started = not torch.distributed.is_initialized()
    join_alone("cpu")
    made = training_worker(run_config(Path(folder), [], f"actor_rollout_ref.model.path={model}"), "actor")
    assert made.actor is not None
    assert isinstance(made.actor.engine, PolicyEngine)
    yield made.actor.engine
    if started:
        torch.distributed.destroy_process_group()


def batch(prompts: list[int], responses: list[int], *, temperature: float = 1.0, packed: bool = False) -> TensorDict:
    """Rows of these lengths."""
    generator = torch.Generator().manual_seed(sum(prompts))

    def ids(lengths: list[int]) -> list[torch.Tensor]:
        return [torch.randint(5, VOCABULARY, (length,), generator=generator) for length in lengths]

    def nested(rows: list[torch.Tensor]) -> torch.Tensor:
        return torch.nested.as_nested_tensor(rows, layout=torch.jagged)

    asked, answered = ids(prompts), ids(responses)
    whole = [torch.cat(pair) for pair in zip(asked, answered, strict=True)]
    data = TensorDict(
        {
            "prompts": nested(asked),
            "responses": nested(answered),
            "response_mask": nested([torch.ones_like(row) for row in answered]),
            "loss_mask": nested([torch.ones_like(row) for row in answered]),
            "input_ids": nested(whole),
            "position_ids": nested([torch.arange(len(row)) for row in whole]),
        },
        batch_size=len(prompts),
    )
    tu.assign_non_tensor(
        data,
        temperature=temperature,
        use_remove_padding=packed,
        use_dynamic_bsz=False,
        micro_batch_size_per_gpu=len(prompts),
    )
    return data


def outputs(engine: PolicyEngine, data: TensorDict, **flags: Any) -> dict[str, torch.Tensor]:
    """What a pass over the rows gives for each response."""
    tu.assign_non_tensor(data, **flags)
    found = engine.forward_backward_batch(data, loss_function=None, forward_only=True)["model_output"]
    return {name: response_from_nested(values, data["response_mask"]).values() for name, values in found.items()}


def whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PolicyEngine, "_leaves_prompts_out", lambda self, micro_batch: False)


LENGTHS = [([4, 4, 4], [6, 6, 6]), ([1, 9, 3, 12], [7, 1, 30, 5]), ([12], [1]), ([2, 30], [1, 1])]


@pytest.mark.parametrize(("prompts", "responses"), LENGTHS)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_responses_have_upstreams_log_probs_and_entropy(
    engine: PolicyEngine,
    monkeypatch: pytest.MonkeyPatch,
    prompts: list[int],
    responses: list[int],
    temperature: float,
) -> None:
    found = outputs(engine, batch(prompts, responses, temperature=temperature), calculate_entropy=True)
    whole_rows(monkeypatch)
    expected = outputs(engine, batch(prompts, responses, temperature=temperature), calculate_entropy=True)
    assert found.keys() == expected.keys() == {"log_probs", "entropy"}
    for name in found:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=1e-6)
    assert len(found["log_probs"]) == sum(responses)
    assert (found["log_probs"] < 0).all()


@pytest.mark.parametrize(("prompts", "responses"), LENGTHS)
def test_the_head_computes_no_logits_before_the_first_response(
    engine: PolicyEngine, prompts: list[int], responses: list[int]
) -> None:
    widths = []
    hook = engine.module.lm_head.register_forward_pre_hook(lambda _, given: widths.append(given[0].shape[1]))
    outputs(engine, batch(prompts, responses))
    hook.remove()
    longest = max(p + r for p, r in zip(prompts, responses, strict=True))
    assert widths == [longest - min(prompts) + 1]


@pytest.mark.parametrize("kind", ["responses", "whole rows", "packed"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_entropy_aside_is_the_entropy(
    engine: PolicyEngine, monkeypatch: pytest.MonkeyPatch, kind: str, temperature: float
) -> None:
    prompts, responses = LENGTHS[1]
    given = {"temperature": temperature, "packed": kind == "packed"}
    if kind == "whole rows":
        whole_rows(monkeypatch)
    found = outputs(engine, batch(prompts, responses, **given), **{ENTROPY_ASIDE: True})
    expected = outputs(engine, batch(prompts, responses, **given), calculate_entropy=True)
    assert "entropy" not in found
    torch.testing.assert_close(found[ENTROPY_ASIDE], expected["entropy"], rtol=1e-5, atol=1e-6)
    assert torch.equal(found["log_probs"], expected["log_probs"])


def gradient(engine: PolicyEngine, data: TensorDict, **flags: Any) -> torch.Tensor:
    """Of the sum of the responses' log-probs, over all weights."""
    tu.assign_non_tensor(data, **flags)
    carriers: list[bool] = []

    def loss(model_output: dict[str, torch.Tensor], data: TensorDict, dp_group: Any) -> tuple[torch.Tensor, dict]:
        carriers.append(any(model_output[name].requires_grad for name in model_output if name == ENTROPY_ASIDE))
        return response_from_nested(model_output["log_probs"], data["response_mask"]).values().sum(), {}

    engine.optimizer_zero_grad()
    engine.forward_backward_batch(data, loss_function=loss)
    assert not any(carriers)
    return torch.cat([weight.grad.full_tensor().flatten() for weight in engine.module.parameters()])


@pytest.mark.parametrize(("prompts", "responses"), LENGTHS)
def test_the_update_has_upstreams_gradient(
    engine: PolicyEngine, monkeypatch: pytest.MonkeyPatch, prompts: list[int], responses: list[int]
) -> None:
    found = gradient(engine, batch(prompts, responses), **{ENTROPY_ASIDE: True})
    whole_rows(monkeypatch)
    expected = gradient(engine, batch(prompts, responses))
    assert expected.norm() > 0
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


SCATTERED = [3, 9, 4, 3, 8, 5, 3, 4], [30, 2, 12, 31, 3, 13, 29, 1]


def in_twos(packed: bool = False) -> TensorDict:
    data = batch(*SCATTERED, packed=packed)
    tu.assign_non_tensor(data, micro_batch_size_per_gpu=2)
    return data


def test_like_lengths_hold_less_padding_and_give_the_same_rows(
    engine: PolicyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    hook = engine.module.model.register_forward_pre_hook(
        lambda _, __, given: read.append(given["input_ids"].numel()), with_kwargs=True
    )
    found = outputs(engine, in_twos(), calculate_entropy=True)
    in_order = sum(read)
    monkeypatch.setattr(PolicyEngine, "_by_length", lambda self, data: None)
    read.clear()
    expected = outputs(engine, in_twos(), calculate_entropy=True)
    hook.remove()
    tokens = sum(map(sum, SCATTERED))
    assert tokens <= in_order <= 1.2 * tokens
    assert sum(read) > 1.4 * tokens
    for name in found:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=1e-6)


def test_like_lengths_give_the_gradient_of_the_whole_batch(engine: PolicyEngine) -> None:
    torch.testing.assert_close(gradient(engine, in_twos()), gradient(engine, batch(*SCATTERED)), rtol=1e-4, atol=1e-5)


def test_rows_are_left_in_their_order_where_it_costs_nothing(engine: PolicyEngine) -> None:
    assert engine._by_length(in_twos()) is not None
    assert engine._by_length(in_twos(packed=True)) is None
    assert engine._by_length(batch(*SCATTERED)) is None, "one micro-batch"
    alike, growing = batch([3, 4, 5], [5, 4, 3]), batch([3, 3, 3], [1, 1, 2])
    for data in (alike, growing):
        tu.assign_non_tensor(data, micro_batch_size_per_gpu=1)
        assert engine._by_length(data) is None
    of_tokens, pairs = in_twos(), in_twos()
    tu.assign_non_tensor(of_tokens, use_dynamic_bsz=True)
    tu.assign_non_tensor(pairs, force_group_size=2)
    assert engine._by_length(of_tokens) is engine._by_length(pairs) is None


def test_rows_without_prompts_are_read_as_upstream_reads_them(engine: PolicyEngine) -> None:
    data = batch(*LENGTHS[1]).exclude("prompts")
    expected = outputs(engine, batch(*LENGTHS[1]))["log_probs"]
    torch.testing.assert_close(outputs(engine, data)["log_probs"], expected, rtol=1e-5, atol=1e-6)


def test_upstreams_engine_is_the_parent_and_the_critic_keeps_it() -> None:
    from verl.workers.engine import EngineRegistry

    assert EngineRegistry.get_engine_cls("language_model", "fsdp2") is PolicyEngine
    assert issubclass(PolicyEngine, FSDPEngineWithLMHead)
    assert not issubclass(EngineRegistry.get_engine_cls("value_model", "fsdp2"), PolicyEngine)


@pytest.mark.parametrize("shape", [(3, 700), (2, 5, 300), (1, 2)])
def test_entropy_in_parts(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    logits = torch.randn(*shape) * 4
    kept = logits.clone()
    log_probs = torch.log_softmax(logits / 0.5, dim=-1)
    expected = -(log_probs.exp() * log_probs).sum(-1)
    for part in (1, 10**9):
        monkeypatch.setattr("verl.workers.engine.fsdp.policy_engine._CHUNK_BYTES", part)
        found = entropy_without_gradient(logits, torch.full((shape[0], *[1] * (len(shape) - 2)), 0.5))
        torch.testing.assert_close(found, expected)
    assert torch.equal(logits, kept)
