"""Upstream's trainer for supervised training, with a run folder, a terminal and checkpoints like every other run's.

One decision: upstream's loop is used as it is. What it logs is passed on before its own loggers see it; everything else
is one of the methods that its constructor calls.

    >>> trainer = RunSFTTrainer(config, report)
    >>> trainer.fit()
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from omegaconf import DictConfig
from torch.utils.data import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from verl.classmate.errors import ConfigError
from verl.trainer import sft_trainer
from verl.trainer.sft.checkpoints import StepFolders
from verl.trainer.sft_trainer import SFTTrainer

Report = Callable[[str, Any], None]
"""What happened, and what of it: `begins` (steps done and in all), `line` (a text for the terminal), `metrics` (a step
and its numbers)."""


class RunSFTTrainer(SFTTrainer):
    """One rank of a run."""

    def __init__(self, config: DictConfig, report: Report) -> None:
        """Loads model and rows.

        Args:
            config: the settled config.
            report: called by the first rank alone.
        """
        self._report = report
        super().__init__(config)

    def _say(self, kind: str, content: Any) -> None:
        if self.rank == 0:
            self._report(kind, content)

    def _build_dataset(self) -> None:
        """Upstream's datasets; says what is in them.

        Raises:
            ConfigError: a row is longer than what the model reads.
        """
        super()._build_dataset()
        limit = getattr(self.model_config.hf_config, "max_position_embeddings", None)
        for name, dataset in (("train", self.train_dataset), ("val", self.val_dataset)):
            if dataset is not None:
                longest = getattr(dataset, "longest", 0)
                if limit is not None and longest > limit:
                    raise ConfigError(
                        f"data.{name}_files: a row has {longest} tokens, but model.path reads at most {limit}; write "
                        f"data.max_length={limit}, which leaves such rows out"
                    )
                left_out = getattr(dataset, "left_out", 0)
                longer = f", {left_out} left out, longer than {self.config.data.max_length} tokens" if left_out else ""
                self._say("line", f"rows        {len(dataset)} {name}{longer}")

    def _build_dataloader(self) -> None:
        """Upstream's loaders; the order of rows follows from the seed, and validation reads every row."""
        super()._build_dataloader()
        self.train_sampler.seed = self.config.trainer.seed
        if self.val_dataloader is not None:
            ranks = self.engine.get_data_parallel_size()
            self.val_sampler = DistributedSampler(
                self.val_dataset,
                shuffle=False,
                num_replicas=ranks,
                rank=self.engine.get_data_parallel_rank(),
                drop_last=True,
            )
            self.val_dataloader = StatefulDataLoader(
                dataset=self.val_dataset,
                batch_size=self.train_batch_size_per_dp,
                sampler=self.val_sampler,
                collate_fn=self.collate_fn,
                num_workers=0,
                drop_last=False,
            )

    def _init_engine(self) -> None:
        """Upstream's; a number of steps decides how many epochs there are, where it is set."""
        steps, batches = self.config.trainer.total_training_steps, len(self.train_dataloader)
        if batches == 0:
            data = self.config.data
            raise ConfigError(
                f"data.train_batch_size={data.train_batch_size}: only {len(self.train_dataset)} rows have at most "
                f"data.max_length={data.max_length} tokens; raise the length, or lower the batch"
            )
        if steps is not None:
            self.config.trainer.total_epochs = -(-steps // batches)
        super()._init_engine()

    def _build_ckpt_handler(self) -> None:
        trainer = self.config.trainer
        self.ckpt_handler = StepFolders(
            engine=self.engine,
            train_dataloader=self.train_dataloader,
            default_local_dir=trainer.default_local_dir,
            max_ckpt_to_keep=trainer.max_ckpt_to_keep,
            resume_mode=trainer.resume_mode,
            resume_from_path=trainer.resume_from_path,
            lora_train_meta=self._get_lora_train_meta(),
        )
        self.ckpt_handler.steps_per_epoch = self.steps_per_epoch

    def fit(self) -> None:
        """Trains to the last step, or does nothing where a run that goes on has none left."""
        self._say("begins", (self.resume_global_step, self.total_training_steps))
        if self.resume_global_step >= self.total_training_steps:
            return
        with self._heard():
            super().fit()

    @contextlib.contextmanager
    def _heard(self) -> Iterator[None]:
        """Upstream makes its loggers within `fit`, where there is no hook: `verl.trainer.sft_trainer.Tracking`."""
        say, last = self._say, [time.perf_counter()]

        class Heard(sft_trainer.Tracking):
            def log(self, data: Mapping[str, Any], step: int, backend: Any = None) -> None:
                now = time.perf_counter()
                took = {"timing_s/step": now - last[0]} if "train/loss" in data else {"timing_s/testing": now - last[0]}
                last[0] = now
                say("metrics", (step, {**data, **took}))
                super().log(data, step, backend)

        module: Any = sft_trainer
        upstream, module.Tracking = module.Tracking, Heard
        try:
            yield
        finally:
            module.Tracking = upstream
