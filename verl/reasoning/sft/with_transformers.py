"""Fine-tuning by `transformers.Trainer`, in this process, on one device.

One decision: the order of all rows of all epochs is made before, from the seed, and the trainer goes through it once.
So a step holds the rows that it would hold in a run that was never stopped.

    >>> train("models/base", pairs, Path("out/rft"), FineTuneSettings(backend="transformers"))
"""

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl.reasoning.checkpoints import newest_checkpoint
from verl.reasoning.sft.chat import Row, chat_tokenizer, collate, encode_all
from verl.reasoning.sft.settings import FineTuneSettings, precision_of


def train(
    model_path: str, pairs: Sequence[tuple[str, str]], folder: Path, settings: FineTuneSettings
) -> dict[str, Any]:
    """Trains, or goes on at the last checkpoint in `folder`; writes model and tokenizer there; returns numbers."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = chat_tokenizer(model_path)
    rows, left_out = encode_all(tokenizer, pairs, max_length=settings.max_length)
    batch = min(settings.batch_size, len(rows))
    order = epochs_of(len(rows), batch=batch, epochs=settings.epochs, seed=settings.seed)
    model: Any = AutoModelForCausalLM.from_pretrained(model_path, dtype="float32")
    trainer = _trainer(model, [rows[place] for place in order], tokenizer.pad_token_id, folder, batch, settings)
    trainer.train(resume_from_checkpoint=newest_checkpoint(folder / "checkpoints"))
    model.config.use_cache = True
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return {
        "rows": len(rows),
        "left_out": left_out,
        "steps": trainer.state.global_step,
        "tokens": sum(rows[place].learnt for place in order),
        "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
    }


def epochs_of(rows: int, *, batch: int, epochs: int, seed: int) -> list[int]:
    """Places of the rows in the order in which they are trained on; each epoch is shuffled, and cut to whole steps."""
    order: list[int] = []
    for epoch in range(epochs):
        places = list(range(rows))
        random.Random(f"{seed}/{epoch}").shuffle(places)
        order += places[: rows // batch * batch]
    return order


def _trainer(model: Any, rows: Sequence[Row], pad_id: int, folder: Path, batch: int, settings: FineTuneSettings) -> Any:
    from torch.utils.data import SequentialSampler
    from transformers import PrinterCallback, ProgressCallback, Trainer, TrainingArguments

    class InOrder(Trainer):
        """The order is that of the rows."""

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return SequentialSampler(self.train_dataset)  # type: ignore[arg-type]

        def get_decay_parameter_names(self, model: Any) -> list[str]:
            return [name for name, _ in model.named_parameters()]

    micro = max(size for size in range(1, min(settings.micro_batch_size, batch) + 1) if batch % size == 0)
    steps, precision = len(rows) // batch, precision_of(settings.precision, settings.on())
    arguments = TrainingArguments(
        output_dir=str(folder / "checkpoints"),
        num_train_epochs=1,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=batch // micro,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr_rate": settings.min_lr_ratio},
        warmup_steps=int(settings.warmup_ratio * steps),
        weight_decay=settings.weight_decay,
        adam_beta2=0.95,
        max_grad_norm=settings.max_grad_norm,
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        gradient_checkpointing=settings.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False} if settings.gradient_checkpointing else None,
        save_strategy="steps",
        save_steps=settings.save_every or max(1, steps // settings.epochs),
        save_total_limit=2,
        logging_strategy="steps",
        logging_steps=1,
        report_to="none",
        use_cpu=settings.on() == "cpu",
        dataloader_num_workers=0,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        seed=settings.seed,
        disable_tqdm=not sys.stderr.isatty(),
    )
    trainer = InOrder(
        model=model,
        args=arguments,
        train_dataset=list(rows),  # type: ignore[arg-type]
        data_collator=lambda some: collate(some, pad_id=pad_id),
    )
    trainer.remove_callback(ProgressCallback)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(_bar())
    return trainer


def _bar() -> Any:
    from transformers import ProgressCallback

    class Bar(ProgressCallback):
        """Shows the loss in the bar instead of a line a step."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
            if self.training_bar is not None and "loss" in (logs or {}):
                self.training_bar.set_postfix(loss=f"{float(logs['loss']):.3f}")

    return Bar
