"""Splits of every size and seed: disjoint, whole, stratified, and no row's luck depends on another row."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.data_preprocessing.splits import (
    Task,
    by_sizes,
    by_tenths,
    held_out,
    ordered,
    pairs,
    row_rng,
    unique,
)

SIZES = {"train": 80, "dev": 10, "test": 10, "warmup": 12}


def make(count: int, groups: list[str] | None = None) -> list[Task]:
    return [
        Task(part="all", index=i, question=f"question {i}", group=groups[i] if groups else "") for i in range(count)
    ]


seeds = st.integers(0, 2**40)
orders = st.sampled_from(["shuffle", "file"])
grouped = st.lists(st.sampled_from("abcd"), min_size=10, max_size=300).map(lambda names: make(len(names), names))
quick = settings(max_examples=60, deadline=None)


def disjoint(pieces: list[list[Task]]) -> set[int]:
    """The tasks of all pieces, none of which is in two."""
    indices = [task.index for piece in pieces for task in piece]
    assert len(indices) == len(set(indices))
    return set(indices)


@quick
@given(count=st.integers(4, 300), seed=seeds, order=orders)
def test_pieces_are_disjoint_and_of_the_asked_sizes_or_shares(count: int, seed: int, order: str) -> None:
    splits = by_sizes(ordered(make(count), seed=seed, order=order), SIZES)
    used = disjoint(list(splits.values()))
    counts = {name: len(piece) for name, piece in splits.items()}
    if count >= sum(SIZES.values()):
        assert counts == SIZES
        return
    assert used == set(range(count))
    for name, size in SIZES.items():
        share = count * size / sum(SIZES.values())
        assert counts[name] == max(1, int(share)) or name == "train"
    assert counts["train"] >= 1


def test_too_few_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="3 usable rows cannot fill 4 splits"):
        by_sizes(make(3), SIZES)
    with pytest.raises(ValueError, match="at least 10"):
        by_tenths(make(9), seed=0, order="file", most_dev=200)


@quick
@given(tasks=grouped, seed=seeds, order=orders, most_dev=st.integers(1, 40))
def test_tenths_are_disjoint_and_stratified(tasks: list[Task], seed: int, order: str, most_dev: int) -> None:
    splits = by_tenths(tasks, seed=seed, order=order, most_dev=most_dev)
    disjoint(list(splits.values()))
    tenth = Counter(task.group for task in tasks)
    in_test = Counter(task.group for task in splits["test"])
    assert all(abs(in_test[group] - size / 10) < 1 for group, size in tenth.items())
    assert len(splits["test"]) == len(tasks) // 10
    assert len(splits["dev"]) == min(most_dev, (len(tasks) + 5) // 10)
    if most_dev == 40:
        assert disjoint(list(splits.values())) == set(range(len(tasks)))


@pytest.mark.guards("unseeded hold-out")
@quick
@given(tasks=grouped, seed=seeds, per_group=st.integers(1, 30))
def test_held_out_tasks_are_so_many_of_each_group(tasks: list[Task], seed: int, per_group: int) -> None:
    rest, out = held_out(tasks, seed=seed, per_group=per_group)
    assert disjoint([rest, out]) == set(range(len(tasks)))
    sizes = Counter(task.group for task in tasks)
    assert Counter(task.group for task in out) == +Counter({g: min(per_group, n // 5) for g, n in sizes.items()})


@quick
@given(tasks=grouped, seed=seeds)
def test_partners_are_others_of_the_same_kind_each_taken_once(tasks: list[Task], seed: int) -> None:
    found = pairs(tasks, seed=seed, key=lambda task: task.group)
    sizes = Counter(task.group for task in tasks)
    assert set(found) == {i for i, task in enumerate(tasks) if sizes[task.group] > 1}
    for position, partner in found.items():
        assert partner is not tasks[position]
        assert partner.group == tasks[position].group
    assert len({partner.index for partner in found.values()}) == len(found)


@pytest.mark.guards("unseeded hold-out")
@quick
@given(tasks=grouped, seed=seeds, shuffled=st.randoms(use_true_random=False))
def test_splits_follow_from_seed_and_content_not_from_arrival(
    tasks: list[Task], seed: int, shuffled: random.Random
) -> None:
    others = shuffled.sample(tasks, len(tasks))
    for order in ("shuffle", "file"):
        assert ordered(tasks, seed=seed, order=order) == ordered(others, seed=seed, order=order)
        assert by_tenths(tasks, seed=seed, order=order, most_dev=9) == by_tenths(
            others, seed=seed, order=order, most_dev=9
        )
    assert held_out(tasks, seed=seed, per_group=5) == held_out(others, seed=seed, per_group=5)


def test_seeds_differ_and_the_order_of_the_file_is_the_files() -> None:
    tasks = make(100)
    assert [task.index for task in ordered(tasks, seed=3, order="file")] == list(range(100))
    assert len({tuple(task.index for task in ordered(tasks, seed=s, order="shuffle")[:20]) for s in range(50)}) == 50
    draws = {(seed, index): row_rng(seed, index).random() for seed in range(20) for index in range(200)}
    assert len(set(draws.values())) == len(draws)
    assert draws[7, 5] == row_rng(7, 5).random()


def test_repeats_are_seen_through_blanks_case_and_encoding() -> None:
    texts = ["Caf\u00e9  au lait?", "cafe\u0301 au\nlait?", "Cafe au lait?", "CAF\u00c9 AU LAIT?"]
    tasks = [Task(part="all", index=i, question=text) for i, text in enumerate(texts)]
    kept, repeats = unique(tasks)
    assert [task.index for task in kept] == [0, 2]
    assert [task.index for task in repeats] == [1, 3]
