"""Pairs of a problem and an answer as the token ids that a chat model is trained on.

One decision: prompt and answer are tokenised apart (`verl.teaching.chat_ids`), whichever trainer reads them, so that
the ids in front of the first learnt token are those of generation, and all trainers learn the same tokens. A row that
is too long is left out and counted, never cut.

    >>> tokenizer = chat_tokenizer("models/policy")
    >>> rows, left_out = encode_all(tokenizer, [("What is 3 + 4?", "3 + 4 = 7.")], max_length=512)
    >>> collate(rows, pad_id=tokenizer.pad_token_id)["labels"]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from verl.reasoning.opened_prompts import behind_prompt
from verl.reasoning.token_backend import PLAIN_CHAT
from verl.teaching.chat_ids import given_turn, written_turn

IGNORE = -100
"""Label of a token that is read but not learnt."""

Pairs = Mapping[str, str] | Sequence[tuple[str, str]]
"""Problem -> answer, or pairs of them, where a problem has several answers."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One problem with one answer, in tokens."""

    ids: tuple[int, ...]
    """All of it, with the token that ends the turn."""
    given: int
    """How many of them are read only."""

    @property
    def learnt(self) -> int:
        """Tokens that bear loss."""
        return len(self.ids) - self.given


def pairs_of(rows: Pairs) -> list[tuple[str, str]]:
    """The pairs as a list.

    Raises:
        ValueError: there is none, or one lacks a text.
    """
    pairs = list(rows.items()) if isinstance(rows, Mapping) else [(problem, answer) for problem, answer in rows]
    if not pairs:
        raise ValueError("there are no rows to train on; give pairs of a problem and an answer")
    for problem, answer in pairs:
        if not problem.strip() or not answer.strip():
            raise ValueError(f"a row without a text: {(problem, answer)!r:.80}; leave it out")
    return pairs


def chat_tokenizer(model: Any) -> Any:
    """The tokenizer of a folder or hub name, with a chat template and a token to pad with in any case.

    A base model that has no template is given `PLAIN_CHAT`, which stays in the folder of what is trained.
    """
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    if not getattr(tokenizer, "chat_template", None):
        tokenizer.chat_template = PLAIN_CHAT
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def encode(tokenizer: Any, problem: str, answer: str) -> Row:
    """One row, in the chat template of the tokenizer; a thought that the template opens is not opened again."""
    chat = [{"role": "user", "content": problem}]
    answer = behind_prompt(tokenizer, given_turn(tokenizer, chat), answer)
    turn = written_turn(tokenizer, chat, written=answer)
    return Row(ids=tuple(turn.given + turn.written), given=len(turn.given))


def encode_all(tokenizer: Any, pairs: Sequence[tuple[str, str]], *, max_length: int) -> tuple[list[Row], int]:
    """The rows of at most `max_length` tokens in their order, and how many were longer.

    Raises:
        ValueError: all are longer.
    """
    rows = [encode(tokenizer, *pair) for pair in pairs]
    kept = [row for row in rows if len(row.ids) <= max_length]
    if rows and not kept:
        shortest = min(len(row.ids) for row in rows)
        raise ValueError(f"max_length={max_length}: all {len(rows)} rows are longer; write {shortest} or more")
    return kept, len(rows) - len(kept)


def collate(rows: Sequence[Row], *, pad_id: int) -> dict[str, torch.Tensor]:
    """`input_ids`, `attention_mask` and `labels`, each (B, T) int64, padded on the right; padding is never learnt."""
    width = max(len(row.ids) for row in rows)
    ids_BT = torch.full((len(rows), width), pad_id)
    mask_BT = torch.zeros((len(rows), width), dtype=torch.long)
    labels_BT = torch.full((len(rows), width), IGNORE)
    for place, row in enumerate(rows):
        length = len(row.ids)
        ids_BT[place, :length] = torch.tensor(row.ids)
        mask_BT[place, :length] = 1
        labels_BT[place, row.given : length] = torch.tensor(row.ids[row.given :])
    return {"input_ids": ids_BT, "attention_mask": mask_BT, "labels": labels_BT}
