"""The page of the reasoning pipeline: its commands, its example and its table of imports, as a user tries them."""

import dataclasses
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from verl.reasoning import pipeline, run
from verl.reasoning.pipeline_config import ReasoningPipelineConfig
from verl.reasoning.records import Problem, Solution
from verl.reasoning.rewards import RewardContext

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reasoning.md").read_text()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """What pipelines were asked for; none of them runs."""
    calls: list[dict[str, Any]] = []

    def _run(self: Any, root: Path, train: Any, dev: Any, test: Any, student: Any) -> dict[str, Any]:
        calls.append({"config": self.config, "train": [*train, *dev], "test": test, "reward": self._reward})
        (tmp_path / "report.md").write_text("the report\n")
        models = {"distilled": type("Model", (), {"generate": lambda self, problem: "7"})()}
        return {"best_stage": "base", "report_path": str(tmp_path / "report.md"), "models": models}

    monkeypatch.setattr(pipeline.ReasoningModelPipeline, "_run", _run)
    monkeypatch.chdir(tmp_path)
    return calls


def test_the_example_is_accepted(started: list[dict[str, Any]]) -> None:
    example = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(compile(example, "docs/reasoning.md", "exec"), names)
    (asked,) = started
    assert (len(asked["train"]), len(asked["test"])) == (600, 200)
    assert asked["config"].rl_config("model").group_size == 8
    problem = Problem(id="a", problem="What is 3 + 4?", answer="7")
    said = [
        names["last_number_is_right"](problem, Solution(problem_id="a", text=text), RewardContext())
        for text in ("3 + 4 = 7", "It is 8.", "no idea")
    ]
    assert said == [True, False, False]


def test_options_are_read_from_file_and_line(
    started: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pipeline.yaml").write_text("base_model_name: some/base\nprm: {mc_rollouts: 2}\nprm_epochs: 2\n")
    for name, numbers in (("train", range(40)), ("test", range(40, 50))):
        lines = [json.dumps({"problem": f"What is {n} + 1?", "answer": str(n + 1)}) for n in numbers]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    command = ["config=pipeline.yaml", "train=train.jsonl", "test=test.jsonl", "output_dir=outputs/reasoning"]
    assert run.main([*command, "pure_rl_iterations=40", "prm.mc_rollouts=4"]) == 0
    assert "the report" in capsys.readouterr().out
    config: ReasoningPipelineConfig = started[0]["config"]
    assert (config.base_model_name, config.pure_rl_iterations, config.prm["mc_rollouts"]) == ("some/base", 40, 4)
    assert (config.prm_epochs, config.output_dir) == (2, "outputs/reasoning")
    assert run.main([*command, "prm.mc_rolouts=4"]) == 2
    assert "prm.mc_rolouts: unknown key" in capsys.readouterr().err
    assert len(started) == 1


def test_original_imports_are_those_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "compat"))
    table = PAGE.partition("| module | has |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`(\w+)`", line) for line in table.splitlines() if line.startswith("| `")]
    assert {row[0] for row in rows} == {path.name for path in (ROOT / "compat").iterdir() if path.is_dir()}
    for module, *names in rows:
        assert set(importlib.import_module(module).__all__) == set(names), module


def test_keys_that_the_page_advises_are_options() -> None:
    advice = PAGE.partition("## Troubleshooting")[2].partition("\n## ")[0]
    nodes = {
        "pure_rl": ReasoningPipelineConfig().rl_config("model"),
        "cot": ReasoningPipelineConfig().cot_config("model"),
        "rejection": ReasoningPipelineConfig().rejection_config(),
        "fine_tune": ReasoningPipelineConfig().fine_tuning(),
        "prm": ReasoningPipelineConfig().prm_config("model", Path("prm")),
        "distill": ReasoningPipelineConfig().distillation("teacher", "student", Path("distill")),
    }
    named = re.findall(rf"`({'|'.join(nodes)})\.(\w+)(?:=([^`]+))?`", advice)
    assert len(named) > 30
    assert not [f"{node}.{key}" for node, key, _ in named if not hasattr(nodes[node], key)]
    for node, key, value in named:
        if value:
            dataclasses.replace(nodes[node], **{key: yaml.safe_load(value)})  # type: ignore[type-var]
    top = re.findall(r"`([a-z_]+)=([^`]+)`", advice)
    assert len(top) > 5
    for key, value in top:
        ReasoningPipelineConfig(**{key: yaml.safe_load(value)})


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "command",
    [
        ["-m", "verl.reasoning.run", "config=embedded", "world_size=short", "output_dir={}"],
        ["examples/full_pipeline.py", "--short", "--output_dir", "{}"],
    ],
    ids=["command", "script"],
)
def test_all_stages_run_in_small(command: list[str], tmp_path: Path) -> None:
    arguments = [one.format(tmp_path / "reasoning") for one in command]
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "# Reasoning pipeline" in done.stdout
