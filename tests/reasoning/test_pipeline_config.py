"""Options of the pipeline, and its command: a mistake is told in one line, before anything runs."""

from pathlib import Path

import pytest

from verl.classmate.errors import ConfigError
from verl.reasoning.pipeline_config import ReasoningPipelineConfig, read_config
from verl.reasoning.records import as_problem
from verl.reasoning.run import main


def test_what_a_stage_has_comes_from_both_levels() -> None:
    config = read_config({"rejection_samples": 4, "prm": {"learning_rate": 3e-5}, "seed": 7})
    assert config.rejection_config().num_samples == 4
    prm = config.prm_config("models/base", Path("prm"))
    assert (prm.learning_rate, prm.seed, prm.base_model_name) == (3e-5, 7, "models/base")


def test_stages_are_those_that_are_enabled() -> None:
    config = ReasoningPipelineConfig(enable_cot_training=False, enable_distillation=False)
    assert config.stages == ("pure_rl", "rejection", "prm")
    assert config.reranks


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"base_model": "x"}, "base_model: unknown key"),
        ({"prm": {"epochs": 3}}, "prm.epochs: unknown key"),
        ({"pure_rl_iterations": "many"}, "expected an integer"),
        ({"rejection": {"mmr_lambda": 2}}, "rejection: mmr_lambda"),
        ({"dev_share": 0.0}, "dev_share=0.0"),
        ({"use_prm_for": ["vote"]}, "vote"),
    ],
)
def test_mistakes_name_the_key(given: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_config(given)


def test_no_stage_at_all_is_refused() -> None:
    off = ("pure_rl", "cot_training", "rejection_sampling", "prm_training", "distillation")
    with pytest.raises(ConfigError, match="enable one"):
        read_config({f"enable_{name}": False for name in off})


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["config=nowhere.yaml"], "nowhere.yaml is not there"),
        (["train.jsonl"], "is no option; write key=value"),
        (["train=nowhere.jsonl", "test=nowhere.jsonl"], "nowhere.jsonl is not there"),
        (["train=train.jsonl", "test=train.jsonl", "reward=nowhere"], "write reward=module:function"),
        (["train=train.jsonl", "test=train.jsonl", "reward=nowhere:f"], "cannot be imported"),
        (["train=bad.jsonl", "test=train.jsonl"], "bad.jsonl, line 2: no problem"),
        (["seed=1"], "no problems; write train="),
    ],
)
def test_mistakes_of_a_command_are_one_line(
    arguments: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.jsonl").write_text('{"problem": "3 + 4?", "answer": "7"}\n')
    Path("bad.jsonl").write_text('{"problem": "3 + 4?", "answer": "7"}\n{"answer": "7"}\n')
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_without_arguments_the_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "config=embedded" in capsys.readouterr().out


def test_stage_4_without_stage_3_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="write enable_rejection_sampling=True, or enable_prm_training=False"):
        read_config({"enable_rejection_sampling": False})
    read_config({"enable_rejection_sampling": False, "enable_prm_training": False})


@pytest.mark.parametrize("wrong", ["pure_rl_iteration=3", "prm.mc_rollout=3", "pure_rl.algorithm=ppoo"])
def test_mistakes_are_told_before_a_world_is_built(
    wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config=embedded", f"output_dir={tmp_path / 'out'}", wrong]) == 2
    assert wrong.partition("=")[0].rpartition(".")[2] in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_is_no_problem_is_said() -> None:
    for given in (None, 3.5, ["3 + 4?"], {"problem": None}, " "):
        with pytest.raises(ValueError, match=r"write .*problem"):
            as_problem(given)  # type: ignore[arg-type]
