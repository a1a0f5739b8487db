"""Building a world: its files, models that read what the product sends, what is kept, mended, shared and refused."""

import dataclasses
import json
import random
import shutil
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from transformers import AutoTokenizer

from verl.data_preprocessing.common import run_command
from verl.data_preprocessing.embedded_models import generate, load_model
from verl.data_preprocessing.teaching_world import __main__ as command
from verl.data_preprocessing.teaching_world import build, models, prompts, student_lessons
from verl.data_preprocessing.teaching_world.build import TeachingWorld, make_world
from verl.data_preprocessing.teaching_world.spec import Mix, TeachingWorldSpec
from verl.data_preprocessing.teaching_world.students import STUDENTS
from verl.data_preprocessing.teaching_world.summary import summary
from verl.teaching.templates import Templates

pytestmark = pytest.mark.slow

SHORT = TeachingWorldSpec().short()
TAGS = ("<thinking>", "</thinking>", "<teaching>", "</teaching>", "<solution>", "</solution>")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> TeachingWorld:
    return make_world(tmp_path_factory.mktemp("teaching") / "world", SHORT, warm_teacher=True)


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def read(folder: Path, name: str) -> list[dict]:
    return pq.read_table(folder / name).to_pylist()


def test_the_files_are_those_that_a_run_needs(built):
    train, test, offtask = (read(built.folder, f"{name}.parquet") for name in ("train", "test", "offtask"))
    assert (len(train), len(test), len(offtask)) == (16, 8, 8)
    for split, rows in (("train", train), ("test", test)):
        for index, row in enumerate(rows):
            assert row["data_source"] == "teaching_arithmetic"
            assert row["agent_name"] == "rcl_teacher"
            assert row["prompt"] == [{"role": "user", "content": row["extra_info"]["question"]}]
            assert row["reward_model"]["style"] == "rule"
            assert row["reward_model"]["ground_truth"].isdecimal()
            assert (row["extra_info"]["index"], row["extra_info"]["split"]) == (index, split)
    lines = [json.loads(line) for line in (built.folder / "warmup.jsonl").read_text().splitlines()]
    assert len(lines) == 32
    for line in lines:
        assert set(line) == {"problem_text", "student_approach", "teacher_diagnosis", "teacher_teaching"}
        assert line["problem_text"]
        assert line["student_approach"]
    for row in offtask:
        assert row["prompt"][0]["content"] == f"{row['extra_info']['question']}\nAnswer in <solution></solution>."
    assert built.manifest["limits"] == {"max_probe_tokens": 50, "max_teaching_tokens": 64}


def test_models_load_as_what_they_are(built):
    families = {"weak": "qwen3", "strong": "qwen3", "unseen_llama": "llama", "unseen_mixed": "qwen3"}
    folders = {**{name: built.student(name) for name in families}, "teacher": built.teacher}
    vocabularies = set()
    for name, folder in {**folders, "teacher_warm": built.teacher_warm}.items():
        model, tokenizer = load_model(folder)
        assert model.config.model_type == families.get(name, "qwen3")
        assert model.config.vocab_size == len(tokenizer)
        assert model.generation_config.eos_token_id == tokenizer.eos_token_id != tokenizer.pad_token_id
        assert len(generate(model, tokenizer, ["Tom has 47"], max_new_tokens=3, temperature=0.0, seed=0)) == 1
        vocabularies.add(tuple(sorted(tokenizer.get_vocab())))
    assert len(vocabularies) == 5


def test_models_are_taught_the_tokens_that_a_run_sends(built):
    sent = Templates.from_mapping(yaml.safe_load((built.folder / "templates.yaml").read_text()))
    question, plan, advice = "Tom has 47 pens and gets 38 more. How many pens in all?", "Ones first.", "Never carry."
    chats = {
        "student": [
            sent.baseline(question),
            sent.diagnostic(question, probe_limit=50),
            sent.with_teaching(question, advice),
        ],
        "teacher": [sent.adaptive(question, plan, teaching_limit=64), sent.baseline(question)],
    }
    for side, folder in [("student", built.student(name)) for name in STUDENTS] + [("teacher", built.teacher)]:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        for messages in chats[side]:
            lesson = models.as_lesson(
                tokenizer, prompts.Exchange(messages=messages, answer="47<solution>85</solution>")
            )
            given, learnt = (
                tokenizer(text, add_special_tokens=False)["input_ids"] for text in (lesson.given, lesson.learnt)
            )
            ask = partial(tokenizer.apply_chat_template, messages, add_generation_prompt=True, return_dict=False)
            # Whether a run switches thinking off or not.
            assert given == ask() == ask(enable_thinking=False) == ask(enable_thinking=True)
            # A trainer that tokenizes prompt and answer in one go finds the same border.
            assert tokenizer(lesson.given + lesson.learnt, add_special_tokens=False)["input_ids"] == given + learnt
            assert learnt[-1] == tokenizer.eos_token_id
            assert len(given) < 70


def test_lessons_reach_the_trainer_through_the_chat_template(built):
    for name, student in STUDENTS.items():
        tokenizer = AutoTokenizer.from_pretrained(built.student(name))
        start = "<|start_header_id|>" if name == "unseen_llama" else "<|im_start|>"
        exchange = student_lessons.student_lesson(student, random.Random(1), 7)
        lesson = models.as_lesson(tokenizer, exchange)
        assert lesson.given.count(start) == 2
        assert exchange.messages[-1]["content"] in lesson.given
        assert lesson.learnt == f"{exchange.answer}{tokenizer.eos_token}"


