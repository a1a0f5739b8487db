"""Shards of a collection: whole lines count, each row once, and what was killed is gone on with."""

import json
import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from tests.teaching.collected_rows import TEMPLATES, row, said
from verl.classmate.errors import ConfigError
from verl.teaching.collected import CollectedTeaching, as_collected
from verl.teaching.shards import ShardWriter, collection_id, keep_templates, read_shards
from verl.teaching.templates import Templates


def add(folder: Path, *rows: CollectedTeaching) -> None:
    with ShardWriter(folder) as writer:
        writer.add(rows)


def test_a_row_is_read_as_it_was_written() -> None:
    one = row(question="Was ist\u2028x² \ud800?", probe="a\nb", guided=(said("7"), said("?", outcome="no_answer")))
    line = one.to_json()
    assert "\n" not in line
    assert CollectedTeaching.from_json(line.encode(errors="replace")).guided == one.guided
    assert CollectedTeaching.from_json(row().to_json()) == row()


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_is_none(reward: float) -> None:
    line = row(reward=reward, terms={"improvement": reward}).to_json()
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    found = CollectedTeaching.from_json(line)
    assert (found.reward, found.terms) == (None, {"improvement": None})
    (collected,) = as_collected([found])
    assert collected.reward is None


def test_a_shard_that_was_cut_in_a_line(tmp_path: Path) -> None:
    add(tmp_path, row(variation=0), row(variation=1))
    (shard,) = tmp_path.glob("*.jsonl")
    whole = shard.read_bytes()
    for length in range(whole.index(b"\n") + 2, len(whole) - 1, 97):
        shard.write_bytes(whole[:length])
        found = read_shards([tmp_path])
        assert [one.variation for one in found.rows] == [0]
        assert found.counts["cut"] == 1
    # The next start writes elsewhere, and what was cut is made again.
    add(tmp_path, row(variation=1))
    assert [one.variation for one in read_shards([tmp_path]).rows] == [0, 1]


def test_a_line_whose_end_alone_is_missing_counts(tmp_path: Path) -> None:
    add(tmp_path, row())
    (shard,) = tmp_path.glob("*.jsonl")
    shard.write_bytes(shard.read_bytes()[:-1])
    assert len(read_shards([tmp_path]).rows) == 1


@pytest.mark.parametrize("damage", ["{}", "[]", "nonsense", '{"schema": 99}', '{"schema": 1}'])
def test_a_damaged_line_names_its_place(tmp_path: Path, damage: str) -> None:
    add(tmp_path, row(), row(variation=1))
    (shard,) = tmp_path.glob("*.jsonl")
    first, second = shard.read_text().splitlines()
    shard.write_text(f"{first}\n{damage}\n{second}\n")
    with pytest.raises(ConfigError, match=r"part_1\.jsonl, line 2: not a row of a collection \(.+\); name other"):
        read_shards([tmp_path])


def test_a_row_is_taken_once(tmp_path: Path) -> None:
    failed = row(outcome="timeout", reward=None, w=None, D=None)
    add(tmp_path, failed, row(variation=1))
    add(tmp_path, row())
    add(tmp_path, failed)
    found = read_shards([tmp_path, tmp_path])
    assert [(one.variation, one.reward) for one in found.rows] == [(0, 1.5), (1, 1.5)]
    assert found.counts["repeated"] == 6


def test_two_runs_in_one_folder_stay_two(tmp_path: Path) -> None:
    add(tmp_path, row(run="a"))
    add(tmp_path, row(run="b"))
    assert [one.run for one in read_shards([tmp_path]).rows] == ["a", "b"]


def test_writers_at_the_same_time_have_files_of_their_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda v: add(tmp_path, row(variation=v)), range(24)))
    assert sorted(one.variation for one in read_shards([tmp_path]).rows) == list(range(24))
    assert len(list(tmp_path.glob("part_*.jsonl"))) == 24


def test_a_folder_has_one_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where all who come look before any has made one."""
    looked, exists = Barrier(8), Path.exists

    def together(path: Path, **more: Any) -> bool:
        found = exists(path, **more)
        if path.name == "ID":
            looked.wait(60)
        return found

    monkeypatch.setattr(Path, "exists", together)
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: collection_id(tmp_path / "new"), range(8)))
    assert len(found) == 1
    assert len(found.pop()) == 16
    assert os.listdir(tmp_path / "new") == ["ID"]


def test_prompts_are_kept_by_several_at_a_time(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: keep_templates(tmp_path, TEMPLATES), range(16))) == {TEMPLATES.hash}
    (file,) = tmp_path.iterdir()
    add(tmp_path, row())
    assert read_shards([tmp_path]).templates == {TEMPLATES.hash: TEMPLATES}
    assert file.name == f"templates_{TEMPLATES.hash[:16]}.yaml"


def test_the_prompts_stand_beside_the_rows(tmp_path: Path) -> None:
    other = Templates.from_mapping(
        {
            "answer_format": "Schließe mit ####.",
            "student_baseline_template": {"system": "{x^2}", "user": "{question} {answer_format}"},
        }
    )
    for templates in (TEMPLATES, other, other):
        keep_templates(tmp_path, templates)
    add(tmp_path, row())
    assert read_shards([tmp_path]).templates == {TEMPLATES.hash: TEMPLATES, other.hash: other}


def test_a_run_folder_stands_for_its_teachings(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    add(tmp_path / "teachings", row())
    assert len(read_shards([tmp_path]).rows) == 1


@pytest.mark.parametrize("made", [False, True])
def test_a_place_without_teachings_is_told(tmp_path: Path, made: bool) -> None:
    place = tmp_path / "x"
    if made:
        place.mkdir()
    told = "no teaching was collected there; train with rcl.collect.enable=true" if made else "does not exist"
    with pytest.raises(ConfigError, match=told):
        read_shards([place])


def test_the_last_teacher_comes_first() -> None:
    rows = [row(step=step, variation=v) for step in (3, 7) for v in (0, 1)]
    rows.append(row(step=9, student="strong"))
    numbers = {(one.step, one.variation): made.variation for one, made in zip(rows, as_collected(rows), strict=True)}
    assert numbers == {(7, 0): 0, (7, 1): 1, (3, 0): 2, (3, 1): 3, (9, 0): 0}


def test_what_could_not_be_checked_is_neither_right_nor_wrong() -> None:
    unknown = replace(said("maybe 3"), outcome="judge_error", score=None)
    (made,) = as_collected([row(baseline=(unknown, said("3", right=False)), guided=(unknown, said("7")))])
    assert [(one.text, one.correct) for one in made.baseline] == [("3", False)]
    assert [(one.text, one.correct) for one in made.guided] == [("7", True)]
