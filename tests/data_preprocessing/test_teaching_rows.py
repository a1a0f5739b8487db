"""Rows for teachers and students by the command: real samples in both forms, and mistakes told in one line."""

import json
import re
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.data_preprocessing.hub import hub
from verl.data_preprocessing import teaching_rows
from verl.data_preprocessing.common import read_manifest, run_command
from verl.data_preprocessing.reasoning_traces import Columns, data_config
from verl.data_preprocessing.teaching_rows import main
from verl.teaching.templates import Templates

LESSON = {
    "problem_text": "What is 58 + 27?",
    "student_approach": "Add the ones, then the tens.",
    "teacher_diagnosis": "It may forget the carry.",
    "teacher_teaching": "Mind the carry.",
}


def run(*arguments: object) -> None:
    run_command(partial(main, [str(argument) for argument in arguments]))


def rows_of(folder: Path, split: str = "train") -> list[dict]:
    return pq.read_table(folder / f"{split}.parquet").to_pylist()


def written(path: Path, *records: object) -> Path:
    path.write_text("".join(record if isinstance(record, str) else json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize(
    ("name", "file", "kept"),
    [("s1k", "s1k_reasoning_sample.jsonl", 5), ("medical_o1", "medical_o1_reasoning.jsonl", 160)],
)
@pytest.mark.parametrize("rows", ["teacher_rl", "teacher_sft", "student_sft"])
def test_real_rows_become_all_kinds(rows: str, name: str, file: str, kept: int, tmp_path: Path, sample_data) -> None:
    run("--rows", rows, "--format", name, "--dataset", sample_data(file), "--output_dir", tmp_path / "out")
    train, test = rows_of(tmp_path / "out"), rows_of(tmp_path / "out", "test")
    assert len(train) + len(test) == kept
    assert len({row["extra_info"]["index"] for row in train + test}) == kept
    for row in train + test:
        if rows == "teacher_rl":
            (turn,) = row["prompt"]
            assert turn["role"] == "user"
            assert turn["content"] == row["extra_info"]["raw_question"]
            assert row["agent_name"] == "rcl_teacher"
            assert row["extra_info"]["teacher_opening"].endswith("<|begin_of_explanation|>\n\n")
        else:
            answer = row["messages"][-1]
            assert answer["role"] == "assistant"
            assert (row["loss_from"] > 0) == (rows == "teacher_sft")
            assert len(answer["content"]) > row["loss_from"]


def test_proofs_have_no_ground_truth_and_no_part_in_rcl(tmp_path: Path, sample_data, capsys) -> None:
    data = ("--format", "s1k", "--dataset", sample_data("s1k_reasoning_sample.jsonl"), "--rows", "teacher_rl")
    run(*data, "--kind", "rcl", "--output_dir", tmp_path / "rcl", "--test_rows", 0)
    truths = [row["reward_model"]["ground_truth"] for row in rows_of(tmp_path / "rcl")]
    assert "128" in truths
    assert None not in truths
    assert "no ground truth can be told from the solution" in capsys.readouterr().err
    run(*data, "--kind", "rlt", "--output_dir", tmp_path / "rlt", "--test_rows", 0)
    assert len(rows_of(tmp_path / "rlt")) == 5 > len(truths)


def test_gsm8k_keeps_its_truths_and_nearly_no_thought(tmp_path: Path, sample_data) -> None:
    source = sample_data("gsm8k_train.jsonl")
    some = tmp_path / "some.jsonl"
    some.write_text("\n".join(source.read_text().splitlines()[:100]))
    run(
        "--rows",
        "teacher_rl",
        "--format",
        "gsm8k",
        "--dataset",
        some,
        "--output_dir",
        tmp_path / "rl",
        "--test_rows",
        10,
    )
    rows = rows_of(tmp_path / "rl")
    assert (len(rows), len(rows_of(tmp_path / "rl", "test"))) == (90, 10)
    assert {row["data_source"] for row in rows} == {"openai/gsm8k"}
    assert all(row["reward_model"]["ground_truth"].replace(".", "").isdigit() for row in rows)
    with pytest.raises(SystemExit, match=r"^error: no row of some\.jsonl can be used [^\n]*: no reasoning trace$"):
        run("--rows", "teacher_sft", "--format", "gsm8k", "--dataset", some, "--output_dir", tmp_path / "sft")


def test_lessons_become_rows_in_the_runs_template(tmp_path: Path) -> None:
    lessons = [{**LESSON, "student_approach": f"Plan {i}.", "teacher_teaching": "" if i else "Go."} for i in range(3)]
    source = written(tmp_path / "lessons.jsonl", *lessons)
    templates = written(
        tmp_path / "t.yaml",
        "teacher_adaptive_template:\n"
        "  system: Think in <thinking></thinking>, advise in <teaching></teaching>, {teaching_limit} tokens at most. "
        "If no help is needed, <teaching></teaching>.\n"
        "  user: '{question} | {approach}'\n",
    )
    arguments = (
        "--rows",
        "teacher_sft",
        "--format",
        "adaptive_teaching",
        "--dataset",
        source,
        "--templates",
        templates,
    )
    run(*arguments, "--max_teaching_tokens", 64, "--output_dir", tmp_path / "out", "--test_rows", 0)
    rows = rows_of(tmp_path / "out")
    assert [row["messages"][1]["content"] for row in rows] != []
    assert {row["messages"][1]["content"] for row in rows} == {f"What is 58 + 27? | Plan {i}." for i in range(3)}
    assert all("64 tokens" in row["messages"][0]["content"] for row in rows)
    assert sum(row["messages"][-1]["content"].endswith("<teaching></teaching>") for row in rows) == 2
    # Another wording of the templates is another set.
    templates.write_text(templates.read_text().replace("advise in", "teach in"))
    with pytest.raises(SystemExit, match="another --templates"):
        run(*arguments, "--max_teaching_tokens", 64, "--output_dir", tmp_path / "out", "--test_rows", 0)


def test_thoughts_become_advice_within_the_students_budget(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    from tests.e2e.tiny import make_tiny_world

    model = make_tiny_world(tmp_path).model
    source = written(tmp_path / "a.jsonl", {"question": "1+1?", "solution": "2", "reasoning_trace": "one and one " * 9})
    arguments = ("--rows", "teacher_sft", "--kind", "rcl", "--format", "custom", "--dataset", source)
    run(*arguments, "--max_teaching_tokens", 20, "--tokenizer", model, "--output_dir", tmp_path / "out")
    (row,) = rows_of(tmp_path / "out")
    visible = row["messages"][-1]["content"].partition("<teaching>")[2].removesuffix("</teaching>")
    assert visible == "one and one one and"
    assert len(AutoTokenizer.from_pretrained(model)(visible)["input_ids"]) <= 20
    assert row["messages"][:-1] == Templates().adaptive("1+1?", None, teaching_limit=20)
    with pytest.raises(SystemExit, match=r"^error: [^\n]*--tokenizer MODEL"):
        run(*arguments, "--output_dir", tmp_path / "other")


def test_blank_cells_are_left_out_with_a_count(tmp_path: Path, capsys) -> None:
    good = {"question": "1+1?", "solution": "2", "reasoning_trace": "One and one."}
    bad = [{**good, "question": f"{i}?", "reasoning_trace": " "} for i in range(30)]
    source = written(tmp_path / "a.jsonl", good, *bad, "{broken\n", {**good, "question": None})
    run("--rows", "teacher_sft", "--format", "custom", "--dataset", source, "--output_dir", tmp_path / "out")
    told = capsys.readouterr()
    assert len(rows_of(tmp_path / "out")) == 1
    assert "30 in all: no reasoning trace" in told.err
    assert "32 broken" in told.out
    assert read_manifest(tmp_path / "out")["left_out"]["broken"] == 32


@pytest.mark.guards("documented column not the one read")
def test_the_documented_columns_are_those_that_are_read() -> None:
    """Each name of the page's table in its turn, first of those that a record has."""
    page = (Path(__file__).parents[2] / "docs" / "teaching_data.md").read_text()
    table = page.partition("### Columns")[2].partition("### Formats")[0]
    cells = [[re.findall(r"`(\w+)`", cell) for cell in line.split("|")[1:3]] for line in table.splitlines()]
    documented = {line[0][0]: (*line[0], *line[1]) for line in cells if line and line[0]}
    columns = Columns()
    assert documented == {
        "question": columns.question,
        "solution": columns.solution,
        "reasoning_trace": columns.trace,
        "ground_truth": columns.ground_truth,
        "student_approach": (*columns.approach, *columns.diagnosis, *columns.teaching),
    }
    others = {"question": {"solution": "2"}, "solution": {"question": "?"}}
    for field, other in others.items():
        for i, name in enumerate(documented[field]):
            record = {**other, **{later: f"by {later}" for later in documented[field][i:]}}
            assert getattr(data_config("custom").read(record), field) == f"by {name}"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--format", "stratos"), r"data\.format=stratos is not known; write one of: .*custom"),
        (("--format", "custom"), "has no data set of its own"),
        (("--format", "custom", "--dataset", "missing.jsonl"), "does not exist"),
        (("--format", "gsm8k", "--think_tag", "think"), "--think_tag is for --format custom"),
        (("--format", "custom", "--dataset", "{file}"), r"no column question \(or prompt, problem\)"),
        (("--format", "custom", "--dataset", "{file}", "--tag_format", "xml"), "write bespoke or r1"),
        (
            ("--format", "custom", "--dataset", "{file}", "--templates", "none.yaml"),
            "--templates none.yaml cannot be read",
        ),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], told: str, tmp_path: Path, capsys) -> None:
    source = written(tmp_path / "a.jsonl", *[{"q": f"{i}?", "a": "2"} for i in range(30)])
    typed = [argument.replace("{file}", str(source)) for argument in arguments]
    with pytest.raises(SystemExit, match=rf"^error: [^\n]*{told}[^\n]*$"):
        run("--rows", "teacher_rl", "--output_dir", tmp_path / "out", *typed)
    assert capsys.readouterr().err == ""
    assert not (tmp_path / "out").exists()


def test_a_parquet_file_and_a_folder_do_as_well(tmp_path: Path) -> None:
    import pyarrow as pa

    folder = tmp_path / "mine"
    folder.mkdir()
    records = [{"problem": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(40)]
    pq.write_table(pa.Table.from_pylist(records), folder / "part.parquet")
    for source in (folder, folder / "part.parquet"):
        out = tmp_path / f"out_of_{source.name}"
        run("--rows", "teacher_rl", "--format", "custom", "--dataset", source, "--output_dir", out)
        assert len(rows_of(out)) == 38
        assert len(rows_of(out, "test")) == 2


def test_a_set_of_the_hub_with_a_test_split_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import subprocess
    import sys

    records = {
        ("main", split): [{"question": f"{split} {i}?", "answer": f"So\n#### {i}"} for i in range(4)]
        for split in ("train", "test")
    }
    with hub({"openai/gsm8k": records}) as address:
        command = [sys.executable, "-m", "verl.data_preprocessing.teaching_rows", "--rows", "teacher_rl"]
        command += ["--format", "gsm8k", "--output_dir", str(tmp_path / "out")]
        env = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "home")}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    assert [row["reward_model"]["ground_truth"] for row in rows_of(tmp_path / "out", "test")] == ["0", "1", "2", "3"]


def test_formats_of_a_users_own_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    name = "own_formats_of_this_test"
    (tmp_path / f"{name}.py").write_text(
        "from verl.data_preprocessing.reasoning_traces import Columns, DataConfig, register_data_config\n"
        "columns = Columns(question=('q',), solution=('a',))\n"
        "register_data_config('of_this_test', DataConfig(columns=columns))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(teaching_rows, "OWN_FORMATS", name)
    source = written(tmp_path / "a.jsonl", {"q": "1+1?", "a": "2"})
    run("--rows", "teacher_rl", "--format", "of_this_test", "--dataset", source, "--output_dir", tmp_path / "out")
    assert rows_of(tmp_path / "out")[0]["reward_model"]["ground_truth"] == "2"
    sys.modules.pop(name)
    teaching_rows.DATA_CONFIGS.pop("of_this_test")
