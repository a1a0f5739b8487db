"""Real problems: GSM8K from JSONL to parquet to two steps, with prompts of every length that fits."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from transformers import AutoTokenizer

from tests.e2e.world import MAIN, PROMPTS, ROLLOUTS, World, finished, rows, settings, steps

LIMIT, TRAIN_ROWS, VAL_ROWS = 320, 512, 16

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_gsm8k_goes_through(world: World, tmp_path: Path, sample_data: Callable[[str], Path]) -> None:
    data = tmp_path / "gsm8k"
    train, test = sample_data("gsm8k_train.jsonl"), sample_data("gsm8k_test.jsonl")
    files = ["--local_file", train, "--val_file", test]
    sizes = ["--train_rows", str(TRAIN_ROWS), "--test_rows", str(VAL_ROWS)]
    build = [sys.executable, "-m", "verl.data_preprocessing.gsm8k", "--output_dir", data, *files, *sizes]
    subprocess.run(build, check=True, capture_output=True, timeout=120)

    folder = tmp_path / "run"
    overrides = [
        f"data.train_files={data / 'train.parquet'}",
        f"data.val_files={data / 'test.parquet'}",
        f"data.max_prompt_length={LIMIT}",
        "trainer.total_training_steps=2",
        "trainer.save_freq=-1",
    ]
    terminal = finished([*MAIN, *settings(world, folder, *overrides)], log=tmp_path / "terminal.txt")

    lengths = _prompt_lengths(world, data / "train.parquet")
    too_long = sum(length > LIMIT for length in lengths)
    assert 0 < too_long < TRAIN_ROWS / 2
    assert f"{too_long} of {TRAIN_ROWS} prompts left out, longer than data.max_prompt_length={LIMIT}" in terminal
    for step, line in steps(folder).items():
        records = rows(folder, step)
        assert len(records) == PROMPTS * ROLLOUTS
        assert {record["data_source"] for record in records} == {"openai/gsm8k"}
        assert all(lengths[record["index"]] <= LIMIT for record in records)
        assert line["prompt_length/max"] > line["prompt_length/min"] + 50, "prompts of many lengths"
        outcomes = Counter(s["outcome"] for r in records for c in r["classmates"] for s in c["samples"])
        assert sum(outcomes.values()) == 2 * len(records)
        assert {key: count for key, count in _counted(line).items() if count} == outcomes
        assert line["classmate/valid_ratio"] + line["classmate/missing_ratio"] == pytest.approx(1.0)
        assert line["training/rollout_probs_diff_max"] < 1e-4


def _prompt_lengths(world: World, file: Path) -> list[int]:
    """Tokens of every prompt; the position in the file is the row's index."""
    tokenizer = AutoTokenizer.from_pretrained(world.policy)
    return [
        len(tokenizer.apply_chat_template(list(prompt), add_generation_prompt=True, return_dict=True)["input_ids"])
        for prompt in pd.read_parquet(file)["prompt"]
    ]


def _counted(line: dict[str, float]) -> dict[str, float]:
    prefix = "classmate/outcome/"
    return {key.removeprefix(prefix): value for key, value in line.items() if key.startswith(prefix)}
