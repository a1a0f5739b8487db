"""Upstream's own `main_ppo` trains on the CPU with the overrides of docs/upstream_on_cpu.md, with both engines."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.e2e.tiny import TinyWorld, make_tiny_world
from verl.trainer.fork.server import ForkServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2500),
    pytest.mark.skipif(torch.cuda.is_available(), reason="the overrides are those of a machine without an accelerator"),
]
DOC = Path(__file__).parents[2] / "docs" / "upstream_on_cpu.md"


def documented(name: str) -> str:
    """The bash block of the document that follows the comment `<!-- name: ... -->`."""
    found = re.search(rf"<!-- {name}: [^>]*-->\n```bash\n(.*?)```", DOC.read_text(), flags=re.DOTALL)
    assert found, f"no block {name} in {DOC.name}"
    return found.group(1).rstrip()


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training of the tiny policy in its own folder."""

    folder: Path
    """Where it runs and writes."""
    metrics: list[dict[str, Any]]
    """One entry per step of this start."""


def train(world: TinyWorld, folder: Path, engine: str, ranks: int, steps: int, *more: str) -> Run:
    """Runs the documented command in `folder` up to `steps`, saving at the end; a second call resumes."""
    folder.mkdir(exist_ok=True)
    overrides = [
        f"reward.custom_reward_function.path={world.reward_file}",
        f"trainer.total_training_steps={steps}",
        f"trainer.save_freq={steps}",
        "trainer.total_epochs=100",
        f"trainer.default_local_dir={folder / 'checkpoints'}",
        f"trainer.rollout_data_dir={folder / 'rollouts'}",
        *more,
    ]
    metrics = folder / f"metrics_to_{steps}.jsonl"
    command = " \\\n".join([documented("command"), documented("reference"), *overrides])
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "MODEL": str(world.model),
        "TRAIN_FILE": str(world.train_file),
        "VAL_FILE": str(world.train_file),
        "ENGINE": engine,
        "RANKS": str(ranks),
        "VERL_FILE_LOGGER_PATH": str(metrics),
    }
    with (folder / "log").open("w") as log:
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, stdout=log, stderr=log, timeout=1200)
    assert done.returncode == 0, (folder / "log").read_text()[-5000:]
    return Run(folder=folder, metrics=[json.loads(line)["data"] for line in metrics.read_text().splitlines()])


def assert_rollout_follows_the_trainer(run: Run) -> None:
    """The engine samples from the trainer's current weights, which have moved far from the first ones."""
    assert max(step["training/rollout_probs_diff_max"] for step in run.metrics) < 1e-3
    assert min(step["training/rollout_actor_probs_pearson_corr"] for step in run.metrics) > 0.999
    assert run.metrics[-1]["critic/score/mean"] > run.metrics[0]["critic/score/mean"] + 0.3
    assert run.metrics[-1]["actor/kl_loss"] > 0.1, "the reference model stayed where the policy started"


@pytest.mark.long
def test_vllm_learns_and_stays_in_sync(tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    world = make_tiny_world(tmp_path)
    assert_rollout_follows_the_trainer(train(world, tmp_path / "run", engine="vllm", ranks=1, steps=6))


@pytest.fixture
def fork_override() -> Iterator[str]:
    """Lets Ray fork its workers, as our own entry points do: two starts on two ranks take half of the time."""
    server = ForkServer.start(env_vars={"OMP_NUM_THREADS": "1", "TQ_NUM_THREADS": "1"})
    # Quoted for Hydra, whose strings escape nothing but quotes, and once more for the shell.
    yield shlex.quote(f"+ray_kwargs.ray_init.runtime_env.py_executable={json.dumps(server.py_executable)}")
    server.close()


@pytest.mark.long
def test_hf_on_two_ranks_learns_saves_resumes_and_merges(tmp_path: Path, fork_override: str) -> None:
    world = make_tiny_world(tmp_path)
    first = train(world, tmp_path / "run", "hf", 2, 6, fork_override)
    assert_rollout_follows_the_trainer(first)

    resumed = train(world, tmp_path / "run", "hf", 2, 7, fork_override)
    assert [step["training/global_step"] for step in resumed.metrics] == [7]
    assert resumed.metrics[0]["critic/score/mean"] > first.metrics[-1]["critic/score/mean"] - 0.2, "training began anew"

    actor = tmp_path / "run" / "checkpoints" / "global_step_7" / "actor"
    merged = tmp_path / "merged"
    merge = ["merge", "--backend", "fsdp", "--local_dir", str(actor), "--target_dir", str(merged)]
    done = subprocess.run([sys.executable, "-m", "verl.model_merger", *merge], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert_merged_weights_are_the_trained_ones(merged, actor, ranks=2)


def assert_merged_weights_are_the_trained_ones(merged: Path, actor: Path, ranks: int) -> None:
    """The model folder holds what the ranks had in memory, rounded to bf16 as upstream writes it."""
    from transformers import AutoModelForCausalLM

    shards = [
        torch.load(actor / f"model_world_size_{ranks}_rank_{rank}.pt", weights_only=False) for rank in range(ranks)
    ]
    model = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.bfloat16)
    for name, parameter in model.named_parameters():
        trained = torch.cat([shard[name].to_local() for shard in shards])
        assert torch.equal(parameter, trained.bfloat16()), name
