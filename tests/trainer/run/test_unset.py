"""Keys that are not set follow those that are: whatever the combination, only a key that is set may be refused."""

import copy
import functools
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from tests.e2e.tiny import TinyWorld, make_tiny_world
from tests.trainer.run.test_unset_gpus import gpus
from tests.trainer.test_configs import CONFIG_FOLDER, composed
from verl.classmate.config import from_mapping
from verl.classmate.errors import ConfigError
from verl.trainer.preflight.batches import check_batch_sizes, check_rows
from verl.trainer.preflight.data import check_batch, check_files
from verl.trainer.preflight.devices import check_devices
from verl.trainer.preflight.models import load_tokenizer
from verl.trainer.preflight.prompt_lengths import check_prompt_lengths, token_lengths
from verl.trainer.preflight.settings import check_counts, check_with_verl
from verl.trainer.run import command_line
from verl.trainer.run.choices import USUAL, Machine
from verl.trainer.run.unset import fill_in

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> TinyWorld:
    return make_tiny_world(tmp_path_factory.mktemp("world"))


def value(config: DictConfig, key: str) -> Any:
    return OmegaConf.select(config, key)


@functools.cache
def untouched(hardware: str) -> DictConfig:
    """The config of a start with no key set; composing it takes most of a test's time."""
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        return compose("classmate_cot_ppo_trainer", overrides=[f"hardware={hardware}"])


def checked(*overrides: str, hardware: str = "cpu", machine: Machine | None = None) -> DictConfig:
    """A filled config whose batches pass our checks and upstream's."""
    config = copy.deepcopy(untouched(hardware))
    for override in overrides:
        key, _, text = override.partition("=")
        OmegaConf.update(config, key, yaml.safe_load(text))
    fill_in(config, machine)
    plain = OmegaConf.to_container(config, resolve=True)
    check_counts(plain)
    check_batch_sizes(plain)
    return config


def test_nothing_typed_is_as_usual() -> None:
    config = checked()
    assert {key: value(config, key) for key in USUAL} == USUAL
    check_with_verl(OmegaConf.to_container(config, resolve=True))


@pytest.mark.parametrize("rollouts", [pytest.param(1, marks=pytest.mark.long), 8])
@pytest.mark.parametrize("batch", [1, 7, 48, 97, 256, 257, 300, 509, 997, 1000, 5000])
def test_the_batch_alone_is_enough(batch: int, rollouts: int) -> None:
    config = checked(f"data.train_batch_size={batch}", f"{ROLLOUT}.n={rollouts}")
    mini = value(config, f"{ACTOR}.ppo_mini_batch_size")
    assert mini <= min(batch, 256) or (mini == batch and batch < 512)
    assert mini == batch or mini > 64 or batch < 64, "small mini-batches change what is trained"
    assert batch % mini == 0 or (batch, mini) == (997, 250), "a prime has no parts; the last of four lacks three"
    assert value(config, "critic.ppo_mini_batch_size") == mini


def test_one_process_takes_whole_mini_batches() -> None:
    config = checked("data.train_batch_size=997", "debug=true")
    assert value(config, f"{ACTOR}.ppo_mini_batch_size") == 997


LOG_PROB = f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu"
MICRO = f"{ACTOR}.ppo_micro_batch_size_per_gpu"


