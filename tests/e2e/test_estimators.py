"""Estimators of upstream on the classmates' fused reward, and the actor's masks: short real runs."""

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.world import MAIN, PROMPTS, ROLLOUTS, World, finished, graded_reward, rows, settings, steps
from tests.trainer.ppo.recompute import STEP_WISE, Options, advantages

pytestmark = [pytest.mark.slow, pytest.mark.long]
STEPS, SEGMENTS = 2, 2


def train(world: World, folder: Path, *overrides: str) -> Path:
    """Two steps with the classmates always counted; returns the run folder."""
    folder.mkdir(exist_ok=True)
    common = [
        f"trainer.total_training_steps={STEPS}",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        "reward_model.use_classmate_condition=always",
        graded_reward(folder),
    ]
    finished([*MAIN, *settings(world, folder / "run", *common, *overrides)], log=folder / "terminal.txt")
    return folder / "run"


def by_prompt(records: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The rows of each prompt."""
    groups = defaultdict(list)
    for record in records:
        groups[record["uid"]].append(record)
    return list(groups.values())


def advantage(record: dict[str, Any]) -> float:
    """Of any token: the estimators here give all tokens of a row the same."""
    given = {record["advantage"], record["advantage_on_cot"]} - {None}
    assert max(given) == pytest.approx(min(given), abs=1e-5)
    return given.pop()


@pytest.mark.parametrize("estimator", ["gdpo_classmate", "grpo_w_classmate"])
def test_segments_and_consistency_from_the_dump(world: World, tmp_path: Path, estimator: str) -> None:
    """Advantages of real rows, padding included, are those that plain Python makes of the dump."""
    folder = train(
        world,
        tmp_path,
        f"algorithm.adv_estimator={estimator}",
        "reward_model.classmate_reward_type=random_truncate_step_wise_utility",
        "reward_model.classmate_continue_mode=immediate_answer",
        "reward_model.min_classmate_valid_fraction=0",
        "reward_model.add_consistency_reward=true",
        "reward_model.consistency_reward_weight=0.5",
        "reward_model.classmate_advantage_clamp=non_neg_adv_when_main_correct",
        "trainer.save_freq=-1",
    )
    options = Options(
        reward_type=STEP_WISE,
        condition="always",
        estimator=estimator,
        consistency=True,
        consistency_weight=0.5,
        min_valid=0.0,
        segments=SEGMENTS,
        clamp="non_neg_adv_when_main_correct",
    )
    moved = 0
    for step in steps(folder):
        records = rows(folder, step)
        assert any(record["classmate_valid"] for record in records)
        expected = advantages(records, options)
        assert expected is not None
        for record, row in zip(records, expected, strict=True):
            given = record["advantage_on_segments"]
            assert len(given) == len(row.segments) == SEGMENTS
            for value, wanted in zip(given, row.segments, strict=True):
                assert value is None or value == pytest.approx(wanted, abs=1e-5)
            assert record["advantage"] is None or record["advantage"] == pytest.approx(row.off_cot, abs=1e-5)
            moved += None not in given and len(set(given)) > 1
    assert moved > PROMPTS, "segments of a thought have advantages of their own"


def spread(records: list[dict], reward: str) -> float:
    """How far apart the baselines of a prompt's rows are."""
    baselines = [record[reward] - advantage(record) for record in records]
    return max(baselines) - min(baselines) if baselines else 0.0


@pytest.mark.guards("REMAX and async paths unpacking wrong tuples")
def test_remax_has_one_baseline_per_prompt(world: World, tmp_path: Path) -> None:
    folder = train(world, tmp_path, "algorithm.adv_estimator=remax", "trainer.save_freq=-1")
    for step, line in steps(folder).items():
        records = rows(folder, step)
        assert len(records) == PROMPTS * ROLLOUTS, "the greedy rows are baselines and nothing else"
        assert {record["rollout"] for record in records} == set(range(ROLLOUTS))
        assert line["actor/grad_norm"] > 0
        assert line["classmate/groups_without_greedy"] == 0
        assert line["critic/final_reward/mean"] == pytest.approx(
            sum(r["final_reward"] for r in records if r["classmate_valid"]) / sum(r["classmate_valid"] for r in records)
        )
        for group in by_prompt(records):
            # A row that a classmate has read is compared by F, if the greedy one was read too, any other by r.
            read = [record for record in group if record["classmate_valid"]]
            others = [record for record in group if not record["classmate_valid"]]
            assert spread(others, "base_reward") < 1e-5
            assert spread(read, "final_reward") < 1e-5 or spread(group, "base_reward") < 1e-5
    texts = {record["response"] for record in rows(folder, 1)}
    assert len(texts) > PROMPTS, "the other rows are sampled"


def test_gae_trains_a_critic(world: World, tmp_path: Path) -> None:
    folder = train(world, tmp_path, "algorithm.adv_estimator=gae", f"trainer.save_freq={STEPS}")
    for step, line in steps(folder).items():
        assert len(rows(folder, step)) == PROMPTS * ROLLOUTS
        assert line["actor/grad_norm"] > 0
        assert line["critic/grad_norm"] > 0
        assert line["critic/vf_loss"] > 0
    lines = list(steps(folder).values())
    assert lines[0]["critic/vf_loss"] != lines[1]["critic/vf_loss"]
    assert list((folder / f"global_step_{STEPS}" / "critic").iterdir())


@pytest.mark.guards("response_mask overwritten before metrics")
@pytest.mark.parametrize("mode", ["cot_only", "output_only"])
def test_the_loss_counts_a_part_of_the_tokens_and_metrics_all(world: World, tmp_path: Path, mode: str) -> None:
    recipe = ["algorithm.adv_estimator=drgrpo", "reward_model.rollout_is_threshold=4.0", "trainer.save_freq=-1"]
    recipe += [f"reward_model.token_level_main_reward_mode={mode}"]
    folder = train(world, tmp_path, *recipe)
    for step, line in steps(folder).items():
        records = rows(folder, step)
        assert line["actor/grad_norm"] > 0
        assert math.isfinite(line["actor/pg_loss"])
        assert line["rollout_corr/rollout_is_max"] <= 4.0
        assert line["response_length/mean"] == sum(r["response_tokens"] for r in records) / len(records)
        both = [r for r in records if None not in (r["advantage"], r["advantage_on_cot"])]
        assert both, "advantages are those of all tokens"
        assert all(r["advantage"] == pytest.approx(r["advantage_on_cot"]) for r in both)
