"""Every option has one default, every mistake one line that says what to write instead."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

import verl
from verl.classmate.algorithm_config import AlgorithmConfig, algorithm_from_mapping
from verl.classmate.config import BASE_YAML, ClassmateRewardModelConfig, ClassmateSpec, from_mapping, render_base_yaml
from verl.classmate.cot import CotMarkers, KeepSpec
from verl.classmate.errors import ConfigError
from verl.classmate.typed import field_docs

UPSTREAM_CONFIG = Path(verl.__file__).parent / "trainer" / "config"
NODE = "reward_model.classmate_cot_reward_configs"
STEP_WISE = "random_truncate_step_wise_utility"


def reward_options(**options) -> dict:
    return {"classmate_cot_reward_configs": {"classmate_model_name_or_path_list": ["a", "b"]} | options}


@pytest.fixture
def composed(tmp_path: Path):
    """Composes upstream's ppo_trainer with our base on top, as the primary configs do."""

    def run(overrides: list[str]):
        (tmp_path / "primary.yaml").write_text(
            f"hydra:\n  searchpath: [file://{UPSTREAM_CONFIG}, file://{BASE_YAML.parent}]\n"
            "defaults: [ppo_trainer, _classmate_base, _self_]\n"
        )
        with initialize_config_dir(str(tmp_path), version_base=None):
            return compose("primary", overrides=overrides)

    return run


def test_committed_yaml_is_generated() -> None:
    assert BASE_YAML.read_text() == render_base_yaml(), "run `python -m verl.classmate.config --write`"


@pytest.mark.guards("undocumented default estimator")
def test_every_field_is_documented_in_the_yaml() -> None:
    text = render_base_yaml()
    for cls in (ClassmateRewardModelConfig, AlgorithmConfig):
        docs = field_docs(cls)
        assert set(docs) == set(cls.__dataclass_fields__)
        assert all(doc.split()[0] in text for doc in docs.values())


@pytest.mark.guards("undocumented default estimator")
def test_defaults_of_the_yaml_are_the_defaults_of_the_code(composed) -> None:
    config = composed([f"{NODE}.self_play_model=null"])
    assert from_mapping(config.reward_model, require_classmates=False) == ClassmateRewardModelConfig()
    assert algorithm_from_mapping(config.algorithm) == AlgorithmConfig()
    assert config.algorithm.gamma == 1.0, "upstream's keys stay"
    assert config.reward.reward_model.enable is False


def test_composed_values_arrive_typed(composed) -> None:
    config = composed(
        [
            f"{NODE}.classmate_model_name_or_path_list=[a,b]",
            f"{NODE}.classmate_weights=[1,3]",
            f"{NODE}.main_cot_keep_rate=first-100-tokens",
            "reward_model.classmate_generation_configs.val_kwargs.n=2",
            "data.seed=7",
            "algorithm.adv_estimator=gdpo",
        ]
    )
    typed = from_mapping(config.reward_model)
    assert typed.classmate_weights == (0.25, 0.75)
    assert typed.classmate_cot_reward_configs.keep == KeepSpec(kind="first", amount=100, unit="tokens")
    assert typed.seed == 7
    assert algorithm_from_mapping(config.algorithm).adv_estimator == "gdpo_classmate"


def test_both_forms_of_naming_classmates() -> None:
    short = from_mapping(reward_options())
    assert [spec.model for spec in short.classmates] == ["a", "b"]
    long = from_mapping(
        {
            "classmates": [
                {"model": "a", "backend": "vllm", "gpu_memory_utilization": 0.3, "weight": 2},
                {"model": "b", "placement": "dedicated", "replicas": 2},
            ],
            "classmate_backend": "hf",
            "classmate_vllm_configs": {"tensor_parallel_size": 2},
        }
    )
    assert long.classmates == (
        ClassmateSpec(
            model="a",
            backend="vllm",
            placement="colocated",
            replicas=1,
            tensor_parallel_size=2,
            gpu_memory_utilization=0.3,
            weight=2.0,
        ),
        ClassmateSpec(
            model="b",
            backend="hf",
            placement="dedicated",
            replicas=2,
            tensor_parallel_size=2,
            gpu_memory_utilization=None,
            weight=1.0,
        ),
    )
    assert long.classmate_weights == pytest.approx((2 / 3, 1 / 3))
    assert from_mapping({}, require_classmates=False).classmates == ()


