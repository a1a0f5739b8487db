"""How likely two models find the same texts, and how far they are from each other there.

One decision: both read the same tokens, those of the student's template, where their vocabularies are the same; else
each reads its own, perplexities are per token of each, and there is no divergence.

    >>> compare("models/teacher", "models/student", [("What is 3 + 4?", "3 + 4 = 7.")], device="cpu")
    {'teacher_perplexity': 1.2, 'student_perplexity': 1.9, 'kl_divergence': 0.31}
"""

import math
from collections.abc import Sequence
from typing import Any

import torch

from verl.reasoning.distill.losses import TeacherTokens, divergence
from verl.reasoning.sft.chat import IGNORE, Row, chat_tokenizer, collate, encode
from verl.reasoning.sft.settings import device_of


def compare(
    teacher: str, student: str, pairs: Sequence[tuple[str, str]], *, device: str = "auto", batch_size: int = 8
) -> dict[str, float | None]:
    """Of the answers of pairs of a problem and an answer.

    Args:
        teacher: folder or hub name.
        student: likewise.
        pairs: at least one for numbers; none: all are None.
        device: where.
        batch_size: rows of a pass.

    Returns:
        `teacher_perplexity`, `student_perplexity`; `kl_divergence`: KL(teacher | student) in nats per token, None where
        the vocabularies differ.
    """
    names = ("teacher_perplexity", "student_perplexity", "kl_divergence")
    if not pairs:
        return dict.fromkeys(names)
    tokenizers = [chat_tokenizer(name) for name in (teacher, student)]
    same = tokenizers[0].get_vocab() == tokenizers[1].get_vocab()
    rows = [[encode(tokenizers[1 if same else place], *pair) for pair in pairs] for place in (0, 1)]
    models = [_load(name, device) for name in (teacher, student)]
    sums, tokens, apart = [0.0, 0.0], [0, 0], 0.0
    for start in range(0, len(pairs), batch_size):
        parts = [rows[place][start : start + batch_size] for place in (0, 1)]
        found = [
            _logits(models[place], parts[place], tokenizers[1 if same else place].pad_token_id) for place in (0, 1)
        ]
        for place, (logits_NV, targets_N) in enumerate(found):
            log_probs = torch.log_softmax(logits_NV, dim=-1).gather(-1, targets_N[:, None])
            sums[place] -= float(log_probs.sum())
            tokens[place] += len(targets_N)
        if same:
            width = min(logits.shape[-1] for logits, _ in found)
            expected = TeacherTokens.of_logits(found[0][0], temperature=1.0, width=width)
            apart += float(divergence(expected, found[1][0], temperature=1.0).sum())
    values = [math.exp(min(total / count, 700.0)) for total, count in zip(sums, tokens, strict=True)]
    return {names[0]: values[0], names[1]: values[1], names[2]: apart / tokens[1] if same else None}


def _load(name: str, device: str) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    where = device_of(device)
    model: Any = AutoModelForCausalLM.from_pretrained(name, dtype="bfloat16" if where == "cuda" else "float32")
    return model.to(where).eval()


@torch.no_grad()
def _logits(model: Any, rows: Sequence[Row], pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (N, V) of the learnt tokens of all rows, and the tokens (N,)."""
    batch = {name: one.to(model.device) for name, one in collate(rows, pad_id=pad_id).items()}
    logits_BTV = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits
    labels_BT = batch["labels"][:, 1:]
    learnt = labels_BT != IGNORE
    return logits_BTV[:, :-1][learnt].float(), labels_BT[learnt]
