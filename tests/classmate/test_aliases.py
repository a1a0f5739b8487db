"""All spellings of the original documents end in one key; two that disagree are told by both names."""

import pytest

from verl.classmate.aliases import rename_old_keys, resolve_aliases
from verl.classmate.errors import ConfigError

REWARD = "reward_model.classmate_cot_reward_configs"
GENERATION = "reward_model.classmate_generation_configs"


@pytest.mark.parametrize(
    ("typed", "canonical"),
    [
        (f"{REWARD}.classmate_reward_weight=0.3", f"{REWARD}.classmate_reward_weight=0.3"),
        ("reward_model.classmate_reward_weight=0.3", f"{REWARD}.classmate_reward_weight=0.3"),
        ("reward_model.classmate_model_name_or_path_list=[a,b]", f"{REWARD}.classmate_model_name_or_path_list=[a,b]"),
        ("reward_model.classmate_reward_type=vanilla", f"{REWARD}.classmate_reward_type=vanilla_reward"),
        ("reward_model.use_classmate_condition=always", f"{REWARD}.use_classmate_main_cond=always"),
        (f"{REWARD}.use_classmate_condition=always", f"{REWARD}.use_classmate_main_cond=always"),
        (
            "reward_model.token_level_classmate_reward_mode=all",
            f"{REWARD}.token_level_classmate_reward_mode=all",
        ),
        (
            "reward_model.reward_kwargs.classmate_cot_reward_configs.classmate_reward_weight=0.3",
            f"{REWARD}.classmate_reward_weight=0.3",
        ),
        (
            "reward_model.reward_kwargs.classmate_generation_configs.max_tokens=128",
            f"{GENERATION}.max_new_tokens=128",
        ),
        ("reward_model.max_new_tokens=128", f"{GENERATION}.max_new_tokens=128"),
        ("reward_model.max_tokens=128", f"{GENERATION}.max_new_tokens=128"),
        ("reward_model.classmate_num_return_sequences=2", f"{GENERATION}.num_return_sequences=2"),
        (f"{GENERATION}.classmate_num_return_sequences=2", f"{GENERATION}.num_return_sequences=2"),
        ("reward_model.val_kwargs.n=2", f"{GENERATION}.val_kwargs.n=2"),
        ("reward_model.classmate_use_vllm=False", "reward_model.classmate_backend=hf"),
        ("reward_model.classmate_use_vllm=True", "reward_model.classmate_backend=vllm"),
        ("reward_model.reward_manager=classmate_cot", "reward_model.reward_manager=classmate_cot"),
        ("reward_model.classmate_vllm_configs.tensor_parallel_size=2",) * 2,
        ("reward_model.classmates=[]",) * 2,
        ("~reward_model.classmates",) * 2,
        ("actor_rollout_ref.model.model_path=m", "actor_rollout_ref.model.path=m"),
        ("actor_rollout_ref.model.path=m", "actor_rollout_ref.model.path=m"),
        ("algorithm.adv_estimator=gdpo", "algorithm.adv_estimator=gdpo_classmate"),
        ("algorithm.adv_estimator=grpo", "algorithm.adv_estimator=grpo"),
        ("trainer.total_epochs=1", "trainer.total_epochs=1"),
        ("+trainer.new=1", "+trainer.new=1"),
        ("++reward_model.use_classmate_condition=always", f"++{REWARD}.use_classmate_main_cond=always"),
        ("+reward_model.use_classmate_condition=always", f"++{REWARD}.use_classmate_main_cond=always"),
        ("+actor_rollout_ref.model.model_path=m", "++actor_rollout_ref.model.path=m"),
        ("~reward_model.max_tokens", f"~{GENERATION}.max_new_tokens"),
        ("hardware=cpu", "hardware=cpu"),
        ("--cfg", "--cfg"),
        ("--config-name=a_b", "--config-name=a_b"),
        ("reward_model.clasmate_backend=hf", "++reward_model.clasmate_backend=hf"),
    ],
)
def test_spellings(typed: str, canonical: str) -> None:
    assert resolve_aliases([typed]) == [canonical]


def test_a_switch_that_is_null_changes_nothing() -> None:
    assert resolve_aliases(["reward_model.classmate_use_vllm=null"]) == []