def test_self_play_adds_the_policy_behind_the_others() -> None:
    alone = from_mapping({NODE.removeprefix("reward_model."): {"self_play": "frozen", "self_play_model": "policy"}})
    assert [(spec.model, spec.mode) for spec in alone.classmates] == [("policy", "frozen")]
    assert alone.classmate_weights == (1.0,)
    beside = from_mapping(reward_options(self_play="live", self_play_model="policy"))
    assert [spec.model for spec in beside.classmates] == ["a", "b", "policy"]
    assert (alone.live_classmate, beside.live_classmate) == (None, 2)
    again = dataclasses.replace(beside, seed=3)
    assert again.classmates == beside.classmates, "a copy does not add it twice"


def test_markers_fall_back_to_the_main_models() -> None:
    config = from_mapping(reward_options() | {"think_start_str": "[T]", "think_end_str": "[/T]"})
    assert config.markers == config.classmate_markers == CotMarkers(start="[T]", end="[/T]")
    assert from_mapping(reward_options()).markers == CotMarkers(start="<think>", end="</think>")


@pytest.mark.guards("validation settings ignored")
@pytest.mark.guards("context and new-token budget in one key")
def test_sampling_of_training_and_validation_differ() -> None:
    generation = from_mapping(
        reward_options() | {"classmate_generation_configs": {"num_return_sequences": 3, "temperature": 0.5}}
    ).classmate_generation_configs
    train, validation = generation.sampling(validate=False), generation.sampling(validate=True)
    assert (train.n, train.temperature, train.top_p) == (3, 0.5, 0.9)
    assert (validation.n, validation.temperature, validation.top_p) == (1, 0.0, 1.0)
    assert generation.context_length(max_prompt_length=100, max_response_length=50) == 100 + 50 + 256


