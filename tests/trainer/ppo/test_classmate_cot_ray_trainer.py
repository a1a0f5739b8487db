"""What a script hands over to the trainer by keyword, before anything is started."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from verl.classmate.errors import ConfigError
from verl.trainer.ppo.classmate_cot_ray_trainer import ClassmateCoTRayPPOTrainer
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
