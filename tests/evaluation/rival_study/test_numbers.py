"""What an arm cost and kept, counted by hand; an RL run's from its dumped rows."""

from pathlib import Path

import pytest

from tests.classmate.toy_tokenizers import byte_bpe
from tests.evaluation.dumped_runs import made
from tests.evaluation.rival_study.made_up import trace
from tests.workers.scripted_rows import CLASSMATES
from verl.evaluation.rival_study import numbers

POOL = [
    trace(0, 1, 2, 3, approved={"a": True, "b": True}, read_tokens=20),
    trace(0, 1, 2, right=False),
    trace(1, 1, 2, 3, 4, sound=False, approved={"a": True, "b": False}, read_tokens=10),
    trace(1, 9, approved={"a": None, "b": True}, read_tokens=6),
]


def test_counts_are_shares_of_what_they_say() -> None:
    counts = numbers.counts_of(POOL, POOL[:1], 12, readers=("a", "b"))
    assert counts == {
        "tokens_sampled": 10.0,
        "tokens_trained": 12.0,
        "tokens_read": 36.0,
        "sampled": 4.0,
        "kept": 0.25,
        "kept_right": 0.75,
        "kept_sound": pytest.approx(2 / 3, abs=1e-4),
        "kept_approved": pytest.approx(1 / 3, abs=1e-4),
        "unanswered": pytest.approx(1 / 3, abs=1e-4),
    }


def test_who_asks_nobody_reads_nothing() -> None:
    """Arms share a pool that readers have read; it costs only those that listen to them."""
    counts = numbers.counts_of(POOL, POOL[:3], 12, readers=())
    assert counts["tokens_read"] == 0.0
    assert "kept_approved" not in counts


@pytest.mark.parametrize(("budget", "traces"), [(0, 0), (1, 1), (3, 1), (4, 2), (5, 2), (6, 3), (99, 4)])
def test_a_budget_ends_with_the_trace_that_spends_it(budget: int, traces: int) -> None:
    assert len(numbers.within(POOL, budget)) == traces


def test_tokens_of_an_rl_run_are_those_of_its_rows(tmp_path: Path) -> None:
    run = made(tmp_path / "run").write()
    sampled = sum(record["response_tokens"] for record in run.records)
    assert numbers.sampled_tokens(run.folder) == sampled > 0
    tokenizer = byte_bpe()
    read = sum(
        len(tokenizer(one["prompt"])["input_ids"]) + sample["tokens"]
        for row in run.records
        for one in row["classmates"]
        for sample in one["samples"]
    )
    counts = numbers.counts_of_rl(run.folder, [tokenizer] * len(CLASSMATES))
    assert counts == {
        "tokens_sampled": sampled,
        "tokens_trained": sampled,
        "tokens_read": read,
        "sampled": len(run.records),
    }
    assert numbers.counts_of_rl(run.folder, [])["tokens_read"] == 0