@pytest.mark.parametrize(
    ("typed", "batch", "mini"),
    [
        (["trainer.n_gpus_per_node=7"], 1008, 252),
        (["trainer.n_gpus_per_node=3"], 1020, 255),
        (["trainer.n_gpus_per_node=6"], 1020, 255),
        ([f"{MICRO}=10"], 1020, 255),
        ([f"{LOG_PROB}=10"], 1020, 255),
        ([f"{LOG_PROB}=7"], 1008, 252),
        ([f"{LOG_PROB}=64"], 1024, 256),
        ([f"{LOG_PROB}=10000"], 1250, 250),
        ([f"{MICRO}=4096"], 1024, 512),
        ([f"{ROLLOUT}.log_prob_micro_batch_size=24"], 1020, 255),
        ([f"{ROLLOUT}.log_prob_micro_batch_size=24", "trainer.n_gpus_per_node=2"], 1020, 255),
        ([f"{ACTOR}.use_kl_loss=true", "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=12"], 1020, 255),
        (["actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=12"], 1024, 256),
        (["algorithm.adv_estimator=gae", "critic.ppo_micro_batch_size_per_gpu=10"], 1020, 255),
        ([f"{ACTOR}.ppo_mini_batch_size=100", f"{LOG_PROB}=64"], 1000, 100),
        (["data.train_batch_size=1000", f"{ROLLOUT}.n=3", "trainer.n_gpus_per_node=6"], 1000, 250),
    ],
)
def test_a_batch_is_a_few_large_mini_batches(typed: list[str], batch: int, mini: int) -> None:
    config = checked(*typed)
    assert value(config, "data.train_batch_size") == batch
    assert value(config, f"{ACTOR}.ppo_mini_batch_size") == mini
    if config.algorithm.adv_estimator != "gae":  # for which a critic would have to be there
        check_with_verl(OmegaConf.to_container(config, resolve=True))


def ten_times(world: TinyWorld, file: Path) -> Path:
    """80 rows; one prompt is longer than all others, and so is a quarter of them by less."""
    rows = pd.concat([pd.read_parquet(world.train_file)] * 10, ignore_index=True)
    for row, words in [(79, 60), *((row, 30) for row in range(0, 79, 4))]:
        rows.at[row, "prompt"] = [{"role": "user", "content": "how many " * words}]
    rows.to_parquet(file)
    return file


@pytest.mark.parametrize("ranks", [1, 7])
def test_prompts_that_are_left_out_make_the_batch_smaller(world: TinyWorld, tmp_path: Path, ranks: int) -> None:
    """The run's own check counts them once more, with the batch that was chosen."""
    file = ten_times(world, tmp_path / "rows.parquet")
    tokenizer = load_tokenizer("model", str(world.model))
    data = {"prompt_key": "prompt", "apply_chat_template_kwargs": {}}
    lengths = sorted(token_lengths(data, [str(file)], tokenizer))
    typed = [f"actor_rollout_ref.model.path={world.model}", f"data.train_files={file}", f"{ROLLOUT}.n=1"]
    typed += [f"trainer.n_gpus_per_node={ranks}", f"data.val_files={world.train_file}"]
    for limit, fitting in ((lengths[-1], 80), (lengths[-1] - 1, 79), (lengths[-2] - 1, 59)):
        config = checked(*typed, f"data.max_prompt_length={limit}")
        plain: Any = OmegaConf.to_container(config, resolve=True)
        assert plain["data"]["train_batch_size"] == fitting - fitting % ranks
        check_files(plain["data"], verified=False)
        check_batch(plain["data"])
        check_prompt_lengths(plain["data"], tokenizer)
    short = checked(*typed, "data.max_prompt_length=3")
    with pytest.raises(ConfigError, match="all 80 prompts are longer"):
        check_prompt_lengths(OmegaConf.to_container(short, resolve=True)["data"], tokenizer)  # type: ignore[index,call-overload,arg-type]
    # Which rows a sample holds is not known beforehand.
    sample = checked(*typed, f"data.max_prompt_length={lengths[-2] - 1}", "data.train_max_samples=40")
    assert 7 <= value(sample, "data.train_batch_size") <= 20


