"""The temperature and the entropy coefficient of each step, and how they reach those who use them.

One decision: the driver alone knows the schedule. It writes a step's numbers into its own config, from which upstream
hands the temperature to every pass, and tells them to whoever makes rows and to the actor's loss with each batch; no
worker counts steps. What depends on the past is in each checkpoint.

    >>> scheduled = Scheduled(trainer)
    >>> scheduled.begin(1)                        # answers of step 1, and all of their log-probs
    >>> scheduled.after(1, metrics)               # what step 2 has may depend on it
"""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from omegaconf import open_dict

from verl.stepwise.config import this_reasoning
from verl.stepwise.schedules import Hold
from verl.trainer.run.checkpoints import checkpoint_to_resume
from verl.trainer.run.state import write_atomically

FILE = "schedules.json"
"""Of a checkpoint `global_step_N`."""


class Scheduled:
    """The numbers of a run's steps. Steps are counted from 1, as trainers do."""

    def __init__(self, trainer: Any) -> None:
        """Looks up the schedules, and what the checkpoint from which the run goes on knows of them.

        Args:
            trainer: whose `total_training_steps`, `global_steps` and KL controller are used; `begin` changes its
                config in place. Its checkpoint is loaded.
        """
        self._trainer, self._config = trainer, trainer.config
        node, total_steps = this_reasoning(self._config), trainer.total_training_steps
        policy = self._config.actor_rollout_ref
        self._temperature = node.temperature.schedule(usual=policy.rollout.temperature, total_steps=total_steps)
        self._coefficient = node.entropy_coeff.schedule(usual=policy.actor.entropy_coeff, total_steps=total_steps)
        self._holds, self._controller = node.hold_temperature, node.controller
        self._hold, self._steered = Hold(), self._coefficient.at(0)
        # It changes in a run, and upstream's checkpoint forgets it.
        self.kl = getattr(trainer, "kl_ctrl_in_reward", None)
        if trainer.global_steps:
            self._load((checkpoint_to_resume(self._config.trainer) or self._checkpoint) / FILE)

    def _load(self, file: Path) -> None:
        if not file.is_file():
            return
        state = json.loads(file.read_text())
        self._hold, self._steered = Hold(held=state["held"]), state["steered"]
        if self.kl is not None and state["kl_coef"] is not None:
            self.kl.value = state["kl_coef"]

    @property
    def _checkpoint(self) -> Path:
        return Path(self._config.trainer.default_local_dir) / f"global_step_{self._trainer.global_steps}"

    def temperature(self, step: int) -> float:
        """With which the step's answers are drawn."""
        return self._hold.at(self._temperature, step - 1)

    def entropy_coeff(self, step: int) -> float:
        """Of the step's loss."""
        return self._coefficient.at(step - 1) if self._controller is None else self._steered

    def begin(self, step: int) -> None:
        """Writes the step's numbers into the driver's config."""
        with open_dict(self._config):
            self._config.actor_rollout_ref.rollout.temperature = self.temperature(step)
            # Where it is 0, upstream does not compute the entropy's gradient.
            self._config.actor_rollout_ref.actor.entropy_coeff = self.entropy_coeff(step)

    def after(self, step: int, metrics: dict[str, Any]) -> None:
        """Adds the step's numbers to its metrics, and takes from them what the next step depends on."""
        metrics["reasoning/temperature"] = self.temperature(step)
        metrics["reasoning/entropy_coeff"] = self.entropy_coeff(step)
        share = zero_variance_share(metrics)
        metrics["reasoning/zero_variance"] = share
        if self._controller is not None:
            entropy = metrics.get("actor/entropy", math.nan)
            self._steered = self._controller.after(self._steered, float(entropy))
        if self._holds:
            self._hold = self._hold.after(self._temperature, step - 1, zero_variance=share)

    def saved_before(self, save: Callable[[], None]) -> Callable[[], None]:
        """A save that puts the state into its checkpoint first, as what `save` ends with makes the whole one known."""

        def both() -> None:
            coefficient = None if self.kl is None else float(self.kl.value)
            state = {"held": self._hold.held, "steered": self._steered, "kl_coef": coefficient}
            self._checkpoint.mkdir(parents=True, exist_ok=True)
            write_atomically(self._checkpoint / FILE, json.dumps(state))
            save()

        return both


def zero_variance_share(metrics: Mapping[str, Any]) -> float:
    """Share of a step's groups whose rewards are all the same, those that dynamic sampling left out among them; NaN if
    no group has a reward."""
    evicted = float(metrics.get("training/filter_groups/evicted_samples", 0))
    groups = float(metrics.get("reasoning/groups", 0))
    constant = float(metrics.get("reasoning/constant_groups", 0))
    return (constant + evicted) / (groups + evicted) if groups + evicted else math.nan
