"""A stand-in for a trainer, with what `Scheduled` looks at.

>>> trainer_with({"temperature": {"kind": "exp", "start": 1.2, "end": 0.3}}).temperature(1)
1.2
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from omegaconf import OmegaConf

from verl.trainer.ppo.scheduled import Scheduled


def trainer_with(
    node: dict[str, Any] | None = None, *, folder: Path = Path("run"), step: int = 0, kl: float | None = None
) -> Scheduled:
    """The schedules of a run of 10 steps, which goes on at `step`; `kl` is the coefficient of its controller."""
    config = OmegaConf.create(
        {
            "reasoning": node or {},
            "actor_rollout_ref": {"rollout": {"temperature": 1.0}, "actor": {"entropy_coeff": 0.0}},
            "trainer": {
                "default_local_dir": str(folder),
                "resume_mode": "auto",
                "resume_from_path": None,
                "default_hdfs_dir": None,
            },
        }
    )
    trainer = SimpleNamespace(config=config, total_training_steps=10, global_steps=step)
    if kl is not None:
        trainer.kl_ctrl_in_reward = SimpleNamespace(value=kl)
    return Scheduled(trainer)
