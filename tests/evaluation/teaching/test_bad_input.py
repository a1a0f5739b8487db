"""What cannot be evaluated is said in one line, which says what to write instead."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml

from tests.evaluation.teaching.scripted import TEMPLATES, row, save_tokenizer, write_rows
from verl.evaluation.teaching.__main__ import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("teacher", "weak", "other"):
        save_tokenizer(tmp_path / name)
    save_tokenizer(tmp_path / "base", chat_template=None)
    write_rows(tmp_path / "test.parquet", [row(i, "carry") for i in range(4)])
    write_rows(tmp_path / "nobody_knows.parquet", [row(i, "carry", truth="") for i in range(4)])
    write_rows(tmp_path / "empty.parquet", [row(0, "carry")][:0] or pd.DataFrame(columns=["prompt", "reward_model"]))  # type: ignore[arg-type]
    (tmp_path / "nothing.parquet").write_bytes(b"")
    (tmp_path / "templates.yaml").write_text(yaml.safe_dump(TEMPLATES))
    (tmp_path / "blank.txt").write_text("\n\n")
    return tmp_path


@pytest.fixture
def refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The one line that is said of a command."""

    def run(*given: str, **named: str | None) -> str:
        usual = {"teacher": "teacher", "students": "weak", "data": "test.parquet", "templates": "templates.yaml"}
        options = {name: value for name, value in {**usual, **named}.items() if value is not None}
        files = ("teacher", "students", "unseen", "data", "templates", "candidates", "offtask", "train_data")
        arguments = [
            part
            for name, value in options.items()
            for part in (f"--{name}", str(folder / value) if name in files else value)
        ]
        assert main([*given, *arguments, "--output", str(folder / "out.json")]) == 2
        said = capsys.readouterr().err.strip().splitlines()
        assert said[-1].startswith("error: ")
        assert not (folder / "out.json").exists()
        return said[-1]

    return run


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"data": "empty.parquet"}, "has no rows; name another file"),
        ({"data": "nothing.parquet"}, "cannot be read as parquet"),
        ({"data": "not_there.parquet"}, "no such file"),
        ({"data": "nobody_knows.parquet"}, "has a ground truth (reward_model.ground_truth)"),
        ({"unseen": "weak"}, "is in --students too; name each student once"),
        ({"teacher": "base"}, "has no chat template (a base model?)"),
        ({"students": "base"}, "has no chat template (a base model?)"),
        ({"teacher": "not_there"}, "cannot be loaded"),
        ({"controls": "untrained"}, "--controls untrained: nobody says what the teacher was trained from"),
        ({"controls": "fixed"}, "--controls fixed: fixed advice is searched on questions of the training"),
        ({"controls": "best"}, "'best' is not possible; write some of null,untrained,reveal,fixed"),
        ({"candidates": "blank.txt"}, "holds no advice; write one in each line"),
        ({"offtask": "nobody_knows.parquet"}, "--offtask: no row of"),
        ({"reveal": "I know it."}, "--reveal has no {ground_truth}"),
        ({"seeds": "1,1"}, "are no different seeds"),
        ({"items": "0"}, "is no number of 1 or more"),
        ({"step": "3"}, "--step names a checkpoint of a run"),
        ({"teacher": None}, "--teacher is missing; write --teacher PATH, or name a training run"),
        ({"students": None}, "--students is missing"),
        ({"templates": "not_there.yaml"}, "name a YAML file"),
    ],
)
def test_a_mistake_is_one_line(refused: Callable[..., str], named: dict[str, str | None], said: str) -> None:
    assert said in refused(**named)


def test_an_unknown_key_is_refused(refused: Callable[..., str]) -> None:
    assert "max_teaching_token" in refused("rcl.protocol.max_teaching_token=64")


def test_a_run_without_a_checkpoint_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = folder / "run"
    run.mkdir()
    assert main([str(run)]) == 2
    assert "has no config.yaml; name the folder of a teacher's run" in capsys.readouterr().err
    (run / "config.yaml").write_text("data: {}\n")
    assert main([str(run)]) == 2
    assert "trained no teacher" in capsys.readouterr().err
    (run / "config.yaml").write_text("rcl: {students: []}\n")
    assert main([str(run)]) == 2
    assert "has no checkpoint; train with trainer.save_freq=N, or name a model by --teacher" in capsys.readouterr().err
    assert main([str(folder / "nowhere")]) == 2
    assert "is no folder; name a run's" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("output", "said"), [("weak", "is a folder; write FILE.json"), ("blank.txt/e.json", "cannot be")]
)
def test_where_nothing_can_be_written(folder: Path, output: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--teacher", "teacher", "--students", "weak", "--data", "test.parquet", "--templates", "templates.yaml"]
    arguments = [str(folder / one) if (folder / one).exists() else one for one in given]
    assert main([*arguments, "--controls", "none", "--output", str(folder / output)]) == 2
    (line,) = (one for one in capsys.readouterr().err.splitlines() if one.startswith("error: "))
    assert said in line


def test_a_model_that_nobody_serves(refused: Callable[..., str]) -> None:
    said = refused(engine="openai", servers="no_such_file.json", controls="none")
    assert "no_such_file.json names no server for it; start one (docs/hosting.md), or write --servers FILE" in said
