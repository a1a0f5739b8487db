"""Equations in texts: what is true, false or cannot be told, against Python's own arithmetic."""

import json
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.reasoning.prm.equations import equations, false_equations
from verl.reasoning.prm.expressions import tokens_of, value_of

EXPRESSIONS = st.recursive(
    st.integers(0, 99).map(str),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/"]), inner).map(" ".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"-{text}" if text[0] not in "-+" else text),
    ),
    max_leaves=6,
)


def by_python(text: str) -> Fraction | None:
    """The value of an expression, by Python's parser over fractions."""
    import re

    try:
        return eval(re.sub(r"\d+", lambda m: f"Fraction({m[0]})", text), {"Fraction": Fraction})
    except ZeroDivisionError:
        return None


@settings(max_examples=200)
@given(EXPRESSIONS)
def test_values_are_pythons(text: str) -> None:
    value = value_of(tokens_of(text))
    if value is not None or len(tokens_of(text)) <= 64:
        assert value == by_python(text)


@settings(max_examples=100)
@given(st.integers(0, 999), st.integers(1, 99), st.sampled_from("+-*"), st.integers(-3, 3))
def test_whole_numbers_are_never_misjudged(a: int, b: int, sign: str, off: int) -> None:
    result = int(by_python(f"{a} {sign} {b}") or 0) + off
    (found,) = equations(f"Then we have {a} {sign} {b} = {result} in all.")
    assert found.status == ("true" if off == 0 else "false")


@pytest.mark.parametrize(
    ("text", "statuses"),
    [
        ("Ones: 7+8=15, carry 1. Tens: 4+3+1=9.", ["true", "false"]),
        (r"\(1/3 \times 18 = 6\) flamingos", ["true"]),
        (r"\(2 \text{ books} \times 2 \text{ pounds/book} = 5 \text{ pounds}\)", ["unknown"]),
        ("20% of 50 = 10 and 1/4 of 20 = 6", ["true", "false"]),
        ("16 - 3 - 4 = <<16-3-4=9>>9 eggs", ["true"]),
        ("$5 * 3 = $15, 1,000 + 200 = 1,200", ["true", "true"]),
        (r"\frac{14}{2} = 8", ["false"]),
        ("In step 2 3 + 4 = 7", ["true"]),
        ("6 x 4 = 24 legs, and 6 x 4 = 25", ["true", "false"]),
        ("8*5 = 40 = 41", ["true", "false"]),
        ("3 < 5 and 5 < 3", ["true", "false"]),
        ("5^2 = 25 and 2**3 = 9", ["true", "false"]),
    ],
)
def test_what_solutions_write(text: str, statuses: list[str]) -> None:
    assert [one.status for one in equations(text)] == statuses


@pytest.mark.parametrize(
    "text",
    [
        "10/3 = 3.33",
        "10/3 = 3 buses",
        "2 hours = 120 minutes",
        "2 hours + 30 minutes = 150 minutes",
        "2x = 10, so x = 5",
        "One-third of 27 = 27 / 3 = 9",
        "0.2 * 100 = 20%",
        "In 8 boxes = 8 * 20 = 160 oranges",
        "3 dozen = 36",
    ],
)
def test_what_a_reader_would_accept_is_not_false(text: str) -> None:
    assert not false_equations(text)


def test_identities_hold_for_all_values() -> None:
    assert [one.status for one in equations("x + x = 2x and 2(x + 1) = 2x + 2")] == ["true", "true"]
    assert [one.status for one in equations("x + x = 3x")] == ["unknown"], "it may be one to be solved"


@pytest.mark.parametrize(
    "text", ["(" * 50000 + "=1", "1+" * 30000 + "1=2", "=" * 50000, "9^9^9^9=1", "1" * 50000 + "=1", "1=1 " * 5000]
)
def test_hostile_texts_cost_little(text: str) -> None:
    began = time.process_time()
    equations(text)
    assert time.process_time() - began < 3


def test_right_steps_of_real_solutions_are_not_false(sample_data: Callable[[str], Path]) -> None:
    rows = [json.loads(line) for line in sample_data("processbench_gsm8k.jsonl").read_text().splitlines()]
    right = [step for row in rows for step in row["steps"][: row["label"] if row["label"] >= 0 else None]]
    assert len(right) > 800
    assert [step for step in right if false_equations(step)] == []
