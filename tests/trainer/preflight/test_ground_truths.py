"""Training rows without a ground truth, where classmates are to say how likely they find it: one line says so."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl.classmate.config import from_mapping
from verl.classmate.errors import ConfigError
from verl.trainer.preflight.verifiers import check_ground_truths

RULE = {"style": "rule", "ground_truth": "7"}


def check(folder: Path, rows: list[dict[str, Any]], kind: str = "likelihood_gain") -> None:
    pq.write_table(pa.Table.from_pylist([{"reward_model": row} for row in rows]), folder / "train.parquet")
    reward = from_mapping({"classmate_cot_reward_configs": {"classmate_reward_type": kind}}, require_classmates=False)
    check_ground_truths({"custom_cls": {"path": None}, "train_files": str(folder / "train.parquet")}, reward)


@pytest.mark.parametrize("missing", [None, "", " \n"])
def test_a_row_without_one_is_refused(tmp_path: Path, missing: str | None) -> None:
    with pytest.raises(ConfigError) as refused:
        check(tmp_path, [RULE, {"style": "rule", "ground_truth": missing}])
    assert "rows without a text as reward_model.ground_truth, which" in str(refused.value)
    assert "classmate_reward_type=likelihood_gain scores" in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(ConfigError, match="rows without"):
        check(tmp_path, [{"style": "rule"}])


def test_a_list_of_answers_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rows without a text"):
        check(tmp_path, [{"style": "rule", "ground_truth": ["7", "7.0"]}])
    check(tmp_path, [{"style": "rule", "ground_truth": 7}])


def test_other_reward_types_do_not_need_one(tmp_path: Path) -> None:
    check(tmp_path, [RULE, RULE])
    check(tmp_path, [{"style": "rule"}], kind="vanilla_reward")
