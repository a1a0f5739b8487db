"""Upstream's dataset for supervised training, with loss on the answer alone, from the character that a row names.

One decision: what is given and what is learnt are tokenised apart (`verl.teaching.chat_ids`), so that the ids in front
of the first learnt token are those of the prompt in RL. Upstream's dataset puts the ids of separate turns together,
where a tokenizer may join characters across the border.

    data.custom_cls.path=pkg://verl.data_preprocessing.answer_dataset data.custom_cls.name=AnswerDataset

Rows have `messages`, the last of which is the answer, and may have `loss_from`, the number of characters of the answer
that are given. Every row is tokenised once, when the data is read; one that is too long is left out, never cut.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from verl.classmate.errors import ConfigError
from verl.teaching.chat_ids import written_turn
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

LOSS_FROM = "loss_from"


class AnswerDataset(MultiTurnSFTDataset):
    """Rows of `data.train_files` or `data.val_files`; keys beside upstream's: `data.mask_teacher_answer`."""

    def __init__(self, parquet_files: Any, tokenizer: Any, config: Any, **more: Any) -> None:
        """Reads and tokenises the rows.

        Args:
            parquet_files: one or a list.
            tokenizer: the trained model's.
            config: the node `data`.
            more: upstream's further arguments.

        Raises:
            ConfigError: no row can be trained on.
        """
        self.masks_given = bool((config or {}).get("mask_teacher_answer", True))
        files = [parquet_files] if isinstance(parquet_files, str) else list(parquet_files)
        super().__init__(files, tokenizer, config, **more)
        self.rows, self.left_out = self._tokenised()
        if not self.rows:
            raise ConfigError(
                f"data.max_length={self.max_length}: all {self.left_out} rows of {', '.join(files)} are longer; "
                "raise it, or prepare shorter rows"
            )

    def _tokenised(self) -> tuple[list[tuple[np.ndarray, int]], int]:
        """Ids of each row with the number of them that bear no loss, and how many rows were too long."""
        from tqdm import tqdm

        starts = self.dataframe[LOSS_FROM].tolist() if LOSS_FROM in self.dataframe.columns else [0] * len(self.messages)
        rows, left_out = [], 0
        for messages, start in tqdm(
            zip(self.messages, starts, strict=True), total=len(starts), desc="tokenising", disable=None
        ):
            ids, without_loss = self.ids_of(messages, int(start or 0))
            if len(ids) > self.max_length:
                left_out += 1
            else:
                rows.append((np.asarray(ids, dtype=np.int32), without_loss))
        return rows, left_out

    def ids_of(self, messages: list[Mapping[str, str]], start: int) -> tuple[list[int], int]:
        """Ids of a chat, and how many of them bear no loss.

        Args:
            messages: the last is the answer.
            start: characters of it that are given.
        """
        *prompt, answer = messages
        if answer["role"] != "assistant" or not 0 <= start < len(answer["content"]):
            raise ConfigError(
                f"data: a row ends in a turn of the {answer['role']} with {LOSS_FROM}={start}; the last turn of each "
                f"row must be the assistant's, and longer than {LOSS_FROM}"
            )
        text = answer["content"]
        turn = written_turn(
            self.tokenizer, prompt, given=text[:start], written=text[start:], **self.apply_chat_template_kwargs
        )
        without_loss = len(turn.given)
        if start and not self.masks_given:
            whole = written_turn(self.tokenizer, prompt, written=text, **self.apply_chat_template_kwargs)
            without_loss = len(whole.given)
        return turn.given + turn.written, without_loss

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return max(len(ids) for ids, _ in self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        """`input_ids`, `position_ids` and `loss_mask` (S,) of a row, for batches without padding."""
        ids, without_loss = self.rows[item]
        mask = torch.ones(len(ids), dtype=torch.long)
        mask[:without_loss] = 0
        return {
            "input_ids": torch.from_numpy(ids).long(),
            "position_ids": torch.arange(len(ids), dtype=torch.long),
            "loss_mask": mask,
        }
