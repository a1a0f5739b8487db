"""What a script hands over to the trainer by keyword, and when the trainer hands out the prompts of the next step."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from verl.classmate.errors import ConfigError
from verl.trainer.ppo.classmate_cot_ray_trainer import ClassmateCoTRayPPOTrainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.trainer.run.command_line import CONFIG_FOLDER


@pytest.fixture
def config(tmp_path: Path) -> DictConfig:
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        return compose("classmate_cot_ppo_trainer", ["hardware=cpu", f"trainer.default_local_dir={tmp_path / 'run'}"])


def test_keywords_reach_the_typed_config_in_old_spellings_too(config: DictConfig) -> None:
    trainer = ClassmateCoTRayPPOTrainer(
        config=config,
        classmate_cot_reward_configs={"classmate_reward_weight": 0.3, "use_classmate_condition": "always"},
        classmate_generation_configs={"max_tokens": 7},
    )
    reward = trainer.reward_config
    assert reward.classmate_cot_reward_configs.classmate_reward_weight == 0.3
    assert reward.classmate_cot_reward_configs.use_classmate_main_cond == "always"
    assert reward.classmate_generation_configs.max_new_tokens == 7


def test_an_unknown_keyword_is_refused_before_a_folder_is_made(config: DictConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="classmate_reward_weight"):
        ClassmateCoTRayPPOTrainer(config=config, classmate_cot_reward_configs={"classmate_reward_wieght": 1.0})
    assert not (tmp_path / "run").exists()


def test_a_misspelt_keyword_of_the_trainer_is_refused(config: DictConfig) -> None:
    with pytest.raises(TypeError, match="tokeniser"):
        ClassmateCoTRayPPOTrainer(config=config, tokeniser=None)


@pytest.mark.parametrize(
    ("test_freq", "profiled", "begun_before_written"),
    [(-1, None, [2, 3, 4]), (2, None, [2, 4]), (1, None, []), (-1, [2], [])],
    ids=["no validation", "every second step", "every step", "profiled"],
)
def test_the_next_step_begins_before_this_one_is_written_down(
    monkeypatch: pytest.MonkeyPatch, test_freq: int, profiled: list[int] | None, begun_before_written: list[int]
) -> None:
    """Not where the policy validates first, not behind the last step, and each step's prompts are handed out once."""
    told: list[tuple[str, int]] = []
    monkeypatch.setattr(
        PPOTrainerSync, "prepare_step", lambda self: told.append(("begun", self.global_steps)) or {"asked": 1.0}
    )
    monkeypatch.setattr(PPOTrainerSync, "on_step_end", lambda self: told.append(("weights", self.global_steps)))
    trainer = object.__new__(ClassmateCoTRayPPOTrainer)
    trainer.config = OmegaConf.create({"trainer": {"test_freq": test_freq}, "global_profiler": {"steps": profiled}})
    trainer.classmates, trainer.total_training_steps, trainer._next_under_way = None, 4, False
    for step in range(1, 5):
        # As upstream's `fit` does.
        trainer.global_steps = step
        trainer.prepare_step()
        trainer.on_step_end()
        told.append(("written", step))
    assert [step for what, step in told if what == "begun"] == [1, 2, 3, 4]
    for step in range(1, 5):
        assert told.index(("weights", step)) < told.index(("written", step))
    early = [step for step in range(2, 5) if told.index(("begun", step)) < told.index(("written", step - 1))]
    assert early == begun_before_written
    assert all(told.index(("begun", step)) > told.index(("weights", step - 1)) for step in range(2, 5))
