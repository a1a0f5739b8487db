"""Training sets by command: the student's own tokenizer and template, whole rows, none of an evaluation's questions."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from omegaconf import OmegaConf
from transformers import AutoTokenizer

from tests.evaluation.teaching.scripted import save_tokenizer
from tests.teaching.collected_rows import TEMPLATES, row, said
from verl.evaluation.student_set import main
from verl.teaching.collected import CollectedTeaching
from verl.teaching.shards import ShardWriter, keep_templates
from verl.teaching.templates import Templates

HELD_OUT = "what  is 2 + 5?"


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("student")
    save_tokenizer(folder)
    return folder


def shards(folder: Path, *rows: CollectedTeaching, templates: Templates | None = TEMPLATES) -> Path:
    with ShardWriter(folder) as writer:
        writer.add(rows)
    if templates is not None:
        keep_templates(folder, templates)
    return folder


def evaluation(folder: Path, question: str = HELD_OUT) -> str:
    file = folder / "eval.jsonl"
    file.write_text(json.dumps({"question": question}) + "\n")
    return str(file)


def build(place: Path, student: Path, *more: str, name: str = "set.parquet", mode: str = "self_guided") -> int:
    output = str(place.parent / name)
    given = ["--mode", mode, "--student", str(student), "--max_length", "600", "--output", output]
    return main([str(place), *given, *more])


def made(place: Path, name: str = "set.parquet") -> list[dict[str, Any]]:
    file = place.parent / name
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in file.read_text().splitlines()]
    rows = pd.read_parquet(file).to_dict("records")
    return [{key: list(value) if hasattr(value, "tolist") else value for key, value in one.items()} for one in rows]


def rows_of_three() -> list[CollectedTeaching]:
    return [row(question=f"What is {n} + 5?", guided=(said(f"<solution>{n + 5}</solution>"),)) for n in (1, 3, 4)]


def test_upstreams_dataset_reads_it_whole(tmp_path: Path, student: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

    place = shards(tmp_path / "teachings", *rows_of_three())
    assert build(place, student, "--eval_files", evaluation(tmp_path)) == 0
    assert "3 collected, 3 kept" in capsys.readouterr().out
    rows = made(place)
    longest = max(one["tokens"] for one in rows)
    config = OmegaConf.create({"max_length": int(longest), "truncation": "error", "pad_mode": "no_padding"})
    tokenizer = AutoTokenizer.from_pretrained(student)
    dataset = MultiTurnSFTDataset(str(tmp_path / "set.parquet"), tokenizer, config)
    for one, read in zip(rows, (dataset[i] for i in range(3)), strict=True):
        assert one["tokens"] - 2 <= len(read["input_ids"]) <= one["tokens"]
        learnt = tokenizer.decode(read["input_ids"][read["loss_mask"].bool()])
        assert one["messages"][-1]["content"] in learnt
        assert one["loss_from"] == 0


def test_a_held_out_question_ends_it_or_is_left_out(
    tmp_path: Path, student: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = shards(tmp_path / "teachings", row(), *rows_of_three())
    held_out = ["--eval_files", evaluation(tmp_path)]
    assert build(place, student, *held_out) == 2
    assert "1 of 4 rows are of held-out questions" in capsys.readouterr().err
    assert not (tmp_path / "set.parquet").exists()
    assert build(place, student, *held_out, "--leave_out_held_out") == 0
    assert "1 held_out, 3 collected, 3 kept" in capsys.readouterr().out
    assert all("2 + 5" not in one["question"] for one in made(place))
    nothing_else = shards(tmp_path / "more", row())
    assert build(nothing_else, student, *held_out, "--leave_out_held_out") == 2
    assert "all 1 rows are of held-out questions; collect other questions" in capsys.readouterr().err


def test_rows_longer_than_the_context_are_never_cut(
    tmp_path: Path, student: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = said("word " * 200 + "<solution>7</solution>")
    place = shards(
        tmp_path / "teachings",
        row(guided=(long,)),
        row(question="q2", variation=0, guided=(long,)),
        row(question="q2", variation=1, guided=(said("<solution>7</solution>"),)),
    )
    assert build(place, student) == 0
    assert "2 too_long, 1 kept" in capsys.readouterr().out
    (one,) = made(place)
    assert one["messages"][-1]["content"] == "<solution>7</solution>"


def test_a_student_without_a_chat_template(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_tokenizer(tmp_path / "base", chat_template=None)
    place = shards(tmp_path / "teachings", row())
    assert build(place, tmp_path / "base") == 2
    assert "has no chat template (a base model?)" in capsys.readouterr().err


def test_contrastive_needs_a_wrong_answer(tmp_path: Path, student: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = row(question="easy", baseline=(said("<solution>7</solution>"),))
    unknown = row(question="unknown", baseline=())
    place = shards(tmp_path / "teachings", right, unknown)
    assert build(place, student, mode="contrastive", name="pairs.jsonl") == 2
    assert "no row is left (" in capsys.readouterr().err
    shards(place, row())
    assert build(place, student, mode="contrastive", name="pairs.jsonl") == 0
    (one,) = made(place, "pairs.jsonl")
    assert one["prompt"] == TEMPLATES.baseline("What is 2 + 5?")
    assert [one[side][0]["content"] for side in ("chosen", "rejected")] == [
        "It is <solution>7</solution>",
        "It is <solution>3</solution>",
    ]
    assert "loss_from" not in one


def test_rows_without_a_reward_are_counted(tmp_path: Path, student: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = shards(tmp_path / "teachings", row(reward=float("nan")), *rows_of_three())
    assert build(place, student) == 0
    assert "1 invalid" in capsys.readouterr().out


def test_its_own_rows_where_it_was_taught(tmp_path: Path, student: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = row(student="me", student_model=f"{student}/")
    place = shards(tmp_path / "teachings", own, row(question="other", student="strong"))
    assert build(place, student) == 0
    assert "1 other_student" in capsys.readouterr().out
    assert [one["student"] for one in made(place)] == ["me"]
    assert build(place, student, "--taught", "all") == 0
    assert [one["student"] for one in made(place)] == ["me", "strong"]
    assert build(place, student, "--taught", "nobody") == 2
    assert "the shards have me, strong, or write all" in capsys.readouterr().err


def test_students_asked_in_two_ways_are_not_mixed(
    tmp_path: Path, student: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher = Templates.from_mapping(
        {
            "teacher_adaptive_template": {
                "system": "<thinking></thinking><teaching></teaching> {teaching_limit}",
                "user": "{question} {approach}",
            }
        }
    )
    place = shards(tmp_path / "teachings", row(), row(question="q2", template_hash=teacher.hash))
    keep_templates(place, teacher)
    assert build(place, student) == 0, "the teacher alone was asked in another way"
    other = Templates.from_mapping({"student_baseline_template": "Solve: {question} {answer_format}"})
    shards(place, row(question="q3", template_hash=other.hash), templates=other)
    assert build(place, student) == 2
    assert "students were asked in 2 ways" in capsys.readouterr().err


def test_prompts_that_are_not_there_are_asked_for(
    tmp_path: Path, student: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = shards(tmp_path / "teachings", row(), templates=None)
    assert build(place, student) == 2
    assert "name them by --templates" in capsys.readouterr().err
    (tmp_path / "templates.yaml").write_text('student_baseline_template: "{question} Now. {answer_format}"\n')
    assert build(place, student, "--templates", str(tmp_path / "templates.yaml")) == 0
    assert "What is 2 + 5? Now." in made(place)[0]["messages"][0]["content"]


def test_a_spelt_out_special_token_is_left_out(
    tmp_path: Path, student: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = shards(tmp_path / "teachings", row(question="What is <eos>?"), *rows_of_three())
    assert build(place, student) == 0
    assert "1 special_token" in capsys.readouterr().out


def test_a_trace_in_the_students_own_tags(tmp_path: Path, student: Path) -> None:
    place = shards(tmp_path / "teachings", row())
    form = '{"think_open": "<think>", "think_close": "</think>", "solution_open": "", "solution_close": ""}'
    assert build(place, student, "--trace_format", form, mode="rlt_trace") == 0
    assert made(place)[0]["messages"][-1]["content"] == "<think>Mind the carry.</think>\n\nTwo and five are seven."


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--pick", "best"), "invalid choice: 'best'"),
        (("--min_gain", "7"), "min_gain: 7.0 is no difference or share"),
        (("--trace_format", "[]"), "is no JSON object"),
        (("--trace_format", '{"think": "x"}'), "think is unknown; write one of: system"),
        (("--eval_files", "none.parquet"), "none.parquet does not exist"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path, student: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], told: str
) -> None:
    place = shards(tmp_path / "teachings", row())
    assert build(place, student, *more) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_a_student_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert build(shards(tmp_path / "shards", row()), tmp_path / "missing") == 2
    assert "cannot be loaded" in capsys.readouterr().err
