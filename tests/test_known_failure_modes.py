"""What went wrong in the code that this project replaces, and the tests which show that it cannot happen here.

Spec 12, the lines about signal, seeds, engineering, data and the sandbox. A failure mode has tests in the files of what
it is about, which `ELSEWHERE` names, or a short one below. Monitors have their own.
"""

import ast
import asyncio
import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from tests.classmate.rows import asked, read_row
from tests.classmate.toy_tokenizers import byte_bpe, text_bpe
from verl.classmate import algorithm_config
from verl.classmate import config as typed_config
from verl.classmate.algorithm_config import AdvantageConfig
from verl.classmate.config import ClassmateCotRewardConfig, from_mapping
from verl.classmate.cot import CotMarkers, keep, locate, parse_keep_rate
from verl.classmate.errors import ConfigError
from verl.classmate.metrics import row_numbers, step_metrics
from verl.classmate.outcome import Outcome
from verl.classmate.reward_scale import RewardScale
from verl.classmate.row import Continuation, ScoredRow, Verdict
from verl.classmate.scoring import RewardRules, score_row
from verl.trainer.ppo.advantage import AdvantageInputs, compute_advantage
from verl.workers.reward_manager.classmate_cot import ClassmateCoTRewardManager

ROOT = Path(__file__).resolve().parent.parent
THINK = CotMarkers(start="<think>", end="</think>")
LOGIT = RewardScale(direction="maximize", low=None, high=None, threshold=0.25)
BINARY = RewardScale()

_ADVANTAGE = "tests/trainer/ppo/advantage/test_advantage.py"
_SCORING = "tests/classmate/test_scoring.py"
_LOOP = "tests/experimental/agent_loop/test_classmate_agent_loop.py"
_MANAGER = "tests/workers/reward_manager/test_classmate_cot.py"
_SANDBOX = "tests/code_utils"
_MAIN_JOB = "tests/e2e/test_main_job.py"