def test_tags_are_whole_tokens_and_come_back(built):
    tokenizer = AutoTokenizer.from_pretrained(built.teacher)
    for tag in TAGS:
        assert len(tokenizer(tag)["input_ids"]) == 1
    text = "<thinking>It marks 1.</thinking><teaching>7+8=15, 4+3+1=8: 85.</teaching>"
    assert tokenizer.decode(tokenizer(f"{text}<|im_end|>")["input_ids"], skip_special_tokens=True) == text
    for name in STUDENTS:
        tokenizer = AutoTokenizer.from_pretrained(built.student(name))
        text = "7+8=15, 4+3+1=8<solution>85</solution>"
        ids = tokenizer(f"{text}{tokenizer.eos_token}")["input_ids"]
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
        assert ids[-5:] == tokenizer.convert_tokens_to_ids(["<solution>", "8", "5", "</solution>", tokenizer.eos_token])


def test_the_manifest_says_how_everybody_starts(built):
    manifest = json.loads((built.folder / "manifest.json").read_text())
    assert manifest == json.loads(json.dumps(built.manifest))
    assert set(manifest["students"]) == set(STUDENTS)
    assert set(manifest["keys"]) == {"rows", "teacher", "teacher_warm", *STUDENTS}
    for student in manifest["students"].values():
        assert set(student["solves"]) == {"sum", "difference", "all"}
        assert len(student["under"]) == 16
        assert set(student["told"]) == {"working", "result"}
        assert 0 <= student["plan_shows_habit"] <= 1
    assert sum(manifest["teacher"]["states"].values()) == pytest.approx(1)
    shown = summary(built)
    for word in ("teaching world built", "unseen_mixed", "Never borrow.", "the right working", "teacher_warm: "):
        assert word in shown


def test_what_stands_whole_is_kept(built):
    before = times(built.folder)
    again = make_world(built.folder, SHORT)
    assert again.reused
    assert times(built.folder) == before
    assert "teacher_warm" in again.manifest
    assert "teaching world found" in summary(again)


def test_what_is_lost_or_damaged_is_made_again(built):
    before = times(built.folder)
    weights = (built.student("strong") / "model.safetensors").read_bytes()
    (built.student("strong") / "model.safetensors").write_bytes(b"half")
    (built.folder / "train.parquet").unlink()
    assert not make_world(built.folder, SHORT).reused
    assert (built.student("strong") / "model.safetensors").read_bytes() == weights
    after = times(built.folder)
    untouched = [path for path in before if {"weak", "teacher", "teacher_warm"} & set(path.parts)]
    assert len(untouched) > 10
    assert all(after[path] == before[path] for path in untouched)
    assert len(read(built.folder, "train.parquet")) == 16
    assert not [path for path in built.folder.rglob(".*") if path.name != ".lock"]


def test_seeds_share_students_and_nothing_else(built, tmp_path):
    shared = tmp_path / "students"
    shutil.copytree(built.folder / "students", shared)
    before = times(shared)
    other = make_world(tmp_path / "world", dataclasses.replace(SHORT, seed=1), students=shared)
    assert times(shared) == before
    for name in STUDENTS:
        assert (other.student(name) / "model.safetensors").read_bytes() == (
            built.student(name) / "model.safetensors"
        ).read_bytes()
    for name in ("train.parquet", "test.parquet", "warmup.jsonl", "teacher/model.safetensors"):
        assert (other.folder / name).read_bytes() != (built.folder / name).read_bytes()
    assert (other.folder / "templates.yaml").read_bytes() == (built.folder / "templates.yaml").read_bytes()
    assert not (other.folder / "teacher_warm").exists()


def test_another_world_or_foreign_files_are_left_alone(built, tmp_path, capsys):
    run = partial(command.main, ["--local_dir", str(built.folder), "--short", "--seed", "3"])
    before = times(built.folder)
    with pytest.raises(SystemExit, match=r"^error: .* holds a world with seed=0: choose another folder"):
        run_command(run)
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(SystemExit, match=r"^error: .*choose an empty or new folder"):
        run_command(partial(command.main, ["--local_dir", str(tmp_path), "--short"]))
    assert times(built.folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    command.main(["--local_dir", str(built.folder), "--short"])
    assert "teaching world found" in capsys.readouterr().out
    for words in (["--mix", "1,2"], ["--jobs", "0"], ["--mix", "a,b,c,d"]):
        with pytest.raises(SystemExit):
            command.main(["--local_dir", str(tmp_path / "new"), *words])
        assert words[0] in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_models_follow_from_their_prompts_and_their_mix(tmp_path, monkeypatch):
    def keys(spec: TeachingWorldSpec) -> list[str]:
        student = build._student_part(tmp_path, spec.students[0], spec.measured)
        return [student.key, build._teacher_part(tmp_path, spec, "teacher", 5).key, build._rows_key(spec)]

    before = keys(SHORT)
    assert keys(TeachingWorldSpec().short()) == before
    other = keys(dataclasses.replace(SHORT, mix=Mix(right_share=1.0)))
    assert [one == two for one, two in zip(before, other, strict=True)] == [True, False, False]
    reworded = {**prompts.TEMPLATES, "student_baseline_template": "Q: {question}\n{answer_format}"}
    monkeypatch.setattr(prompts, "TEMPLATES", reworded)
    prompts.templates.cache_clear()
    changed = keys(SHORT)
    prompts.templates.cache_clear()
    assert not set(changed) & set(before)
