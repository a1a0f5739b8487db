"""Result files: what was written is read, what cannot be a result is refused in one line."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluation.study.made_up import result, write_all
from verl.evaluation.study.results import RunResult, from_json, load_results, read_result, write_result

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(max_size=20)
RESULTS = st.builds(
    RunResult,
    study=st.just("transfer"),
    arm=st.from_regex(r"[a-z][a-z_0-9]{0,9}", fullmatch=True),
    seed=st.integers(0, 2**31),
    steps=st.integers(0, 100),
    key=TEXTS,
    commit=TEXTS,
    seconds=st.dictionaries(TEXTS, NUMBERS, max_size=3),
    readers=st.just({"a": "classmate", "b": "unseen"}),
    numbers=st.dictionaries(TEXTS, NUMBERS, max_size=5),
    curves=st.dictionaries(st.sampled_from("ab"), st.lists(NUMBERS, min_size=5, max_size=5)),
    day=st.just("2026-11-24"),
    examples=st.lists(st.fixed_dictionaries({"question": TEXTS, "before": TEXTS, "after": TEXTS}), max_size=3),
)


@given(one=RESULTS)
def test_a_file_gives_back_what_was_written(one):
    assert from_json(one.to_json()) == one


def test_a_folder_is_read_by_study_arm_and_seed(tmp_path: Path) -> None:
    write_all(tmp_path)
    write_result(result(study="another", seed=7, steps=3), tmp_path)
    (tmp_path / "transfer" / "two_seed11.json.partial").write_text("killed")
    (tmp_path / "predictions.yaml").write_text("predictions: []")
    found = load_results(tmp_path)
    assert [(one.study, one.arm, one.seed) for one in found[:4]] == [
        ("another", "two", 7),
        *[("transfer", "baseline", seed) for seed in (11, 12, 13)],
    ]
    assert {one.study for one in load_results(tmp_path, "transfer")} == {"transfer"}
    assert load_results(tmp_path / "none") == ()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"unseen": math.nan}, "transfer/two_seed11: numbers.unseen is [nan]; leave out what was not measured"),
        ({"seconds": {"world": math.inf}}, "seconds.world is [inf]"),
        ({"curves": {"insider": [0.1, 0.2]}}, "curves.insider has 2 points; write 5"),
        ({"curves": {"nobody": [0.0] * 5}}, "curves.nobody is of no reader; write its role into readers"),
        (
            {"readers": {"a": "judge"}, "curves": {}},
            "'judge' of a is no role; write one of: classmate, unseen, insider",
        ),
        ({"examples": [{"question": "?"}]}, "an example has ['question']; write question, before, after"),
    ],
)
def test_what_cannot_be_a_result_is_refused(changed, said):
    with pytest.raises(ValueError, match="transfer/two_seed11") as refused:
        result(**changed)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_names_that_lead_out_of_the_folder_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be a file's name"):
        result(arm="../two")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda content: content.update(sede=3), "unknown key sede; known keys: schema, study"),
        (lambda content: content.pop("steps"), "steps is missing; run the study again"),
        (lambda content: content.update(seed="11"), "seed cannot be '11'; run the study again"),
        (lambda content: content["numbers"].update(unseen=True), "numbers cannot be"),
        (lambda content: content["numbers"].update(unseen=math.nan), "numbers.unseen is [nan]"),
        (lambda content: content.update(schema=2), "schema 2 is not read, only 1; run the study again"),
        (lambda content: content.update(arm="one"), "holds transfer/one_seed11; rename or remove it"),
    ],
)
def test_a_file_that_is_no_result_is_refused(change, said, tmp_path: Path) -> None:
    path = write_result(result(), tmp_path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="two_seed11") as refused:
        read_result(path)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    path = write_result(result(), tmp_path)
    path.write_text(path.read_text()[:100])
    with pytest.raises(ValueError, match=r"no JSON .* remove the file and run the study again"):
        load_results(tmp_path)


def test_runs_of_different_length_are_never_mixed(tmp_path: Path) -> None:
    write_all(tmp_path)
    write_result(result(seed=14, steps=60), tmp_path)
    with pytest.raises(ValueError, match=r"took 80 steps and .*two_seed14.json 60; remove those"):
        load_results(tmp_path)


def test_a_file_that_is_no_text_is_told_by_its_name(tmp_path: Path) -> None:
    path = write_result(result(), tmp_path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"two_seed11\.json: no JSON .*remove the file") as told:
        read_result(path)
    assert "\n" not in str(told.value)