ELSEWHERE = {
    "classmate term without gradient": [
        "tests/trainer/ppo/test_actor_gradient.py::test_the_classmates_weight_changes_the_actors_gradient",
    ],
    "CoT mask zeroing all other tokens": [
        "tests/trainer/ppo/test_actor_gradient.py::test_in_partial_mode_only_cot_tokens_carry_the_classmates_advantage",
        f"{_ADVANTAGE}::test_classmate_advantage_only_where_tokens_were_handed_over",
    ],
    "statistics per micro-batch": [f"{_ADVANTAGE}::test_row_order_does_not_matter"],
    "two scales in one sequence": [f"{_ADVANTAGE}::test_gdpo_of_the_worked_example"],
    "weight or condition ignored": [
        f"{_ADVANTAGE}::test_doubling_the_weight_doubles_the_classmate_share",
        f"{_SCORING}::test_condition_table",
        f"{_SCORING}::test_fusion",
        f"{_MANAGER}::test_weights_of_classmates_and_of_the_format_count",
    ],
    "undocumented default estimator": [
        "tests/classmate/test_config.py::test_every_field_is_documented_in_the_yaml",
        "tests/classmate/test_config.py::test_defaults_of_the_yaml_are_the_defaults_of_the_code",
    ],
    "correctness by sign on 1-10 scores": [f"{_SCORING}::test_condition_table"],
    "sign flip rewarding an invalid score": [f"{_SCORING}::test_a_failed_judge_excludes_the_row"],
    "failed judge averaged as 0 or -1": [
        "tests/e2e/test_judges.py::test_one_process_trains_on_a_faulty_judge",
        "tests/utils/reward_score/cot_monitor/test_judges.py::test_an_answer_in_another_format_is_no_score_and_is_not_asked_for_again",
        f"{_SCORING}::test_missing_samples_are_left_out_never_zero",
        f"{_SCORING}::test_a_score_that_is_no_number_is_a_judge_error",
        f"{_ADVANTAGE}::test_failed_and_padding_rows_touch_nothing",
        f"{_MANAGER}::test_a_score_that_is_no_number_is_a_failure_of_the_judge",
    ],
    "empty text scored": [
        "tests/classmate/test_prompts.py::test_answer",
        f"{_MANAGER}::test_the_number_in_a_thought_is_no_answer",
        "tests/utils/reward_score/cot_monitor/test_verifiers.py::test_nothing_to_score_is_none_not_zero",
    ],
    "unfinished CoT closed and rewarded": [
        "tests/classmate/test_prompts.py::test_which_cots_are_handed_over",
        "tests/classmate/test_views.py::test_nobody_is_asked_about_a_thought_that_is_none",
        f"{_LOOP}::test_without_a_whole_thought_nobody_is_asked",
    ],
    "row sums for means": [f"{_MAIN_JOB}::test_metrics_are_those_of_the_rows"],
    "response_mask overwritten before metrics": [
        "tests/e2e/test_estimators.py::test_the_loss_counts_a_part_of_the_tokens_and_metrics_all",
    ],
    "crash on an empty CoT": [
        "tests/classmate/test_cot.py::test_empty_cot_hands_over_nothing",
        f"{_LOOP}::test_without_a_whole_thought_nobody_is_asked",
    ],
    "same seed for every step and row": [
        "tests/classmate/test_seeds.py::test_distinct_in_every_argument_and_in_range",
        f"{_LOOP}::test_seeds_follow_from_run_step_row_and_rollout",
        "tests/workers/test_row_pipeline.py::test_every_request_of_a_row_has_a_seed_of_its_own",
    ],
    "validation settings ignored": [
        f"{_LOOP}::test_validation_asks_as_val_kwargs_say",
        "tests/classmate/test_config.py::test_sampling_of_training_and_validation_differ",
        "tests/classmate/test_views.py::test_validation_cuts_at_fixed_places",
    ],
    "baseline and classmate validation curves on different quantities": [
        "tests/e2e/test_baseline.py::test_classmates_measure_but_do_not_train",
        f"{_LOOP}::test_the_baseline_asks_in_validation_only",
    ],
    "fixed 0.8 memory for each of M engines": [
        "tests/trainer/preflight/test_preflight.py::test_engines_awake_side_by_side_share_a_gpu",
        "tests/trainer/preflight/test_preflight.py::test_more_than_a_whole_gpu_is_refused_with_the_keys",
    ],
    "broad except hiding generation errors": [
        "tests/workers/test_classmate_workers.py::test_requests_and_their_outcomes",
        "tests/workers/rollout/test_hf_engine.py::test_a_row_that_breaks_the_batch_fails_alone",
        f"{_MANAGER}::test_a_function_that_raises_fails_its_rows_and_not_the_run",
    ],
    "markers counted as output": [
        "tests/classmate/test_cot.py::test_closed_thought",
        "tests/classmate/test_cot.py::test_tokens_merged_with_a_marker",
    ],
    "only the first sample read": [
        "tests/workers/test_classmate_workers.py::test_one_call_brings_all_samples",
        f"{_SCORING}::test_scores_keep_every_sample",
    ],
    "context and new-token budget in one key": [
        "tests/classmate/test_config.py::test_sampling_of_training_and_validation_differ",
    ],
    "undefined variable with consistency off": [
        f"{_SCORING}::test_consistency_is_a_component_of_its_own_which_no_condition_gates",
    ],
    "one padded forward for everything": [
        "tests/workers/rollout/test_hf_engine.py::test_batch_size_and_token_budget_are_kept",
    ],
    "REMAX and async paths unpacking wrong tuples": [
        f"{_LOOP}::test_remax_has_one_greedy_session_more",
        "tests/e2e/test_estimators.py::test_remax_has_one_baseline_per_prompt",
        f"{_MANAGER}::test_a_function_of_the_users_replaces_the_verifier",
    ],
    "exactly one classmate asserted": [
        f"{_MAIN_JOB}::test_every_row_tells_its_story",
        f"{_SCORING}::test_aggregation_over_samples_and_classmates",
    ],
    "unpickled requests": [f"{_SANDBOX}/test_api.py::test_what_is_no_json_is_refused"],
    "guard only inside the child": [
        f"{_SANDBOX}/test_hostile.py::test_some_of_each_kind_are_contained",
        f"{_SANDBOX}/test_hostile.py::test_weaker_protections_contain_what_they_claim_to",
    ],
    "blocking async routes": [
        f"{_SANDBOX}/test_api.py::test_health_is_answered_while_programs_run",
        f"{_SANDBOX}/test_hostile.py::test_two_hundred_are_contained_and_health_answers_within_100_ms",
    ],
    "derangement of one": [
        "tests/classmate/test_views.py::test_derangement",
        f"{_LOOP}::test_a_batch_of_one_and_other_reward_types_have_no_partner",
    ],
    "unshuffled head splits": ["tests/data_preprocessing/test_behaviours.py::test_the_head_of_a_file_is_not_a_split"],
    "--seed unused or crashing": ["tests/data_preprocessing/test_recipe.py::test_the_seed_decides"],
    "silent reuse": [
        "tests/data_preprocessing/test_recipe.py::test_a_second_run_changes_nothing",
        "tests/data_preprocessing/test_recipe.py::test_other_options_are_refused_without_force",
    ],
    "unseeded hold-out": [
        "tests/data_preprocessing/test_splits.py::test_held_out_tasks_are_so_many_of_each_group",
        "tests/data_preprocessing/test_splits.py::test_splits_follow_from_seed_and_content_not_from_the_order_of_arrival",
    ],
    "order-dependent RNG": ["tests/data_preprocessing/test_tasks.py::test_a_rows_hint_depends_on_no_other_row"],
    "hint naming a missing option": [
        "tests/data_preprocessing/test_prepare_data.py::test_hints_name_a_wrong_choice_that_is_there",
        "tests/data_preprocessing/test_tasks.py::test_mmlu_hints_only_at_choices_that_say_something_else",
    ],
    "substring verifier dispatch": [
        "tests/utils/reward_score/cot_monitor/test_verifiers.py::test_unknown_source_is_one_line_that_lists_the_known_ones",
    ],
    "numbers in prose or a lone A parsed as answers": [
        "tests/utils/reward_score/cot_monitor/test_verifiers.py::test_only_the_closing_sentence_gives_a_letter",
        "tests/utils/reward_score/cot_monitor/test_answer_forms.py::test_answers_are_scored_as_a_mathematician_would",
    ],
    "valid zeros dropped from binary metrics": [
        "tests/utils/reward_score/cot_monitor/test_verifiers.py::test_binary_metrics_count_valid_zeros",
    ],
    "hard-coded hosts, paths and organisations": [
        "tests/test_repository.py::test_no_committed_file_names_a_machine_or_a_secret",
    ],
}
"""Failure mode: tests that show it cannot happen."""


