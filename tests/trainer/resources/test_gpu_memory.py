"""What a GPU holds: the README's command fits wherever it can, and what cannot is refused with what does."""

import copy
import dataclasses
import functools
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf, open_dict

from scripts import resources_table
from tests.trainer.test_configs import CONFIG_FOLDER
from verl.classmate.config import from_mapping
from verl.classmate.errors import ConfigError
from verl.trainer import preflight
from verl.trainer.preflight.batches import check_batch_sizes
from verl.trainer.resources import gpu_settings
from verl.trainer.resources.gpu_memory import ASLEEP_GIB, GIB, EngineNeed, Job, evaluate
from verl.trainer.resources.gpu_settings import choose
from verl.trainer.resources.model_sizes import ModelSize, size_of_config
from verl.trainer.run import launch
from verl.trainer.run.choices import Filled, Machine
from verl.trainer.run.unset import fill_in
from verl.workers.classmates.placement import gpu_memory_share, resolved_schedule

SIZES = {name: size_of_config(config) for name, config in resources_table.POLICIES.items()}
LLAMA = size_of_config(resources_table.LLAMA_1B)
SHARE = "actor_rollout_ref.rollout.gpu_memory_utilization"
HELPERS = "reward_model.classmate_vllm_configs.gpu_memory_utilization"


def size(name: str) -> ModelSize:
    found = SIZES[name]
    assert found is not None
    return found


def job(policy: str, classmates: int = 1, gpus: int = 1, gib: float = 79.2, row: int = 2048, **typed: Any) -> Job:
    assert LLAMA is not None
    helpers = tuple(
        EngineNeed(name=f"classmate {i}", size=LLAMA, turn=f"classmate/{i}", context=row + 256)
        for i in range(classmates)
    )
    engine = EngineNeed(name="policy", size=size(policy), turn="policy", context=row)
    return Job(
        **{"gpus": gpus, "gpu_gib": gib, "policy": engine, "helpers": helpers, "row_tokens": row}
        | {"rows_of_rank": 2048 // gpus}
        | typed
    )


GRID = list(itertools.product(SIZES, (0, 1, 2, 3), (1, 2, 4, 8), (15.0, 23.5, 39.4, 47.4, 79.2, 139.8)))
SAMPLE = GRID[::7]
"""Of every policy, number of classmates and of GPUs, and memory some."""

of_both = pytest.mark.parametrize("grid", [SAMPLE, pytest.param(GRID, marks=pytest.mark.long)], ids=["some", "all"])


@pytest.mark.parametrize("gib", [22.0, 23.5, 31.4, 39.4, 44.4, 47.4, 79.2, 139.8])
@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 8])
def test_the_readmes_command_fits_on_every_gpu_of_24_gb_and_more(gib: float, gpus: int) -> None:
    plan = choose(job("Qwen3-0.6B", gpus=gpus, gib=gib))
    assert plan.fits
    assert plan.settings.rows >= 24
    assert plan.trains.gib < gib - 1
    assert plan.rows_made.gib < gib - 1


@of_both
def test_no_plan_that_fits_takes_more_than_there_is(grid: list[Any]) -> None:
    """Reckoned once more, in plain numbers: 16 bytes a parameter, 10 a logit, shares of the GPU."""
    fitting = 0
    for policy, classmates, gpus, gib in grid:
        plan = choose(job(policy, classmates, gpus, gib))
        settings, parameters = plan.settings, size(policy).parameters
        if not plan.fits:
            continue
        fitting += 1
        state = 16 * parameters / gpus / GIB
        logits = 10 * settings.micro * 2048 * size(policy).vocabulary / GIB
        assert state + logits + 1.2 * (1 + classmates) < gib
        kept = (4 * (not settings.param_offload) + 8 * (not settings.optimizer_offload)) * parameters / gpus / GIB
        shares = [settings.policy_share, *[settings.helper_share] * classmates]
        awake = sum(shares) if settings.schedule == "streamed" else max(shares)
        assert awake * gib + kept < gib
        assert settings.policy_share * gib > 2 * parameters / GIB
        assert settings.policy_share <= 0.95
    assert fitting > len(grid) // 2