@pytest.mark.parametrize("key", ["reward_model.classmate_use_vllm", "reward_model.user_tinker_llm_judge"])
@pytest.mark.parametrize("value", ["1", "yes", "no", "vllm", ""])
def test_a_switch_is_true_false_or_null(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as error:
        resolve_aliases([f"{key}={value}"])
    assert str(error.value) == f"{key}: expected true or false, got {value!r}"


def test_typed_classmates_replace_an_untyped_or_earlier_list() -> None:
    classmates, models = "reward_model.classmates=[{model: a}]", f"{REWARD}.classmate_model_name_or_path_list"
    null = f"{models}=null"
    assert resolve_aliases([classmates]) == [classmates, null]
    assert resolve_aliases([f"+{classmates}"]) == [f"++{classmates}", null]
    assert resolve_aliases([f"{models}=[b]", classmates, "data.seed=1"]) == [
        f"{models}=[b]",
        classmates,
        "data.seed=1",
        null,
    ]
    # Typed behind, the list is no default of somebody's: the config compares the two.
    assert resolve_aliases([classmates, f"{models}=[b]"]) == [classmates, f"{models}=[b]"]


def test_drgrpo_is_a_recipe() -> None:
    assert resolve_aliases(["algorithm.adv_estimator=drgrpo"]) == [
        "algorithm.adv_estimator=grpo",
        "algorithm.norm_adv_by_std_in_grpo=False",
        "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm",
        "actor_rollout_ref.actor.use_kl_loss=False",
    ]


def test_gdpo_without_batch_norm_is_a_name() -> None:
    assert resolve_aliases(["algorithm.adv_estimator=gdpo_wo_bn"]) == [
        "algorithm.adv_estimator=gdpo_wo_bn",
        "algorithm.gdpo_batch_norm=none",
    ]


@pytest.mark.parametrize(
    "key",
    [
        "actor_rollout_ref.actor.classmate_clip_ratio_low",
        "+actor_rollout_ref.actor.classmate_clip_ratio",
        "reward_model.cl_rollout_is_threshold",
        "algorithm.cl_rollout_is_mode",
    ],
)
def test_keys_without_effect_are_refused_with_the_reason(key: str) -> None:
    with pytest.raises(ConfigError, match=r"was in the ratio that it .*; leave it out") as error:
        resolve_aliases([f"{key}=0.4"])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("reward_model.classmate_reward_weight=0.3", f"{REWARD}.classmate_reward_weight=0.5"),
        ("reward_model.use_classmate_condition=always", "reward_model.use_classmate_main_cond=no_classmate"),
        ("reward_model.max_tokens=1", "reward_model.reward_kwargs.classmate_generation_configs.max_new_tokens=2"),
        ("actor_rollout_ref.model.model_path=a", "actor_rollout_ref.model.path=b"),
        ("reward_model.classmate_use_vllm=True", "reward_model.classmate_backend=hf"),
        ("algorithm.adv_estimator=drgrpo", "actor_rollout_ref.actor.loss_agg_mode=token-mean"),
        ("algorithm.adv_estimator=drgrpo", "algorithm.norm_adv_by_std_in_grpo=True"),
        ("algorithm.adv_estimator=drgrpo", "actor_rollout_ref.actor.use_kl_loss=True"),
        ("algorithm.adv_estimator=gdpo_wo_bn", "algorithm.gdpo_batch_norm=token"),
    ],
)
def test_disagreement_names_both_spellings(first: str, second: str) -> None:
    for order in ([first, second], [second, first]):
        with pytest.raises(ConfigError) as error:
            resolve_aliases(order)
        assert first in str(error.value)
        assert second in str(error.value)
        assert "\n" not in str(error.value)


def test_spellings_that_agree_and_repetitions_pass() -> None:
    assert (
        len(resolve_aliases(["reward_model.classmate_reward_weight=1", f"{REWARD}.classmate_reward_weight=1.0"])) == 2
    )
    assert (
        len(resolve_aliases(["reward_model.classmate_reward_weight=1", "reward_model.classmate_reward_weight=2"])) == 2
    )
    assert len(resolve_aliases(["actor_rollout_ref.model.model_path='a'", "actor_rollout_ref.model.path=a"])) == 2


def test_dicts_of_programs() -> None:
    node = "classmate_cot_reward_configs"
    assert rename_old_keys({"use_classmate_condition": "always", "x": 1}, node) == {
        "use_classmate_main_cond": "always",
        "x": 1,
    }
    assert rename_old_keys({"max_tokens": 1}, "classmate_generation_configs") == {"max_new_tokens": 1}
    with pytest.raises(ConfigError, match="use_classmate_condition=always disagree"):
        rename_old_keys({"use_classmate_main_cond": "no_classmate", "use_classmate_condition": "always"}, node)
