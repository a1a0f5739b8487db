"""Log-probs in parts: upstream's numbers and gradients to the last bit, whatever the size of a part."""

import importlib

import pytest
import torch

from verl.plugin import log_probs


def upstream(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Upstream's function, from its own file and not as the plugin leaves it."""
    from verl.utils import torch_functional

    spec = importlib.util.spec_from_file_location("untouched", torch_functional.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.logprobs_from_logits_v2(logits, labels)


def with_gradient(function: object, logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    leaf = logits.clone().requires_grad_()
    found = function(leaf, labels)  # type: ignore[operator]
    (found * torch.arange(1, found.numel() + 1).view(found.shape)).sum().backward()
    assert leaf.grad is not None
    return found.detach(), leaf.grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1,), (7,), (200,), (3, 50)])
@pytest.mark.parametrize("tokens_of_a_part", [1, 3, 64, 10_000])
def test_numbers_and_gradients_are_upstreams(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, shape: tuple[int, ...], tokens_of_a_part: int
) -> None:
    torch.manual_seed(0)
    logits = (torch.randn(*shape, 301) * 5).to(dtype)
    labels = torch.randint(0, 301, shape)
    monkeypatch.setattr(log_probs, "_PART_BYTES", tokens_of_a_part * 301 * logits.element_size())
    expected, expected_gradient = with_gradient(upstream, logits, labels)
    found, gradient = with_gradient(log_probs.log_probs_in_parts, logits, labels)
    assert torch.equal(found, expected)
    assert torch.equal(gradient, expected_gradient)


def test_logits_without_a_limit_stay_what_they_are_upstream() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 1.0], [1e30, -1e30, 0.0], [torch.nan, 0.0, 0.0]])
    labels = torch.tensor([1, 0, 2])
    assert torch.equal(
        log_probs.log_probs_in_parts(logits, labels).nan_to_num(7), upstream(logits, labels).nan_to_num(7)
    )


def test_no_token_is_no_number() -> None:
    assert log_probs.log_probs_in_parts(torch.zeros(0, 5), torch.zeros(0, dtype=torch.long)).shape == (0,)


def test_upstreams_own_callers_use_it() -> None:
    from verl.utils import torch_functional

    assert torch_functional.logprobs_from_logits_v2 is log_probs.log_probs_in_parts
