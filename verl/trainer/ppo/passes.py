"""Which passes a step has, and where its rows are read: what follows from the config and is the same in every step.

Decision: both trainers ask here, so that `debug=true` leaves out what the run on Ray leaves out.

    >>> passes = Passes(config, run)
    >>> passes.reads_later[False], passes.reads_beside
    ((), True)
"""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig

from verl.classmate.config import RunConfig
from verl.trainer.ppo.one_update import drops_out, needs_old_log_probs
from verl.trainer.ppo.utils import need_reference_policy
from verl.utils.skip import SkipManager
from verl.workers.classmates.placement import read_beside_log_probs, resolved_schedule, taking_turns


class Passes:
    """Looked up when first asked for; the models' configs are read then."""

    def __init__(self, config: DictConfig, run: RunConfig) -> None:
        """
        Args:
            config: of the run; of it only upstream's keys are read.
            run: its typed view.
        """
        self._config = config
        self._run = run

    @functools.cached_property
    def reads_later(self) -> dict[bool, tuple[str, ...]]:
        """For training (False) and validation (True) rows: names of the models that the trainer has read a whole batch
        while the policy sleeps. Where there are any, the trainer scores the rows too, and not who makes them."""
        reward, schedule = self._run.reward, resolved_schedule(self._config, self._run.reward)
        return {
            validate: tuple(sorted(taking_turns(reward, schedule, validate=validate))) for validate in (False, True)
        }

    @functools.cached_property
    def reads_beside(self) -> bool:
        """Whether training rows are read while log-probs of the policy or the reference are computed, if any are."""
        rows = self._config.data.train_batch_size * self._config.actor_rollout_ref.rollout.n
        computed = need_reference_policy(self._config) or self._needs_old_log_probs(rows)
        if not self._run.trains_with_classmates or not computed:
            return False
        return read_beside_log_probs(self._config, self._run.reward, estimator=self._run.algorithm.adv_estimator)

    @property
    def scored_later(self) -> bool:
        """Whether some rows come without a reward from where they are made. Upstream's reward workers would score
        them, and so must not be known there."""
        return self.reads_beside or bool(self.reads_later[True])

    def needs_old_log_probs(self, rows: int, *, step: int) -> bool:
        """Whether a batch of so many rows, padding included, needs a pass for `old_log_probs` before its update."""
        is_trained = self._config.trainer.critic_warmup <= step
        return not is_trained or self._needs_old_log_probs(rows)

    def _needs_old_log_probs(self, rows: int) -> bool:
        reward, algorithm = self._run.reward, self._run.algorithm
        return needs_old_log_probs(self._config, reward, algorithm, rows=rows, dropout=self._drops_out)

    @functools.cached_property
    def _drops_out(self) -> bool:
        return drops_out(self._config.actor_rollout_ref.model)


def goes_straight_on(config: DictConfig, step: int, total_steps: int) -> bool:
    """Whether nothing but writing this step down comes before the next one."""
    validates = config.trainer.test_freq > 0 and step % config.trainer.test_freq == 0
    # A profile of some steps begins with a step, and would miss what is under way by then.
    return not (validates or step >= total_steps or config.global_profiler.steps)


@contextlib.contextmanager
def as_of_next_step(trainer: Any) -> Iterator[None]:
    """Prompts that are handed out in the block belong to the step after `trainer.global_steps`."""
    trainer.global_steps += 1
    SkipManager.set_step(trainer.global_steps)
    try:
        yield
    finally:
        trainer.global_steps -= 1
        SkipManager.set_step(trainer.global_steps)
