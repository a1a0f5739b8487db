"""Seeds are stable across processes and runs, differ in every argument, and fit every engine."""

from itertools import product

import pytest

from verl.classmate.seeds import request_seed, row_key


def test_stable() -> None:
    """Numbers from another process: a change here breaks the resume of earlier runs."""
    assert row_key("gsm8k", 17) == "af63b8e064365b2e"
    assert request_seed(1, 40, row_key("gsm8k", 17), rollout=2, classmate=1, sample=0) == 1869388503


@pytest.mark.guards("same seed for every step and row")
def test_distinct_in_every_argument_and_in_range() -> None:
    keys = [row_key("a", i) for i in range(4)] + [row_key("b", 0)]
    seeds = [request_seed(*arguments) for arguments in product((0, 1), (0, 1, 2), keys, range(4), range(2), range(2))]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_row_keys_have_no_underscore() -> None:
    assert "_" not in row_key("my_data_source", "a_b")
    assert row_key("a", 1) == row_key("a", "1")
