"""What is settled before a run starts: keys that depend on other keys."""

import dataclasses
import datetime
import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf

from tests.classmate.toy_tokenizers import byte_bpe
from tests.clock import Tomorrow
from tests.run_config import run_config, save_tokenizers
from tests.trainer.saved import save
from tests.trainer.test_configs import composed
from verl.classmate.algorithm_config import rollout_correction
from verl.classmate.aliases import resolve_aliases
from verl.classmate.config import ClassmateRewardModelConfig, RunConfig, from_mapping, this_run
from verl.classmate.errors import ConfigError
from verl.trainer.run.folder import RunFolder
from verl.trainer.run.session import settle
from verl.trainer.run.start import begin, read_run
from verl.workers.row_pipeline import RowPipeline


def settled(tmp_path: Path, *overrides: str) -> tuple[DictConfig, list[str]]:
    config, _, notes = begun_run(tmp_path, *overrides)
    return config, notes


def begun_run(tmp_path: Path, *overrides: str) -> tuple[DictConfig, RunConfig, list[str]]:
    """A settled config, its typed view, and what a person is told."""
    config = composed(
        "classmate_cot_ppo_trainer", "cpu", *resolve_aliases(overrides), f"trainer.default_local_dir={tmp_path / 'run'}"
    )
    plain: Any = OmegaConf.to_container(config, resolve=True)
    return config, *settle(config, read_run(plain, "classmate_cot"), RunFolder.open(plain))


def test_drgrpo_divides_by_a_constant(tmp_path: Path) -> None:
    """Left to verl, the divisor is the longest response of each micro-batch."""
    config, _ = settled(tmp_path, "algorithm.adv_estimator=drgrpo", "data.max_response_length=77")
    actor = config.actor_rollout_ref.actor
    assert (config.algorithm.adv_estimator, config.algorithm.norm_adv_by_std_in_grpo) == ("grpo", False)
    assert (actor.loss_agg_mode, actor.loss_scale_factor, actor.use_kl_loss) == ("seq-mean-token-sum-norm", 77, False)


def test_a_divisor_that_was_given_stays(tmp_path: Path) -> None:
    config, _ = settled(tmp_path, "algorithm.adv_estimator=drgrpo", "actor_rollout_ref.actor.loss_scale_factor=5")
    assert config.actor_rollout_ref.actor.loss_scale_factor == 5


def test_other_losses_have_no_divisor(tmp_path: Path) -> None:
    config, _ = settled(tmp_path)
    assert config.actor_rollout_ref.actor.loss_scale_factor is None
    assert config.algorithm.rollout_correction.rollout_is is None


@pytest.mark.parametrize("spelling", ["reward_model.rollout_is_threshold", "++reward_model.rollout_is_threshold"])
def test_a_cap_turns_rollout_correction_on(tmp_path: Path, spelling: str) -> None:
    config, _ = settled(tmp_path, f"{spelling}=4.0")
    reward = from_mapping(config.reward_model, require_classmates=False)
    correction = config.algorithm.rollout_correction
    assert (correction.rollout_is, correction.rollout_is_threshold, correction.bypass_mode) == ("token", 4.0, False)
    assert rollout_correction(config, reward)["rollout_is_threshold"] == 4.0, "a worker reads it once more"


def test_scales_that_are_not_decoupled_are_told(tmp_path: Path) -> None:
    _, notes = settled(tmp_path, "algorithm.gdpo_group_norm=mean_only")
    assert any("mean_only does not bring the two rewards to one scale" in note for note in notes)


def test_the_critic_is_the_policy(tmp_path: Path) -> None:
    config, _ = settled(tmp_path, "algorithm.adv_estimator=gae", "actor_rollout_ref.model.path=some/model")
    assert config.critic.model.path == "some/model"
    assert config.critic.model.override_config.attn_implementation == "sdpa"
    assert config.critic.fsdp.dtype == "float32"


