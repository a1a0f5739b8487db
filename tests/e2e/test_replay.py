"""What a real run wrote down is enough to come to the same numbers again, and to others under other options."""

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.world import MAIN, ROOT, World, finished, graded_reward, rows, settings
from tests.trainer.ppo.recomputed_metrics import differences

pytestmark = pytest.mark.slow
REWARD = "reward_model.classmate_cot_reward_configs"


@pytest.fixture(scope="module")
def run(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of one step: cut at random, compared with the question alone, two answers each."""
    folder = tmp_path_factory.mktemp("replay")
    overrides = [
        f"{REWARD}.classmate_reward_type=random_truncate_remove_wo_cot",
        f"{REWARD}.use_classmate_main_cond=neg_classmate_when_main_incorrect",
        f"{REWARD}.add_consistency_reward=True",
        f"{REWARD}.classmate_close_marker=always",
        "reward_model.classmate_generation_configs.num_return_sequences=2",
        "trainer.total_training_steps=1",
        "debug=true",
        graded_reward(folder),
    ]
    finished([*MAIN, *settings(world, folder / "run", *overrides)], log=folder / "terminal.txt")
    return folder / "run"


def replayed(*arguments: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "verl.evaluation.replay", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize("options", [[], ["--rescore"], ["--validation"]], ids=["rollouts", "rescore", "validation"])
def test_the_numbers_are_those_of_the_run(run: Path, options: list[str]) -> None:
    done = replayed(run, "--step", 1, "--json", *options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    shown = json.loads(done.stdout)
    assert shown["differences"] == 0
    assert len(shown["rows"]) == len(rows(run, 1)) or options == ["--validation"]


def test_metrics_are_those_that_the_dumps_say(run: Path) -> None:
    assert differences(run) == []


def test_a_person_reads_a_row(run: Path) -> None:
    done = replayed(run, "--step", 1, "--row", 0)
    assert done.returncode == 0, done.stderr[-2000:]
    record = rows(run, 1)[0]
    for said in (record["question"], "how it was cut", "classmate 1: ", "view 1 asked", "F           = "):
        assert said in done.stdout
    assert "all recomputed numbers of this row are those of the dump" in done.stdout


def test_other_options_by_hand(run: Path) -> None:
    options = ["reward_model.use_classmate_condition=always", "algorithm.adv_estimator=drgrpo"]
    options += [f"{REWARD}.add_consistency_reward=False", f"{REWARD}.classmate_reward_weight=0.25"]
    options += [f"{REWARD}.min_classmate_valid_fraction=0"]
    done = replayed(run, "--step", 1, "--json", *options)
    assert done.returncode == 0, done.stderr[-2000:]
    changed = [row["record"] for row in json.loads(done.stdout)["rows"]]
    groups: dict[str, list[tuple[float, float | None]]] = {}
    for record, dumped in zip(changed, rows(run, 1), strict=True):
        fused = None
        if dumped["classmate_valid"]:
            fused = dumped["base_reward"] + 0.25 * dumped["classmate_score"]
            assert record["final_reward"] == pytest.approx(fused, abs=1e-6)
        groups.setdefault(dumped["uid"], []).append((dumped["base_reward"], fused))
    for record in changed:
        group = groups[record["uid"]]
        known = [fused for _, fused in group if fused is not None]
        if record["classmate_valid"] and len(known) > 1:
            expected = record["final_reward"] - statistics.fmean(known)
        elif not record["classmate_valid"]:
            expected = record["base_reward"] - statistics.fmean(base for base, _ in group)
        else:
            expected = 0.0
        assert record["advantage"] == pytest.approx(expected, abs=1e-5)


def test_a_number_that_was_changed_is_found(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    (copy / "rollouts").mkdir(parents=True)
    (copy / "config.yaml").write_text((run / "config.yaml").read_text())
    records = rows(run, 1)
    records[3]["advantage"] += 0.01
    (copy / "rollouts" / "step_1.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    done = replayed(copy, "--step", 1)
    assert done.returncode == 1
    assert "row 3 advantage: dumped " in done.stdout
