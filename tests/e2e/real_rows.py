"""Real rows on their way through warm-up formatting and teachers' runs, with tiny models.

One decision: tokenizers are trained on the rows' own texts, so that a text has about as many tokens as with a real
model; the teacher is shown the tags, and the students answers of other rows, so that rewards differ.

>>> world = make_real_world(tmp_path, "gsm8k", ROWS / "gsm8k.jsonl", kind="rcl")
>>> run = watched([*world.overrides, f"trainer.default_local_dir={tmp_path / 'run'}"])
"""

import random
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from transformers import Qwen3ForCausalLM

from tests.e2e.taught_models import Shown, teach
from tests.tiny_qwen3 import tiny_qwen3
from verl.data_preprocessing.embedded_tokenizers import train_tokenizer
from verl.data_preprocessing.teaching_rows import main
from verl.teaching.templates import Templates

ROWS = Path(__file__).resolve().parents[1] / "data"
"""A few rows of each set."""
SAID = (
    "<thinking>Hm.</thinking><teaching>Read it once more.</teaching>",
    "<teaching>Add.</teaching>",
    "<teaching></teaching>",
    "Add.",
)
"""What the teacher of RCL is shown to write: advice, advice, none, and a broken contract."""


@dataclass(frozen=True, kw_only=True)
class RealWorld:
    """Rows and models in a folder."""

    overrides: list[str]
    """Of a run, all but its folder."""
    rows: list[dict[str, Any]]
    """Those for RL."""
    student: Path
    """Of one of the two."""


def prepared(folder: Path, format_: str, source: Path, *more: str) -> list[dict[str, Any]]:
    """Rows that the command makes of a file, none held out."""
    arguments = ["--format", format_, "--dataset", str(source), "--output_dir", str(folder), "--test_rows", "0", *more]
    main([*arguments, "--split_order", "file"])
    found: list[dict[str, Any]] = pq.read_table(folder / "train.parquet").to_pylist()
    return found


def make_real_world(folder: Path, format_: str, source: Path, *, kind: str, prompts: int = 4) -> RealWorld:
    """Two students with vocabularies of their own, one of which is the teacher's.

    Args:
        folder: gets everything.
        format_: of the file, as `--format` names it.
        source: the file.
        kind: `rcl` or `rlt`.
        prompts: of a step.
    """
    rows = prepared(folder / "rl", format_, source, "--rows", "teacher_rl", "--kind", kind)
    texts = [row["prompt"][0]["content"] for row in rows] + [row["extra_info"]["solution"] or "" for row in rows]
    texts += [turn["content"] for turn in Templates().adaptive("?", None, teaching_limit=48)] + [*SAID]
    for name, size, seed in (("teacher", 1000, 0), ("one", 1000, 1), ("two", 600, 2)):
        _save_model(folder / name, texts, size=size, seed=seed)
    if kind == "rcl":
        teach(folder / "teacher", partial(_tags, rows), steps=150)
        for name in ("one", "two"):
            teach(folder / name, partial(_answers, rows), steps=100)
    train = folder / "rl" / "train.parquet"
    # A file is trained on or validated on: there a question has a row for each student.
    shutil.copy(train, folder / "val.parquet")
    return RealWorld(
        rows=rows,
        student=folder / "one",
        overrides=[
            f"actor_rollout_ref.model.path={folder / 'teacher'}",
            f"rcl.students=[{{model: {folder / 'one'}}},{{model: {folder / 'two'}}}]",
            f"rcl.reward.kind={kind}",
            f"data.train_files={train}",
            f"data.val_files={folder / 'val.parquet'}",
            f"data.train_batch_size={prompts}",
            "data.max_prompt_length=1536",
            "data.max_response_length=64",
            "actor_rollout_ref.rollout.n=4",
            "actor_rollout_ref.actor.optim.lr=1e-3",
            "reward_model.classmate_generation_configs.max_new_tokens=24",
            "rcl.protocol.max_probe_tokens=12",
            "rcl.protocol.max_teaching_tokens=48",
            "rcl.protocol.baseline_samples=4",
            "trainer.total_training_steps=2",
            "trainer.test_freq=-1",
            "trainer.val_before_train=false",
            "trainer.save_freq=-1",
        ],
    )


def _save_model(folder: Path, texts: list[str], *, size: int, seed: int) -> None:
    tokenizer = train_tokenizer("bpe", texts, size)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = tiny_qwen3(
        len(tokenizer),
        max_position_embeddings=4096,
        initializer_range=0.1,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)


def _tags(rows: list[dict[str, Any]], rng: random.Random) -> Shown:
    questions = [rng.choice(rows)["prompt"][0]["content"] for _ in range(4)]
    return [(Templates().adaptive(one, "Hm.", teaching_limit=48), rng.choice(SAID)) for one in questions]


def _answers(rows: list[dict[str, Any]], rng: random.Random) -> Shown:
    """Answers of this row or another, with advice and without."""
    shown, templates = [], Templates()
    for row in (rng.choice(rows) for _ in range(6)):
        question, truths = row["prompt"][0]["content"], [one["reward_model"]["ground_truth"] for one in rows]
        chat = templates.with_teaching(question, "Add.") if rng.random() < 0.5 else templates.baseline(question)
        shown.append((chat, f"<solution>{rng.choice(truths[:4])}</solution>"))
    return shown
