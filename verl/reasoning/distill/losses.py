"""Losses of distillation on the tokens of an answer (G. Hinton et al., 2015; R. Agarwal et al., ICLR 2024).

One decision: the sum over the learnt tokens is divided once, by the number of learnt tokens of the whole step, so that
neither padding nor the cut into micro-batches changes a loss. A teacher that is not whole (its k likeliest tokens) is
compared by k + 1 probabilities, the last of which is that of all other tokens together.

    loss = alpha * T^2 * D(teacher at T, student at T) + beta * cross-entropy

    >>> teacher = TeacherTokens.of_logits(teacher_logits_NV, temperature=3.0, topk=64)
    >>> distillation_loss(logits_BTV, labels_BT, teacher, temperature=3.0, alpha=0.7, beta=0.3).loss
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from verl.classmate.errors import ConfigError
from verl.reasoning.sft.chat import IGNORE


@dataclass(frozen=True, kw_only=True)
class TeacherTokens:
    """What a teacher expects of N tokens, at a temperature."""

    log_probs: torch.Tensor
    """(N, V), or (N, K + 1) where `ids` are given: the K likeliest tokens, then all others together."""
    ids: torch.Tensor | None = None
    """(N, K) token ids; None: all tokens of the vocabulary, in their order."""

    @classmethod
    def of_logits(
        cls, logits_NV: torch.Tensor, *, temperature: float, topk: int = 0, width: int | None = None
    ) -> "TeacherTokens":
        """From a teacher's logits.

        Args:
            logits_NV: of N tokens.
            temperature: what they are divided by.
            topk: how many are kept; 0, or no fewer than there are: all tokens.
            width: tokens from this one on are padding of the vocabulary, which the student's may lack; None: none is.
        """
        logits_NV = logits_NV[:, :width].float()
        if topk <= 0 or topk >= logits_NV.shape[-1]:
            return cls(log_probs=torch.log_softmax(logits_NV / temperature, dim=-1))
        ids_NK = logits_NV.topk(topk, dim=-1).indices
        return cls(log_probs=_with_rest(logits_NV / temperature, ids_NK), ids=ids_NK)

    def to(self, device: Any) -> "TeacherTokens":
        """On another device."""
        return TeacherTokens(
            log_probs=self.log_probs.to(device), ids=None if self.ids is None else self.ids.to(device).long()
        )

    @classmethod
    def joined(cls, parts: "list[TeacherTokens]") -> "TeacherTokens":
        """Those of several texts behind each other."""
        ids = [part.ids for part in parts if part.ids is not None]
        return cls(log_probs=torch.cat([part.log_probs for part in parts]), ids=torch.cat(ids) if ids else None)


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A loss and what it is made of."""

    loss: torch.Tensor
    """To be minimised."""
    cross_entropy: float
    """Per token, without `beta`; NaN where it was not computed."""
    divergence: float
    """Per token, without `alpha` and T^2; NaN where it was not computed."""


def distillation_loss(
    logits_BTV: torch.Tensor,
    labels_BT: torch.Tensor,
    teacher: TeacherTokens | None,
    *,
    temperature: float,
    alpha: float,
    beta: float,
    jsd_beta: float | None = None,
    num_tokens: int | None = None,
) -> Loss:
    """The loss of a batch; the mean over learnt tokens.

    Args:
        logits_BTV: the student's, for the token behind each place.
        labels_BT: the tokens themselves; `IGNORE` on prompt and padding. A batch may have none that is learnt.
        teacher: of the learnt tokens of all rows, in their order; None where `alpha` is 0.
        temperature: T, of both.
        alpha: weight of the divergence.
        beta: weight of the cross-entropy with the labels.
        jsd_beta: which divergence, see `divergence`.
        num_tokens: learnt tokens of the step of which this batch is a part; None: of this batch.
    """
    tokens = num_tokens if num_tokens is not None else int((labels_BT[:, 1:] != IGNORE).sum())
    # A batch without learnt tokens has a loss of 0, whose gradient is 0 too; 0 / 0 would end all weights.
    tokens = max(1, tokens)
    parts: list[torch.Tensor] = []
    hard = soft = math.nan
    if beta != 0 or alpha == 0:
        entropy = cross_entropy(logits_BTV, labels_BT, tokens)
        parts.append(beta * entropy)
        hard = entropy.item()
    if alpha != 0:
        assert teacher is not None, "alpha is not 0, but there is no teacher"
        student_NV = logits_BTV[:, :-1][labels_BT[:, 1:] != IGNORE]
        each_N = divergence(teacher, student_NV, temperature=temperature, jsd_beta=jsd_beta)
        mean = each_N.sum() / tokens
        parts.append(alpha * temperature**2 * mean)
        soft = mean.item()
    # Not `sum`, whose 0 would be an operation more.
    loss = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    return Loss(loss=loss, cross_entropy=hard, divergence=soft)


