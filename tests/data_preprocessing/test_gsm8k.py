"""GSM8K from JSONL: rows in the common format, broken lines reported, mistakes told in one line."""

import json
import os
import subprocess
import sys
from functools import partial

import pyarrow.parquet as pq
import pytest

from verl.data_preprocessing.common import read_manifest, run_command
from verl.data_preprocessing.gsm8k import ground_truth_of, main
from verl.utils.reward_score.cot_monitor import get_verifier

GOOD = {
    "question": "Ann has 1,000 pens and buys 250. How many?",
    "answer": "1000+250=<<1000+250=1250>>1250\n#### 1,250",
}


def run(*arguments: object) -> None:
    run_command(partial(main, [str(a) for a in arguments]))


@pytest.mark.parametrize(
    ("answer", "truth"), [("a #### 1,250", "1250"), ("#### -3", "-3"), ("#### 1\n#### 2.50", "2.50"), ("####$7", "7")]
)
def test_ground_truth(answer, truth):
    assert ground_truth_of(answer) == truth


@pytest.mark.parametrize("answer", ["", "12", "####", "#### many", "#### NaN"])
def test_no_ground_truth(answer):
    with pytest.raises(ValueError, match="no number"):
        ground_truth_of(answer)


def test_local_file_keeps_good_rows_and_names_broken_ones(tmp_path, capsys):
    lines = [json.dumps(GOOD), "{broken", json.dumps({"question": "x"}), json.dumps({**GOOD, "answer": "none"}), "[1]"]
    lines += [json.dumps({**GOOD, "question": 5}), json.dumps({**GOOD, "question": "a\u2028b"}, ensure_ascii=False)]
    source = tmp_path / "mine.jsonl"
    source.write_text("\n".join(lines) + "\n")
    run("--local_file", source, "--output_dir", tmp_path / "out")
    reported = capsys.readouterr().err
    assert [line for line in range(1, 8) if f"row {line} left out" in reported] == [2, 3, 4, 5, 6]
    rows = pq.read_table(tmp_path / "out" / "train.parquet").to_pylist()
    assert [row["extra_info"]["index"] for row in rows] == [0, 6]
    assert rows[0]["reward_model"]["ground_truth"] == "1250"
    assert rows[0]["prompt"][0]["content"].startswith(GOOD["question"])
    assert "\\boxed{}" in rows[0]["prompt"][0]["content"]
    assert get_verifier(rows[0]["data_source"]).compute_score("\\boxed{1,250}", "1250") == 1.0
    assert read_manifest(tmp_path / "out")["counts"]["train"] == {"rows": 2, "left_out": 5}


def test_the_same_input_gives_the_same_bytes(tmp_path):
    source = tmp_path / "mine.jsonl"
    source.write_text(json.dumps(GOOD))
    for out in ("a", "b"):
        run("--local_file", source, "--val_file", source, "--output_dir", tmp_path / out)
    for name in ("train.parquet", "test.parquet", "manifest.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("content", [None, "", '{"question": "a", "answer": "b"}\n'])
def test_missing_empty_or_useless_file_is_one_line(tmp_path, content):
    source = tmp_path / "mine.jsonl"
    if content is not None:
        source.write_text(content)
    with pytest.raises(SystemExit, match=r"^error: [^\n]+$"):
        run("--local_file", source, "--output_dir", tmp_path / "out")
    assert not list(tmp_path.glob("out/*"))


def test_hub_out_of_reach_is_one_line_that_names_local_file(tmp_path):
    command = [sys.executable, "-m", "verl.data_preprocessing.gsm8k", "--output_dir", str(tmp_path / "out")]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "--local_file" in done.stderr.splitlines()[-1]


def test_the_real_file_converts_without_loss(tmp_path, sample_data):
    run("--local_file", sample_data("gsm8k_train.jsonl"), "--output_dir", tmp_path)
    rows = pq.read_table(tmp_path / "train.parquet").to_pylist()
    assert len(rows) == 7473
    verifier = get_verifier(rows[0]["data_source"])
    assert all(verifier.compute_score(r["extra_info"]["answer"], r["reward_model"]["ground_truth"]) == 1 for r in rows)