MISTAKES = [
    ({"clasmates": []}, "reward_model.clasmates: unknown key; did you mean classmates?"),
    ({"use_classmate_main_con": "always"}, "did you mean classmate_cot_reward_configs.use_classmate_main_cond?"),
    (reward_options(use_classmate_condition="always"), f"{NODE}.use_classmate_condition: unknown key; did you mean"),
    ({"zzz": 1}, "reward_model.zzz: unknown key; known keys: reward_manager"),
    ({"num_workers": 4}, "reward_model.num_workers: a legacy key of verl that nothing reads here; remove it"),
    ({"model": {"path": "x"}}, "reward_model.model.path: a legacy key of verl"),
    ({"rollout": {"name": "vllm"}}, "reward_model.rollout.name: a legacy key of verl"),
    ({"cot_format": "xml"}, "reward_model.cot_format: 'xml' is not possible; write one of: markers, plain"),
    ({"classmate_backend": "sglang"}, "write one of: auto, hf, vllm, openai"),
    ({"enable_thinking": "yes"}, "reward_model.enable_thinking: expected true or false, got 'yes'"),
    ({"classmate_batch_size": 2.5}, "reward_model.classmate_batch_size: expected an integer, got 2.5"),
    ({"classmate_batch_size": True}, "expected an integer, got True"),
    ({"classmate_batch_size": 0}, "reward_model.classmate_batch_size: 0 is too small; write 1 or more"),
    ({"classmate_max_restarts": -1}, "write 0 or more"),
    ({"classmate_request_timeout": 0}, "write 600"),
    ({"classmate_ping_timeout": 0}, "write 20"),
    ({"classmate_sleep_timeout": -1}, "write 120"),
    ({"classmate_silence_steps": -1}, "write 3"),
    (
        {"evaluation_classmates": ["a/b"]},
        "reward_model.evaluation_classmates[0]: expected keys and values, got 'a/b'; write {model: a/b}",
    ),
    ({"classmate_generation_configs": 3}, "reward_model.classmate_generation_configs: expected keys and values, got 3"),
    ({"classmate_generation_configs": {"top_p": 0}}, "reward_model.classmate_generation_configs.top_p: 0.0 is not in"),
    ({"classmate_generation_configs": {"top_k": 0}}, "write -1 for all"),
    ({"classmate_generation_configs": {"temperature": -1}}, "write 0 (greedy) or more"),
    ({"classmate_generation_configs": {"max_model_len": 200}}, "leaves no room for a prompt beside max_new_tokens=256"),
    ({"classmate_generation_configs": {"num_return_sequences": 0}}, "num_return_sequences: 0 is too small"),
    ({"classmate_vllm_configs": {"gpu_memory_utilization": 1.5}}, "1.5 is not in (0, 1]; write for instance 0.3"),
    ({"think_start_str": "[T]"}, "reward_model.think_start_str and think_end_str: write two different"),
    ({"think_start_str": "=", "think_end_str": "="}, "write two different"),
    ({"classmates": [{"backend": "hf"}]}, "reward_model.classmates[0].model: missing; write"),
    ({"classmates": [{"model": " "}]}, "reward_model.classmates[0].model: is empty; write a path or hub name"),
    ({"classmates": [{"model": "a", "place": "x"}]}, "reward_model.classmates[0].place: unknown key"),
    (
        {"classmates": [{"model": "a", "placement": "x"}]},
        "reward_model.classmates[0].placement: 'x' is not possible; write one of: ",
    ),
    ({"classmates": [{"model": "a", "replicas": 0}]}, "reward_model.classmates[0].replicas: 0 is too small"),
    (reward_options() | {"classmate_replicas": 0}, "reward_model.classmate_replicas: 0 is too small; write 1 or more"),
    (reward_options(self_play="live"), f"{NODE}.self_play: no policy is named; write {NODE}.self_play_model=MODEL"),
    ({"classmates": [{"model": "a", "weight": 0}]}, "all weights are 0; write a weight above 0"),
    (
        {"classmates": [{"model": "c"}], **reward_options()},
        "name different models; write only one of the two, and null for a list that stands in a YAML",
    ),
    (
        {"classmates": [{"model": "a"}, {"model": "b"}], **reward_options(classmate_weights=[3.0, 1.0])},
        "classmate_weights: belongs to classmate_model_name_or_path_list; with reward_model.classmates write null, and "
        "each weight with its classmate: [{model: A, weight: 3}, {model: B, weight: 1}]",
    ),
    (
        {
            "classmates": [{"model": "a"}],
            **reward_options(classmate_model_name_or_path_list=None, classmate_weights=[2.0]),
        },
        "classmate_weights: belongs to classmate_model_name_or_path_list",
    ),
    (reward_options(classmate_model_name_or_path_list="a"), "expected a list, got 'a'; write [a]"),
    (reward_options(classmate_model_name_or_path_list={}), "expected a list, got {}; write [A,B]"),
    (reward_options(classmate_weights=1), "classmate_weights: expected a list, got 1; write [1]"),
    (reward_options(classmate_weights={}), "classmate_weights: expected a list, got {}; write [1.0,2.0]"),
    ({"classmates": None}, "reward_model.classmates: expected a list, got None; write [{model: MODEL}]"),
    ({"classmates": {}}, "reward_model.classmates: expected a list, got {}; write [{model: MODEL}]"),
    ({"custom_reward_range": "low"}, "expected a list, got 'low'; write [1.0,2.0]"),
    (reward_options(classmate_model_name_or_path_list=[]), "no classmate is given; write"),
    (reward_options(classmate_weights=[1.0]), "1 weights for 2 entries"),
    (reward_options(classmate_weights=[0.0, 0.0]), "must not be negative nor all 0"),
    (reward_options(classmate_weights=[1e308, 1e308]), "the weights [1e+308, 1e+308] are too large; only their"),
    ({"classmates": [{"model": "a", "weight": 1e308}, {"model": "b", "weight": 1e308}]}, "classmates: the weights [1e"),
    (reward_options(classmate_reward_weight=-1), f"{NODE}.classmate_reward_weight: -1.0 is negative"),
    (reward_options(classmate_reward_weight=float("nan")), "write a finite number"),
    (reward_options(classmate_reward_weight=2, reward_fusion="weighted_average"), "write a number from 0 to 1"),
    (reward_options(main_cot_keep_rate="half"), f"{NODE}.main_cot_keep_rate: 'half' is not possible; write 1, a ratio"),
    (reward_options(unfinished_main_score="zero"), "expected a number or one of: lowest, exclude, got 'zero'"),
    (reward_options(min_classmate_valid_fraction=2), "is not in [0, 1]; write 0.5"),
    (reward_options(consistency_reward_weight=float("inf")), "consistency_reward_weight: write a finite number"),
    (reward_options(classmate_advantage_clamp="both"), "write one of: none, non_neg_cl, non_neg_adv_when_main_correct"),
    ({"rollout_is_threshold": 0}, "reward_model.rollout_is_threshold: 0.0 is not above 0; write 4.0, or null"),
    ({"token_level_main_reward_mode": "cot"}, "write one of: all_tokens, cot_only, output_only"),
    (
        reward_options(main_cot_keep_rate=0.5) | {"cot_format": "plain", "token_level_main_reward_mode": "cot_only"},
        "cot_only needs a CoT beside the output, which cot_format=plain does not have; write all",
    ),
    ({"classmate_clip_ratio": 0.4}, "reward_model.classmate_clip_ratio: had no effect, since no parameter"),
    (reward_options(cl_rollout_is_threshold=4.0), f"{NODE}.cl_rollout_is_threshold: had no effect, since no parameter"),
    (reward_options() | {"cot_format": "plain"}, "with plain, classmates would be shown the answer too; write"),
    (
        reward_options(classmate_reward_type="remove_wo_cot") | {"cot_format": "plain"},
        "classmates would be shown the answer",
    ),
    (reward_options(main_cot_keep_rate_min=0), "0.0 and 0.9 are not 0 < min <= max <= 1; write 0.1 and 0.9"),
    (reward_options(main_cot_keep_rate_min=0.8, main_cot_keep_rate_max=0.7), "0.8 and 0.7 are not"),
    (reward_options(main_cot_keep_rate_max=1.1), "0.1 and 1.1 are not"),
    (
        reward_options(classmate_reward_type="random_truncate", main_cot_keep_rate=0.5),
        f"{NODE}.main_cot_keep_rate: has no meaning with classmate_reward_type=random_truncate; write 1",
    ),
    (reward_options(classmate_reward_type=STEP_WISE, main_cot_keep_rate="last-5-tokens"), "main_cot_keep_rate_min and"),
    (reward_options(classmate_reward_type="help_other_questions", main_cot_keep_rate=0.5), "has no meaning with"),
    (reward_options(step_wise_segments=0), f"{NODE}.step_wise_segments: 0 is too small; write 1 or more"),
    (reward_options(immediate_answer_max_new_tokens=0), "immediate_answer_max_new_tokens: 0 is too small"),
    (
        reward_options(classmate_continue_mode="immediate_answer", classmate_close_marker="never"),
        "never contradicts classmate_continue_mode=immediate_answer, which closes the CoT; write auto",
    ),
    (
        reward_options(classmate_reward_type=STEP_WISE, token_level_classmate_reward_mode="all"),
        f"{NODE}.token_level_classmate_reward_mode: {STEP_WISE} credits the segments of the CoT; write",
    ),
    (
        reward_options(classmate_reward_type="help_other_questions", add_consistency_reward=True),
        "the classmates answer another question than the main model; write False",
    ),
    (reward_options(consistency_reward_weight=float("inf")), "consistency_reward_weight: write a finite number"),
    (reward_options(classmate_reward_type="help_others"), "'help_others' is not possible; write one of: vanilla_rew"),
    ({}, f"no classmate is given; write {NODE}.classmate_model_name_or_path_list=[path-or-hub-name]"),
]