@pytest.mark.parametrize(
    "policy", [pytest.param(name, marks=pytest.mark.long) for name in SIZES if name != "Qwen3-4B"] + ["Qwen3-4B"]
)
def test_more_memory_or_more_gpus_never_make_a_job_not_fit(policy: str) -> None:
    for classmates in (0, 1, 2, 3):
        fits = {
            (gpus, gib): choose(job(policy, classmates, gpus, gib)).fits
            for gpus, gib in itertools.product((1, 2, 4, 8), (15.0, 23.5, 39.4, 47.4, 79.2, 139.8))
        }
        for (gpus, gib), fit in fits.items():
            if fit:
                assert all(fits[g, m] for g, m in fits if g >= gpus and m >= gib)


@of_both
def test_what_advice_names_makes_the_job_fit(grid: list[Any]) -> None:
    told = 0
    for policy, classmates, gpus, gib in grid:
        refused = job(policy, classmates, gpus, gib)
        if choose(refused).fits:
            continue
        for way in gpu_settings.advice(refused):
            key, _, value = way.split(" ")[0].partition("=")
            if key == "trainer.n_gpus_per_node":
                helped = dataclasses.replace(refused, gpus=int(value), rows_of_rank=2048 // int(value))
            elif key == "trainer.nnodes":
                helped = dataclasses.replace(refused, gpus=8 * int(value), rows_of_rank=2048 // (8 * int(value)))
            elif key.endswith("offload_policy"):
                helped = dataclasses.replace(refused, offload_policy=True)
            elif key.endswith("lora_rank"):
                helped = dataclasses.replace(refused, lora=True)
            elif key == "data.max_prompt_length":
                helped = job(policy, classmates, gpus, gib, row=int(way.rpartition(" ")[2]))
            else:
                assert way.startswith("a smaller policy")
                continue
            told += 1
            assert choose(helped).fits, (policy, classmates, gpus, gib, way)
    assert told > len(grid) // 15


def test_what_was_typed_stays_and_is_refused_where_it_cannot_fit() -> None:
    open_job = job("Qwen3-0.6B", gib=23.5)
    typed = dataclasses.replace(open_job, policy=dataclasses.replace(open_job.policy, share=0.3))
    assert (choose(typed).settings.policy_share, choose(typed).fits) == (0.3, True)
    half = dataclasses.replace(typed.helpers[0], share=0.5)
    both = dataclasses.replace(open_job, policy=dataclasses.replace(open_job.policy, share=0.5), helpers=(half,))
    # Side by side they would take all of it.
    assert choose(both).settings.schedule == "batched"
    assert choose(both).fits
    streamed = choose(dataclasses.replace(both, schedule="streamed"))
    assert not streamed.fits
    assert "null for gpu_memory_utilization" in gpu_settings.advice(streamed.job)[0]
    assert not choose(dataclasses.replace(open_job, micro=16)).fits
    small = choose(dataclasses.replace(open_job, policy=dataclasses.replace(open_job.policy, share=0.04)))
    assert (small.fits, small.impossible) == (False, True)
    kept = choose(dataclasses.replace(open_job, param_offload=False, optimizer_offload=False))
    assert (kept.settings.param_offload, kept.settings.optimizer_offload, kept.fits) == (False, False, True)


def test_engines_that_never_sleep_count_while_the_policy_trains() -> None:
    sleeping = choose(job("Qwen3-1.7B", gib=39.4))
    awake = choose(job("Qwen3-1.7B", gib=39.4, helpers_sleep=False))
    assert awake.settings.schedule == "streamed"
    assert awake.settings.helper_share * 39.4 > 2.3
    assert awake.settings.rows < sleeping.settings.rows or not awake.fits
    assert not choose(job("Qwen3-1.7B", gib=39.4, helpers_sleep=False, policy_sleeps=False)).fits


@pytest.mark.parametrize("gib", [31.4, 39.4, 79.2])
def test_a_reader_in_validation_only_takes_the_policys_place(gib: float) -> None:
    """It costs training what it keeps asleep, and rows are made in the same way with less left over."""
    without, beside = job("Qwen3-0.6B", gib=gib), job("Qwen3-0.6B", classmates=2, gib=gib)
    unseen = dataclasses.replace(beside.helpers[1], validation_only=True)
    turns = dataclasses.replace(beside, helpers=(beside.helpers[0], unseen))
    settings = choose(without).settings
    alone, more, in_turn = (evaluate(one, settings) for one in (without, beside, turns))
    assert in_turn.rows_made.gib == pytest.approx(alone.rows_made.gib + ASLEEP_GIB)
    assert more.rows_made.gib > in_turn.rows_made.gib + 1
    assert in_turn.trains.gib == pytest.approx(alone.trains.gib + ASLEEP_GIB)
    large = dataclasses.replace(turns, helpers=(turns.helpers[0], dataclasses.replace(unseen, share=0.9)))
    assert "classmate 1" in dict(evaluate(large, settings).rows_made.parts), "the fuller time is its own"
    awake = evaluate(dataclasses.replace(turns, helpers_sleep=False), settings)
    assert awake.rows_made.gib == more.rows_made.gib


def test_the_formula_comes_near_what_was_measured() -> None:
    """docs/placement.md: three engines of 0.2 on 79.2 GiB; 59 GiB at the peak, up to 20 while the policy trains."""
    measured = job("Qwen3-0.6B", classmates=2, row=160, micro=16)
    engines = [dataclasses.replace(one, size=size("Qwen3-0.6B"), share=0.2) for one in measured.helpers]
    policy = dataclasses.replace(measured.policy, share=0.2)
    plan = choose(dataclasses.replace(measured, policy=policy, helpers=tuple(engines)))
    assert plan.settings.schedule == "streamed"
    assert plan.rows_made.gib == pytest.approx(59, abs=2)
    assert plan.trains.gib == pytest.approx(20, abs=3)
    outside = plan.trains.gib - dict(plan.trains.parts)["engines asleep"]
    assert outside == pytest.approx(12, abs=3)


# From a config.


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    configs = resources_table.POLICIES | {"Llama": resources_table.LLAMA_1B}
    return {name: resources_table.save(folder, name, config) for name, config in configs.items()}


def readme(models: dict[str, Path], policy: str = "Qwen3-0.6B", *overrides: str) -> DictConfig:
    config = copy.deepcopy(composed_once(models[policy], models["Llama"]))
    for override in overrides:
        key, _, text = override.partition("=")
        with open_dict(config):
            OmegaConf.update(config, key, yaml.safe_load(text))
    return config


@functools.cache
def composed_once(policy: Path, classmate: Path) -> DictConfig:
    """Composing takes most of a test's time."""
    typed = [
        "hardware=gpu",
        f"actor_rollout_ref.model.path={policy}",
        f"reward_model.classmate_cot_reward_configs.classmate_model_name_or_path_list=[{classmate}]",
        "reward_model.classmate_backend=vllm",
    ]
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        return compose("classmate_cot_ppo_trainer", overrides=typed)


def filled(config: DictConfig, gpus: int = 1, gib: float = 23.5) -> Filled:
    return fill_in(config, Machine(gpus=gpus, gpu_gib=gib))


def test_the_readmes_command_leaves_room_for_training(models: dict[str, Path]) -> None:
    """It was 0.5 + 0.5 of the GPU, with seven GiB of weights and Adam beside."""
    config = readme(models)
    result = filled(config)
    assert result.refusal is None
    plain: Any = OmegaConf.to_container(config, resolve=True)
    reward = from_mapping(plain["reward_model"])
    schedule = resolved_schedule(plain, reward)
    share = gpu_memory_share(plain, reward, schedule)
    fsdp = plain["actor_rollout_ref"]["actor"]["fsdp_config"]
    kept = (4 * (not fsdp["param_offload"]) + 8 * (not fsdp["optimizer_offload"])) * 596_049_920 / GIB
    assert share * 23.5 + kept + 1 < 23.5
    check_batch_sizes(plain)
    rows, training = result.lines[-2:]
    assert rows.startswith("rows made ")
    assert training.startswith("training ")
    for line in (rows, training):
        assert line in resources_table.PAGE.read_text()
        total, parts = re.search(r"([\d.]+) of 23\.5 GiB a GPU: ([^(]*)", line).groups()  # type: ignore[union-attr]
        assert sum(float(number) for number in re.findall(r"[a-z0-9] (\d+\.\d)\b", parts)) == pytest.approx(
            float(total), abs=0.25
        )


def test_a_run_that_cannot_fit_is_refused_with_what_does(models: dict[str, Path]) -> None:
    refused = filled(readme(models, "Qwen3-4B"), gpus=4)
    with pytest.raises(
        ConfigError, match=r"training a policy of 4\.0 B takes .*write trainer\.n_gpus_per_node=8"
    ) as line:
        refused.refuse()
    assert "\n" not in str(line.value)
    assert filled(readme(models, "Qwen3-4B"), gpus=8).refusal is None
    side_by_side = [f"{SHARE}=0.9", f"{HELPERS}=0.9", "reward_model.classmate_schedule=streamed"]
    typed = filled(readme(models, "Qwen3-0.6B", *side_by_side), gib=79.2)
    assert typed.refusal is not None
    assert "while rows are made (streamed)" in typed.refusal
    assert "write null for gpu_memory_utilization" in typed.refusal
    lora = readme(models, "Qwen3-4B", "actor_rollout_ref.model.lora_rank=32")
    assert filled(lora, gpus=4).refusal is None


ADVISED = [("Qwen3-8B", 1, 23.5), ("Qwen3-8B", 4, 23.5)]
ALL_REFUSED = itertools.product(("Qwen3-1.7B", "Qwen3-4B", "Qwen3-8B"), (1, 3, 4, 8), (15.0, 23.5, 39.4))


@pytest.mark.parametrize(
    ("policy", "gpus", "gib"),
    [*ADVISED, *(pytest.param(*one, marks=pytest.mark.long) for one in ALL_REFUSED if one not in ADVISED)],
)
@pytest.mark.parametrize("nodes", [1, pytest.param(2, marks=pytest.mark.long)])
def test_what_a_refusal_says_to_write_is_accepted(
    models: dict[str, Path], policy: str, gpus: int, gib: float, nodes: int
) -> None:
    """On machines that have as many GPUs as are asked for."""
    composed = readme(models, policy, f"trainer.nnodes={nodes}")
    refusal = filled(copy.deepcopy(composed), gpus, gib).refusal
    if refusal is None:
        return
    written, ways = re.search(r"; (write|take) (.*)$", refusal).groups()  # type: ignore[union-attr]
    if written == "take":
        assert ways == "a smaller policy, fewer classmates, or GPUs with more memory"
        return
    for way in ways.split(", or "):
        told = re.fullmatch(r"data\.max_prompt_length and data\.max_response_length that add up to (\d+)", way)
        half = int(told[1]) // 2 if told else 0
        keys = f"data.max_prompt_length={half} data.max_response_length={half}" if told else way.partition(" (")[0]
        config = copy.deepcopy(composed)
        for one in keys.split(" "):
            key, _, text = one.partition("=")
            with open_dict(config):
                OmegaConf.update(config, key, yaml.safe_load(text))
        result = filled(config, config.trainer.n_gpus_per_node or gpus, gib)
        assert result.refusal is None, way
        assert not any("warning" in line for line in result.lines), way


def test_where_no_key_helps_nothing_is_to_be_written(models: dict[str, Path]) -> None:
    names = "reward_model.classmate_cot_reward_configs.classmate_model_name_or_path_list"
    two = f"{names}=[{models['Llama']},{models['Qwen3-8B']}]"
    refusal = filled(readme(models, "Qwen3-8B", two), gpus=1, gib=15.0).refusal
    assert refusal is not None
    assert refusal.endswith("; take a smaller policy, fewer classmates, or GPUs with more memory")


def test_typed_shares_and_offload_are_kept(models: dict[str, Path]) -> None:
    config = readme(models, "Qwen3-0.6B", f"{SHARE}=0.35", "actor_rollout_ref.actor.fsdp_config.param_offload=false")
    assert filled(config).refusal is None
    assert config.actor_rollout_ref.rollout.gpu_memory_utilization == 0.35
    assert config.actor_rollout_ref.actor.fsdp_config.param_offload is False
    assert config.critic.fsdp.param_offload is False
    one = f"reward_model.classmates=[{{model: {models['Llama']}, backend: vllm, gpu_memory_utilization: 0.15}}]"
    names = "reward_model.classmate_cot_reward_configs.classmate_model_name_or_path_list=null"
    config = readme(models, "Qwen3-0.6B", names, one)
    result = filled(config)
    assert result.refusal is None
    assert "classmate 0 4.5" in result.lines[-3], "0.15 of 23.5 GiB, and its graphs"
    assert "warning: GPU memory: the shares (classmate 0 0.15) have room for weights and fewer" in result.lines[-1]


def test_a_plan_that_is_filled_in_again_is_the_same(models: dict[str, Path]) -> None:
    for gpus, gib in ((1, 23.5), (4, 39.4), (8, 79.2)):
        config = readme(models)
        first = filled(config, gpus, gib)
        again = filled(config, gpus, gib)
        assert again.lines == first.lines[-2:]
        assert again.refusal is None


def test_critic_reference_and_rows_filled_by_tokens_are_counted(models: dict[str, Path]) -> None:
    with_critic = filled(readme(models, "Qwen3-0.6B", "algorithm.adv_estimator=gae"), gib=39.4)
    assert "policy and critic 17.8" in with_critic.lines[-1]
    config = readme(models, "Qwen3-0.6B", "actor_rollout_ref.actor.use_dynamic_bsz=true")
    result = filled(config)
    assert result.refusal is None
    assert 2048 <= config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu < 8192
    assert f"{config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu:,} tokens" in result.lines[-1]


def test_a_model_of_unknown_size_is_said_to_be_unknown(
    models: dict[str, Path],
) -> None:
    config = readme(models, "Qwen3-0.6B", "actor_rollout_ref.model.path=hdfs://somewhere/model")
    result = filled(config)
    assert "the size of hdfs://somewhere/model is not known" in result.lines[-1]
    assert config.actor_rollout_ref.rollout.gpu_memory_utilization == 0.35
    assert config.actor_rollout_ref.actor.fsdp_config.optimizer_offload is True
    result = filled(readme(models), gib=0.0)
    assert "the GPUs' memory is not known" in result.lines[-1]


def test_a_start_refuses_before_it_opens_a_folder(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr("verl.trainer.run.unset.this_machine", lambda: Machine(gpus=1, gpu_gib=23.5))
    monkeypatch.setattr(preflight, "check", lambda *args, **kwargs: None)
    with pytest.raises(ConfigError, match=r"GPU memory: training a policy of 8\.2 B"):
        launch.run(readme(models, "Qwen3-8B"), "classmate_cot")
    assert not list(tmp_path.iterdir())


def test_the_table_of_the_documents_is_the_planners(capsys: pytest.CaptureFixture[str]) -> None:
    resources_table.main([])
    table = capsys.readouterr().out
    assert table.count("\n") == 2 + 4 * 2 * 3
    page = resources_table.PAGE.read_text()
    assert page.partition(resources_table.BEGIN)[2].partition(resources_table.END)[0].strip() == table.strip()
    for row in table.splitlines()[2:]:
        for cell in row.strip("| ").split(" | ")[3:]:
            settings = r"(streamed|batched)(, offload)?; [\d. +]+; \d+; [\d.]+ and [\d.]+ GiB"
            assert re.fullmatch(rf"{settings}|refused: .+", cell)
    assert "refused" not in "".join(row for row in table.splitlines() if "0.6B" in row)