def test_too_few_rows_for_any_batch_are_refused_with_a_way_out(world: TinyWorld, tmp_path: Path) -> None:
    one = tmp_path / "one.parquet"
    pd.read_parquet(world.train_file).head(1).to_parquet(one)
    typed = [f"data.train_files={one}", f"data.val_files={one}"]
    two_ranks = checked(*typed, "trainer.n_gpus_per_node=2", f"{ROLLOUT}.n=3")
    with pytest.raises(
        ConfigError, match=r"1 rows.*write actor_rollout_ref\.rollout\.n=4 or trainer\.n_gpus_per_node=1"
    ):
        check_rows(OmegaConf.to_container(two_ranks, resolve=True))  # type: ignore[arg-type]
    for cure in ([f"{ROLLOUT}.n=4", "trainer.n_gpus_per_node=2"], [f"{ROLLOUT}.n=3", "trainer.n_gpus_per_node=1"]):
        check_rows(OmegaConf.to_container(checked(*typed, *cure), resolve=True))  # type: ignore[arg-type]
    for typed_size in (f"{ACTOR}.ppo_mini_batch_size=300", "data.train_batch_size=300"):
        config = checked(f"data.train_files={world.train_file}", typed_size)
        with pytest.raises(ConfigError, match=r"8 rows, fewer than .*=300.*; write .*=8"):
            check_rows(OmegaConf.to_container(config, resolve=True))  # type: ignore[arg-type]
    # GPUs that nobody asked for are no reason to refuse.
    assert value(gpus(8, *typed, f"{ROLLOUT}.n=3"), "trainer.n_gpus_per_node") == 3


def test_ranks_of_the_cpu_get_the_logical_cpus_that_they_ask_for() -> None:
    for ranks in (1, 5, 8):
        config = checked(f"trainer.n_gpus_per_node={ranks}")
        plain: Any = OmegaConf.to_container(config, resolve=True)
        reward = from_mapping(plain["reward_model"], require_classmates=False)
        check_devices(plain, reward)
        assert plain["ray_kwargs"]["ray_init"]["num_gpus"] == ranks


@pytest.mark.parametrize("mini", [1, 5, 96, 300, 2048])
def test_the_mini_batch_alone_is_enough(mini: int) -> None:
    config = checked(f"{ACTOR}.ppo_mini_batch_size={mini}")
    batch = value(config, "data.train_batch_size")
    assert batch % mini == 0
    assert batch > 768 or batch == mini


@pytest.mark.parametrize("micro", [1, 5, 7, 24])
def test_a_micro_batch_alone_is_enough(micro: int) -> None:
    checked(f"{ACTOR}.ppo_micro_batch_size_per_gpu={micro}")


@pytest.mark.parametrize("batch", [6, *(pytest.param(batch, marks=pytest.mark.long) for batch in (8, 60, 96))])
def test_two_batch_sizes_are_accepted_where_some_third_one_fits(batch: int) -> None:
    """Typed pairs that divide; what is left out is found for all of them, on one rank and on several."""
    for micro, ranks, rollouts in itertools.product((1, 2, 3), (1, 2, 3), (4, 6)):
        if batch * rollouts % ranks or batch * rollouts // ranks % micro:
            continue
        checked(
            f"data.train_batch_size={batch}",
            f"{ACTOR}.ppo_micro_batch_size_per_gpu={micro}",
            f"trainer.n_gpus_per_node={ranks}",
            f"{ROLLOUT}.n={rollouts}",
        )


@pytest.mark.parametrize("node", [ACTOR, f"{ACTOR}.fsdp_config"])
def test_ranks_that_share_rows_have_the_more_of_them(node: str) -> None:
    typed = ("trainer.n_gpus_per_node=2", "data.train_batch_size=6", f"{ROLLOUT}.n=1")
    config = checked(*typed, f"{node}.ulysses_sequence_parallel_size=2")
    assert value(config, f"{ACTOR}.ppo_micro_batch_size_per_gpu") == 6
    assert value(checked(*typed), f"{ACTOR}.ppo_micro_batch_size_per_gpu") == 3


def test_typed_keys_that_disagree_are_refused_still() -> None:
    with pytest.raises(ConfigError, match=r"ppo_mini_batch_size=16 is larger than data\.train_batch_size=8"):
        checked("data.train_batch_size=8", f"{ACTOR}.ppo_mini_batch_size=16")
    with pytest.raises(ConfigError, match=r"ppo_micro_batch_size_per_gpu=5 does not divide the 64 rows"):
        checked(f"{ACTOR}.ppo_mini_batch_size=8", f"{ACTOR}.ppo_micro_batch_size_per_gpu=5")


