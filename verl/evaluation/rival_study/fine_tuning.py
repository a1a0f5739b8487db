"""The supervised part of rejection fine-tuning: a policy learns the very tokens that were accepted.

One decision: the loss is the mean over all learnt tokens of an update, so that a token counts alike in a short trace
and in a long one.

    learnt = fine_tune(start, lessons, FineTuning(lr=1e-3), seed=11, folder=folder)         # tokens, over all passes
"""

import random
from collections.abc import Sequence
from pathlib import Path

from verl.data_preprocessing.embedded_models import IGNORE, load_model
from verl.evaluation.rival_study.spec import FineTuning

Lesson = tuple[Sequence[int], Sequence[int]]
"""What is read, and what is learnt behind it; token ids of the policy."""
_WARMUP = 0.1
"""Share of the updates in which the learning rate rises."""


def fine_tune(start: Path, lessons: Sequence[Lesson], how: FineTuning, *, seed: int, folder: Path) -> int:
    """Fine-tunes the model of `start` and saves it in `folder`; returns how many tokens it learnt, over all passes.

    Raises:
        ValueError: no lesson.
    """
    import torch
    from tqdm import tqdm

    if not lessons:
        raise ValueError("no trace was accepted, so there is nothing to learn from; sample more")
    model, tokenizer = load_model(start)
    model.train()
    torch.manual_seed(seed)
    rng = random.Random(seed)
    per_pass = -(-len(lessons) // how.batch_size)
    updates = how.epochs * per_pass
    optimizer = torch.optim.AdamW(model.parameters(), lr=how.lr, betas=(0.9, 0.98), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: _factor(done, updates))
    bar = tqdm(total=updates, desc="fine-tune", unit="update")
    for _ in range(how.epochs):
        shuffled = rng.sample(list(lessons), len(lessons))
        for first in range(0, len(shuffled), how.batch_size):
            ids_BT, labels_BT = _padded(shuffled[first : first + how.batch_size], tokenizer.pad_token_id)
            # Padding is on the right, where causal attention never looks.
            loss = model(input_ids=ids_BT, labels=labels_BT, use_cache=False).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            bar.update()
    bar.close()
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return how.epochs * sum(len(learnt) for _, learnt in lessons)


def _factor(done: int, updates: int) -> float:
    warmup = max(1, int(_WARMUP * updates))
    return min((done + 1) / warmup, (updates - done) / max(1, updates - warmup))


def _padded(lessons: Sequence[Lesson], pad: int):  # type: ignore[no-untyped-def]
    """Ids and labels, both (B, T) int64; labels are IGNORE on what is read only and on padding."""
    import torch

    length = max(len(given) + len(learnt) for given, learnt in lessons)
    ids_BT = torch.full((len(lessons), length), pad)
    labels_BT = torch.full((len(lessons), length), IGNORE)
    for row, (given, learnt) in enumerate(lessons):
        whole = len(given) + len(learnt)
        ids_BT[row, :whole] = torch.tensor([*given, *learnt])
        labels_BT[row, len(given) : whole] = torch.tensor(list(learnt))
    return ids_BT, labels_BT
