"""Frozen self-play in a real run: the start checkpoint answers to the end, and the run ends when its files change."""

import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from tests.e2e.test_schedules import answers_of, request_of
from tests.e2e.world import MAIN, World, graded_reward, rows, settings, start, steps

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(torch.cuda.is_available(), reason="deterministic runs are refused on a GPU"),
]


def test_the_frozen_policy_keeps_its_weights_or_the_run_ends(world: World, tmp_path: Path) -> None:
    policy, folder = Path(shutil.copytree(world.policy, tmp_path / "policy")), tmp_path / "run"
    overrides = [
        f"actor_rollout_ref.model.path={policy}",
        "reward_model.classmate_model_name_or_path_list=null",
        "reward_model.classmate_cot_reward_configs.self_play=frozen",
        "trainer.deterministic=true",
        "trainer.total_training_steps=4",
        "trainer.save_freq=2",
        "trainer.val_before_train=false",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        graded_reward(tmp_path),
    ]
    with start([*MAIN, *settings(world, folder, *overrides)], log=tmp_path / "terminal.txt") as run:
        run.wait_for(lambda: (folder / "latest_checkpointed_iteration.txt").exists())
        (weights,) = policy.glob("*.safetensors")
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
        assert run.wait() == 1, run.terminal
        terminal = run.terminal
    assert "self_play=frozen" in terminal
    assert f"have changed since the run began ({weights.name})" in terminal
    assert "Traceback" not in terminal
    assert not (folder / "global_step_4").exists()

    assert sorted(steps(folder)) == [1, 2, 3, 4]
    tokenizer = AutoTokenizer.from_pretrained(world.policy)
    records = [row for row in rows(folder, 3) if row["classmates"][0]["samples"][0]["outcome"] == "ok"]
    assert records
    outputs = answers_of(world.policy, world.policy, [request_of(row, 0, tokenizer) for row in records])
    texts = [tokenizer.decode(output.token_ids, skip_special_tokens=True).strip() for output in outputs]
    said = [row["classmates"][0]["samples"][0]["text"].strip() for row in records]
    # The prompt's text as a whole may have other tokens than its parts, of which the run made it.
    assert sum(a == b for a, b in zip(said, texts, strict=True)) >= 0.9 * len(texts)
