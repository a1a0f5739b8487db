"""What went wrong in the code that this project replaces, and the tests which show that it cannot happen here.

A test that guards against a failure mode stands in the file of what it is about, in `test_sources.py`, or below, and
names the mode in its marker: `@pytest.mark.guards("empty text scored")`. Tests of what teachers were specified to show
name its number in the same way: `@pytest.mark.acceptance("T1")`.
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
from tests.failure_modes import FAILURE_MODES
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


ACCEPTANCE = {
    "T1": "prompt ids are the ids sent, and recomputed log-probs those of the rollout",
    "T2": "a group shares probe and baseline; students are isolated",
    "T3": "a step moves the teacher and no student",
    "T4": "the reward's case table, continuous example, clamp, NaN, empty, missing tag",
    "T5": "normalisation by deviation, and phantom advantages",
    "T6": "the RLT reward, and a scorer that agrees with plain forward passes, for one tokenizer and for two",
    "T7": "a corpus of answers to extract: braces, fractions, percents, thousands, tags of every kind",
    "T8": "stored baselines: found after a restart, and no longer after a change",
    "T9": "documented commands compose to the expected keys, and no config file changes",
    "T10": "the launcher signals its own children only",
    "T11": "with a scripted student a small teacher helps the weak and spares the strong",
    "T12": "the evaluation's numbers are those worked out by hand",
    "T13": "failed student calls are left out and counted",
}
"""What adaptive teaching was specified to show."""


def sources() -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text())) for path in sorted((ROOT / "verl").rglob("*.py"))]


def marked(marker: str) -> dict[str, list[str]]:
    """The tests of each thing that a marker names."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for named in _named(node, marker):
                    found.setdefault(named, []).append(f"{path.relative_to(ROOT)}::{node.name}")
    return found


def _named(function: ast.FunctionDef | ast.AsyncFunctionDef, marker: str) -> list[str]:
    marks = [mark for mark in function.decorator_list if isinstance(mark, ast.Call)]
    return [ast.literal_eval(mark.args[0]) for mark in marks if ast.unparse(mark.func) == f"pytest.mark.{marker}"]


def test_every_failure_mode_has_a_test_that_guards_it() -> None:
    assert sorted(marked("guards")) == sorted(FAILURE_MODES)


def test_every_acceptance_test_of_teachers_is_there() -> None:
    assert sorted(marked("acceptance")) == sorted(ACCEPTANCE)


@pytest.mark.guards("statistics per micro-batch")
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


@pytest.mark.guards("logit 0 read as missing")
@pytest.mark.guards("valid zeros dropped from binary metrics")
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


@pytest.mark.guards("options dropped")
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


@pytest.mark.guards("quadratic scans")
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


@pytest.mark.guards("config strings evaluated")
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


@pytest.mark.guards("breakpoints and bare excepts")
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


@pytest.mark.guards("verifier called again after it failed")
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


@pytest.mark.guards("context and new-token budget in one key")
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
