"""Rows that a teacher's run is refused for before it starts: what it would not read, or could not."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from omegaconf import OmegaConf

from tests.workers.scripted_students import teaching_config
from verl.classmate.config import this_run
from verl.classmate.errors import ConfigError
from verl.teaching.config import this_teaching
from verl.trainer.preflight.data import check_files
from verl.trainer.preflight.teaching import check_taught_rows

USER = {"role": "user", "content": "What is 5 + 8?"}
TWO = "rcl.students=[{model: m, backend: hf}, {model: n, backend: hf}]"


def row(index: int = 0, **more: Any) -> dict[str, Any]:
    task = {"style": "rule", "ground_truth": "13"}
    return {"prompt": [USER], "data_source": "sums", "reward_model": task, "extra_info": {"index": index}} | more


def check(folder: Path, *rows: dict[str, Any], same_file: bool = False, overrides: tuple[str, ...] = (TWO,)) -> None:
    for name, content in (("train", rows), ("val", [row()])):
        pd.DataFrame(list(content)).to_parquet(folder / f"{name}.parquet")
    config = teaching_config(folder, *overrides)
    teaching = this_teaching(config)
    assert teaching is not None
    plain: Any = OmegaConf.to_container(config, resolve=True)
    val = folder / ("train.parquet" if same_file else "val.parquet")
    data = plain["data"] | {"train_files": str(folder / "train.parquet"), "val_files": str(val)}
    check_files(data, verified=False)
    check_taught_rows(data, this_run(config), teaching)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"prompt": [{"role": "system", "content": "Be brief."}, USER]},
            "row 1: its prompt has the turns system, user",
        ),
        ({"prompt": [USER, {"role": "assistant", "content": "13"}, USER]}, "turns user, assistant, user"),
        ({"prompt": [USER | {"content": " \n\u200b"}]}, "row 1: its prompt has no text"),
        ({"prompt": []}, r"turns \(none\)"),
        ({"extra_info": {"index": 1, "student": "Ada"}}, r"extra_info\.student='Ada' .*write a number from 0 to 1"),
        ({"extra_info": {"index": 1, "student": "2"}}, "give the column another name"),
    ],
)
def test_rows_that_would_not_be_read(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        check(tmp_path, row(), row(1, **more))
    assert "\n" not in str(refused.value)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    lacking = row()
    del lacking["prompt"]
    with pytest.raises(ConfigError, match="lacks prompt"):
        check(tmp_path, lacking)


def test_nobody_knows_an_answer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no row of .* has a ground truth"):
        check(tmp_path, row(reward_model={"ground_truth": " "}))


def test_one_file_for_training_and_validation(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2 rows in validation, one for each student, and 1 in training"):
        check(tmp_path, row(), same_file=True)
    check(tmp_path, row(), same_file=True, overrides=("rcl.students=[{model: m, backend: hf}]",))
    check(tmp_path, row(), same_file=True, overrides=(TWO, "rcl.protocol.student_assignment=all"))


def test_rows_that_are_read(tmp_path: Path) -> None:
    check(tmp_path, row(), row(1, extra_info={"index": 1, "student": 1}), row(2, reward_model={"ground_truth": None}))
