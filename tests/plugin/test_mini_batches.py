"""The loader of an update's mini-batches: all rows at once are handed on as they are, the rest is upstream's."""

from collections.abc import Iterator

import pytest
import torch
from tensordict import TensorDict

from verl.utils import tensordict_utils as tu


@pytest.fixture
def rows() -> TensorDict:
    whole = [torch.arange(n) for n in (3, 1, 4, 1)]
    data = TensorDict(
        {"input_ids": torch.nested.as_nested_tensor(whole, layout=torch.jagged), "place": torch.arange(4)},
        batch_size=4,
    )
    tu.assign_non_tensor(data, temperature=0.7)
    return data


def places(batches: Iterator[TensorDict]) -> list[list[int]]:
    return [batch["place"].tolist() for batch in batches]


def test_all_rows_at_once_are_upstreams_mini_batch(rows: TensorDict) -> None:
    upstream = tu.make_iterator.__wrapped__  # type: ignore[attr-defined]
    (found,) = tu.make_iterator(rows, 4, 1, seed=3, dataloader_kwargs={"shuffle": False})
    (expected,) = upstream(rows, 4, 1, seed=3, dataloader_kwargs={"shuffle": False})
    assert set(found.keys()) == set(expected.keys())
    tu.assert_tensordict_eq(found, expected)


def test_parts_epochs_and_shuffled_rows_stay_upstreams(rows: TensorDict) -> None:
    assert places(tu.make_iterator(rows, mini_batch_size=2, epochs=2)) == [[0, 1], [2, 3]] * 2
    assert places(tu.make_iterator(rows, mini_batch_size=4, epochs=3)) == [[0, 1, 2, 3]] * 3
    shuffled = [places(tu.make_iterator(rows, 4, 1, seed, {"shuffle": True})) for seed in range(6)]
    assert any(one != [[0, 1, 2, 3]] for one in shuffled)
    assert all(sorted(one[0]) == [0, 1, 2, 3] for one in shuffled)


def test_rows_that_do_not_divide_are_refused(rows: TensorDict) -> None:
    with pytest.raises(AssertionError):
        tu.make_iterator(rows, mini_batch_size=3, epochs=1)
