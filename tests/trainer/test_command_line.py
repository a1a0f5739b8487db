"""The command line: aliases, hardware and flags as Hydra gets them, and help that costs nothing."""

import pytest

from tests.trainer.entry_process import run_entry
from verl.classmate.errors import ConfigError
from verl.trainer import command_line
from verl.trainer.command_line import prepare_overrides


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(command_line, "default_hardware", lambda: "cpu")


def test_hardware_is_found_out_unless_it_is_given():
    assert prepare_overrides(["data.seed=2"]) == ["data.seed=2", "hardware=cpu"]
    assert prepare_overrides(["hardware=gpu"]) == ["hardware=gpu"]


def test_aliases_are_resolved():
    typed = ["+reward_model.reward_kwargs.classmate_cot_reward_configs.use_classmate_condition=always"]
    key = "reward_model.classmate_cot_reward_configs.use_classmate_main_cond"
    assert prepare_overrides(typed) == [f"++{key}=always", "hardware=cpu"]


@pytest.mark.parametrize("flag", [["--config-name=qwen_ppo_trainer"], ["--config-name", "qwen_ppo_trainer"]])
def test_flags_come_first_wherever_they_stand(flag):
    expected = [*flag, "data.seed=2", "data.shuffle=false", "hardware=cpu"]
    assert prepare_overrides(["data.seed=2", *flag, "data.shuffle=false"]) == expected
    assert prepare_overrides([*flag, "data.seed=2", "data.shuffle=false"]) == expected
    assert prepare_overrides(["data.seed=2", "data.shuffle=false", *flag]) == expected


def test_an_unknown_flag_is_refused():
    with pytest.raises(ConfigError, match="--batch-size=4"):
        prepare_overrides(["--batch-size=4"])


@pytest.mark.parametrize("typed", [["--multirun", "data.seed=1,2"], ["data.seed=1,2", "-m"]])
def test_a_sweep_is_refused(typed):
    with pytest.raises(ConfigError, match="one command trains one run"):
        prepare_overrides(typed)


def test_help_names_the_keys_that_a_run_needs_and_ours(tmp_path):
    result = run_entry(["--help"], folder=tmp_path)
    assert (result.code, result.stderr, result.left_behind) == (0, "", [])
    for text in ("actor_rollout_ref.model.path=", "data.train_files=", "--cfg job", "main_cot_keep_rate: 1"):
        assert text in result.stdout


def test_cfg_job_shows_every_key_with_what_was_typed(tmp_path):
    result = run_entry(["data.train_batch_size=12", "--cfg", "job"], folder=tmp_path)
    assert (result.code, result.stderr, result.left_behind) == (0, "", [])
    assert "  train_batch_size: 12\n" in result.stdout
    assert "ppo_mini_batch_size" in result.stdout


def test_a_number_may_be_written_in_any_way_that_yaml_reads(tmp_path):
    typed = ["actor_rollout_ref.actor.optim.lr=1e-4", "trainer.val_before_train=False", "--cfg", "job"]
    result = run_entry(typed, folder=tmp_path)
    assert "lr: 0.0001" in result.stdout
