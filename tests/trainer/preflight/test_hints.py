"""Rows with a hint before anything starts: each says what it asks without it, where classmates are to see that."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl.classmate.config import from_mapping
from verl.classmate.errors import ConfigError
from verl.data_preprocessing.arithmetic_problems import iter_problems, make_dataset_row
from verl.trainer.preflight.hints import check_hints

WITHOUT = "prompt_without_hint"


def problems(count: int = 20) -> list[dict[str, Any]]:
    """Of the embedded world, a third with a hint."""
    drawn = iter_problems(seed=0, split="train", count=count)
    return [make_dataset_row(problem, split="train", index=index) for index, problem in enumerate(drawn)]


def check(
    folder: Path,
    rows: list[dict[str, Any]],
    *,
    question: str = "hint_removed",
    models: tuple = ("a",),
    unseen: tuple = (),
    **data: Any,
) -> None:
    pq.write_table(pa.Table.from_pylist(problems()), folder / "train.parquet")
    pq.write_table(pa.Table.from_pylist(rows), folder / "val.parquet")
    files = {f"{name}_files": str(folder / f"{name}.parquet") for name in ("train", "val")}
    options = {"classmate_question": question, "classmate_model_name_or_path_list": list(models)}
    readers = [{"model": name} for name in unseen]
    node = {"classmate_cot_reward_configs": options, "evaluation_classmates": readers}
    reward = from_mapping(node, require_classmates=False)
    check_hints({**files, "custom_cls": {"path": None}} | data, reward)


def test_rows_of_our_data_sets_say_it(tmp_path: Path) -> None:
    rows = problems()
    assert 0 < sum(row["reward_model"][WITHOUT] is not None for row in rows) < len(rows)
    check(tmp_path, rows)


@pytest.mark.parametrize("value", [None, " "])
def test_a_row_that_does_not_is_named(tmp_path: Path, value: str | None) -> None:
    rows = problems()
    hinted = [number for number, row in enumerate(rows) if row["reward_model"]["hint_str_for_monitor"]]
    rows[hinted[1]]["reward_model"][WITHOUT] = value
    with pytest.raises(ConfigError) as refused:
        check(tmp_path, rows)
    assert str(refused.value).startswith(f"data.val_files={tmp_path / 'val.parquet'}, row {hinted[1]}: has a hint, but")
    assert str(refused.value).endswith("or write reward_model.classmate_cot_reward_configs.classmate_question=full")
    assert "\n" not in str(refused.value)
    check(tmp_path, rows, question="full")
    check(tmp_path, rows, models=())
    with pytest.raises(ConfigError, match="has a hint, but"):
        check(tmp_path, rows, models=(), unseen=("b",))
    check(tmp_path, rows, custom_cls={"path": "mine.py"})


def test_rows_of_an_older_file_lack_the_key(tmp_path: Path) -> None:
    rows = problems()
    for row in rows:
        del row["reward_model"][WITHOUT]
    with pytest.raises(ConfigError, match=r"has a hint, but no reward_model\.prompt_without_hint"):
        check(tmp_path, rows)


def test_a_verifier_may_know_a_hint_that_the_row_does_not_name(tmp_path: Path) -> None:
    def row(source: str) -> dict[str, Any]:
        prompt = [{"role": "user", "content": "A professor says (B)."}]
        return {"data_source": source, "prompt": prompt, "reward_model": {"ground_truth": "B"}}

    with pytest.raises(ConfigError, match="row 1: has a hint"):
        check(tmp_path, [row("openai/gsm8k"), row("mmlu_sycophancy")])
    check(tmp_path, [row("openai/gsm8k"), row("of_the_users")])
