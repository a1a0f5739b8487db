"""Rows for a teacher's students, and how many questions are left out of them."""

from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf

from tests.classmate.toy_tokenizers import TOKENIZERS
from verl.data_preprocessing.taught_dataset import TaughtDataset


def dataset(folder: Path, *questions: tuple[str, str | None], copies: int = 1) -> TaughtDataset:
    rows: list[dict[str, Any]] = [
        {
            "prompt": [{"role": "user", "content": question}],
            "data_source": "sums",
            "reward_model": {"ground_truth": truth},
            "extra_info": {"index": i},
        }
        for i, (question, truth) in enumerate(questions)
    ]
    file = str(folder / "train.parquet")
    pd.DataFrame(rows).to_parquet(file)
    config = OmegaConf.create(
        {
            "max_prompt_length": 64,
            "return_raw_chat": True,
            "filter_overlong_prompts": True,
            "cache_dir": str(folder / "cache"),
            "val_files": "other.parquet",
            "students": {"train": copies, "val": 1, "needs_truth": True},
        }
    )
    return TaughtDataset(data_files=file, tokenizer=TOKENIZERS["byte_bpe"](), config=config)


def test_what_is_left_out_is_counted_by_its_reason(tmp_path: Path) -> None:
    made = dataset(tmp_path, ("2 + 5?", "7"), ("word " * 200, "8"), ("Prove it.", None), ("1 + 1?", " "), copies=2)
    assert (made.too_long, made.without_truth, len(made)) == (1, 2, 2)
    assert [made[i]["extra_info"]["student"] for i in range(2)] == [0, 1]