def cross_entropy(logits_BTV: torch.Tensor, labels_BT: torch.Tensor, num_tokens: int) -> torch.Tensor:
    """Supervised fine-tuning's loss, with the very operations of transformers' models."""
    shifted_BT = functional.pad(labels_BT, (0, 1), value=IGNORE)[:, 1:].contiguous()
    logits_NV = logits_BTV.float().view(-1, logits_BTV.shape[-1])
    summed = functional.cross_entropy(logits_NV, shifted_BT.view(-1), ignore_index=IGNORE, reduction="sum")
    return summed / num_tokens


def divergence(
    teacher: TeacherTokens, student_NV: torch.Tensor, *, temperature: float, jsd_beta: float | None = None
) -> torch.Tensor:
    """How far the student is from the teacher at each of N tokens, in nats, (N,).

    Args:
        teacher: at this temperature.
        student_NV: the student's logits.
        temperature: what the student's logits are divided by.
        jsd_beta: None or 0: KL(teacher | student); 1: KL(student | teacher); between: the generalised Jensen-Shannon
            divergence b KL(teacher | m) + (1 - b) KL(student | m) with m = b teacher + (1 - b) student.
    """
    scaled_NV = student_NV.float() / temperature
    if teacher.ids is None:
        # A vocabulary may be padded to different sizes; tokens of the padding are never written.
        width = min(scaled_NV.shape[-1], teacher.log_probs.shape[-1])
        student = torch.log_softmax(scaled_NV[:, :width], dim=-1)
        expected = teacher.log_probs[:, :width]
        if width < teacher.log_probs.shape[-1]:
            expected = torch.log_softmax(expected, dim=-1)
    else:
        student, expected = _with_rest(scaled_NV, teacher.ids), teacher.log_probs
    if jsd_beta is None or jsd_beta == 0:
        return _kl(expected, student)
    if jsd_beta == 1:
        return _kl(student, expected)
    mixed = torch.logaddexp(expected + math.log(jsd_beta), student + math.log1p(-jsd_beta))
    return jsd_beta * _kl(expected, mixed) + (1 - jsd_beta) * _kl(student, mixed)


def check_vocabularies(teacher: Any, student: Any, *, names: tuple[str, str] = ("the teacher", "the student")) -> None:
    """Both tokenizers give the same ids to the same pieces.

    Raises:
        ConfigError: they do not; with the first piece that differs.
    """
    first, second = teacher.get_vocab(), student.get_vocab()
    if first == second:
        return
    pieces = sorted(first.keys() | second.keys(), key=lambda one: (first.get(one, second.get(one)), one))
    piece = next(one for one in pieces if first.get(one) != second.get(one))
    raise ConfigError(
        f"mode='logit' and 'on_policy' compare {names[0]} and {names[1]} token by token, but their vocabularies differ "
        f"({len(first)} and {len(second)} tokens; {piece!r} is {first.get(piece)} and {second.get(piece)}); write "
        "mode='gold' or 'seq', or take a student of the teacher's family"
    )


def _with_rest(scaled_NV: torch.Tensor, ids_NK: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of K tokens, and of all others together, (N, K + 1)."""
    whole_N1 = torch.logsumexp(scaled_NV, dim=-1, keepdim=True)
    chosen_NK = scaled_NV.gather(-1, ids_NK)
    rest_N1 = torch.logsumexp(scaled_NV.scatter(-1, ids_NK, -torch.inf), dim=-1, keepdim=True)
    return torch.cat([chosen_NK, rest_N1], dim=-1) - whole_N1


def _kl(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    """KL(p | q), (N,); where p is 0, nothing is added."""
    p = log_p.exp()
    return torch.where(p > 0, p * (log_p - log_q), torch.zeros_like(p)).sum(dim=-1)
