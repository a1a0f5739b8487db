"""Batches of solutions for a process reward model, for training and for scoring.

One decision: rows of like length are put together, and a batch is bounded by its padded tokens.
"""

from collections.abc import Iterator, Sequence

import torch

from verl.workers.prm.encoding import Encoded, Encoder

IGNORE = -1.0
"""The target of a step that is not trained on, and of padding."""


def encode_solution(
    encoder: Encoder, problem: str, steps: Sequence[str], *, architecture: str, window: int | None
) -> list[tuple[Encoded, list[int]]]:
    """What a model reads of a solution, and which steps each part tells of: all at once, or each alone (encoder)."""
    if architecture != "encoder":
        encoded = encoder.encode(problem, steps)
        return [(encoded, list(range(len(encoded.places))))] if encoded.places else []
    each = encoder.encode_each(problem, steps, window)
    return [(one, [place]) for place, one in enumerate(each) if one is not None]


def collate(rows: Sequence[Encoded], pad_id: int, device: torch.device | str = "cpu") -> dict[str, torch.Tensor]:
    """Right-padded tensors: `input_ids`, `attention_mask` (B, T) and `places`, `starts` (B, S)."""
    longest = max(len(row.input_ids) for row in rows)
    most = max(len(row.places) for row in rows)
    ids_BT = torch.full((len(rows), longest), pad_id)
    mask_BT = torch.zeros((len(rows), longest), dtype=torch.int64)
    places_BS = torch.zeros((len(rows), most), dtype=torch.int64)
    starts_BS = torch.zeros((len(rows), most), dtype=torch.int64)
    for number, row in enumerate(rows):
        ids_BT[number, : len(row.input_ids)] = torch.tensor(row.input_ids)
        mask_BT[number, : len(row.input_ids)] = 1
        places_BS[number, : len(row.places)] = torch.tensor(row.places, dtype=torch.int64)
        starts_BS[number, : len(row.places)] = torch.tensor(row.starts, dtype=torch.int64)
    tensors = {"input_ids": ids_BT, "attention_mask": mask_BT, "places": places_BS, "starts": starts_BS}
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def by_length(lengths: Sequence[int], batch_tokens: int, batch_rows: int) -> Iterator[list[int]]:
    """Places of rows for each batch, the longest first, so that memory runs out at once or never."""
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    batch: list[int] = []
    for place in order:
        if batch and (len(batch) == batch_rows or lengths[batch[0]] * (len(batch) + 1) > batch_tokens):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch
