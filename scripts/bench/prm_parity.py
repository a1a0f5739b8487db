"""Trains the same process reward model here and with TRL's trainer, and compares the losses step by step.

One decision: TRL 1.12.0, the last with a finished PRM trainer, runs in an environment of its own, since a newer one
breaks this project's. Both start from one folder of weights and read the same token ids.

    python scripts/bench/prm_parity.py                              # makes the environment at its first run
    python scripts/bench/prm_parity.py --python OTHER/bin/python    # an environment that has TRL 1.12.0

Ends with one line of JSON; exit code 1 where a loss differs by more than 1e-4.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path.home() / ".cache" / "classmate_cot" / "trl-1.12.0"
PINS = ("trl==1.12.0", "torch==2.13.0", "transformers>=5.10.4,<5.11", "datasets", "accelerate")
SEPARATOR = "\n"
TOLERANCE = 1e-4
STEPS, LR, SEED = 12, 3e-3, 0

ROWS = [
    {"prompt": "What is 3 + 4?", "completions": ["3 + 4 = 7.", "The answer is 7."], "labels": [True, True]},
    {
        "prompt": "What is 5 + 4 - 2?",
        "completions": ["5 + 4 = 8.", "8 - 2 = 6.", "So 6."],
        "labels": [False, False, True],
    },
    {"prompt": "What is 2 * 6?", "completions": ["2 * 6 = 12."], "labels": [True]},
    {"prompt": "What is 9 - 3?", "completions": ["9 - 3 = 5.", "5."], "labels": [False, False]},
]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", type=Path, help="interpreter of an environment with TRL 1.12.0")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside is not None:
        train_with_trl(options.inside)
        return 0
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as folder:
        python = options.python or make_environment()
        result = compare(Path(folder), python)
    for step, (ours, theirs) in enumerate(zip(result["ours"], result["trl"], strict=True), 1):
        print(f"step {step:2}  ours {ours:.6f}  TRL {theirs:.6f}  difference {abs(ours - theirs):.1e}")
    print(json.dumps({"benchmark": "prm_parity", **result}))
    return int(result["largest_difference"] > TOLERANCE)


def make_environment() -> Path:
    """The interpreter of an environment with TRL in it, which is made where there is none yet."""
    python = CACHE / "bin" / "python"
    if not (CACHE / "installed.txt").exists():
        print(f"installing TRL into {CACHE} (once)", file=sys.stderr)
        venv.create(CACHE, with_pip=True, clear=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PINS], check=True)
        (CACHE / "installed.txt").write_text("\n".join(PINS) + "\n")
    return python


def compare(folder: Path, python: Path) -> dict[str, Any]:
    """Losses of both, and how much they differ at most."""
    start = folder / "start"
    ids, ours = train_here(start)
    spec = folder / "spec.json"
    spec.write_text(
        json.dumps({"model": str(start), "output": str(folder / "trl"), "result": str(folder / "trl.json")})
    )
    # -P and no path of ours: TRL must see its own environment only.
    subprocess.run(
        [str(python), "-P", __file__, "--inside", str(spec)], check=True, env={"PYTHONPATH": "", "HOME": str(folder)}
    )
    theirs = json.loads((folder / "trl.json").read_text())
    return {
        "same_ids": ids == theirs["ids"],
        "ours": ours,
        "trl": theirs["losses"],
        "largest_difference": max(abs(a - b) for a, b in zip(ours, theirs["losses"], strict=True)),
        "trl_version": theirs["version"],
    }


def train_here(start: Path) -> tuple[list[list[int]], list[float]]:
    """Writes the weights that both start from, trains them, and returns token ids and losses."""
    from verl.data_preprocessing.embedded_models import ModelSpec, new_model
    from verl.data_preprocessing.embedded_tokenizers import train_tokenizer
    from verl.reasoning.prm.config import PRMConfig
    from verl.reasoning.prm.rows import solution_rows
    from verl.reasoning.prm.step_trainer import StepTrainer, training_items
    from verl.workers.prm.model import ProcessRewardModel

    rows = solution_rows(ROWS)
    texts = [row.prompt + SEPARATOR.join(row.completions) for row in rows]
    tokenizer = train_tokenizer("bpe", texts, 300)
    shape = ModelSpec(name="parity", tokenizer="bpe", vocab_size=300, hidden_size=32, layers=2, steps=1)
    config = PRMConfig(template="plain", step_tag=SEPARATOR, class_weight="none", seed=SEED)
    model, tokenizer = ProcessRewardModel.from_base(config, tokenizer, new_model(shape, tokenizer, SEED))
    # TRL puts no line break behind the prompt, and leaves blanks as they are.
    model.spec = model.spec.calibrated(strip=False)
    model.save(start, tokenizer)
    items = training_items(model, tokenizer, rows, truncate_after_error=False)
    trainer = StepTrainer(
        model=model,
        tokenizer=tokenizer,
        items=items,
        args=_arguments(start.parent / "ours"),
        weights=(1.0, 1.0),
        measure=dict,
    )
    trainer.train()
    return sorted(encoded.input_ids for encoded, _ in items), _losses(trainer)


def _arguments(output: Path) -> Any:
    from transformers import TrainingArguments

    return TrainingArguments(output_dir=str(output), remove_unused_columns=False, **_shared())


def _shared() -> dict[str, Any]:
    """All rows are one batch, so that their order does not matter."""
    return {
        "per_device_train_batch_size": len(ROWS),
        "max_steps": STEPS,
        "learning_rate": LR,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "dataloader_pin_memory": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "seed": SEED,
    }


def _losses(trainer: Any) -> list[float]:
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


def train_with_trl(spec_file: Path) -> None:
    """Runs in TRL's environment: trains from the same folder and writes what came out."""
    import trl
    from datasets import Dataset
    from transformers import AutoModelForTokenClassification, AutoTokenizer
    from trl.experimental.prm import PRMConfig, PRMTrainer

    spec = json.loads(spec_file.read_text())
    tokenizer = AutoTokenizer.from_pretrained(spec["model"])
    model = AutoModelForTokenClassification.from_pretrained(spec["model"])
    trainer = PRMTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(ROWS),
        args=PRMConfig(output_dir=spec["output"], step_separator=SEPARATOR, max_length=None, **_shared()),
    )
    ids = sorted(row["input_ids"] for row in trainer.train_dataset)
    trainer.train()
    result = {"ids": ids, "losses": _losses(trainer), "version": trl.__version__}
    Path(spec["result"]).write_text(json.dumps(result))


if __name__ == "__main__":
    raise SystemExit(main())
