"""`debug=true`: a breakpoint in a function of the user's has the terminal, and what comes out is what Ray makes."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.e2e.world import BASELINE, MAIN, World, finished, graded_reward, rows, settings, steps

_REWARD = """import threading


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    in_main_thread = threading.current_thread() is threading.main_thread()
    breakpoint()
    return 1.0
"""


@pytest.mark.slow
def test_a_breakpoint_stops_the_run_and_q_ends_it(world: World, tmp_path: Path) -> None:
    reward = tmp_path / "stops.py"
    reward.write_text(_REWARD)
    arguments = settings(
        world, tmp_path / "run", "debug=true", f"reward.custom_reward_function.path={reward}", "hardware=cpu"
    )
    ended = subprocess.run(
        [sys.executable, *MAIN, *arguments],
        input="p 'thread', in_main_thread\np 'answer', solution_str\ncontinue\nwhere\nq\n",
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    shown = ended.stdout
    assert "('thread', True)" in shown
    assert "('answer', '" in shown
    assert shown.count("(Pdb)") == 5, "it stopped once more after `continue`"
    assert "row_pipeline.py" in shown, "and `where` shows who called"
    assert ended.returncode == 130
    assert ended.stderr.splitlines()[-1].startswith("error: stopped; there is no checkpoint yet")


@pytest.mark.long
def test_the_baseline_trains_and_leaves_a_model(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    saving = ("trainer.save_freq=1", "trainer.max_actor_ckpt_to_keep=1")
    arguments = [*BASELINE, *settings(world, folder, "debug=true", *saving, graded_reward(tmp_path)), "hardware=cpu"]
    terminal = finished([*arguments, "trainer.total_training_steps=2"], log=tmp_path / "terminal.txt")
    assert "step 2/2" in terminal
    assert "held-out problems" in terminal
    assert steps(folder)[2]["actor/grad_norm"] > 0
    assert all(row["advantage"] is not None and not row["classmates"] for row in rows(folder, 2))
    assert any(row["classmates"][0]["samples"] for row in rows(folder, 2, validation=True))
    assert (folder / "global_step_2/actor/huggingface/model.safetensors").exists()
    assert not (folder / "global_step_1").exists()
    terminal = finished([*arguments, "trainer.total_training_steps=3"], log=tmp_path / "further.txt")
    assert "(resumes at step 2)" in terminal
    assert [path.name for path in folder.glob("global_step_*")] == ["global_step_3"]

    other, checkpoint = tmp_path / "other", folder / "global_step_3"
    from_there = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={checkpoint}/"]
    moved = [f"trainer.default_local_dir={other}", "trainer.total_training_steps=4"]
    terminal = finished([*arguments, *from_there, *moved], log=tmp_path / "other.txt")
    assert f"(starts from {checkpoint})" in terminal
    assert sorted(steps(other)) == [4]
    assert checkpoint.exists()


REWARDS = "reward_model.classmate_cot_reward_configs"


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.skipif(torch.cuda.is_available(), reason="deterministic runs are refused on a GPU")
@pytest.mark.parametrize(
    "overrides",
    [
        (
            f"{REWARDS}.classmate_reward_type=random_truncate_step_wise_utility",
            f"{REWARDS}.use_classmate_main_cond=neg_classmate_when_main_incorrect",
            "reward_model.classmate_generation_configs.num_return_sequences=2",
        ),
        (
            "algorithm.adv_estimator=grpo_w_classmate",
            f"{REWARDS}.classmate_reward_type=remove_wo_cot",
            f"{REWARDS}.classmate_continue_mode=immediate_answer",
            f"{REWARDS}.add_consistency_reward=true",
        ),
        (
            "algorithm.adv_estimator=remax",
            f"{REWARDS}.classmate_reward_type=help_other_questions",
            f"{REWARDS}.use_classmate_main_cond=always",
        ),
        (
            "algorithm.adv_estimator=grpo_main_classmate_separated",
            f"{REWARDS}.classmate_reward_type=random_truncate",
            f"{REWARDS}.token_level_classmate_reward_mode=all",
            f"{REWARDS}.placebo=true",
            "actor_rollout_ref.actor.use_kl_loss=true",
        ),
        ("algorithm.adv_estimator=gae",),
        (
            "reward_model.length_cost=0.1",
            f"{REWARDS}.classmate_question=hint_removed",
            f"{REWARDS}.strip_answer=true",
            f"{REWARDS}.empty_cot_score=lowest",
            f"{REWARDS}.use_classmate_main_cond=always",
            "trainer.test_freq=2",
        ),
        (
            f"{REWARDS}.classmate_reward_type=likelihood",
            f"{REWARDS}.empty_cot_score=exclude",
            f"{REWARDS}.use_classmate_main_cond=always",
        ),
        (
            f"{REWARDS}.classmate_reward_type=likelihood_gain",
            f"{REWARDS}.strip_answer=true",
            f"{REWARDS}.empty_cot_score=exclude",
            f"{REWARDS}.use_classmate_main_cond=always",
        ),
    ],
    ids=[
        "step_wise",
        "grpo_w_classmate",
        "remax",
        "separated",
        "critic",
        "unseen_reader_cost_strip_without_hint",
        "likelihood",
        "likelihood_gain",
    ],
)
def test_the_numbers_are_those_of_a_run_on_ray(world: World, tmp_path: Path, overrides: tuple[str, ...]) -> None:
    validates = "trainer.test_freq=2" in overrides
    unseen = f"reward_model.evaluation_classmates=[{{model: {world.classmates[1]}}}]"
    first_only = f"reward_model.classmate_model_name_or_path_list=[{world.classmates[0]}]"

    def arguments(folder: Path) -> list[str]:
        return settings(
            world,
            folder,
            "hardware=cpu",
            "trainer.deterministic=true",
            "trainer.total_training_steps=2",
            "trainer.val_before_train=false",
            "trainer.save_freq=-1",
            graded_reward(tmp_path),
            *((unseen, first_only) if validates else ("trainer.test_freq=-1",)),
            *overrides,
        )

    on_ray, here = tmp_path / "on_ray", tmp_path / "here"
    finished([*MAIN, *arguments(on_ray)], log=tmp_path / "on_ray.txt")
    finished([*MAIN, *arguments(here), "debug=true"], log=tmp_path / "here.txt")
    for step in (1, 2):
        assert rows(here, step) == rows(on_ray, step)
        assert any(row["advantage"] or row["advantage_on_cot"] for row in rows(here, step))
        ours, theirs = steps(here)[step], steps(on_ray)[step]
        for key in ("actor/grad_norm", "actor/pg_loss", "actor/entropy", "critic/score/mean"):
            assert ours[key] == theirs[key], key
    shown = finished(["-m", "verl.evaluation.replay", str(here), "--step", "2"], log=tmp_path / "replay.txt")
    assert "all recomputed numbers of " in shown, "nothing differs from the dump"
    if validates:
        validated = rows(here, 2, validation=True)
        assert validated == rows(on_ray, 2, validation=True)
        assert all(row["unseen"] for row in validated)
        assert not any("unseen" in row for row in rows(here, 2))
