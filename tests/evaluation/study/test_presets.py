"""The studies that there are: what an arm types is what the entry points take, and arms differ in what they are for."""

from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from tests.evaluation.study.studies import tiny_study
from verl.classmate.config import RunConfig
from verl.evaluation.study.presets import STUDIES
from verl.evaluation.study.spec import Arm, Study
from verl.trainer.run.command_line import compose, prepare_overrides
from verl.trainer.run.unset import fill_in

ARMS = [pytest.param(study, arm, id=f"{study.name}-{arm.name}") for study in STUDIES.values() for arm in study.arms]
CONFIGS = {
    "baseline": ("qwen_ppo_trainer", "baseline"),
    "classmates": ("classmate_cot_ppo_trainer", "classmate_cot"),
}


def composed(study: Study, arm: Arm) -> DictConfig:
    named = f"[{','.join(arm.classmates)}]" if arm.classmates else "null"
    typed = [*study.settings_of(arm), f"reward_model.classmate_model_name_or_path_list={named}", "debug=true"]
    config = compose(CONFIGS[arm.entry][0], prepare_overrides([*typed, "actor_rollout_ref.model.path=policy"]))
    assert config is not None
    fill_in(config)
    return config


@pytest.mark.parametrize(("study", "arm"), ARMS)
def test_every_arm_is_a_run_that_can_begin(study: Study, arm: Arm) -> None:
    config = composed(study, arm)
    plain: Any = OmegaConf.to_container(config, resolve=True)
    run = RunConfig.read(plain, trainer_name=CONFIGS[arm.entry][1])
    assert run.algorithm.adv_estimator == "gdpo_classmate", "in baselines too"
    assert config.trainer.total_training_steps == config.trainer.save_freq == study.steps
    assert run.trains_with_classmates == (arm.entry == "classmates")
    live = arm.name == "self_play"
    assert len(run.reward.classmates) == len(arm.classmates) + live
    assert not run.deterministic


def test_what_an_arm_sets_replaces_what_all_set() -> None:
    study = STUDIES["uneven_steps"]
    arm = Arm(name="free", title="free", entry="baseline", overrides=("reward_model.length_cost=0",))
    typed = [one for one in study.settings_of(arm) if one.startswith("reward_model.length_cost=")]
    assert typed == ["reward_model.length_cost=0"]
    assert composed(study, arm).reward_model.length_cost == 0
    assert composed(study, study.arm("two")).reward_model.length_cost > 0


def test_paying_and_charging_for_length_are_the_same_sum() -> None:
    study = STUDIES["cot_transfer"]
    cost = {name: composed(study, study.arm(name)).reward_model.length_cost for name in ("length_bonus", "two_cost")}
    assert cost["length_bonus"] == -cost["two_cost"]
    assert cost["two_cost"] * 48 / 64 == pytest.approx(0.1, abs=1e-4)


def test_the_seeds_are_eight_that_nothing_was_tuned_on() -> None:
    for name in ("cot_transfer", "cot_transfer_cipher", "uneven_steps"):
        assert len(STUDIES[name].seeds) >= 8
        assert not {*range(4), *range(100, 104)} & set(STUDIES[name].seeds)


@pytest.mark.parametrize("name", ["cot_transfer", "cot_transfer_cipher", "uneven_steps"])
def test_the_short_form_is_two_arms_of_the_same_training(name: str) -> None:
    study = STUDIES[name]
    short = study.short()
    assert [arm.name for arm in short.arms] == ["baseline", "two"]
    assert len(short.seeds) == 2
    assert short.settings == study.settings
    assert short.world.name != study.world.name, "which would build over it"
    assert {reader.role for reader in short.world.readers} == {"classmate", "unseen"}


def test_what_a_study_cannot_be_is_told_in_one_line() -> None:
    study = tiny_study()
    with pytest.raises(ValueError, match="no reader classmate_z in the world; use classmate_a"):
        Study(
            name="other",
            world=study.world,
            arms=(Arm(name="a", title="a", entry="classmates", classmates=("classmate_z",)),),
            seeds=(1,),
            steps=1,
            settings=(),
        )
    with pytest.raises(ValueError, match="a baseline has no classmates"):
        Arm(name="a", title="a", entry="baseline", classmates=("classmate_a",))
    with pytest.raises(ValueError, match="no short form, since it has no arm baseline"):
        STUDIES["cot_transfer_kl"].short()
