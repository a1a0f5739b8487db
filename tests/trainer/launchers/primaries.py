"""Primary configs for tests of launchers: the real ones, and a stand-in for one that is not there yet.

>>> with_primaries(tmp_path, monkeypatch)
"""

from pathlib import Path

import pytest

from verl.trainer.launchers.phases import PHASES
from verl.trainer.run import command_line

_FOOT = """
  - override hydra/job_logging: none
  - override hydra/hydra_logging: none
  - _self_

hydra:
  searchpath: [pkg://verl.trainer.config]
"""

STAND_INS = {
    "rcl_trainer": """
defaults:
  - ppo_trainer
  - _run_base
  - _classmate_base
  - hardware: gpu
"""
    + _FOOT
    + """
reward_model:
  classmates: ${rcl.students}
  evaluation_classmates: ${rcl.unseen_students}

rcl:
  students: []
  unseen_students: []
  templates_file: null
  reward:
    kind: rcl
    preset: rcl_readme
    degradation_penalty: null
    efficiency_weight: null
    rlt:
      preset: rlt
  protocol:
    max_probe_tokens: 50
    max_teaching_tokens: 512
    baseline_samples: 8
    guided_samples: 1
    val_baseline_samples: 16
    val_guided_samples: 4
  ref_mix:
    enable: false
    alpha: 0.9
    every: 32

trainer:
  experiment_name: rcl_teacher
""",
    "teacher_sft_trainer": """
defaults:
  - sft_trainer_engine
  - hardware: gpu
"""
    + _FOOT,
}
"""Name -> YAML, as far as launchers read it."""


def with_primaries(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes composing find every phase's primary config."""
    missing = [name for name in STAND_INS if not (command_line.CONFIG_FOLDER / f"{name}.yaml").exists()]
    assert {phase.config for phase in PHASES.values()} <= STAND_INS.keys()
    if not missing:
        return
    shown = folder / "primaries"
    shown.mkdir()
    for path in command_line.CONFIG_FOLDER.iterdir():
        if path.suffix == ".yaml" or path.name == "hardware":
            (shown / path.name).symlink_to(path)
    for name in missing:
        (shown / f"{name}.yaml").write_text(STAND_INS[name])
    monkeypatch.setattr(command_line, "CONFIG_FOLDER", shown)
