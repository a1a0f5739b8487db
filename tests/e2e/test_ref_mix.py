"""A teacher's run whose reference follows the policy: on Ray, after a new start, and in debug mode."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.e2e.recorded import is_timed
from tests.e2e.tiny import make_tiny_world
from tests.e2e.world import finished, steps

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(torch.cuda.is_available(), reason="deterministic runs are refused on a GPU"),
]
MAIN = ("-m", "verl.trainer.rcl_main_ppo")
TEMPLATES = {
    "answer_format": "end with ####.",
    "student_baseline_template": "{question} {answer_format}",
    "student_diagnostic_template": "{question} plan in {probe_limit}.",
    "teacher_adaptive_template": {
        "system": "<thinking></thinking><teaching></teaching> {teaching_limit}",
        "user": "{question} plan: {approach}",
    },
    "student_with_teaching_template": "{question} <advice>{teaching}</advice> {answer_format}",
}


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A random teacher, which a bonus for entropy moves, and a random student."""
    folder = tmp_path_factory.mktemp("models")
    world = make_tiny_world(folder / "teacher", context=1024)
    student = make_tiny_world(folder / "student", seed=1, context=1024).model
    (folder / "templates.yaml").write_text(yaml.safe_dump(TEMPLATES))
    return [
        "hardware=cpu",
        f"actor_rollout_ref.model.path={world.model}",
        f"rcl.students=[{{model: {student}}}]",
        f"rcl.templates_file={folder / 'templates.yaml'}",
        f"data.train_files={world.train_file}",
        f"data.val_files={world.train_file}",
        "data.max_prompt_length=256",
        "data.max_response_length=48",
        "data.train_batch_size=4",
        "actor_rollout_ref.rollout.n=4",
        "reward_model.classmate_generation_configs.max_new_tokens=16",
        "rcl.protocol.max_probe_tokens=8",
        "rcl.protocol.max_teaching_tokens=40",
        "rcl.protocol.baseline_samples=2",
        "actor_rollout_ref.actor.use_kl_loss=true",
        "actor_rollout_ref.actor.entropy_coeff=0.5",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        "trainer.total_training_steps=3",
        "trainer.save_freq=2",
        "trainer.test_freq=-1",
        "trainer.val_before_train=false",
        "trainer.deterministic=true",
        "rcl.ref_mix.enable=true",
        "rcl.ref_mix.every=2",
    ]


def numbers(folder: Path, step: int, others: Path) -> dict[str, Any]:
    """What does not depend on time, of the metrics that both runs have."""
    mine, theirs = steps(folder)[step], steps(others)[step]
    return {key: value for key, value in mine.items() if key in theirs and not is_timed(key)}


def reference(folder: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(folder / f"global_step_{step}" / "reference" / "model_world_size_1_rank_0.safetensors")


def until(folder: Path, made: Path, step: int) -> Path:
    """A run that was killed behind the save of `step`."""
    shutil.copytree(folder, made, ignore=shutil.ignore_patterns(f"global_step_{step + 1}"))
    (made / "latest_checkpointed_iteration.txt").write_text(str(step))
    state = json.loads((made / "run.json").read_text())
    (made / "run.json").write_text(json.dumps({**state, "state": "running", "pid": 0}))
    lines = (made / "metrics.jsonl").read_text().splitlines(keepends=True)
    (made / "metrics.jsonl").write_text("".join(line for line in lines if json.loads(line)["step"] <= step))
    return made


def test_a_copy_of_the_policy_costs_nothing_in_the_next_step(common: list[str], tmp_path: Path) -> None:
    whole, debug = tmp_path / "whole", tmp_path / "debug"
    given = [*MAIN, *common, "rcl.ref_mix.alpha=1.0"]
    finished([*given, f"trainer.default_local_dir={whole}"], log=tmp_path / "whole.txt")
    kl = [steps(whole)[step]["actor/kl_loss"] for step in (1, 2, 3)]
    assert (kl[0], kl[2]) == (0, 0)
    assert kl[1] > 0.01
    policy = load_file(whole / "global_step_2" / "actor" / "huggingface" / "model.safetensors")
    assert all(torch.equal(weight, policy[name]) for name, weight in reference(whole, 2).items())

    finished([*given, f"trainer.default_local_dir={debug}", "debug=true"], log=tmp_path / "debug.txt")
    resumed = until(whole, tmp_path / "resumed", 2)
    terminal = finished([*given, f"trainer.default_local_dir={resumed}"], log=tmp_path / "resumed.txt")
    assert "(resumes at step 2)" in terminal
    for step in (1, 2, 3):
        assert numbers(debug, step, whole) == numbers(whole, step, debug)
    assert numbers(resumed, 3, whole) == numbers(whole, 3, resumed)
    for other in (debug, resumed):
        assert all(torch.equal(weight, reference(other, 3)[name]) for name, weight in reference(whole, 3).items())


def test_a_half_way_reference_is_the_same_after_resume(common: list[str], tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    given = [*MAIN, *common, "rcl.ref_mix.alpha=0.5", "debug=true"]
    finished([*given, f"trainer.default_local_dir={whole}"], log=tmp_path / "whole.txt")
    (model,) = (one.partition("=")[2] for one in common if one.startswith("actor_rollout_ref.model.path"))
    start = load_file(Path(model) / "model.safetensors")
    policy = load_file(whole / "global_step_2" / "actor" / "huggingface" / "model.safetensors")
    for name, weight in reference(whole, 2).items():
        torch.testing.assert_close(weight, (start[name] + policy[name]) / 2)
    resumed = until(whole, tmp_path / "resumed", 2)
    finished([*given, f"trainer.default_local_dir={resumed}"], log=tmp_path / "resumed.txt")
    assert steps(whole)[3]["actor/kl_loss"] > 0.001
    assert numbers(resumed, 3, whole) == numbers(whole, 3, resumed)

    off = [one for one in given if not one.startswith("rcl.ref_mix.enable")]
    again = until(whole, tmp_path / "again", 2)
    with pytest.raises(AssertionError, match=r"error: .*write rcl\.ref_mix\.enable=true"):
        finished([*off, f"trainer.default_local_dir={again}"], log=tmp_path / "again.txt")
