"""Held-out questions are known in any spelling and any column; questions are read from what users have."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from verl.classmate.errors import ConfigError
from verl.classmate.row import Task
from verl.teaching.held_out import held_out_hashes, is_held_out, read_tasks


def jsonl(file: Path, *rows: Any) -> str:
    file.write_text("".join(f"{json.dumps(one)}\n" for one in rows))
    return str(file)


def parquet(file: Path, *rows: dict[str, Any]) -> str:
    pd.DataFrame(rows).to_parquet(file)
    return str(file)


def task(question: str, /, **info: Any) -> Task:
    return Task(question=question, data_source="s", reward_model={"ground_truth": "1"}, extra_info={"index": 0, **info})


CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is  2 + 5?\n"}]


@pytest.mark.parametrize(
    "held_out",
    [
        {"question": "what is 2 + 5?"},
        {"problem": "  What\tis 2 + 5?"},
        {"prompt": CHAT},
        {"prompt": "WHAT IS 2 + 5?"},
        {"prompt": "What is 2 + 5? Answer in a box.", "extra_info": {"question": "What is 2 + 5?"}},
    ],
)
def test_a_held_out_question_in_another_spelling(tmp_path: Path, held_out: dict[str, Any]) -> None:
    hashes = held_out_hashes([jsonl(tmp_path / "eval.jsonl", {"question": "another"}, held_out)])
    assert is_held_out(task("What is 2 + 5?"), hashes)
    assert is_held_out(task("What is 2 + 5? Write #### before the answer.", question="What is 2 + 5?"), hashes)
    assert not is_held_out(task("What is 2 + 50?"), hashes)


def test_parquet_as_datasets_have_it(tmp_path: Path) -> None:
    file = parquet(tmp_path / "eval.parquet", {"prompt": CHAT, "reward_model": {"ground_truth": "7"}})
    assert is_held_out(task("What is 2 + 5?"), held_out_hashes([file]))


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no question; it needs a column question, prompt, problem"):
        held_out_hashes([jsonl(tmp_path / "eval.jsonl", {"text": "What?"})])
    with pytest.raises(ConfigError, match="does not exist"):
        held_out_hashes([str(tmp_path / "none.parquet")])
    (tmp_path / "bad.parquet").write_text("no parquet")
    with pytest.raises(ConfigError, match="cannot be read as Parquet"):
        held_out_hashes([str(tmp_path / "bad.parquet")])
    (tmp_path / "bad.jsonl").write_text('{"question": "a"}\n{"question"')
    with pytest.raises(ConfigError, match="cannot be read as JSON lines"):
        held_out_hashes([str(tmp_path / "bad.jsonl")])


def test_questions_of_two_files_are_asked_once(tmp_path: Path) -> None:
    one = parquet(
        tmp_path / "a.parquet",
        {"data_source": "sums", "prompt": CHAT, "reward_model": {"ground_truth": "7"}, "extra_info": {"index": 3}},
    )
    other = jsonl(
        tmp_path / "b.jsonl",
        {"question": "what is 2 + 5?", "answer": "7"},
        {"question": "What is 1 + 1?", "answer": 2, "solution": "One and one."},
        {"question": "Unknown?"},
        {"answer": "7"},
    )
    tasks, left_out = read_tasks([one, other])
    assert [(str(t.question).strip(), t.ground_truth, t.data_source) for t in tasks] == [
        ("What is  2 + 5?", "7", "sums"),
        ("What is 1 + 1?", "2", "questions"),
    ]
    assert tasks[1].extra_info["solution"] == "One and one."
    assert left_out == {"no_question": 1, "no_ground_truth": 1, "repeated": 1}
    # The number of a row in its file names nothing: another file may have the same.
    assert tasks[0].extra_info["index"] == read_tasks([other])[0][0].extra_info["index"]


def test_no_question_with_an_answer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no row has a question .* and a true answer"):
        read_tasks([jsonl(tmp_path / "a.jsonl", {"question": "What?", "reward_model": {"ground_truth": " "}})])
