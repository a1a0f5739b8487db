"""Means over the rows of a validation, and the start that makes up for one."""

import math
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from verl.classmate.metrics import validation_metrics
from verl.trainer.ppo.validation import make_up_for_validation
from verl.trainer.run.folder import RunFolder


def test_means_are_over_the_rows_that_count() -> None:
    columns = {"main_model_reward": [1.0, 0.0, math.nan], "reward": [1.0, 0.0, 0.0], "kind": ["a", "b", "c"]}
    found = validation_metrics(["x", "x", "x"], columns, samples=4)
    assert found == {"val-core/x/main_model_reward/mean@4": 0.5, "val-core/x/reward/mean@4": 0.5}
    assert columns["reward"] == [1.0, 0.0, 0.0], "upstream's own"


@pytest.mark.parametrize(
    ("resumed", "every", "validated", "expected"),
    [(4, 2, False, True), (4, 2, True, False), (3, 2, False, False), (5, 2, False, True), (4, -1, False, False)],
    ids=["due", "done", "between", "last step", "never"],
)
def test_a_start_makes_up_for_a_validation(
    tmp_path: Path, resumed: int, every: int, validated: bool, expected: bool
) -> None:
    folder = RunFolder(path=tmp_path, resumed_from=resumed)
    folder.write_metrics(resumed, {"val-core/x/reward/mean@1": 0.5} if validated else {"critic/score/mean": 0.5})
    config = OmegaConf.create({"trainer": {"test_freq": every, "val_before_train": False}})
    make_up_for_validation(config, folder, total_steps=5)
    assert config.trainer.val_before_train is expected
