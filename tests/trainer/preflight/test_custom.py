"""A reward function of the user's before anything starts: which rows it takes, and what is known of its scores."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.classmate.errors import ConfigError
from verl.trainer.preflight.custom_reward import check_custom_scale, custom_reward_notes, custom_scale
from verl.trainer.preflight.data import check_files

UNKNOWN = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 1.0\n"


def function(folder: Path, source: str = UNKNOWN, name: str = "compute_score") -> dict[str, Any]:
    (folder / "mine.py").write_text(source)
    return {"reward": {"custom_reward_function": {"path": str(folder / "mine.py"), "name": name}}}


def reward(rewards: dict[str, Any] | None = None, **keys: Any) -> ClassmateRewardModelConfig:
    return from_mapping({"classmate_cot_reward_configs": rewards or {}, **keys}, require_classmates=False)


def test_rows_of_any_source_are_taken_only_with_a_function(tmp_path: Path) -> None:
    row = {
        "data_source": "my/own_set",
        "prompt": [{"role": "user", "content": "?"}],
        "reward_model": {"ground_truth": "7"},
        "extra_info": {"index": 0},
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "rows.parquet")
    rows = str(tmp_path / "rows.parquet")
    data = {"train_files": rows, "val_files": rows, "train_max_samples": -1, "val_max_samples": -1}
    data |= {"train_batch_size": 1, "prompt_key": "prompt", "custom_cls": {"path": None}}
    check_files(data, verified=False)
    with pytest.raises(
        ConfigError, match=r"no verifier for data_source 'my/own_set'.*reward\.custom_reward_function\.path=FILE\.py"
    ):
        check_files(data)


@pytest.mark.parametrize(
    ("attributes", "keys", "lowest", "threshold", "said"),
    [
        ("", {}, 0.0, 0.5, True),
        ("", {"custom_reward_range": [-1, 1]}, -1.0, 0.0, False),
        ("compute_score.reward_range = (-1, 1)\n", {}, -1.0, 0.0, False),
        ("compute_score.reward_range = (1, 10)\ncompute_score.main_correct_threshold = 7\n", {}, 1.0, 7.0, False),
        ("compute_score.reward_range = (0, 4)\n", {"reward_direction": "minimize"}, 0.0, 2.0, False),
    ],
)
def test_what_is_known_of_a_functions_scores(
    attributes: str, keys: dict[str, Any], lowest: float, threshold: float, said: bool, tmp_path: Path
) -> None:
    config, typed = function(tmp_path, UNKNOWN + attributes), reward(**keys)
    scale = custom_scale(config, typed)
    assert scale is not None
    assert (scale.lowest, scale.threshold) == (lowest, threshold)
    check_custom_scale(scale, typed)
    notes = custom_reward_notes(config, typed)
    assert len(notes) == said
    assert all("0 to 1 is assumed" in note and "write reward_model.custom_reward_range=" in note for note in notes)


MISTAKES: dict[str, tuple[str, dict[str, Any], str]] = {
    "not a range": (UNKNOWN + "compute_score.reward_range = 'low'\n", {}, "its reward_range is 'low'; write for inst"),
    "not a direction": (UNKNOWN + "compute_score.reward_direction = 'up'\n", {}, "its reward_direction is 'up'"),
    "no lowest": (UNKNOWN, {"custom_reward_range": [None, 1]}, "get the lowest reward, but its scores .* have none"),
    "no middle": (
        UNKNOWN,
        {
            "custom_reward_range": [0, None],
            "rewards": {"use_classmate_main_cond": "no_classmate_when_main_incorrect"},
        },
        "has no middle to serve as the threshold of a correct answer",
    ),
    "broken": ("raise KeyError('x')\n", {}, "compute_score cannot be loaded .*; correct the path, the name or the fil"),
    "syntax": ("x = 1\ndef compute_score(:\n", {}, r"SyntaxError: .*mine.py, line 2"),
    "import": ("x = 1\nimport nonexistent_mod\n", {}, r"ModuleNotFoundError: .*nonexistent_mod.*, line 2\)"),
    "exit": ("import sys\nsys.exit(0)\n" + UNKNOWN, {}, r"cannot be loaded \(SystemExit: 0, line 2\)"),
    "no function": ("compute_score = 3\n", {}, "compute_score is 3, which is not a function; name one by"),
    "signature": (
        "def compute_score(solution):\n    return 1.0\n",
        {},
        r"compute_score\(solution\) cannot be called with data_source, .*; write def compute_score\(data_source, ",
    ),
    "by position": (
        UNKNOWN.replace("extra_info=None", "extra_info=None, /"),
        {},
        "cannot be called with data_source, solution_str, ground_truth, extra_info",
    ),
    "threshold above": (
        UNKNOWN + "compute_score.reward_range = (-1, 1)\ncompute_score.main_correct_threshold = 5\n",
        {},
        "its main_correct_threshold is 5, outside the range of its scores, -1 to 1, .*; write a number in that range",
    ),
    "threshold of the config": (
        UNKNOWN,
        {"custom_reward_range": [0, 10], "rewards": {"main_correct_threshold": -3.0}},
        "configs.main_correct_threshold is -3, outside the range of its scores, 0 to 10",
    ),
    "threshold of an open range": (
        UNKNOWN + "compute_score.main_correct_threshold = -1\n",
        {"custom_reward_range": [0, None]},
        "is -1, outside the range of its scores, 0 to inf",
    ),
    "not there": ("", {}, "compute_score cannot be loaded"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_one_line(name: str, tmp_path: Path) -> None:
    source, keys, said = MISTAKES[name]
    keys = dict(keys)
    typed = reward(keys.pop("rewards", None), **keys)

    def check() -> None:
        scale = custom_scale(function(tmp_path, source), typed)
        assert scale is not None
        check_custom_scale(scale, typed)

    with pytest.raises(ConfigError, match=said) as error:
        check()
    assert "\n" not in str(error.value)


def test_a_range_without_a_function_is_refused() -> None:
    with pytest.raises(ConfigError, match="custom_reward_range is for a reward function of your own, but none is"):
        custom_scale({"reward": {"custom_reward_function": {"path": None}}}, reward(custom_reward_range=[0, 1]))
    assert custom_scale({"reward": {"custom_reward_function": None}}, reward()) is None


@pytest.mark.parametrize(
    "head",
    [
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None)",
        "def compute_score(**given)",
        "async def compute_score(solution_str, ground_truth, **rest)",
        "def compute_score(data_source, solution_str, ground_truth, extra_info, scale)",
    ],
)
def test_what_takes_the_arguments_passes(head: str, tmp_path: Path) -> None:
    config = function(tmp_path, f"{head}:\n    return 1.0\n")
    if "scale" in head:
        with pytest.raises(ConfigError, match="missing a required argument: 'scale'"):
            custom_scale(config, reward())
        config["reward"]["custom_reward_function"]["reward_kwargs"] = {"scale": 2}
    assert custom_scale(config, reward()) is not None


@pytest.mark.parametrize(
    ("bounds", "direction", "threshold", "fits"),
    [
        ([0, 10], "minimize", 10.0, True),
        ([-1, 1], "minimize", -1.5, False),
        ([None, 4], "maximize", -100.0, True),
        ([None, 4], "maximize", 4.5, False),
        ([None, 4], "minimize", -4.5, False),
        ([None, 4], "minimize", 100.0, True),
        ([2, None], "minimize", -2.0, True),
        ([2, None], "minimize", -1.0, False),
        (None, "maximize", 7.0, True),
    ],
)
def test_a_threshold_lies_in_the_declared_range(
    bounds: list | None, direction: str, threshold: float, fits: bool, tmp_path: Path
) -> None:
    """It is compared with the directed score: of two bounds low + high - x, else -x."""
    keys = {"custom_reward_range": bounds, "reward_direction": direction}
    typed = reward({"main_correct_threshold": threshold}, **keys)
    if fits:
        assert custom_scale(function(tmp_path), typed) is not None
    else:
        with pytest.raises(ConfigError, match="outside the range of its scores"):
            custom_scale(function(tmp_path), typed)


def test_rows_with_an_empty_cot_need_a_lowest_score_too(tmp_path: Path) -> None:
    """Where there are classmates who could have been asked, and their scores are not compared."""
    options = {"unfinished_main_score": "exclude", "use_classmate_main_cond": "always"}
    options |= {"classmate_model_name_or_path_list": ["a"]}

    def check(**more: Any) -> None:
        typed = reward(options | more, custom_reward_range=[None, 1])
        scale = custom_scale(function(tmp_path), typed)
        assert scale is not None
        check_custom_scale(scale, typed)

    with pytest.raises(ConfigError, match=r"rows with an empty CoT get the lowest .*\.empty_cot_score=exclude$"):
        check()
    check(empty_cot_score="exclude")
    check(classmate_reward_type="remove_wo_cot")
    check(classmate_model_name_or_path_list=None)
