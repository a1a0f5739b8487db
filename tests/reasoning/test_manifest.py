"""Manifests: a finished stage is skipped, a half written one goes on, a changed one is made anew, a line says why."""

import logging
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl.reasoning.compound import CompoundRewardFunction
from verl.reasoning.manifest import (
    NAME,
    StageInputs,
    begin,
    code_revision,
    config_hash,
    finish,
    is_current,
    stale_reason,
)
from verl.reasoning.rewards import as_reward


@dataclass(frozen=True, kw_only=True)
class Config:
    rate: float = 0.1
    names: tuple[str, ...] = ("a", "b")
    reward: Any = None


INPUTS = StageInputs(stage="cot", config=Config(), model="m", model_revision="r1", seed=1, code="c1")


def run(folder: Path, inputs: StageInputs, text: str = "weights") -> str:
    todo = begin(folder, inputs)
    if todo != "skip":
        (folder / "model").mkdir(exist_ok=True)
        (folder / "model" / "weights.bin").write_text(text)
        finish(folder, inputs, counts={"problems": 3})
    return todo


def test_a_finished_stage_is_skipped(tmp_path: Path) -> None:
    folder = tmp_path / "cot"
    assert stale_reason(folder, INPUTS) == "it has not run"
    assert [run(folder, INPUTS) for _ in range(3)] == ["fresh", "skip", "skip"]
    assert is_current(folder, INPUTS)
    assert sorted(path.name for path in folder.iterdir()) == [NAME, "model"]


def test_a_killed_stage_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "cot"
    assert begin(folder, INPUTS) == "fresh"
    (folder / "samples.jsonl").write_text("half")
    assert not is_current(folder, INPUTS)
    with caplog.at_level(logging.INFO):
        assert begin(folder, INPUTS) == "resume"
    assert "cot: goes on, since it was not finished" in caplog.text
    assert (folder / "samples.jsonl").read_text() == "half"
    finish(folder, INPUTS)
    assert begin(folder, INPUTS) == "skip"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"config": Config(rate=0.2)}, "its config changed"),
        ({"seed": 2}, "its seed changed (1 -> 2)"),
        ({"model_revision": "r2"}, "its model revision changed (r1 -> r2)"),
        ({"code": "c2"}, "its code changed (c1 -> c2)"),
    ],
)
def test_what_changed_is_told_and_old_outputs_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: dict[str, Any], reason: str
) -> None:
    folder, changed = tmp_path / "cot", replace(INPUTS, **change)
    run(folder, INPUTS, "old")
    assert stale_reason(folder, changed) == reason
    with caplog.at_level(logging.INFO):
        assert run(folder, changed, "new") == "fresh"
    assert f"since {reason}; what was there is in cot.old-1" in caplog.text
    assert (tmp_path / "cot.old-1" / "model" / "weights.bin").read_text() == "old"
    assert is_current(folder, changed)


def test_half_written_outputs_of_other_inputs_are_not_continued(tmp_path: Path) -> None:
    folder = tmp_path / "cot"
    begin(folder, INPUTS)
    (folder / "samples.jsonl").write_text("half")
    assert begin(folder, replace(INPUTS, seed=2)) == "fresh"
    assert not (folder / "samples.jsonl").exists()


def test_a_changed_or_missing_output_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "cot"
    run(folder, INPUTS)
    (folder / "model" / "weights.bin").write_text("Weights")
    assert stale_reason(folder, INPUTS) == "model/weights.bin was changed"
    (folder / "model" / "weights.bin").unlink()
    assert stale_reason(folder, INPUTS) == "model/weights.bin is not there any more"
    (folder / NAME).write_text("{")
    assert "cannot be read" in (stale_reason(folder, INPUTS) or "")


def test_a_child_is_stale_when_its_parents_outputs_change(tmp_path: Path) -> None:
    parent, folder, problems = tmp_path / "rl", tmp_path / "cot", tmp_path / "problems.jsonl"
    problems.write_text("{}\n")
    above = replace(INPUTS, stage="pure_rl")
    child = replace(INPUTS, parents={"rl": parent, "problems": problems})
    with pytest.raises(FileNotFoundError, match="run that stage first"):
        begin(folder, child)
    run(parent, above)
    run(folder, child)
    run(parent, replace(above, seed=9), "weights")
    assert is_current(folder, child), "the same outputs, whatever they came from"
    run(parent, replace(above, seed=10), "other")
    assert stale_reason(folder, child) == "its parents' outputs changed: rl"
    run(folder, child)
    problems.write_text("{}\n{}\n")
    assert stale_reason(folder, child) == "its parents' outputs changed: problems"


def one(problem: str, solution: str) -> float:
    return 1.0


PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)),
    max_leaves=10,
)


@given(PLAIN)
def test_the_order_of_keys_does_not_count(value: Any) -> None:
    def turned(given: Any) -> Any:
        if isinstance(given, dict):
            return {key: turned(given[key]) for key in reversed(given)}
        return [turned(one) for one in given] if isinstance(given, list) else given

    assert config_hash(value) == config_hash(turned(value))


def test_every_value_of_a_config_counts() -> None:
    rewards = [one, lambda p, s: 0.0, partial(one, problem="a"), {"exploration": one}, CompoundRewardFunction(1, 1, 1)]
    configs = [Config(), Config(rate=0.2), Config(names=("b", "a")), {"rate": 0.1}, Config(reward=as_reward(one))]
    configs += [Config(reward=reward) for reward in rewards]
    assert len({config_hash(config) for config in configs}) == len(configs)
    assert config_hash(Config(reward=one)) == config_hash(Config(reward=one))
    with pytest.raises(TypeError, match="write a plain value"):
        config_hash({"tokenizer": object()})


def test_the_code_has_a_revision() -> None:
    assert code_revision().startswith("verl-0.9.1+")
