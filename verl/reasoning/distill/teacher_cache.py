"""A teacher's expectation of every token of the traces, computed once and kept on the disk.

One decision: what is kept are log-probabilities at the temperature of the loss: those of the k likeliest tokens, and
one number for all others. A part of the rows is a file, written in one go, so that a kill loses one part.

    >>> cache = TeacherCache(folder, key={"teacher": revision}, temperature=3.0, topk=64)
    >>> cache.fill(teacher_model, rows, pad_id=0)
    >>> cache.of([3, 5])                      # `TeacherTokens` of the learnt tokens of rows 3 and 5
"""

import json
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from verl.reasoning.distill.losses import TeacherTokens
from verl.reasoning.sft.chat import IGNORE, Row, collate
from verl.trainer.run.state import write_atomically

PART = 64
"""Rows of a file."""


@torch.no_grad()
def teacher_tokens(
    model: Any, rows: Sequence[Row], *, pad_id: int, temperature: float, topk: int, width: int | None = None
) -> list[TeacherTokens]:
    """What a teacher expects of the learnt tokens of each row, in one pass; as `TeacherTokens.of_logits`."""
    batch = {name: one.to(model.device) for name, one in collate(rows, pad_id=pad_id).items()}
    logits_BTV = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits
    learnt_BT = batch["labels"][:, 1:] != IGNORE
    return [
        TeacherTokens.of_logits(
            logits_BTV[place, :-1][learnt_BT[place]], temperature=temperature, topk=topk, width=width
        )
        for place in range(len(rows))
    ]


class TeacherCache:
    """Of one list of rows."""

    def __init__(
        self, folder: Path, *, key: Mapping[str, Any], temperature: float, topk: int, width: int | None = None
    ) -> None:
        """
        Args:
            folder: of the files.
            key: what else the numbers depend on; with other content all are computed anew.
            temperature: of the loss.
            topk: tokens that are kept of each place.
            width: see `TeacherTokens.of_logits`.
        """
        self.folder = folder
        self._how: dict[str, Any] = {"temperature": temperature, "topk": topk, "width": width}
        self._key = {**key, **self._how}
        self._part = lru_cache(maxsize=8)(self._read)

    def fill(self, model: Any, rows: Sequence[Row], *, pad_id: int, batch_size: int = 8) -> int:
        """Computes what is missing; returns how many files it wrote.

        Args:
            model: the teacher, or a function that loads it, which is only called if something is missing.
            rows: all of them, in their order.
            pad_id: what rows are padded with.
            batch_size: rows of a pass.
        """
        digest = blake2b(json.dumps([[one.ids, one.given] for one in rows]).encode(), digest_size=16).hexdigest()
        key = json.dumps({**self._key, "rows": digest}, sort_keys=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        head = self.folder / "key.json"
        if not head.exists() or head.read_text() != key:
            for old in self.folder.glob("part_*.pt"):
                old.unlink()
            write_atomically(head, key)
        starts = [start for start in range(0, len(rows), PART) if not self._file(start // PART).exists()]
        teacher = model() if starts and not isinstance(model, torch.nn.Module) else model
        for start in tqdm(
            starts, desc="teacher's probabilities", unit="part", disable=None if len(starts) > 1 else True
        ):
            part, found = rows[start : start + PART], list[TeacherTokens]()
            for first in range(0, len(part), batch_size):
                some = part[first : first + batch_size]
                found += teacher_tokens(teacher, some, pad_id=pad_id, **self._how)
            self._write(start // PART, found)
        return len(starts)

    def of(self, places: Sequence[int]) -> TeacherTokens:
        """Of the learnt tokens of rows, behind each other."""
        return TeacherTokens.joined([self._part(place // PART)[place % PART] for place in places])

    def _file(self, part: int) -> Path:
        return self.folder / f"part_{part:06d}.pt"

    def _write(self, part: int, found: Sequence[TeacherTokens]) -> None:
        file = self._file(part)
        partial = file.with_name(file.name + ".partial")
        kept = [(one.log_probs.cpu(), None if one.ids is None else one.ids.int().cpu()) for one in found]
        torch.save(kept, partial)
        os.replace(partial, file)

    def _read(self, part: int) -> list[TeacherTokens]:
        kept = torch.load(self._file(part), weights_only=True)
        return [TeacherTokens(log_probs=log_probs, ids=ids) for log_probs, ids in kept]