@pytest.mark.parametrize(("mapping", "message"), MISTAKES, ids=[message[:60] for _, message in MISTAKES])
def test_mistakes(mapping: dict, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        from_mapping(mapping)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_null_legacy_keys_are_tolerated() -> None:
    legacy = OmegaConf.load(UPSTREAM_CONFIG / "legacy_reward_impl.yaml").reward_model
    legacy.pop("reward_manager")
    assert from_mapping(legacy, require_classmates=False) == ClassmateRewardModelConfig()


def test_value_aliases() -> None:
    assert from_mapping(reward_options(classmate_reward_type="vanilla")).classmate_cot_reward_configs == (
        from_mapping(reward_options()).classmate_cot_reward_configs
    )


def test_config_adds_no_heavy_import() -> None:
    """Beyond `import verl` itself, which imports torch, a wrong key must be told quickly."""
    code = (
        "import sys, verl; before = set(sys.modules); import verl.classmate.config; print(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    new = done.stdout.strip().splitlines()[-1].split()
    assert "verl.classmate.config" in new
    assert not [name for name in new if name.split(".")[0] in ("torch", "ray", "vllm", "transformers", "hydra")]


@pytest.mark.parametrize(
    ("kind", "random", "alone", "segments"),
    [
        ("vanilla_reward", False, False, 0),
        ("random_truncate", True, False, 0),
        ("remove_wo_cot", False, True, 0),
        ("random_truncate_remove_wo_cot", True, True, 0),
        (STEP_WISE, True, True, 3),
        ("help_other_questions", False, False, 0),
        ("help_other_similar_questions", False, False, 0),
    ],
)
def test_what_follows_from_a_reward_type(kind: str, random: bool, alone: bool, segments: int) -> None:
    config = from_mapping(reward_options(classmate_reward_type=kind, step_wise_segments=3)).classmate_cot_reward_configs
    reward_type = config.reward_type
    cut, compared = reward_type.cuts_at_random, reward_type.compares_with_question_alone
    assert (cut, compared, config.segments) == (random, alone, segments)


@pytest.mark.parametrize(
    "options",
    [
        {"classmate_reward_type": "random_truncate"},
        {"classmate_reward_type": "help_other_questions"},
        {"classmate_continue_mode": "immediate_answer"},
        {"main_cot_keep_rate": "first-20-tokens"},
    ],
)
def test_plain_needs_an_answer_held_back_or_meant_to_be_shown(options: dict) -> None:
    assert from_mapping(reward_options(**options) | {"cot_format": "plain"}).cot_format == "plain"
