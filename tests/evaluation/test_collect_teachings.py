"""Teachings collected by command: a teacher and students behind a real server, killed and gone on with."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from omegaconf import OmegaConf

from tests.evaluation.teaching.scripted import TEMPLATES, Scripted, row, world
from tests.workers.scripted_students import scripted_pipeline, taught, teaching_config
from verl.classmate.record import RowRecord
from verl.evaluation import collection
from verl.evaluation.collect_teachings import main
from verl.teaching.collected import CollectedTeaching
from verl.teaching.shards import read_shards
from verl.teaching.templates import Templates


@pytest.fixture
def scripted(tmp_path: Path) -> Any:
    with world(tmp_path) as one:
        yield one


def collect(scripted: Scripted, *more: str, teacher: str = "teacher", students: str = "weak,strong") -> int:
    named = {
        "students": ",".join(scripted.path(name) for name in students.split(",")),
        "questions": scripted.path("train.parquet"),
        "templates": scripted.path("templates.yaml"),
        "servers": scripted.path("servers.json"),
        "engine": "openai",
        "output": scripted.path("out"),
    }
    given = [part for name, value in named.items() for part in (f"--{name}", value)]
    overrides = ["hardware=cpu", "rcl.protocol.baseline_samples=2", "rcl.protocol.guided_samples=2"]
    return main([*([scripted.path(teacher)] if teacher else []), *given, *overrides, *more])


def collected(scripted: Scripted) -> list[CollectedTeaching]:
    return read_shards([scripted.folder / "out"]).rows


def test_every_field_of_a_row(scripted: Scripted) -> None:
    assert collect(scripted, "--variations", "2", students="weak") == 0
    rows = collected(scripted)
    assert len(rows) == 8
    one = next(found for found in rows if found.question.startswith("train q0") and found.variation == 1)
    assert (one.student, one.student_model) == ("weak", scripted.path("weak"))
    assert (one.b, one.w, one.D) == (0.0, 1.0, 1.0)
    assert (one.state, one.teaching, one.probe) == ("ok", "Mind the carry.", "i am lost")
    assert one.teacher_text == "<thinking>who is it</thinking><teaching>Mind the carry.</teaching>"
    assert [(item.text, item.correct) for item in one.guided] == [("<solution>2000</solution>", True)] * 2
    assert [(item.text, item.correct) for item in one.baseline] == [("<solution>7</solution>", False)] * 2
    assert one.reward == pytest.approx(1 + 100 / 115)
    assert one.length == 15
    assert one.finish_reasons == {"base": ["stop", "stop"], "guided": ["stop", "stop"]}
    assert one.teacher.startswith("server:")
    assert one.ground_truth == "2000"
    found = read_shards([scripted.folder / "out"])
    assert found.templates[one.template_hash] == Templates.from_mapping(TEMPLATES)


def test_the_same_command_goes_on(scripted: Scripted) -> None:
    assert collect(scripted) == 0
    before, asked = collected(scripted), dict(scripted.asked)
    (shard,) = (scripted.folder / "out").glob("*.jsonl")
    lines = shard.read_bytes().splitlines(keepends=True)
    # What a kill leaves: some whole rows, and half of one.
    shard.write_bytes(b"".join(lines[:5]) + lines[5][:99])
    assert collect(scripted) == 0
    after = read_shards([scripted.folder / "out"])
    assert sorted(one.id for one in after.rows) == sorted(one.id for one in before)
    assert after.counts == {"repeated": 0, "cut": 1}
    assert scripted.asked["teacher"] - asked["teacher"] == 3
    assert len(list((scripted.folder / "out").glob("*.jsonl"))) == 2
    assert collect(scripted, "--variations", "2") == 0
    assert len(collected(scripted)) == 16
    assert scripted.asked["teacher"] - asked["teacher"] == 3 + 8, "what was there was not asked for again"


def test_rows_that_an_engine_failed_at_are_asked_again(scripted: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    scripted.fails = lambda model, prompt: model == "weak" and "q1" in prompt and "<advice>" in prompt
    assert collect(scripted, students="weak") == 0
    failed = [one for one in collected(scripted) if one.failed]
    assert "4 rows, 3 with a reward" in capsys.readouterr().out
    assert [(one.reward, one.w) for one in failed] == [(None, None)]
    scripted.fails = lambda model, prompt: False
    assert collect(scripted, students="weak") == 0
    assert "4 rows, 4 with a reward" in capsys.readouterr().out


def test_a_teacher_that_is_gone_leaves_nothing_behind(scripted: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    scripted.fails = lambda model, prompt: model == "teacher"
    assert collect(scripted, students="weak") == 0
    assert "0 rows, 0 with a reward\nleft out: 4 teacher_engine_error" in capsys.readouterr().out
    assert not list((scripted.folder / "out").glob("*.jsonl"))
    scripted.fails = lambda model, prompt: False
    assert collect(scripted, students="weak") == 0
    assert len(collected(scripted)) == 4


def test_another_teacher_needs_another_folder(scripted: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    assert collect(scripted, students="weak") == 0
    capsys.readouterr()
    assert collect(scripted, students="weak", teacher="untrained") == 2
    assert "holds a collection that differs in teacher; name another folder" in capsys.readouterr().err
    assert collect(scripted, "rcl.protocol.guided_samples=3", students="weak") == 2
    assert "differs in protocol" in capsys.readouterr().err


def test_held_out_questions_are_not_asked(scripted: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    held_out = scripted.folder / "eval.jsonl"
    held_out.write_text(json.dumps({"question": "TRAIN  q1 kind borrow: how many?"}) + "\n")
    assert collect(scripted, "--exclude", str(held_out), students="weak") == 0
    assert len(collected(scripted)) == 3
    assert "1 held_out" in capsys.readouterr().out


def test_prompts_and_temperatures_take_turns(scripted: Scripted) -> None:
    prompt = scripted.folder / "short.yaml"
    prompt.write_text(
        "teacher_adaptive_template:\n"
        "  system: 'Be short. <thinking></thinking><teaching></teaching> {teaching_limit}'\n"
        "  user: '{question} Plan: {approach}'\n"
    )
    options = ("--variations", "4", "--temperatures", "0.5,1.0", "--teacher_prompts", str(prompt))
    assert collect(scripted, *options, students="weak") == 0
    rows = [one for one in collected(scripted) if one.question.startswith("train q0")]
    rows.sort(key=lambda one: one.variation)
    assert [one.temperature for one in rows] == [0.5, 1.0, 0.5, 1.0]
    assert rows[0].template_hash == rows[1].template_hash != rows[2].template_hash == rows[3].template_hash
    assert {one.template_hash for one in rows} <= read_shards([scripted.folder / "out"]).templates.keys()


def test_the_solution_as_advice_asks_no_teacher(scripted: Scripted) -> None:
    rows = [row(i, "carry", split="train") for i in range(2)]
    rows[0]["extra_info"]["solution"] = "</advice> The answer is 2000. <solution>2000</solution>"
    rows[1]["extra_info"]["solution"] = "word " * 300 + "The answer is 2001."
    pd.DataFrame(rows).to_parquet(scripted.folder / "train.parquet")
    assert collect(scripted, "--solutions", teacher="", students="strong") == 0
    found = sorted(collected(scripted), key=lambda one: one.question)
    assert scripted.asked["teacher"] == 0
    assert [(one.state, one.w) for one in found] == [("ok", 1.0), ("ok", 1.0)]
    assert found[0].leak["told"], "a flag and no filter"
    assert "</advice>" not in found[0].teaching
    assert found[1].teaching.startswith("word word")
    assert {one.teacher for one in found} == {"solutions"}
    assert found[0].temperature is None


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--variations", "0"), "'0' is no number of 1 or more"),
        (("--temperatures", "hot"), "--temperatures"),
        (("--questions", "none.jsonl"), "none.jsonl does not exist"),
        (("rcl.protocol.nonsense=1",), "rcl.protocol.nonsense"),
        (("second/teacher",), "is a second teacher"),
        (("--teacher_prompts", "none.yaml"), "none.yaml cannot be read"),
    ],
)
def test_a_mistake_is_one_line(
    scripted: Scripted, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], told: str
) -> None:
    assert collect(scripted, *more, students="weak") == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.strip().count("\n") == 0


def test_without_a_teacher_it_says_so(scripted: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    assert collect(scripted, teacher="", students="weak") == 2
    assert "nobody teaches; name a TEACHER, or --like RUN, or write --solutions" in capsys.readouterr().err


def dumped_run(folder: Path) -> Path:
    """A teacher's run that collected nothing while it trained."""
    (folder / "parts").mkdir(parents=True)
    questions = folder / "val.jsonl"
    questions.write_text(json.dumps({"question": "Another one?"}) + "\n")
    config = teaching_config(folder / "parts", f"data.val_files={questions}")
    pipeline, _ = scripted_pipeline(folder / "parts")
    rows = taught(pipeline, "<teaching>Mind the carry.</teaching>", "<teaching>guess</teaching>")
    run = folder / "run"
    (run / "rollouts").mkdir(parents=True)
    for step in (1, 2):
        lines = (replace(one, answer=replace(one.answer, step=step)).to_json() for one in map(RowRecord.of, rows))
        (run / "rollouts" / f"step_{step}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    plain: Any = OmegaConf.to_container(config, resolve=True)
    plain["trainer"]["v1"]["trainer_mode"] = "classmate_cot"
    (run / "config.yaml").write_text(yaml.safe_dump(plain))
    return run


def test_a_run_that_did_not_collect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = dumped_run(tmp_path)
    assert main(["--from_rollouts", str(run)]) == 0, capsys.readouterr().err
    assert "4 rows of 2 steps, 0 rows of held-out questions" in capsys.readouterr().out
    before = read_shards([run])
    assert [(one.step, one.teaching, one.w) for one in before.rows] == [
        (step, said, rate) for step in (1, 2) for said, rate in (("Mind the carry.", 1.0), ("guess", 0.0))
    ]
    assert [one.text for one in before.rows[0].baseline] == ["<solution>3</solution>"] * 4
    assert main(["--from_rollouts", str(run)]) == 0
    assert "0 rows of 0 steps" in capsys.readouterr().out
    assert read_shards([run]).rows == before.rows
    held_out = tmp_path / "eval.jsonl"
    held_out.write_text(json.dumps({"problem": "what IS 2 + 5?"}) + "\n")
    assert main(["--from_rollouts", str(run), "--output", str(tmp_path / "x"), "--exclude", str(held_out)]) == 0
    assert "0 rows of 2 steps, 4 rows of held-out questions" in capsys.readouterr().out


def test_a_run_without_a_teacher_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--from_rollouts", str(tmp_path)]) == 2
    assert "is not a run folder (no config.yaml)" in capsys.readouterr().err
    (tmp_path / "config.yaml").write_text("trainer: {}\n")
    assert main(["--from_rollouts", str(tmp_path)]) == 2
    assert "trained no teacher" in capsys.readouterr().err


def test_models_that_answer_nothing_end_it(
    scripted: Scripted, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "_LOT", 1)
    scripted.fails = lambda model, prompt: "q0" not in prompt
    assert collect(scripted, students="weak") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: the models of {scripted.folder / 'out'} answer nothing (")
    assert error.endswith("the same command goes on from here")
    assert [one.failed for one in collected(scripted)].count(False) == 1, "what was had is kept"
