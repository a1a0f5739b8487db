"""What the classmates are shown of a row: one or more views, by reward type (docs/method.md).

One decision: a reward type is nothing but a list of views and a rule that combines their scores, so that asking,
failing and recording are the same for all. The first view is the fullest; where a reward is a difference, the last view
is what the first is compared with, and steps in between share the credit. Everything random depends on the row's seed.

    >>> row = read_row(answer, span, tokenizer, config, seed=7)
    >>> row.thoughts                                    # random_truncate_step_wise_utility
    ('3 + 4 = 7. 7 + 2 = 9.', '3 + 4 = 7.', '')
    >>> row.segments                                    # (R,) 0 none, 1.. the segment that a token belongs to
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from verl.classmate.config import ClassmateCotRewardConfig
from verl.classmate.cot import CotKind, CotSpan, KeepSpec, KeptCot, keep
from verl.classmate.hints import without_hint
from verl.classmate.outcome import Outcome
from verl.classmate.prompts import EXAMPLE, handover, should_close
from verl.classmate.row import Answer, ReadRow, Task
from verl.classmate.strip import without_answer


def read_row(
    answer: Answer,
    span: CotSpan,
    tokenizer: Any,
    config: ClassmateCotRewardConfig,
    *,
    seed: int,
    final_answer: str | None = None,
) -> ReadRow:
    """An answer as it is shown to the classmates.

    Args:
        answer: with the partner that it has (`partner_of`).
        span: its located CoT, in its last turn.
        tokenizer: the main model's.
        config: reward type, keep rates, close marker.
        seed: of the row; decides random cuts in training. Validation cuts at fixed rates.
        final_answer: what the output gives as its answer, for `strip_answer`; None: nothing, or nobody needs it.
    """
    if config.reward_type.shown == "example":
        return _example(answer, span, config)
    turn_ids = answer.response_ids[answer.last_turn]
    shown = span
    if config.strip_answer:
        question = _hint_removed(answer.task, config) or str(answer.task.question)
        shown = without_answer(span, turn_ids, tokenizer, answer=final_answer, question=question)
    kepts = [keep(shown, turn_ids, tokenizer, spec) for spec in _keep_specs(config, seed, answer.validate)]
    kepts = [kept for i, kept in enumerate(kepts) if i == 0 or kept.mask.sum() < kepts[i - 1].mask.sum()]
    first = kepts[0]
    if shown is not span:
        # The end of what is left is not that of the CoT.
        share = shown.cot_length / max(1, span.cot_length)
        first = replace(first, whole=False, rate=first.rate * share)
    outcome = handover(span, config.unfinished_cot)
    if outcome is Outcome.ok and not first.text.strip():
        outcome = Outcome.empty_cot
    mask, segments = first.mask, _segments(kepts) if config.segments else first.mask * 0
    if outcome is Outcome.empty_cot:
        mask = _answerable(shown, first)
        segments = mask * int(config.segments > 0)
    thoughts = [kept.text for kept in kepts]
    if config.reward_type.compares_with_question_alone:
        thoughts.append("")
    return ReadRow(
        answer=answer,
        span=span,
        outcome=outcome,
        thoughts=tuple(thoughts) if outcome is Outcome.ok else (),
        chat=_chat(answer, config),
        # All views are closed alike, so that they differ in the CoT alone.
        close=_close(first, config),
        mask=answer.in_response(mask),
        segments=answer.in_response(segments),
        kept_text=first.text,
        keep_rate=first.rate,
    )


def derangement(n: int, seed: int) -> list[int]:
    """A partner for each of n rows, never itself: a random cycle (Sattolo's algorithm). Empty for fewer than 2 rows."""
    if n < 2:
        return []
    rng, partners = random.Random(seed), list(range(n))
    for i in range(n - 1, 0, -1):
        j = rng.randrange(i)
        partners[i], partners[j] = partners[j], partners[i]
    return partners


def partner_of(answer: Answer, config: ClassmateCotRewardConfig) -> Task | None:
    """The other question that the classmates answer about a row, if they do.

    Either the row brings it along (`paired_similar_q`, `paired_similar_q_gt`), or the batch has paired it.
    """
    if config.reward_type.partner != "row":
        return answer.partner
    task = answer.task
    question = task.reward_model.get("paired_similar_q")
    if not question:
        return None
    truth = {**task.reward_model, "ground_truth": task.reward_model.get("paired_similar_q_gt")}
    return Task(question=str(question), data_source=task.data_source, reward_model=truth)


def _example(answer: Answer, span: CotSpan, config: ClassmateCotRewardConfig) -> ReadRow:
    """The whole response is an example for another question; all of its tokens earn the classmates' reward."""
    partner, turn = answer.partner, answer.last_turn
    outcome = Outcome.ok
    if partner is None:
        outcome = Outcome.no_partner
    elif not span.text.strip():
        outcome = Outcome.empty_cot
    elif not span.closed and config.unfinished_cot == "no_classmate":
        outcome = Outcome.unfinished_cot
    mask_R = answer.in_response(np.ones(turn.stop - turn.start, dtype=np.int64))
    row = ReadRow(answer=answer, span=span, outcome=outcome, mask=mask_R, segments=mask_R * 0, kept_text=span.text)
    if partner is None or outcome is not Outcome.ok:
        return row
    immediate = config.classmate_continue_mode == "immediate_answer"
    # The row's own similar question is a text of its own, without the row's hint.
    question = _hint_removed(partner, config) if config.reward_type.partner == "batch" else None
    turns = ({"role": "assistant", "content": EXAMPLE}, {"role": "user", "content": question or partner.question})
    return replace(
        row,
        thoughts=("" if immediate else None,),
        chat=(*_chat(answer, config), *turns),
        example=span.text,
        close=immediate,
    )


def _chat(answer: Answer, config: ClassmateCotRewardConfig) -> tuple[Mapping[str, Any], ...]:
    """The row's chat as the classmates are shown it."""
    question = _hint_removed(answer.task, config)
    if question is None:
        return tuple(answer.messages)
    return (*answer.messages[:-1], {**answer.messages[-1], "content": question})


def _hint_removed(task: Task, config: ClassmateCotRewardConfig) -> str | None:
    """What is shown in place of a question with a hint; None: the question itself."""
    return without_hint(task) if config.classmate_question == "hint_removed" else None


def _answerable(span: CotSpan, kept: KeptCot) -> np.ndarray:
    """(R,) 1 on the tokens that answer for it that nothing can be shown: the blanks that would be, or for a CoT that is
    blank as a whole, or blank without its answer, all that the policy wrote up to and with its close marker."""
    if (span.cot or "").strip():
        return kept.mask
    mask_R = np.ones_like(kept.mask)
    if span.kind is CotKind.closed:
        mask_R[span.output_start :] = 0
    return mask_R


def _keep_specs(config: ClassmateCotRewardConfig, seed: int, validate: bool) -> list[KeepSpec]:
    """What is handed over, fullest first."""
    if not config.reward_type.cuts_at_random:
        return [config.keep]
    low, high = config.main_cot_keep_rate_min, config.main_cot_keep_rate_max
    count = config.segments or 1
    if validate:
        # The means of the sorted draws, so that the validation curve has no noise of its own.
        rates = [low + (high - low) * (i + 1) / (count + 1) for i in range(count)]
    else:
        rng = random.Random(seed)
        rates = sorted(rng.uniform(low, high) for _ in range(count))
    return [
        KeepSpec(kind="all" if rate >= 1 else "ratio", amount=rate, unit=config.keep_unit) for rate in reversed(rates)
    ]


def _close(kept: KeptCot, config: ClassmateCotRewardConfig) -> bool:
    return config.answers_at_once or should_close(kept, config.classmate_close_marker)


def _segments(kepts: Sequence[KeptCot]) -> np.ndarray:
    """(R,) number of the segment that a token belongs to: those of the smallest prefix are in segment 1."""
    prefixes_R = np.sum([kept.mask for kept in kepts], axis=0)
    return np.where(prefixes_R > 0, len(kepts) + 1 - prefixes_R, 0)