def sources() -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text())) for path in sorted((ROOT / "verl").rglob("*.py"))]


@pytest.mark.parametrize("mode", ELSEWHERE)
def test_the_tests_of_a_failure_mode_are_there(mode: str) -> None:
    assert ELSEWHERE[mode]
    for name in ELSEWHERE[mode]:
        path, _, function = name.partition("::")
        functions = {node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if _is_function(node)}
        assert function in functions, name


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def test_statistics_span_the_batch() -> None:
    """Statistics of a micro-batch would give each half of the batch the numbers it has alone."""
    rewards = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0])
    groups = np.array(["a"] * 4 + ["b"] * 4, dtype=object)

    def advantages(rows: slice) -> torch.Tensor:
        reward_B, valid_B = rewards[rows], torch.ones(len(rewards[rows]), dtype=torch.bool)
        inputs = AdvantageInputs(
            base_reward_B=reward_B,
            classmate_reward_B=reward_B * torch.arange(1.0, 9.0)[rows],
            final_reward_B=reward_B,
            main_valid_B=valid_B,
            classmate_valid_B=valid_B,
            response_mask_BR=torch.ones(len(reward_B), 3),
            classmate_mask_BR=torch.tensor([[1, 1, 0]] * len(reward_B)),
            group_B=groups[rows],
        )
        return compute_advantage(inputs, AdvantageConfig()).advantages_BR

    whole, halves = advantages(slice(0, 8)), torch.cat([advantages(slice(0, 4)), advantages(slice(4, 8))])
    assert not torch.allclose(whole, halves)
    # One mean and one standard deviation: on and off the CoT, advantages are standardised alike.
    assert whole[:, 0].mean() == pytest.approx(0, abs=1e-6)
    assert whole[:, 0].std() == pytest.approx(1, abs=1e-4)


def one_row(main: float, classmate: float, scale: RewardScale, **options: Any) -> ScoredRow:
    span = locate(byte_bpe().encode("<think>3 + 4</think>7", add_special_tokens=False), byte_bpe(), THINK)
    answers = [asked([Continuation(sample=0, outcome=Outcome.ok, text="7", score=classmate)])]
    config = ClassmateCotRewardConfig(use_classmate_main_cond="always", **options)
    rules = RewardRules(config=config, scale=scale, classmate_scale=scale, weights=(1.0,))
    return score_row(read_row(span), Verdict(score=main), answers, rules)


def test_a_score_of_zero_is_a_score() -> None:
    """A logit of 0 is not missing, and a valid 0 is not dropped from means."""
    row = one_row(0.0, 0.0, LOGIT).scores
    assert (row.main_valid, row.classmate_valid, row.classmate_score) == (True, True, 0.0)
    metrics = step_metrics([row_numbers(one_row(score, score, BINARY)) for score in (1.0, 0.0, 0.0, 0.0)])
    assert metrics["critic/main_model_reward/mean"] == metrics["critic/classmate_scores/mean"] == 0.25
    assert metrics["classmate/valid_ratio"] == 1.0


OPTIONS = [
    (cls, field.name)
    for module in (typed_config, algorithm_config)
    for cls in vars(module).values()
    if dataclasses.is_dataclass(cls) and cls.__module__ == module.__name__ and cls.__name__ != "AdvantageConfig"
    for field in dataclasses.fields(cls)
]


