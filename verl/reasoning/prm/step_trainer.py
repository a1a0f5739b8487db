"""transformers' Trainer for steps: the loss at tags, evaluation by first errors, checkpoints of any of our models.

One decision: the loss is the mean over all labelled steps of a whole batch, so that how the batch is cut into micro
batches changes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from transformers import PrinterCallback, Trainer

from verl.reasoning.prm.config import PRMConfig
from verl.reasoning.prm.rows import LabelledSolution
from verl.workers.prm.batches import IGNORE, collate, encode_solution
from verl.workers.prm.encoding import Encoded
from verl.workers.prm.model import ProcessRewardModel

WEIGHTS = "model.safetensors"
BEST = "eval_early_stop"
"""What the best checkpoint is chosen by: the first-error F1, or AUROC where solutions of one kind are missing."""

Item = tuple[Encoded, list[float]]
"""A row as a model reads it, and the target of each of its places."""


def step_loss(
    logits_BS2: torch.Tensor, targets_BS: torch.Tensor, weights: tuple[float, float] = (1.0, 1.0)
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weighted sum of the cross-entropies of labelled steps, and the sum of the weights.

    Args:
        logits_BS2: of wrong and right.
        targets_BS: probability that the step is right; IGNORE where there is no label.
        weights: of wrong and of right steps; a soft label has a mixture of both.
    """
    known_BS = targets_BS != IGNORE
    targets = targets_BS[known_BS]
    both = torch.stack([1 - targets, targets], dim=-1)
    losses = functional.cross_entropy(logits_BS2[known_BS].float(), both, reduction="none")
    weighing = both @ torch.tensor(weights, device=both.device, dtype=both.dtype)
    return (weighing * losses).sum(), weighing.sum()


def class_weights(targets: Sequence[float], config: PRMConfig) -> tuple[float, float]:
    """Of wrong and right steps: the rarer one weighs more, up to `max_class_weight`; the other 1."""
    right = sum(targets)
    wrong = len(targets) - right
    if config.class_weight == "none" or not right or not wrong:
        return 1.0, 1.0
    most = config.max_class_weight
    return (min(most, right / wrong), 1.0) if wrong < right else (1.0, min(most, wrong / right))


def training_items(
    model: ProcessRewardModel, tokenizer: Any, rows: Sequence[LabelledSolution], *, truncate_after_error: bool = True
) -> list[Item]:
    """Tokens and targets; what has no label, or does not fit, is left out.

    Args:
        truncate_after_error: leave out the steps behind the first error; an implicit model reads them all.
    """
    encoder, spec = model.encoder(tokenizer), model.spec
    items: list[Item] = []
    for row in rows:
        targets = _outcome(row) if spec.implicit else row.targets
        cut = truncate_after_error and not spec.implicit and row.first_error >= 0
        steps = row.completions[: row.first_error + 1] if cut else row.completions
        parts = encode_solution(encoder, row.prompt, steps, architecture=spec.architecture, window=spec.context_window)
        for encoded, places in parts:
            if spec.implicit and encoded.truncated:
                continue
            wanted = [targets[place] for place in places]
            if any(target is not None for target in wanted):
                items.append((encoded, [IGNORE if target is None else target for target in wanted]))
    return items


def _outcome(row: LabelledSolution) -> tuple[float | None, ...]:
    """For an implicit model: nothing is known of a step, and of the last one how the solution ended."""
    right = row.correct
    if right is None:
        right = all(row.labels) if None not in row.labels or row.first_error >= 0 else None
    end = None if right is None else float(right)
    return (*[None] * (len(row.completions) - 1), end)


class StepTrainer(Trainer):
    """Trains a `ProcessRewardModel`; `PRMTrainer` is what users call."""

    def __init__(
        self,
        *,
        model: ProcessRewardModel,
        tokenizer: Any,
        items: Sequence[Item],
        args: Any,
        weights: tuple[float, float],
        measure: Callable[[], Mapping[str, float]],
        callbacks: Sequence[Any] = (),
    ) -> None:
        pad = tokenizer.pad_token_id or 0

        def batch(rows: list[Item]) -> dict[str, torch.Tensor]:
            tensors = collate([encoded for encoded, _ in rows], pad)
            targets_BS = torch.full(tensors["places"].shape, IGNORE)
            for number, (_, targets) in enumerate(rows):
                targets_BS[number, : len(targets)] = torch.tensor(targets)
            return {**tensors, "targets": targets_BS}

        super().__init__(
            model=model,
            args=args,
            data_collator=batch,
            train_dataset=list(items),  # type: ignore[arg-type]
            eval_dataset=[],  # type: ignore[arg-type]
            callbacks=list(callbacks),
        )
        self.remove_callback(PrinterCallback)
        # The loss is divided by what `get_batch_samples` counts, and by nothing else.
        self.model_accepts_loss_kwargs = True
        self._weights, self._measure = weights, measure

    def get_batch_samples(
        self, epoch_iterator: Any, num_batches: int, device: torch.device
    ) -> tuple[list[Any], torch.Tensor]:
        """The micro batches of a step, and the sum of the weights of all their labelled steps."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        total = torch.zeros(())
        for one in batches:
            targets = one["targets"][one["targets"] != IGNORE]
            total = total + ((1 - targets) * self._weights[0] + targets * self._weights[1]).sum().cpu()
        return batches, self.accelerator.gather(total.to(device)).sum() if total else total.to(device) + 1

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The part of a micro batch in the mean over the whole batch."""
        targets_BS = inputs["targets"]
        logits_BS2 = model(**{name: tensor for name, tensor in inputs.items() if name != "targets"})
        total, weight = step_loss(logits_BS2, targets_BS, self._weights)
        loss = total / (weight if num_items_in_batch is None else num_items_in_batch)
        # Each process sees its own rows, and gradients are averaged over processes.
        loss = loss * self.accelerator.num_processes
        return (loss, logits_BS2) if return_outputs else loss

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """The numbers of the validation rows."""
        numbers = {f"eval_{name}": value for name, value in self._measure().items()}
        self.log(dict(numbers))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, numbers)
        return numbers

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        from safetensors.torch import save_model

        folder = Path(output_dir or str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        # Unlike transformers' own way it copes with tensors that two layers share.
        save_model(self.accelerator.unwrap_model(self.model), str(folder / WEIGHTS))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        self._read(resume_from_checkpoint)

    def _load_best_model(self) -> None:
        assert self.state.best_model_checkpoint is not None
        self._read(self.state.best_model_checkpoint)

    def _read(self, folder: str) -> None:
        from safetensors.torch import load_model

        load_model(self.accelerator.unwrap_model(self.model), str(Path(folder) / WEIGHTS))
