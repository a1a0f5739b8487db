"""What a teacher's run is refused for before it starts: references that cannot follow, temperatures that bias."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from tests.workers.scripted_students import teaching_config
from verl.classmate.config import this_run
from verl.classmate.errors import ConfigError
from verl.teaching.config import this_teaching
from verl.trainer.preflight.teaching import check_teaching

MIX, ROLLOUT, ACTOR = "rcl.ref_mix.enable=true", "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
KL = f"{ACTOR}.use_kl_loss=true"
LIMIT = "rcl.protocol.max_teaching_tokens"
RLT = "rcl.reward.kind=rlt"
ASKS = "rcl.protocol.probe.author=teacher"


def check(folder: Path, *overrides: str) -> None:
    config = teaching_config(folder, f"{LIMIT}=128", *overrides)
    teaching = this_teaching(config)
    assert teaching is not None
    plain: Any = OmegaConf.to_container(config, resolve=True)
    # What is explained is checked in the rows; there are none.
    plain["data"] |= {"train_files": [], "val_files": []}
    check_teaching(plain, this_run(config), teaching)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((MIX, f"{ACTOR}.use_kl_loss=false"), r"write actor_rollout_ref\.actor\.use_kl_loss=true, or rcl\.ref_mix\.e"),
        ((MIX, KL, "actor_rollout_ref.model.lora_rank=4"), r"with adapters .*; write rcl\.ref_mix\.enable=false"),
        ((MIX, KL, "actor_rollout_ref.ref.strategy=fsdp"), r"FSDP2; write actor_rollout_ref\.actor\.strategy=fsdp2"),
        (
            (MIX, KL, f"{ACTOR}.fsdp_config.fsdp_size=2"),
            r"write actor_rollout_ref\.ref\.fsdp_config\.fsdp_size=2 \(it is -1\)",
        ),
        ((RLT, f"{ROLLOUT}.temperature=0.7", "rcl.students=[{model: m, backend: openai}]"), r"rollout\.temperature=1"),
        (
            (RLT, f"{ROLLOUT}.val_kwargs.temperature=0.7", "rcl.students=[{model: m, backend: openai}]"),
            r"val_kwargs\.temperature=0\.7 biases .*; write actor_rollout_ref\.rollout\.val_kwargs\.temperature=1",
        ),
        (
            (RLT, f"{ROLLOUT}.temperature=0.7", "rcl.reward.rlt.unbias_teacher_log_probs=false"),
            r"write unbias_teacher_log_probs=true, or actor_rollout_ref\.rollout\.temperature=1",
        ),
        ((RLT, f"{ROLLOUT}.top_p=0.95"), r"top_p=0\.95 biases .*; write actor_rollout_ref\.rollout\.top_p=1$"),
        ((RLT, f"{ROLLOUT}.top_k=20"), r"top_k=20 biases .*; write actor_rollout_ref\.rollout\.top_k=-1$"),
        (
            (RLT, f"{ROLLOUT}.val_kwargs.top_p=0.9", f"{ROLLOUT}.val_kwargs.temperature=1"),
            r"write actor_rollout_ref\.rollout\.val_kwargs\.top_p=1$",
        ),
        ((ASKS, "reward_model.classmate_schedule=batched"), r"write reward_model\.classmate_schedule=streamed"),
        ((ASKS, "rcl.unseen_students=[{model: u}]"), r"placement: dedicated into rcl\.unseen_students, or rcl\.unseen"),
        ((ASKS, "reward_model.token_level_main_reward_mode=output_only"), r"writes two; write all_tokens"),
        (
            (f"{LIMIT}=257",),
            r"max_teaching_tokens=257 promises .*write .*max_teaching_tokens=128, or .*_response_length=256",
        ),
        ((ASKS, "data.max_response_length=146"), r"at most 146 tokens.*; write 658 or more"),
    ],
)
def test_what_is_refused(tmp_path: Path, overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        check(tmp_path, *overrides)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "overrides",
    [
        (MIX, KL),
        (RLT, f"{ROLLOUT}.temperature=0.7", f"{ROLLOUT}.val_kwargs.temperature=0.5"),
        (f"{LIMIT}=256",),
        (RLT, f"{LIMIT}=512"),
        (RLT, f"{ROLLOUT}.val_kwargs.temperature=0", "rcl.reward.rlt.unbias_teacher_log_probs=false"),
        # What is written greedily is drawn of nothing.
        (RLT, f"{ROLLOUT}.val_kwargs.top_p=0.9", f"{ROLLOUT}.val_kwargs.temperature=0", f"{ROLLOUT}.top_k=-1"),
        ("rcl.reward.kind=rcl", f"{ROLLOUT}.top_p=0.9"),
        (ASKS, "rcl.unseen_students=[{model: u, backend: openai}]"),
    ],
)
def test_what_is_possible(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    check(tmp_path, "rcl.students=[{model: m, backend: hf}]", *overrides)
