"""Sycophancy rows out of an embedded world: which, where, and that the world stays as it is."""

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from verl.data_preprocessing import common
from verl.data_preprocessing.arithmetic_problems import iter_problems, make_dataset_row
from verl.data_preprocessing.hinted_arithmetic_sycophancy import main, make_sycophancy_data
from verl.utils.reward_score.cot_monitor import get_verifier

SPLITS = ("warmup_train", "warmup_dev", "train", "dev", "test")


def make_problems(folder: Path, *, train: int, val: int, seed: int = 0) -> Path:
    """The part of a world that matters here: its problems."""
    for split, count in (("train", train), ("val", val)):
        problems = iter_problems(seed=seed, split=split, count=count)  # type: ignore[arg-type]
        rows = [make_dataset_row(problem, split=split, index=i) for i, problem in enumerate(problems)]  # type: ignore[arg-type]
        common.write_parquet(rows, folder / f"{split}.parquet")
    return folder


def read(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {split: pq.read_table(folder / f"{split}.parquet").to_pylist() for split in SPLITS}


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_problems(tmp_path_factory.mktemp("world"), train=3000, val=300)


@pytest.fixture(scope="module")
def rows(problems: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("rows") / "here"
    make_sycophancy_data(problems, folder)
    return read(folder)


def test_every_hinted_problem_is_in_one_split(rows: dict[str, list[dict[str, Any]]], problems: Path) -> None:
    hinted = [
        row["prompt"][0]["content"]
        for split in ("train", "val")
        for row in pq.read_table(problems / f"{split}.parquet").to_pylist()
        if row["reward_model"]["hinted_answer"] is not None
    ]
    made = [row["prompt"][0]["content"] for split in SPLITS for row in rows[split]]
    assert sorted(made) == sorted(hinted)


def test_no_numbers_cross_splits(rows: dict[str, list[dict[str, Any]]]) -> None:
    def numbers(row: dict[str, Any]) -> tuple[str, ...]:
        return tuple(sorted(re.findall(r"\d+", row["reward_model"]["raw_question_for_monitor"])))

    seen = [(split, {numbers(row) for row in rows[split]}) for split in SPLITS]
    for i, (first, mine) in enumerate(seen):
        for second, theirs in seen[i + 1 :]:
            assert not mine & theirs, (first, second)


def test_shares_are_those_of_the_module(rows: dict[str, list[dict[str, Any]]]) -> None:
    counts = {split: len(rows[split]) for split in SPLITS}
    of_train = counts["warmup_train"] + counts["warmup_dev"] + counts["train"]
    assert counts["warmup_train"] / of_train == pytest.approx(0.25, abs=0.01)
    assert counts["warmup_dev"] / of_train == pytest.approx(0.10, abs=0.01)
    assert abs(counts["dev"] - counts["test"]) <= 2


def test_a_row_scores_the_hint(rows: dict[str, list[dict[str, Any]]]) -> None:
    for split in SPLITS:
        for index, row in enumerate(rows[split]):
            task = row["reward_model"]
            assert row["extra_info"]["split"] == split
            assert row["extra_info"]["index"] == index
            assert f"I think the answer is {task['ground_truth']}." in row["prompt"][0]["content"]
            assert task["ground_truth"] == task["hinted_answer"] != task["actual_ground_truth"]
            assert f"{task['prompt_without_hint']} {task['hint_str_for_monitor']}" == row["prompt"][0]["content"]
            verifier = get_verifier(row["data_source"])
            assert verifier.compute_score(f"It is {task['ground_truth']}.", verifier.process_doc(row)) == 1
            assert verifier.compute_score(f"It is {task['actual_ground_truth']}.", verifier.process_doc(row)) == 0


def test_a_second_run_changes_nothing_and_another_world_does(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    world, folder = make_problems(tmp_path / "world", train=60, val=30), tmp_path / "rows"
    before = {path: path.read_bytes() for path in world.iterdir()}
    arguments = ["--world", str(world), "--output_dir", str(folder)]
    main(arguments)
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert "rows written" in capsys.readouterr().out
    main(arguments)
    assert "rows found" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first
    assert {path: path.read_bytes() for path in world.iterdir()} == before

    make_problems(world, train=90, val=30, seed=1)
    assert not make_sycophancy_data(world, folder)["reused"]
    assert sum(map(len, read(folder).values())) > 30
    assert sorted(tmp_path.iterdir()) == [folder, world], "nothing is left behind"


def test_mistakes_are_named_and_nothing_is_lost(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no embedded world"):
        make_sycophancy_data(tmp_path / "nowhere", tmp_path / "rows")
    world = make_problems(tmp_path / "world", train=60, val=30)
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("keep")
    with pytest.raises(ValueError, match="holds other files"):
        make_sycophancy_data(world, other)
    assert (other / "mine.txt").read_text() == "keep"
    with pytest.raises(ValueError, match="too few problems with a hint"):
        make_sycophancy_data(make_problems(tmp_path / "small", train=3, val=1), tmp_path / "rows")
    assert not (tmp_path / "rows").exists()
