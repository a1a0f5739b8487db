"""Planted errors: each kind does what it says, and only what is proved wrong is called wrong."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reasoning.prm.standins import solution_of
from verl.classmate.errors import ConfigError
from verl.reasoning.prm.config import SEED_KINDS
from verl.reasoning.prm.equations import equations
from verl.reasoning.prm.perturb import KINDS, KINDS_OF, kinds_of, plant, plant_several, spliced
from verl.reasoning.prm.planted import Planted

PROBLEM = "Tom has 12 apples and Ann has 7. If Tom gives away 25% of his, how many are left in all?"
STEPS = [
    "Tom gives away 25% of 12 = 3 apples, and Ann keeps at least 7 of hers.\n",
    "Since Tom gave away 3, he has 12 - 3 = 9 apples in his basket, and 7 < 9 as well.\n",
    "Both have 9 + 7 = 16 apples because 9 and 7 are counted, and 9 + 7 is a sum.\n",
    "It took 2 hours for Tom and then Ann to count all of the 16 apples they had.\n",
    "So the answer is 16 apples.",
]
DONORS = ("He walks 4 + 8 = 12 miles on each of the days that he goes out to walk.",)


def planted(kind: str, place: int, seed: int = 0) -> Planted:
    made = plant(PROBLEM, STEPS, place, kind, random.Random(seed), DONORS)
    assert made is not None, f"{kind} finds nothing in step {place}"
    return made


def test_there_are_thirteen_kinds_and_five_old_names() -> None:
    assert len(KINDS) == 13
    assert set(KINDS_OF) == set(SEED_KINDS)
    assert set(kinds_of(SEED_KINDS)) == set(KINDS)
    with pytest.raises(ConfigError, match="'arithmetics'"):
        kinds_of(["arithmetics"])


@pytest.mark.parametrize(
    ("kind", "place", "certainty"),
    [
        ("arithmetic_result", 1, "exact"),
        ("operand_copy", 2, "uncertain"),
        ("sign_flip", 1, "exact"),
        ("unit_or_percent", 0, "uncertain"),
        ("unit_or_percent", 3, "uncertain"),
        ("variable_swap", 3, "uncertain"),
        ("inequality_or_quantifier", 1, "exact"),
        ("inequality_or_quantifier", 0, "uncertain"),
        ("connective_flip", 2, "uncertain"),
        ("dropped_condition", 1, "uncertain"),
        ("skipped_step", 1, "uncertain"),
        ("circular", 2, "own"),
        ("redundant", 3, "own"),
        ("irrelevant", 2, "uncertain"),
        ("contradiction", 2, "exact"),
    ],
)
def test_each_kind_plants(kind: str, place: int, certainty: str) -> None:
    made = next(
        made
        for seed in range(20)
        if (made := plant(PROBLEM, STEPS, place, kind, random.Random(seed), DONORS)) is not None
    )
    assert made.certainty == certainty
    assert made.text.strip() != STEPS[place].strip()
    assert made.text.endswith("\n"), "the blanks behind a step give nothing away"


def test_a_result_is_carried_on_within_the_step() -> None:
    steps = ["3 + 4 = 7, and these 7 are red.\n", "So 7."]
    made = plant("p", steps, 0, "arithmetic_result", random.Random(1))
    assert made is not None
    assert "7" not in made.text.replace("3 + 4", "")
    assert [one.status for one in equations(made.text)] == ["false"]


def test_a_wrong_copy_is_calculated_rightly() -> None:
    made = planted("operand_copy", 2)
    assert [one.status for one in equations(made.text) if one.computes] == ["true"]
    assert made.certainty == "uncertain", "nothing is false in it by itself"


def test_a_lost_percent_sign_is_false_arithmetic() -> None:
    made = plant("p", ["He gives 25% * 12 = 3 away.\n"], 0, "unit_or_percent", random.Random(0))
    assert made is not None
    assert (made.text, made.certainty) == ("He gives 25 * 12 = 3 away.\n", "exact")


def test_a_skipped_step_shortens_the_solution() -> None:
    whole = spliced(STEPS, planted("skipped_step", 2))
    assert len(whole) == len(STEPS) - 1
    assert whole[2].strip() == STEPS[3].strip()


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from(sorted(KINDS)))
def test_exact_means_false_now_and_true_before(seed: int, kind: str) -> None:
    rng = random.Random(seed)
    problem, steps, truth = solution_of(rng, seed)
    place = rng.randrange(len(steps))
    made = plant(problem.problem, steps, place, kind, rng, DONORS)
    if made is None:
        return
    assert abs(len(made.text.strip()) - len(steps[place].strip())) <= 0.3 * len(steps[place].strip())
    if made.certainty == "exact":
        assert "false" in [one.status for one in equations(made.text)]
        if truth != place:
            assert "false" not in [one.status for one in equations(steps[place])]


def test_several_are_of_different_kinds() -> None:
    made = plant_several(PROBLEM, STEPS, kinds_of(SEED_KINDS), 6, random.Random(0), DONORS)
    assert len(made) == 6
    assert len({one.kind for one in made}) == 6
    again = plant_several(PROBLEM, STEPS, kinds_of(SEED_KINDS), 6, random.Random(0), DONORS)
    assert made == again


def test_nothing_to_change_is_nothing_planted() -> None:
    for kind in KINDS:
        assert plant("p", ["   \n"], 0, kind, random.Random(0)) is None
    assert plant("p", ["Hm.\n", "Well.\n"], 0, "arithmetic_result", random.Random(0)) is None
