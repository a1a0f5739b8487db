"""A run's config for tests of one row: composed as on a command line, with classmates of which only tokenizers exist.

>>> folder = save_tokenizers(tmp_path, ["text_bpe", "unigram"])
>>> config = run_config(folder, ["text_bpe", "unigram"], "reward_model.add_consistency_reward=true")
"""

from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from tests.classmate.toy_tokenizers import TOKENIZERS
from verl.trainer.run.command_line import CONFIG_FOLDER, prepare_overrides
from verl.trainer.run.unset import fill_in


def save_tokenizers(folder: Path, names: Sequence[str]) -> Path:
    """Writes each toy tokenizer into a folder of its name; returns `folder`."""
    for name in names:
        TOKENIZERS[name]().save_pretrained(folder / name)
    return folder


def run_config(folder: Path, names: Sequence[str], *overrides: str) -> DictConfig:
    """A classmate run on the CPU whose classmates are the toy tokenizers in `folder`, reading every row."""
    models = ",".join(str(folder / name) for name in names)
    given = [
        "hardware=cpu",
        "data.max_prompt_length=256",
        "data.max_response_length=64",
        f"reward_model.classmate_model_name_or_path_list=[{models}]",
        "reward_model.classmate_generation_configs.max_new_tokens=16",
        "reward_model.classmate_cot_reward_configs.use_classmate_main_cond=always",
    ]
    with initialize_config_dir(str(CONFIG_FOLDER), version_base=None):
        config = compose("classmate_cot_ppo_trainer", overrides=prepare_overrides([*given, *overrides]))
    fill_in(config)
    return config
