"""Masks narrowed to the tokens that the loss counts."""

import pytest
import torch

from verl.trainer.ppo.core_algos import agg_loss
from verl.trainer.ppo.masks import narrow_masks


def rows(*masks: list[int]) -> list[torch.Tensor]:
    return [torch.tensor(mask) for mask in masks]


def test_masks_are_narrowed_to_the_tokens_that_count() -> None:
    result = narrow_masks(rows([1, 1, 1], [1, 0, 1], [0]), rows([1, 0, 1], [0, 1, 1], [1, 1, 1]), rows_of_update=4)
    for name in ("response_mask", "loss_mask"):
        assert [mask.tolist() for mask in result[name]] == [[1, 0, 1], [0, 0, 1], [0]]


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"])
def test_nothing_to_count_is_a_loss_of_zero(mode: str) -> None:
    """As upstream's actor does: the loss over `response_mask`, divided by the tokens of `loss_mask`."""
    result = narrow_masks(rows([1, 1], [1, 1]), rows([0, 0], [0, 0]), rows_of_update=2)
    loss = agg_loss(
        torch.full((2, 2), 3.0, requires_grad=True),
        torch.stack(result["response_mask"]).bool(),
        mode,
        batch_num_tokens=int(torch.stack(result["loss_mask"]).sum()),
        global_batch_size=2,
    )
    assert loss.item() == 0.0
    # Fewer empty rows than a mini-batch has cannot fill one: the divisor is exact.
    some = narrow_masks(rows([1, 1], [1, 1]), rows([0, 0], [0, 1]), rows_of_update=2)
    assert [mask.tolist() for mask in some["loss_mask"]] == [[0, 0], [0, 1]]
