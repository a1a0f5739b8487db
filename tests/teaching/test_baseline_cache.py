"""Stored baselines: found again, shared by processes, and never taken for those of something else."""

import json
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.classmate.errors import ConfigError
from verl.teaching.baseline_cache import Baseline, BaselineCache, BaselineKey

SAMPLING = {"n": 2, "temperature": 0.7, "max_tokens": 512, "stop": ["</solution>"], "seed": None}
TWO = Baseline(scores=(1.0, 0.0), response_lengths=(31, 512), finish_reasons=("stop", "length"))


def key(**changed: Any) -> BaselineKey:
    told = {"student_revision": "a1b2", "template_hash": "c3d4", "question": "What is 58 + 27?", "sampling": SAMPLING}
    return BaselineKey(**{**told, **changed})


def baseline(score: float) -> Baseline:
    return Baseline(scores=(score,), response_lengths=(1,), finish_reasons=("stop",))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "stored" / "baselines.sqlite"


STORES = """
    import sys
    from pathlib import Path

    from verl.teaching.baseline_cache import Baseline, BaselineCache, BaselineKey

    print("ready", flush=True)
    sys.stdin.readline()
    cache, score = BaselineCache(Path(sys.argv[1])), float(sys.argv[2])
    for i in range(15):
        key = BaselineKey(student_revision="a", template_hash="b", question=str(i), sampling={})
        new = Baseline(scores=(score,), response_lengths=(1,), finish_reasons=("stop",))
        print(cache.put(key, new).solve_rate)
"""