def test_pieces_of_log_probs_do_not_change_what_is_trained() -> None:
    """With mini-batches of 7 of the 8 prompts it would be accepted."""
    with pytest.raises(ConfigError, match=r"log_prob_micro_batch_size_per_gpu=7 does not divide the 32 rows"):
        checked("data.train_batch_size=8", f"{ROLLOUT}.n=4", f"{LOG_PROB}=7")


def test_nothing_typed_is_ever_changed() -> None:
    typed = {
        "data.train_batch_size": 64,
        f"{ACTOR}.ppo_mini_batch_size": 32,
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": 8,
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": 4,
        f"{ROLLOUT}.gpu_memory_utilization": 0.3,
        f"{ACTOR}.fsdp_config.param_offload": True,
        "data.max_prompt_length": 100,
        "data.max_response_length": 200,
    }
    for hardware in ("cpu", "gpu"):
        config = checked(*(f"{key}={given}" for key, given in typed.items()), hardware=hardware)
        assert {key: value(config, key) for key in typed} == typed


def test_a_second_start_of_the_same_config_changes_nothing(world: TinyWorld) -> None:
    for machine in (None, Machine(gpus=4, gpu_gib=23.5)):
        overrides = [f"actor_rollout_ref.model.path={world.model}", "data.train_batch_size=12"]
        config = composed("classmate_cot_ppo_trainer", "gpu", *overrides, machine=machine)
        before = OmegaConf.to_container(config, resolve=True)
        fill_in(config, machine)
        assert OmegaConf.to_container(config, resolve=True) == before


