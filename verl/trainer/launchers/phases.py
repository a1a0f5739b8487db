"""The phases of a teacher's life: which entry point runs each, on which primary config, and its switches.

One decision: this table is the only place that knows entry points and primary configs. A phase says which family of
keys its config has, the policy trainer's or the supervised trainer's; names that users write are mapped per family.

    >>> PHASES["rl"].module
    'verl.trainer.rcl_main_ppo'
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Family = Literal["rl", "sft"]
"""rl: keys of upstream's `ppo_trainer.yaml` and ours. sft: keys of upstream's `sft_trainer_engine.yaml`."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One phase."""

    name: str
    """As run files write it."""
    title: str
    """In messages: what is done."""
    module: str
    """Entry point, for `python -m`."""
    config: str
    """Its primary config."""
    family: Family
    """Which keys that has."""
    hardware: str = "hardware"
    """Its config group for the settings of a machine, which users call `hardware`."""
    trains: bool = True
    """Whether weights change."""
    has_students: bool = False
    """Whether frozen students are asked, which may have servers."""
    rows: str
    """What its rows are made for (`--rows` of the preparer)."""
    has_world: bool = True
    """Whether the embedded world has rows for it."""


EVALUATION = "verl.evaluation.teaching"
"""Evaluates a teacher; with a run's folder behind it, that run's."""

PHASES: Mapping[str, Phase] = {
    one.name: one
    for one in (
        Phase(
            name="teacher_sft",
            title="the teacher's supervised warm-up",
            module="verl.trainer.teacher_sft",
            config="teacher_sft_trainer",
            family="sft",
            hardware="sft_hardware",
            rows="teacher_sft",
        ),
        Phase(
            name="rl",
            title="reinforcement learning of a teacher",
            module="verl.trainer.rcl_main_ppo",
            config="rcl_trainer",
            family="rl",
            has_students=True,
            rows="teacher_rl",
        ),
        Phase(
            name="student_sft",
            title="a student's supervised training",
            module="verl.trainer.teacher_sft",
            config="teacher_sft_trainer",
            family="sft",
            hardware="sft_hardware",
            rows="student_sft",
            has_world=False,
        ),
        Phase(
            name="evaluation",
            title="the evaluation of a teacher",
            module=EVALUATION,
            config="rcl_trainer",
            family="rl",
            trains=False,
            has_students=True,
            rows="teacher_rl",
        ),
    )
}
"""By the names that run files write."""

WORDS: Mapping[Family, Mapping[str, tuple[str, ...]]] = {
    "rl": {
        "offload": (
            "actor_rollout_ref.actor.fsdp_config.param_offload=true",
            "actor_rollout_ref.actor.fsdp_config.optimizer_offload=true",
            "actor_rollout_ref.ref.fsdp_config.param_offload=true",
        ),
        "zero1": ("actor_rollout_ref.actor.fsdp_config.reshard_after_forward=false",),
    },
    "sft": {
        "offload": ("engine.param_offload=true", "engine.optimizer_offload=true"),
        "zero1": ("engine.reshard_after_forward=false",),
    },
}
"""Family -> bare word -> its overrides."""
