"""Fine-tuning by verl's trainer (`verl.trainer.teacher_sft`), in processes of its own, on all GPUs.

One decision: it is started as a user would start it, in a run folder of its own, so that it resumes as every run does;
the model's files are then linked into the folder that was asked for.

    >>> train("models/base", pairs, Path("out/rft"), FineTuneSettings(backend="verl"))
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl.data_preprocessing.common import write_parquet
from verl.reasoning.sft.chat import chat_tokenizer, encode_all
from verl.reasoning.sft.settings import FineTuneSettings, precision_of
from verl.trainer.hosting.servers import ending_with_this_process
from verl.trainer.run.state import is_finished

_DTYPES = {"fp32": ("fp32", "float32"), "bf16": ("bf16", "bfloat16")}


def train(
    model_path: str, pairs: Sequence[tuple[str, str]], folder: Path, settings: FineTuneSettings
) -> dict[str, Any]:
    """Trains, or goes on with the run in `folder/run`; links model and tokenizer into `folder`; returns numbers."""
    tokenizer, run, file = chat_tokenizer(model_path), folder / "run", folder / "rows.parquet"
    rows, left_out = encode_all(tokenizer, pairs, max_length=settings.max_length)
    if not file.exists():
        partial = file.with_name("rows.partial")
        chats = [
            {"messages": [{"role": "user", "content": problem}, {"role": "assistant", "content": answer}]}
            for problem, answer in pairs
        ]
        write_parquet(chats, partial)
        partial.replace(file)
    start = _with_template(model_path, tokenizer, folder)
    if not is_finished(run):
        command = [sys.executable, "-m", "verl.trainer.teacher_sft", *overrides(start, file, run, len(rows), settings)]
        start_and_wait(command, folder / "training.log")
    for found in run.iterdir():
        if _is_models(found.name):
            _link(found, folder / found.name)
    tokenizer.save_pretrained(folder)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = {line["step"]: line["train/loss"] for line in lines if "train/loss" in line}
    return {
        "rows": len(rows),
        "left_out": left_out,
        "steps": max(losses, default=0),
        "tokens": None,
        "losses": [losses[step] for step in sorted(losses)],
    }


def overrides(
    model: str | Path, file: Path, run: Path, rows: int, settings: FineTuneSettings, ranks: int | None = None
) -> list[str]:
    """The command line's settings; `ranks`: processes, None for all GPUs."""
    device, batch = settings.on(), min(settings.batch_size, rows)
    memory, compute = _DTYPES[precision_of(settings.precision, device)]
    said = {
        "hardware": "gpu" if device == "cuda" else "cpu",
        "model.path": model,
        "model.enable_gradient_checkpointing": str(settings.gradient_checkpointing).lower(),
        "data.train_files": file,
        "data.train_batch_size": batch,
        "data.max_length": settings.max_length,
        "data.max_token_len_per_gpu": settings.tokens_at_once or settings.max_length,
        "optim.lr": settings.learning_rate,
        "optim.min_lr_ratio": settings.min_lr_ratio,
        "optim.lr_warmup_steps_ratio": settings.warmup_ratio,
        "optim.weight_decay": settings.weight_decay,
        "optim.clip_grad": settings.max_grad_norm,
        "engine.dtype": compute,
        "++engine.mixed_precision": f"{{param_dtype: {memory}, reduce_dtype: fp32, buffer_dtype: fp32}}",
        "trainer.total_epochs": settings.epochs,
        "trainer.save_freq": settings.save_every or "after_each_epoch",
        "trainer.seed": settings.seed,
        "trainer.default_local_dir": run,
        "trainer.console": "plain",
    }
    if ranks is not None:
        said["trainer.n_gpus_per_node"] = ranks
    return [f"{key}={value}" for key, value in said.items()]


def start_and_wait(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
    """Runs a command to its end; it ends when this process is gone.

    Args:
        command: program and arguments.
        log: what it says is appended there.
        environment: variables beside those of this process.

    Raises:
        RuntimeError: it failed; with its last line.
        KeyboardInterrupt: this process was stopped, and with it the command.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as sink:
        child = subprocess.Popen(
            ending_with_this_process(command),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )
        try:
            code = child.wait()
        except BaseException:
            child.terminate()
            child.wait()
            raise
    if code != 0:
        said = log.read_text(errors="replace").strip().splitlines()
        reason = said[-1].removeprefix("error: ") if said else f"exit code {code}"
        raise RuntimeError(f"{reason} (log: {log})")


def _is_models(name: str) -> bool:
    """Weights and config; a tokenizer's files are written anew, and must not be written through a link."""
    return name.endswith((".safetensors", ".bin", ".index.json")) or name in ("config.json", "generation_config.json")


def _with_template(model_path: str, tokenizer: Any, folder: Path) -> str:
    """The model, or a folder of links to it whose tokenizer has the chat template that it lacks."""
    from transformers import AutoTokenizer

    own: Any = AutoTokenizer.from_pretrained(model_path)
    if getattr(own, "chat_template", None) and own.pad_token_id is not None:
        return model_path
    from huggingface_hub import snapshot_download

    source = Path(model_path) if Path(model_path).is_dir() else Path(snapshot_download(model_path))
    start = folder / "start"
    start.mkdir(exist_ok=True)
    for file in source.iterdir():
        if file.is_file() and _is_models(file.name):
            _link(file.resolve(), start / file.name)
    tokenizer.save_pretrained(start)
    return str(start)


def _link(source: Path, target: Path) -> None:
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    try:
        os.link(source, partial)
    except OSError:
        # A file system without hard links, or another one.
        shutil.copy2(source, partial)
    partial.replace(target)