def test_no_option_is_dropped() -> None:
    """Each is read somewhere as an attribute; a key that nothing reads would be accepted and ignored."""
    read = {
        node.attr
        for path, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    read |= {
        argument.value
        for path, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr"
        for argument in node.args[1:2]
        if isinstance(argument, ast.Constant)
    }
    by_name = {f"{prefix}think_{side}_str" for prefix in ("", "classmate_") for side in ("start", "end")}
    # Taken over by name, into the config of the estimators and into chat templates.
    by_name |= {field.name for field in dataclasses.fields(AdvantageConfig)}
    by_name |= {"enable_thinking"}
    assert "enable_thinking: ${reward_model.enable_thinking}" in (ROOT / _RUN_BASE).read_text()
    dropped = [f"{cls.__name__}.{name}" for cls, name in OPTIONS if name not in read | by_name]
    assert not dropped


_RUN_BASE = "verl/trainer/config/_run_base.yaml"


class Counting:
    """A tokenizer that counts the tokens it decodes."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.decoded = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def decode(self, ids: Any, **options: Any) -> str:
        self.decoded += len(ids)
        return self._tokenizer.decode(ids, **options)


@pytest.mark.parametrize("make", [byte_bpe, text_bpe], ids=["single token markers", "markers of several tokens"])
def test_no_quadratic_scans(make: Any) -> None:
    """A response of ten times the tokens is decoded about ten times as much, wherever the thought ends or is cut."""

    def work(sentences: int) -> tuple[int, int]:
        text = f"<think>{'Tom has 2 apples and gets 3 more, so 2 + 3 = 5. ' * sentences}</think>The answer is 5."
        ids = make().encode(text, add_special_tokens=False)
        tokenizer = Counting(make())
        span = locate(ids, tokenizer, THINK)
        for rate in (0.3, "first-7-tokens", "last-7-words"):
            keep(span, ids, tokenizer, parse_keep_rate(rate))
        return tokenizer.decoded, len(ids)

    (few, short), (many, long) = work(20), work(200)
    assert many / few < 2 * long / short
    assert many < 60 * long


def test_config_strings_are_never_evaluated(tmp_path: Path) -> None:
    mark = tmp_path / "evaluated"
    attack = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    for options in ({"main_cot_keep_rate": attack}, {"classmate_reward_weight": attack}, {"classmate_weights": attack}):
        with pytest.raises(ConfigError):
            from_mapping({"classmate_cot_reward_configs": options}, require_classmates=False)
    assert not mark.exists()
    called = {(path.name, name) for path, tree in sources() for name in _called(tree)}
    # What runs the programs that are judged, in a process of its own.
    called -= {("sides.py", "exec")}
    assert not {(path, name) for path, name in called if name in ("eval", "exec", "literal_eval")}


def test_no_breakpoints_and_no_bare_excepts() -> None:
    for path, tree in sources():
        assert not set(_called(tree)) & {"breakpoint", "set_trace"}, path
        bare = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.type is None]
        assert not bare, path


def _called(tree: ast.Module) -> list[str]:
    """Names of functions that are called."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [call.id for call in calls if isinstance(call, ast.Name)]
    return names + [call.attr for call in calls if isinstance(call, ast.Attribute) and call.attr != "eval"]


def test_a_failing_verifier_is_asked_once() -> None:
    """A second call might cost money, or succeed and hide the failure."""
    texts: list[str] = []

    def failing(solution_str: str, **_: Any) -> float:
        texts.append(solution_str)
        raise RuntimeError("no")

    config = OmegaConf.create(
        {"reward_model": {"classmate_cot_reward_configs": {"classmate_model_name_or_path_list": ["a"]}}}
    )
    manager = ClassmateCoTRewardManager(config, byte_bpe(), failing)
    span = locate(byte_bpe().encode("<think>3 + 4</think>It is 7.", add_special_tokens=False), byte_bpe(), THINK)
    scored = asyncio.run(manager.score(read_row(span), [asked([Continuation(sample=0, outcome=Outcome.ok, text="7")])]))
    assert sorted(texts) == ["7", "It is 7."]
    assert not scored.scores.main_valid
    assert math.isnan(scored.scores.classmate_score)


def test_context_and_budget_are_two_keys() -> None:
    """A longer answer takes nothing from the prompt unless both are said to share a context."""
    for tokens in (16, 512):
        generation = from_mapping(
            {"classmate_generation_configs": {"max_new_tokens": tokens}}, require_classmates=False
        ).classmate_generation_configs
        assert generation.context_length(max_prompt_length=100, max_response_length=50) - tokens == 150
    fixed = from_mapping(
        {"classmate_generation_configs": {"max_new_tokens": 16, "max_model_len": 64}}, require_classmates=False
    ).classmate_generation_configs
    assert fixed.context_length(max_prompt_length=100, max_response_length=50) == 64
    assert fixed.sampling(validate=False).max_new_tokens == 16