def test_upstream_gets_the_whole_path_of_a_named_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the step off its end, and knows neither `~` nor a slash there."""
    checkpoint = save(tmp_path / "other", 20)
    monkeypatch.setenv("HOME", str(tmp_path))
    named = ("trainer.resume_mode=resume_path", "trainer.resume_from_path='~/other/global_step_20/'")
    config, _ = settled(tmp_path, *named)
    assert (config.trainer.resume_mode, config.trainer.resume_from_path) == ("resume_path", str(checkpoint))
    assert config.trainer.val_before_train, "the new run's first numbers"


def test_a_run_that_goes_back_is_not_validated_once_more(tmp_path: Path) -> None:
    settled(tmp_path)
    named = ("trainer.resume_mode=resume_path", f"trainer.resume_from_path={save(tmp_path / 'run', 20)}")
    config, _ = settled(tmp_path, *named)
    assert not config.trainer.val_before_train


def test_a_run_keeps_the_day_of_its_first_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    today = datetime.datetime.now().astimezone().date().isoformat()
    config, _ = settled(tmp_path)
    assert config.reward_model.chat_date == today
    RunFolder(path=tmp_path / "run", resumed_from=None).leave()
    monkeypatch.setattr("verl.trainer.run.folder.datetime.datetime", Tomorrow)
    later, _ = settled(tmp_path)
    assert later.reward_model.chat_date == today, "the resumed run makes the same prompts"
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["reward_model"]["chat_date"] == today
    RunFolder(path=tmp_path / "run", resumed_from=None).leave()
    with pytest.raises(ConfigError, match=r"another config \(differs in reward_model\.chat_date\)"):
        settled(tmp_path, "reward_model.chat_date=2030-01-01")
    settled(tmp_path, f"reward_model.chat_date={today}")
    new, _ = settled(tmp_path / "other")
    assert new.reward_model.chat_date == "2031-12-09"


@pytest.mark.parametrize("text", ["2026-13-01", "yesterday", "20260101", "2026-1-1", ""])
def test_what_is_no_day_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"reward_model\.chat_date: .* is not a day; write for instance 2026-01-31"):
        from_mapping({"chat_date": text}, require_classmates=False)


@pytest.mark.parametrize("number", [20240229, 2024.5, True])
def test_a_day_as_a_number_is_told_with_an_example(number: object) -> None:
    with pytest.raises(ConfigError, match=r"chat_date: expected a string, got .*; write for instance 2026-01-31"):
        from_mapping({"chat_date": number}, require_classmates=False)


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("reward_model.self_play=live", "algorithm.adv_estimator=gae"),
        ("reward_model.classmates=[{model: a, replicas: 2}, {model: hosted, weight: 3}]", "data.seed=7"),
        ("reward_model.reward_manager=sycophancy_classmate_cot", "reward_model.classmate_reward_weight=0.5"),
        ("reward_model.llm_judge_backend_type=hf", "reward_model.llm_judge_model_name=judge"),
    ],
)
def test_workers_read_what_the_start_has_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    hosted = "reward_model.host_classmate_name_to_url_json_fn=hosted.json"
    entry = {"hosted": {"outward_host": "there", "local_host": "127.0.0.1", "port": 1}}
    (tmp_path / "hosted.json").write_text(json.dumps(entry))
    config, run, _ = begun_run(tmp_path, hosted, *overrides)
    assert this_run(config) is run, "this process reads nothing again"
    assert RunConfig.read(config) == run
    sent = pickle.loads(pickle.dumps(config))
    assert this_run(sent) == run
    assert this_run(sent) is this_run(sent)
    assert run.folder == tmp_path / "run"
    backends = [spec.backend for spec in run.reward.classmates]
    assert ("openai" in backends) == any("hosted" in override for override in overrides)


def test_a_start_from_a_script_is_the_same(tmp_path: Path) -> None:
    _, launched, _ = begun_run(tmp_path)
    config = composed("classmate_cot_ppo_trainer", "cpu", f"trainer.default_local_dir={tmp_path / 'other'}")
    begun = begin(config, "classmate_cot")
    assert dataclasses.replace(begun.run, folder=launched.folder) == launched
    assert this_run(config) is begun.run


def test_a_worker_reads_its_config_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What judges its rows, and the reward manager in it, are handed what was read."""
    config = run_config(save_tokenizers(tmp_path / "models", ["text_bpe"]), ["text_bpe"])
    read = []

    def counted(*args: Any, **kwargs: Any) -> ClassmateRewardModelConfig:
        read.append(from_mapping(*args, **kwargs))
        return read[-1]

    for reader in ("verl.classmate.config", "verl.workers.reward_manager.classmate_cot"):
        monkeypatch.setattr(f"{reader}.from_mapping", counted)
    judge = RowPipeline.build(config, byte_bpe(), SimpleNamespace())  # type: ignore[arg-type]
    assert judge.reward is judge.manager.reward_config is this_run(config).reward
    assert len(read) == 1
