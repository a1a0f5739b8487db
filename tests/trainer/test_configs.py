"""Every primary YAML composes for every hardware, and becomes our typed config and verl's dataclasses."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf, open_dict

from tests.e2e.tiny import make_tiny_world
from verl.classmate.algorithm_config import AlgorithmConfig, algorithm_from_mapping
from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.trainer.run import command_line
from verl.trainer.run.choices import Machine
from verl.trainer.run.unset import fill_in

CONFIG_FOLDER = command_line.CONFIG_FOLDER
# In the repository: beside the links for editors, or in a wheel install, upstream's files lie in the same folder.
OURS = Path(__file__).resolve().parents[2] / "verl" / "trainer" / "config"
SUPERVISED = "teacher_sft_trainer"
"""Built on another config of upstream's: tests/trainer/sft/test_settings.py."""
PRIMARY = sorted(path.stem for path in OURS.glob("[!_]*.yaml") if path.stem != SUPERVISED)
HARDWARE = sorted(path.stem for path in (OURS / "hardware").glob("*.yaml"))
CLASSMATES = "reward_model.classmate_cot_reward_configs.classmate_model_name_or_path_list"


def composed(name: str, hardware: str, *overrides: str, machine: Machine | None = None) -> DictConfig:
    """A config as a start makes it: composed, and with the keys filled in that are not set."""
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        config = compose(name, overrides=[f"hardware={hardware}", *overrides])
    fill_in(config, machine)
    return config


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return make_tiny_world(tmp_path_factory.mktemp("world")).model


@pytest.mark.parametrize("hardware", HARDWARE)
@pytest.mark.parametrize("name", PRIMARY)
def test_reading_data_forks_nothing(name, hardware):
    """Upstream's workers for it are forks of the driver, which has threads, and a handler of SIGTERM."""
    data = composed(name, hardware).data
    assert (data.filter_overlong_prompts_workers, data.dataloader_num_workers) == (None, 0)


def test_there_are_configs():
    assert PRIMARY == ["classmate_cot_ppo_trainer", "qwen_classmate_cot_ppo_trainer", "qwen_ppo_trainer", "rcl_trainer"]
    assert HARDWARE == ["cpu", "gpu"]


@pytest.mark.parametrize("hardware", HARDWARE)
@pytest.mark.parametrize("name", PRIMARY)
def test_composes_resolves_and_converts(name, hardware, model):
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    config = composed(name, hardware, f"actor_rollout_ref.model.path={model}", f"{CLASSMATES}=[{model}]")
    container = OmegaConf.to_container(config, resolve=True)
    reward = from_mapping(container["reward_model"])
    assert [spec.model for spec in reward.classmates] == [str(model)]
    assert algorithm_from_mapping(container["algorithm"]).adv_estimator in ("grpo", "gdpo_classmate")

    validate_config(config, use_reference_policy=False, use_critic=False)
    rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    assert rollout.name == {"cpu": "hf", "gpu": "vllm"}[hardware]
    assert omega_conf_to_dataclass(config.actor_rollout_ref.actor).strategy == "fsdp2"
    with open_dict(config):
        config.actor_rollout_ref.model.trust_remote_code = False
    assert omega_conf_to_dataclass(config.actor_rollout_ref.model).path == str(model)


def differences(typed: object, mapping: dict) -> list[str]:
    """Dotted names of fields whose value is not the one in `mapping`."""
    found = []
    for name, value in vars(typed).items():
        here = mapping[name]
        if isinstance(here, dict):
            found += [f"{name}.{inner}" for inner in differences(value, here)]
        elif (list(value) if isinstance(value, tuple) else value) != here:
            found.append(name)
    return found


PRESETS = {
    "classmate_cot_ppo_trainer": {
        "classmates",
        "classmate_cot_reward_configs.classmate_model_name_or_path_list",
    },
    "qwen_classmate_cot_ppo_trainer": {
        "think_start_str",
        "think_end_str",
        "classmate_generation_configs.max_new_tokens",
        "classmate_generation_configs.temperature",
        "classmate_generation_configs.top_p",
    },
    "qwen_ppo_trainer": {"think_start_str", "think_end_str"},
    "rcl_trainer": {
        "readers_called",
        "classmate_generation_configs.max_new_tokens",
        "classmate_generation_configs.val_kwargs.do_sample",
    },
}
"""What a preset sets, on purpose, other than the typed config's default."""


@pytest.mark.parametrize("name", PRIMARY)
def test_defaults_are_the_typed_configs_but_for_the_presets(name):
    container = OmegaConf.to_container(composed(name, "cpu"), resolve=True)
    reward = container["reward_model"]
    defaults = ClassmateRewardModelConfig()
    # They follow data.seed, the reward manager and the machine.
    unset = {
        "seed",
        "classmate_cot_reward_configs.self_play_model",
        "format_weight",
        "classmate_cot_reward_configs.reward_fusion",
        "classmate_vllm_configs.gpu_memory_utilization",
    }
    assert set(differences(defaults, reward)) - unset == PRESETS[name] - {"classmates"}
    changed = {"qwen_ppo_trainer": {"adv_estimator"}, "rcl_trainer": {"adv_estimator", "norm_adv_by_std_in_grpo"}}
    assert set(differences(AlgorithmConfig(), container["algorithm"])) == changed.get(name, set())


@pytest.mark.parametrize("name", PRIMARY)
def test_cpu_needs_no_override(name):
    """Ray's resources, engine, numbers and devices of a machine without accelerator all come from `hardware: cpu`."""
    config = composed(name, "cpu")
    assert config.trainer.device == "cpu"
    assert config.actor_rollout_ref.actor.fsdp_config.dtype == "float32"
    assert config.ray_kwargs.ray_init.num_gpus == config.trainer.n_gpus_per_node == 1


@pytest.mark.parametrize("name", PRIMARY)
def test_hydra_leaves_nothing_in_the_working_folder(name):
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        config = compose(name, overrides=["hardware=cpu"], return_hydra_config=True)
    assert config.hydra.output_subdir is None
    assert config.hydra.run.dir == "."
    assert config.hydra.job_logging is None or "handlers" not in config.hydra.job_logging