def test_the_old_names_of_micro_batches_still_work() -> None:
    """They count the rows of all GPUs, and upstream refuses them beside the newer ones, which its workers need."""
    old = [f"{ACTOR}.ppo_micro_batch_size=8", f"{ROLLOUT}.log_prob_micro_batch_size=16"]
    config = checked(*old, "trainer.n_gpus_per_node=2", "data.train_batch_size=8")
    check_with_verl(OmegaConf.to_container(config, resolve=True))
    assert value(config, f"{ACTOR}.ppo_micro_batch_size_per_gpu") == 4
    assert value(config, f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu") == 8
    assert value(config, f"{ACTOR}.ppo_micro_batch_size") is None


def test_rows_filled_by_tokens_have_room_for_the_longest() -> None:
    config = checked(f"{ACTOR}.use_dynamic_bsz=true", "data.max_response_length=30000")
    assert value(config, f"{ACTOR}.ppo_max_token_len_per_gpu") == 31024
    assert value(config, f"{ROLLOUT}.log_prob_max_token_len_per_gpu") == 31024


def test_a_batch_is_not_larger_than_the_data(world: TinyWorld, tmp_path: Path) -> None:
    rows = pd.read_parquet(world.train_file)
    assert len(rows) == 8
    few = tmp_path / "few.parquet"
    rows.head(5).to_parquet(few)
    model = f"actor_rollout_ref.model.path={world.model}"

    def batch(*typed: str) -> int:
        chosen: int = value(checked(*typed), "data.train_batch_size")
        return chosen

    assert batch(model, f"data.train_files={world.train_file}") == 8
    assert batch(model, f"data.train_files={few}") == 5
    # Half of them where the policy cannot be asked, or which rows there will be is not known.
    assert batch(f"data.train_files={world.train_file}") == 4
    assert batch(model, f"data.train_files={world.train_file}", "data.train_max_samples=3") == 2


def model_that_reads(tokens: int, world: TinyWorld, folder: Path) -> Path:
    shutil.copytree(world.model, folder)
    config = json.loads((folder / "config.json").read_text()) | {"max_position_embeddings": tokens}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def lengths(*overrides: str) -> tuple[int, int]:
    config = composed("classmate_cot_ppo_trainer", "cpu", *overrides)
    return value(config, "data.max_prompt_length"), value(config, "data.max_response_length")


def test_lengths_fit_what_the_models_read(world: TinyWorld, tmp_path: Path) -> None:
    short, long = (model_that_reads(n, world, tmp_path / str(n)) for n in (600, 9000))
    classmates = "reward_model.classmate_model_name_or_path_list"
    policy = f"actor_rollout_ref.model.path={short}"
    resolved = command_line.prepare_overrides([f"{classmates}=[{short}]"])
    given = [one for one in resolved if not one.startswith("hardware=")]
    assert lengths(policy) == (300, 300)
    assert lengths(policy, "data.max_response_length=500") == (100, 500)
    assert lengths(policy, "data.max_prompt_length=64") == (64, 536)
    assert lengths(f"actor_rollout_ref.model.path={long}") == (1024, 1024)
    assert lengths(f"{ROLLOUT}.max_model_len=512") == (256, 256)
    # A classmate reads prompt, response and its own 256 tokens.
    assert lengths(f"actor_rollout_ref.model.path={long}", *given) == (172, 172)
    # What is too long for the context that is set is left out and counted, so that nothing has to be shorter.
    limit = "reward_model.classmate_generation_configs.max_model_len=600"
    assert lengths(f"actor_rollout_ref.model.path={long}", *given, limit) == (1024, 1024)
    # Typed lengths stay, and are refused by the checks.
    assert lengths(policy, "data.max_prompt_length=500", "data.max_response_length=500") == (500, 500)


OWN = """
data:
  train_batch_size: 8
actor_rollout_ref:
  actor:
    ppo_micro_batch_size_per_gpu: 2
"""


def test_what_stands_in_a_yaml_of_the_users_own_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.yaml").write_text((CONFIG_FOLDER / "classmate_cot_ppo_trainer.yaml").read_text() + OWN)
    typed = [f"--config-dir={tmp_path}", "--config-name=mine", "hardware=cpu"]
    monkeypatch.setattr("sys.argv", ["prog", *typed])
    config = command_line.compose("classmate_cot_ppo_trainer", command_line.prepare_overrides(typed))
    assert config is not None
    filled = fill_in(config)
    assert value(config, f"{ACTOR}.ppo_mini_batch_size") == 8
    assert value(config, f"{ACTOR}.ppo_micro_batch_size_per_gpu") == 2
    assert filled.lines == ["not set      ppo_mini_batch_size=8, rollout.log_prob_micro_batch_size_per_gpu=2"]


def test_text_for_a_number_that_was_not_typed_is_still_told() -> None:
    for override, message in (
        ("data.train_batch_size=abc", "an integer"),
        (f"{ACTOR}.fsdp_config.param_offload=maybe", "true or false"),
        (f"{ROLLOUT}.gpu_memory_utilization=half", "a number"),
    ):
        typed = command_line.prepare_overrides(["hardware=cpu", override])
        with pytest.raises(ConfigError, match=f"expected {message}"):
            command_line.compose("classmate_cot_ppo_trainer", typed)


@pytest.mark.parametrize(
    "override",
    [
        "data.train_batch_size=abc",
        "data.train_batch_size=-4",
        "trainer.n_gpus_per_node=0",
        "trainer.nnodes=two",
        f"{ROLLOUT}.n=0",
        "data.max_prompt_length=-1",
        f"{ACTOR}.ppo_micro_batch_size_per_gpu=0.5",
        f"{ROLLOUT}.gpu_memory_utilization=7",
        "actor_rollout_ref.model.path=null",
    ],
)
@pytest.mark.parametrize("hardware", ["cpu", "gpu"])
def test_nonsense_is_left_to_the_checks(override: str, hardware: str) -> None:
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        config = compose("classmate_cot_ppo_trainer", overrides=[f"hardware={hardware}", override])
    fill_in(config, Machine(gpus=2, gpu_gib=23.5))
