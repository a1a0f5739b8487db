"""Keeps the teachings of a run's training steps, for the training of students (`rcl.collect.enable=true`).

One decision: a step is a file, written whole by the one process that sees all of its rows. What a resumed run does
again it first forgets, as it does the step's dump; so no step is there twice, wherever a run was killed.

    >>> collector = TeachingCollector.of_run(config, run)             # None: nothing is collected
    >>> collector.keep(3, records)                                    # RUN/teachings/step_3.jsonl
"""

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from verl.classmate.record import RowRecord
from verl.teaching.baseline_cache import Baseline, BaselineCache
from verl.teaching.collected import rows_of
from verl.teaching.config import TeachingConfig, this_teaching
from verl.teaching.held_out import held_out_hashes, is_held_out
from verl.teaching.shards import collection_id, keep_templates
from verl.trainer.ppo.start_up import OpenRun
from verl.trainer.preflight.data import data_files


class TeachingCollector:
    """Writes the teachings of steps, one after the other."""

    def __init__(self, run: OpenRun, teaching: TeachingConfig, *, temperature: float, held_out: frozenset[str]) -> None:
        """Makes the folder, with its id and the run's prompts.

        Args:
            run: that is trained.
            teaching: its typed node `rcl`.
            temperature: of the teacher.
            held_out: hashes of the questions that are never kept.
        """
        self._run = run
        self._temperature = temperature
        self._held_out = held_out
        self._told = False
        folder = run.folder.teachings_path(0).parent
        self._id = collection_id(folder)
        self._template_hash = keep_templates(folder, teaching.templates)
        cache = teaching.cache_file(run.folder.path)
        self._cache = None if cache is None else BaselineCache(cache)

    @classmethod
    def of_run(cls, config: DictConfig, run: OpenRun) -> "TeachingCollector | None":
        """That of a run; None where it collects nothing.

        Args:
            config: of the run, settled.
            run: the same, opened.

        Raises:
            ConfigError: a file of held-out questions that cannot be read.
        """
        teaching = this_teaching(config)
        if teaching is None or not teaching.collect.enable:
            return None
        validation = data_files(config.data, "val_files")
        here = [name for name in validation if Path(name).expanduser().is_file()]
        for name in sorted(set(validation) - set(here)):
            run.console.line(
                f"teachings   {name} is not on this machine: its questions are collected if they are trained on; "
                "name a copy in rcl.collect.exclude_files",
                loud=True,
            )
        held_out = held_out_hashes([*here, *teaching.collect.exclude_files])
        return cls(run, teaching, temperature=float(config.actor_rollout_ref.rollout.temperature), held_out=held_out)

    def keep(self, step: int, records: Sequence[RowRecord]) -> None:
        """Writes the teachings of a step, unless they are there.

        Args:
            step: global step.
            records: of its rows.
        """
        if self._run.folder.teachings_path(step).exists():
            return
        known: dict[str, Baseline | None] = {}

        def stored(key: str) -> Baseline | None:
            # All rows of a group share one.
            if key not in known:
                known[key] = None if self._cache is None else self._cache.stored(key)
            return known[key]

        wanted = [record for record in records if not is_held_out(record.answer.task, self._held_out)]
        if len(wanted) < len(records) and not self._told:
            self._told = True
            self._run.console.line(
                f"teachings   {len(records) - len(wanted)} of {len(records)} rows of step {step} are of held-out "
                "questions and are not collected"
            )
        rows = [
            row
            for record in wanted
            for row in rows_of(
                record,
                run=self._id,
                teacher=f"{self._id}@{step - 1}",
                seed=self._run.reward.seed,
                template_hash=self._template_hash,
                temperature=self._temperature,
                baselines=stored,
            )
        ]
        self._run.folder.keep_teachings(step, (row.to_json() for row in rows))
