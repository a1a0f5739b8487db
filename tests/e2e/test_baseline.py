"""The baseline entry point: the verifier's reward trains, classmates read the validation rows only."""

from pathlib import Path

import pytest

from tests.e2e.world import BASELINE, World, finished, graded_reward, metrics, rows, settings, steps

pytestmark = pytest.mark.slow


@pytest.mark.guards("baseline and classmate validation curves on different quantities")
def test_classmates_measure_but_do_not_train(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    overrides = ["trainer.total_training_steps=2", "trainer.save_freq=-1", graded_reward(tmp_path)]
    terminal = finished([*BASELINE, *settings(world, folder, *overrides)], log=tmp_path / "terminal.txt")

    for step, line in steps(folder).items():
        assert line["actor/grad_norm"] > 0
        assert not line.get("classmate/outcome/ok")
        records = rows(folder, step)
        assert all(record["classmates"] == [] for record in records)
        assert all(record["final_reward"] == record["base_reward"] for record in records)
        assert all(record["advantage"] == record["advantage_on_cot"] or None in _parts(record) for record in records)
    for step in (0, 2):
        assert all(len(record["classmates"]) == 2 for record in rows(folder, step, validation=True))
    for line in (metrics(folder)[0], metrics(folder)[-1]):
        for key in ("classmate_0_score", "classmate_1_score", "avg_classmate_score", "main_model_reward"):
            assert 0 <= line[f"val-core/hinted_arithmetic/{key}/mean@1"] <= 1
    assert "classmate 1 accuracy given the CoT" in terminal
    assert not list(folder.glob("global_step_*"))


def _parts(record: dict) -> tuple[float | None, float | None]:
    return record["advantage"], record["advantage_on_cot"]
