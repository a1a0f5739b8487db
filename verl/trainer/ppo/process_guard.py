"""The guards of rewards of steps that need more than one step of training: junk, number of steps, exploitation.

One decision: the driver alone remembers, and each checkpoint keeps what it remembers; without a process reward model
nothing here does anything.

    >>> guard = ProcessGuard(trainer)
    >>> await guard.refuse_junk(client)                    # before the first step
    >>> inputs = guard.admitted(inputs, metrics)           # in each step, before the estimator
    >>> guard.after(metrics)                               # behind it; raises where the model is being exploited

Specification of the pipeline, section 7.4; docs/reasoning_rl.md#rewards-of-steps
"""

import dataclasses
import json
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from verl.classmate.errors import ConfigError
from verl.classmate.frozen import PROCESS
from verl.classmate.process_config import NODE, ProcessRewardConfig
from verl.classmate.reply import Reply
from verl.stepwise.process_watch import ProcessWatch
from verl.trainer.ppo.advantage.base import AdvantageInputs
from verl.trainer.ppo.advantage.process_part import process_rows
from verl.trainer.run.checkpoints import checkpoint_to_resume
from verl.trainer.run.state import write_atomically

FILE = "process_guard.json"
"""Of a checkpoint `global_step_N`."""

JUNK = ("thanks", "Thank you!", "ok", "...")
"""Texts that solve nothing."""
QUESTION = "What is 17 + 25?"
"""What they are given as an answer to."""


class ProcessGuard:
    """Of one run."""

    def __init__(self, trainer: Any) -> None:
        """Looks up what the checkpoint from which the run goes on remembers.

        Args:
            trainer: its `config`, `global_steps` and `reward_config` are used. Its checkpoint is loaded.
        """
        self._trainer = trainer
        self.options: ProcessRewardConfig = trainer.reward_config.process
        self.watch = ProcessWatch()
        if trainer.global_steps and self.on:
            file = (checkpoint_to_resume(trainer.config.trainer) or self._checkpoint) / FILE
            if file.is_file():
                state = json.loads(file.read_text())
                lists = {name: tuple(state[name]) for name in ("process", "accuracy")}
                self.watch = ProcessWatch(first_steps=state["first_steps"], **lists)

    @property
    def on(self) -> bool:
        """Whether steps have rewards."""
        return self.options.model is not None

    @property
    def _checkpoint(self) -> Path:
        return Path(self._trainer.config.trainer.default_local_dir) / f"global_step_{self._trainer.global_steps}"

    async def refuse_junk(self, client: Any) -> None:
        """Refuses a model that likes texts which solve nothing.

        Args:
            client: the run's `ClassmateClient`.

        Raises:
            ConfigError: it does, or does not answer.
        """
        if not self.on or self.options.max_junk_score >= 1:
            return
        for text in JUNK:
            told = await client.score_steps(PROCESS, QUESTION, [text])
            if isinstance(told, Reply) or told[0] is None:
                reason = told.error if isinstance(told, Reply) else "it does not read a text of one word"
                raise ConfigError(f"{NODE}.model={self.options.model} judges no step ({reason}); name another")
            if told[0].score > self.options.max_junk_score:
                raise ConfigError(
                    f"{NODE}.model={self.options.model} gives the answer {text!r} {told[0].score:.2f}, more than "
                    f"{self.options.max_junk_score:g}, and would be exploited; train it with such texts as wrong "
                    f"steps, or write {NODE}.max_junk_score=1"
                )

    def admitted(self, inputs: AdvantageInputs, metrics: dict[str, Any]) -> AdvantageInputs:
        """The rows without the rewards of those that have far more or fewer steps than at first; counts them."""
        if not self.on:
            return inputs
        assert inputs.step_end_BR is not None
        assert inputs.process_reward_BR is not None
        rows_B, steps_B = process_rows(inputs), inputs.step_end_BR.sum(-1).double()
        self._remember(inputs, rows_B, steps_B)
        asked = int(inputs.main_rows_B.sum())
        metrics["reasoning/process_failed"] = 1 - int(rows_B.sum()) / asked if asked else math.nan
        bounds = self.watch.bounds(self.options.max_step_growth)
        kept_B = rows_B
        if bounds is not None:
            kept_B = rows_B & (steps_B >= bounds[0]) & (steps_B <= bounds[1])
        metrics["reasoning/process_capped"] = float((rows_B & ~kept_B).sum()) / max(1, int(rows_B.sum()))
        return dataclasses.replace(inputs, process_valid_B=kept_B)

    def _remember(self, inputs: AdvantageInputs, rows_B: torch.Tensor, steps_B: torch.Tensor) -> None:
        if not bool(rows_B.any()):
            return
        assert inputs.step_end_BR is not None
        assert inputs.process_reward_BR is not None
        ends_BR = inputs.step_end_BR[rows_B].bool()
        right_B = torch.zeros_like(rows_B) if inputs.main_correct_B is None else inputs.main_correct_B.bool()
        self.watch = self.watch.after(
            process=float(inputs.process_reward_BR[rows_B][ends_BR].double().mean()),
            accuracy=float(right_B[inputs.main_rows_B].double().mean()),
            steps=float(steps_B[rows_B].mean()),
            keep=self.options.stop_after,
        )

    def after(self, metrics: dict[str, Any]) -> None:
        """Adds what is remembered of the step to its metrics, and ends a run that exploits the model.

        Raises:
            RuntimeError: the rewards of steps have risen while accuracy has fallen.
        """
        if not self.on or not self.watch.process:
            return
        metrics["reasoning/process_reward"] = self.watch.process[-1]
        metrics["reasoning/process_accuracy"] = self.watch.accuracy[-1]
        steps = self.options.stop_after
        if self.watch.exploited(steps):
            process, accuracy = self.watch.process[-steps:], self.watch.accuracy[-steps:]
            raise RuntimeError(
                f"over {steps} steps the reward of the answers' steps rose from {process[0]:.3f} to {process[-1]:.3f} "
                f"while the share of right answers fell from {accuracy[0]:.3f} to {accuracy[-1]:.3f}: the policy "
                f"exploits {self.options.model}; go on from an earlier checkpoint with a smaller {NODE}.coef or "
                f"another model, or write {NODE}.stop_after=0"
            )

    def saved_before(self, save: Callable[[], None]) -> Callable[[], None]:
        """A save that puts the state into its checkpoint first."""

        def both() -> None:
            if self.on:
                self._checkpoint.mkdir(parents=True, exist_ok=True)
                write_atomically(self._checkpoint / FILE, json.dumps(asdict(self.watch)))
            save()

        return both
