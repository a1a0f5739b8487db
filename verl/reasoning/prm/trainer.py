"""Trains a process reward model on labelled solutions, with transformers' Trainer.

One decision: training and validation never share a problem, and everything that is fitted (the best checkpoint, the
temperature, the threshold) is fitted on the validation rows.

    >>> trainer = PRMTrainer(PRMConfig(base_model_name="models/policy", num_epochs=3))
    >>> trainer.train(prm_data)
    >>> trainer.evaluate(test_data)["processbench_f1"]
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from transformers import EarlyStoppingCallback, TrainingArguments

from verl.classmate.errors import ConfigError
from verl.reasoning.checkpoints import newest_checkpoint
from verl.reasoning.prm.calibration import fit_temperature
from verl.reasoning.prm.config import PRMConfig
from verl.reasoning.prm.metrics import solution_metrics, step_metrics
from verl.reasoning.prm.rows import LabelledSolution, solution_rows, split_by_problem
from verl.reasoning.prm.step_trainer import BEST, StepTrainer, class_weights, training_items
from verl.stepwise.first_error import best_threshold
from verl.trainer.run.state import write_atomically
from verl.workers.prm.head_scorer import HeadScorer
from verl.workers.prm.model import ProcessRewardModel

MODEL = "model"
"""Folder of the finished model, in `output_dir`."""
RESULT = "result.json"
_FREE = ("output_dir", "progress", "num_workers", "micro_batch_size", "save_total_limit", "device")
"""Options that may change between a run and its resumption."""


class PRMTrainer:
    """Trains, evaluates, saves and loads."""

    def __init__(self, config: PRMConfig, model: Any = None, tokenizer: Any = None) -> None:
        """Loads the base model unless one is given.

        Args:
            config: all options.
            model: a `ProcessRewardModel`, the folder of one, or a model of transformers that becomes one; None:
                `config.base_model_name`.
            tokenizer: of the model; None: the one beside it.

        Raises:
            ConfigError: a model object without a tokenizer.
        """
        self.config = config
        if isinstance(model, (str, Path)):
            self.model, own = ProcessRewardModel.load(model)
            self.tokenizer = tokenizer or own
        elif model is not None and tokenizer is None:
            raise ConfigError("PRMTrainer was given a model without a tokenizer; write PRMTrainer(config, model, tok)")
        elif isinstance(model, ProcessRewardModel):
            self.model, self.tokenizer = model, tokenizer
        else:
            self.model, self.tokenizer = ProcessRewardModel.from_base(config, tokenizer, base=model)
        cuda = config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available())
        self._device = "cuda" if cuda else "cpu"
        if config.precision == "fp16" and not cuda:
            raise ConfigError("PRMConfig.precision='fp16' needs a GPU; write 'bf16' or 'fp32'")
        self.model.to(self._device)

    def train(self, train_data: Sequence[Any], val_data: Sequence[Any] | None = None) -> dict[str, Any]:
        """Trains, keeps the best checkpoint, fits temperature and threshold, and saves into `output_dir/model`.

        A run that was ended goes on from its last checkpoint; a finished one is read and not repeated.

        Args:
            train_data: what `PRMDataGenerator` makes, or rows of solutions or steps (`rows.solution_rows`).
            val_data: the same; None: a part of the problems is held out.

        Returns:
            `metrics` of the validation rows, `history` of what was logged, `steps`, `model_path`.

        Raises:
            ConfigError: there is nothing to learn from, `output_dir` holds a run of other options or rows, or
                training and validation share a problem.
        """
        train_rows = solution_rows(train_data)
        if val_data is None:
            train_rows, val_rows = split_by_problem(train_rows, self.config.validation_share, self.config.seed)
        else:
            val_rows = solution_rows(val_data)
            shared = {row.problem_id for row in train_rows} & {row.problem_id for row in val_rows}
            if shared:
                raise ConfigError(
                    f"{len(shared)} problems are in train_data and in val_data; keep all rows of a problem on one side"
                )
        done = self._open(train_rows, val_rows)
        if done is not None:
            return done
        history, steps = self._fit(train_rows, val_rows)
        self._calibrate(val_rows)
        metrics = self.evaluate(val_rows)
        folder = self.save(self.config.output_dir / MODEL)
        result = {"metrics": metrics, "history": history, "steps": steps, "model_path": str(folder)}
        write_atomically(self.config.output_dir / RESULT, json.dumps(result))
        self._forget_checkpoints()
        return result

    def evaluate(self, eval_data: Sequence[Any]) -> dict[str, Any]:
        """Numbers of labelled rows under the model's temperature and threshold (`metrics`, docs/reasoning.md).

        Returns:
            All keys of `step_metrics` and `solution_metrics`, `threshold`, `temperature`, and `n_steps`, `n_solutions`:
            labelled steps, and solutions whose first error is known.
        """
        rows = solution_rows(eval_data)
        scores = self._scorer().score_steps([row.prompt for row in rows], [row.completions for row in rows])
        spec = self.model.spec
        pairs = _labelled(scores, rows)
        known = [place for place, row in enumerate(rows) if row.first_error_known]
        return {
            **step_metrics([score for score, _ in pairs], [target for _, target in pairs], spec.threshold),
            **solution_metrics(
                [scores[place] for place in known], [rows[place].first_error for place in known], spec.threshold
            ),
            "threshold": spec.threshold,
            "temperature": spec.temperature,
            "n_steps": len(pairs),
            "n_solutions": len(known),
        }

    def save(self, path: Path | str) -> Path:
        """Writes a folder that `load`, `ProcessRewardModel.load` and transformers read."""
        return self.model.save(path, self.tokenizer)

    def load(self, path: Path | str) -> None:
        """Takes the model of a folder in place of its own.

        Raises:
            ValueError: the folder holds no process reward model.
        """
        self.model, self.tokenizer = ProcessRewardModel.load(path, device=self._device)

    def _scorer(self) -> HeadScorer:
        autocast = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[self.config.precision]
        return HeadScorer(self.model, self.tokenizer, autocast=autocast, progress=self.config.progress)

    def _open(self, train_rows: list[LabelledSolution], val_rows: list[LabelledSolution]) -> dict[str, Any] | None:
        """The result of a finished run of the same options and rows; None where there is something to do."""
        folder = self.config.output_dir
        folder.mkdir(parents=True, exist_ok=True)
        options = {key: str(value) for key, value in asdict(self.config).items() if key not in _FREE}
        rows = json.dumps([[row.as_row() for row in part] for part in (train_rows, val_rows)], default=str)
        run = {"options": options, "rows": blake2b(rows.encode(), digest_size=16).hexdigest()}
        file = folder / "run.json"
        if file.exists() and json.loads(file.read_text()) != run:
            raise ConfigError(f"{folder} holds training with other options or rows; name another output_dir")
        write_atomically(file, json.dumps(run, indent=2))
        if not (folder / RESULT).exists():
            return None
        self.load(folder / MODEL)
        self._forget_checkpoints()
        return dict(json.loads((folder / RESULT).read_text()))

    def _forget_checkpoints(self) -> None:
        for phase in ("head", "full"):
            shutil.rmtree(self.config.output_dir / phase, ignore_errors=True)

    def _fit(self, train_rows: list[LabelledSolution], val_rows: list[LabelledSolution]) -> tuple[list[Any], int]:
        items = training_items(
            self.model, self.tokenizer, train_rows, truncate_after_error=self.config.truncate_after_error
        )
        if not items:
            raise ConfigError("no training row has a labelled step that fits into max_length")
        targets = [target for _, wanted in items for target in wanted if target >= 0]
        weights = class_weights(targets, self.config)
        config, history, steps = self.config, [], 0
        phases = [("full", config.num_epochs, config.learning_rate)]
        if config.freeze_backbone_epochs:
            phases.insert(0, ("head", config.freeze_backbone_epochs, config.head_learning_rate))
        for phase, epochs, rate in phases:
            self.model.freeze_backbone(phase == "head")
            patience = config.early_stopping_patience
            trainer = StepTrainer(
                model=self.model,
                tokenizer=self.tokenizer,
                items=items,
                args=self._arguments(phase, epochs, rate, len(items)),
                weights=weights,
                measure=lambda: self._measure(val_rows),
                callbacks=[] if patience is None else [EarlyStoppingCallback(early_stopping_patience=patience)],
            )
            trainer.train(resume_from_checkpoint=newest_checkpoint(config.output_dir / phase))
            # The last line sums up the steps since the last start, so it differs after a kill.
            told = [line for line in trainer.state.log_history if "train_runtime" not in line]
            history += [{**line, "phase": phase} for line in told]
            steps += trainer.state.global_step
        return history, steps

    def _arguments(self, phase: str, epochs: float, rate: float, n_items: int) -> TrainingArguments:
        config = self.config
        per_epoch = -(-n_items // config.batch_size)
        every = max(1, round(min(1.0, epochs) * per_epoch / config.evals_per_epoch))
        return TrainingArguments(
            output_dir=str(config.output_dir / phase),
            per_device_train_batch_size=config.micro_batch_size,
            gradient_accumulation_steps=config.batch_size // config.micro_batch_size,
            num_train_epochs=epochs,
            learning_rate=rate,
            warmup_steps=config.warmup_steps,
            max_grad_norm=config.max_grad_norm,
            weight_decay=config.weight_decay,
            bf16=config.precision == "bf16",
            fp16=config.precision == "fp16",
            gradient_checkpointing=config.gradient_checkpointing,
            use_cpu=self._device == "cpu",
            eval_strategy="steps",
            eval_steps=every,
            save_strategy="steps",
            save_steps=every,
            save_total_limit=config.save_total_limit,
            load_best_model_at_end=True,
            metric_for_best_model=BEST,
            greater_is_better=True,
            logging_steps=max(1, every // 4),
            remove_unused_columns=False,
            dataloader_pin_memory=self._device == "cuda",
            report_to="none",
            disable_tqdm=not config.progress,
            seed=config.seed,
        )

    def _measure(self, rows: list[LabelledSolution]) -> dict[str, float]:
        """What an evaluation in training logs: the model as if it were calibrated now."""
        scores = self._scorer().score_steps([row.prompt for row in rows], [row.completions for row in rows])
        known = [place for place, row in enumerate(rows) if row.first_error_known]
        told, truths = [scores[place] for place in known], [rows[place].first_error for place in known]
        threshold = best_threshold(told, truths) if told else 0.5
        pairs = _labelled(scores, rows)
        numbers = {
            **step_metrics([score for score, _ in pairs], [target for _, target in pairs], threshold),
            **solution_metrics(told, truths, threshold),
        }
        chosen = [numbers["processbench_f1"], numbers["auroc"], -(numbers["brier"] or 0.0)]
        best = next(value for value in chosen if value is not None)
        return {**{name: value for name, value in numbers.items() if value is not None}, BEST[5:]: best}

    def _calibrate(self, rows: list[LabelledSolution]) -> None:
        prompts, steps = [row.prompt for row in rows], [row.completions for row in rows]
        pairs = _labelled(self._scorer().logits(prompts, steps), rows)
        temperature = fit_temperature([logit for logit, _ in pairs], [target for _, target in pairs])
        self.model.spec = self.model.spec.calibrated(temperature=temperature)
        scores = self._scorer().score_steps(prompts, steps)
        known = [place for place, row in enumerate(rows) if row.first_error_known]
        if known:
            threshold = best_threshold([scores[place] for place in known], [rows[place].first_error for place in known])
            self.model.spec = self.model.spec.calibrated(threshold=threshold)


def _labelled(scores: Sequence[Sequence[float | None]], rows: Sequence[LabelledSolution]) -> list[tuple[float, float]]:
    """Scores with the targets of labelled steps that have both."""
    return [
        (score, target)
        for told, row in zip(scores, rows, strict=True)
        for score, target in zip(told, row.targets, strict=True)
        if score is not None and target is not None
    ]