@pytest.mark.acceptance("T2")
@pytest.mark.acceptance("T8")
def test_processes_share_a_file_also_after_a_restart(file: Path) -> None:
    """T2 and T8: whoever asks the student, all get what was stored first, and so does a process that comes later."""
    command = [sys.executable, "-c", textwrap.dedent(STORES), str(file)]
    both = [
        subprocess.Popen([*command, score], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for score in ("0.25", "0.75")
    ]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [process.communicate()[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    cache = BaselineCache(file)
    keys = [BaselineKey(student_revision="a", template_hash="b", question=str(i), sampling={}) for i in range(15)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(cache.get, keys))
    assert told[0] == told[1] == [str(one.solve_rate) for one in found if one is not None]
    assert len(cache) == 15


def test_what_is_stored_is_found_as_it_was(file: Path) -> None:
    assert BaselineCache(file).get(key()) is None
    assert BaselineCache(file).put(key(), TWO) == TWO
    found = BaselineCache(file).get(key())
    assert found == TWO
    assert found.solve_rate == 0.5


@pytest.mark.acceptance("T8")
@pytest.mark.parametrize(
    "changed",
    [
        {"student_revision": "a1b3"},
        {"template_hash": "c3d5"},
        {"question": "What is 58 + 28?"},
        {"question": "What is 58 + 27? "},
        {"sampling": {**SAMPLING, "temperature": 0.8}},
        {"sampling": {**SAMPLING, "n": 8}},
        {"sampling": {**SAMPLING, "seed": 0}},
        {"sampling": {**SAMPLING, "stop": []}},
        {"sampling": {name: value for name, value in SAMPLING.items() if name != "seed"}},
        {"sampling": {}},
        {"truth": "85"},
    ],
)
def test_any_change_makes_another_baseline(file: Path, changed: dict[str, Any]) -> None:
    """T8: weights, template, question and each sampling parameter; T2: students do not see each other's."""
    cache = BaselineCache(file)
    cache.put(key(), TWO)
    assert cache.get(key(**changed)) is None
    assert cache.put(key(**changed), baseline(1)) == baseline(1)
    assert cache.get(key()) == TWO


def test_order_and_spelling_of_parameters_change_nothing() -> None:
    turned = dict(reversed(SAMPLING.items()))
    assert key(sampling=turned).digest == key().digest
    assert key(sampling={"temperature": 1}).digest == key(sampling={"temperature": 1.0}).digest
    assert key(sampling={"seed": 2**53}).digest != key(sampling={"seed": 2**53 + 1}).digest
    assert key(sampling={"stop": ("a",)}).digest == key(sampling={"stop": ["a"]}).digest


@settings(deadline=None)
@given(one=st.tuples(st.text(), st.text(), st.text()), other=st.tuples(st.text(), st.text(), st.text()))
def test_two_keys_are_one_only_if_all_parts_are(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    """Parts that run into one another would be another key's."""
    names = ("student_revision", "template_hash", "question")
    keys = [key(**dict(zip(names, parts, strict=True))) for parts in (one, other)]
    assert (keys[0].digest == keys[1].digest) == (one == other)


@pytest.mark.parametrize("sampling", [{"temperature": float("nan")}, {"a": object()}, {"a": {1: 2}}, {"a": {1, 2}}])
def test_parameters_are_plain(sampling: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"cannot be stored .*; write numbers and texts"):
        _ = key(sampling=sampling).digest


@pytest.mark.acceptance("T2")
@pytest.mark.guards("probe and baseline resampled per rollout")
def test_the_first_baseline_stays(file: Path) -> None:
    """T2: all rollouts of a question are compared with one baseline, whoever samples another one meanwhile."""
    one, other = BaselineCache(file), BaselineCache(file)
    assert one.get(key()) is None
    assert other.get(key()) is None
    assert one.put(key(), baseline(1)) == other.put(key(), baseline(0)) == baseline(1)
    assert other.get(key()) == baseline(1)


@pytest.mark.parametrize("damage", ["text", "header", "pages", "content", "fields", "scores"])
def test_a_damaged_file_is_told_in_one_line(file: Path, damage: str) -> None:
    BaselineCache(file)
    rows = [(key(question=str(i)).digest, json.dumps(vars(TWO))) for i in range(200)]
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executemany("INSERT INTO baselines VALUES (?, ?)", rows)
    content = file.read_bytes()
    if damage in ("content", "fields", "scores"):
        stored = {"content": "{", "fields": "{}", "scores": json.dumps({**vars(TWO), "scores": [2, 0]})}[damage]
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("UPDATE baselines SET content = ?", (stored,))
    else:
        file.write_bytes(
            {
                "text": b"question,score\n" * 500,
                "header": b"x" * 16 + content[16:],
                "pages": content[: len(content) // 2 // 4096 * 4096],
            }[damage]
        )
    with pytest.raises(ConfigError) as error:
        BaselineCache(file).get(key(question="7"))
    assert str(error.value).startswith(f"baselines: {file} is damaged (")
    assert str(error.value).endswith("; delete it, and they are asked for again")
    assert "\n" not in str(error.value)


def test_a_file_of_something_else_is_left_alone(file: Path) -> None:
    file.parent.mkdir()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE pictures (name TEXT)")
    before = file.read_bytes()
    with pytest.raises(ConfigError, match="was made by something else; name another file"):
        BaselineCache(file)
    assert file.read_bytes() == before


def test_a_file_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be made .*; name another file"):
        BaselineCache(tmp_path / "taken" / "baselines.sqlite")
    with pytest.raises(ConfigError, match=r"cannot be used .*; name one that can"):
        BaselineCache(tmp_path)


@pytest.mark.parametrize(
    "changed",
    [
        {"scores": ()},
        {"scores": (1.0,)},
        {"scores": (1.0, float("nan"))},
        {"scores": (1.0, -0.1)},
        {"scores": (1.0, None)},
        {"scores": (), "response_lengths": (), "finish_reasons": ()},
        {"response_lengths": (31, -1)},
        {"response_lengths": (31, 1.5)},
        {"finish_reasons": ("stop",)},
        {"finish_reasons": ("stop", None)},
    ],
)
def test_a_baseline_is_whole(changed: dict[str, Any]) -> None:
    """A failed call is no sample, and no score of 0."""
    with pytest.raises(ValueError, match="store"):
        Baseline(**{**vars(TWO), **changed})
