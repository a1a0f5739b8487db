"""What the classmates are shown of a row: one or more views, by reward type (docs/method.md).

One decision: a reward type is nothing but a list of views and a rule that combines their scores, so that asking,
failing and recording are the same for all. The first view is the fullest; where a reward is a difference, the last view
is what the first is compared with, and steps in between share the credit. Everything random depends on the row's seed.

    >>> views = row_views(span, response_ids, tokenizer, messages, config, seed=7, validate=False)
    >>> [view.thought for view in views.views]          # random_truncate_step_wise_utility
    ['3 + 4 = 7. 7 + 2 = 9.', '3 + 4 = 7.', '']
    >>> views.segments                                  # (R,) 0 none, 1.. the segment that a token belongs to
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verl.classmate.config import ClassmateCotRewardConfig
from verl.classmate.cot import CotSpan, KeepSpec, KeptCot, keep
from verl.classmate.outcome import Outcome
from verl.classmate.prompts import EXAMPLE, handover, should_close
from verl.classmate.row import Answer, Shown, Task, View


def row_views(
    span: CotSpan,
    response_ids: Sequence[int],
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    config: ClassmateCotRewardConfig,
    *,
    seed: int,
    validate: bool,
    partner: Task | None = None,
) -> Shown:
    """The views of one row.

    Args:
        span: its located CoT.
        response_ids: (R,) of the main model.
        tokenizer: the main model's.
        messages: the chat that the main model answered.
        config: reward type, keep rates, close marker.
        seed: of the row; decides random cuts in training. Validation cuts at fixed rates.
        partner: the other question, for `help_other_*`.
    """
    chat = tuple(messages)
    if config.classmate_reward_type.startswith("help_other"):
        return _example_view(span, len(response_ids), chat, config, partner)
    kepts = [keep(span, response_ids, tokenizer, spec) for spec in _keep_specs(config, seed, validate)]
    kepts = [kept for i, kept in enumerate(kepts) if i == 0 or kept.mask.sum() < kepts[i - 1].mask.sum()]
    first = kepts[0]
    outcome = handover(span, config.unfinished_cot)
    if outcome is Outcome.ok and not first.text.strip():
        outcome = Outcome.empty_cot
    # All views are closed alike, so that they differ in the CoT alone.
    close = _close(first, config)
    views = [View(messages=chat, thought=kept.text, close=close) for kept in kepts]
    if config.compares_with_question_alone:
        views.append(View(messages=chat, thought="", close=close))
    return Shown(
        outcome=outcome,
        views=tuple(views) if outcome is Outcome.ok else (),
        mask=first.mask,
        segments=_segments(kepts) if config.segments else first.mask * 0,
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

    With `help_other_similar_questions` the row brings it along (`paired_similar_q`, `paired_similar_q_gt`), with
    `help_other_questions` the batch has paired it.
    """
    if config.classmate_reward_type != "help_other_similar_questions":
        return answer.partner
    task = answer.task
    question = task.reward_model.get("paired_similar_q")
    if not question:
        return None
    truth = {**task.reward_model, "ground_truth": task.reward_model.get("paired_similar_q_gt")}
    return Task(question=str(question), data_source=task.data_source, reward_model=truth)


def _example_view(
    span: CotSpan,
    length: int,
    messages: tuple[Mapping[str, Any], ...],
    config: ClassmateCotRewardConfig,
    partner: Task | None,
) -> Shown:
    """The whole response is an example for another question; all of its tokens earn the classmates' reward."""
    outcome = Outcome.ok if partner is not None else Outcome.no_partner
    if not span.text.strip():
        outcome = Outcome.empty_cot
    elif not span.closed and config.unfinished_cot == "no_classmate":
        outcome = Outcome.unfinished_cot
    views: tuple[View, ...] = ()
    if partner is not None and outcome is Outcome.ok:
        turns = ({"role": "assistant", "content": EXAMPLE}, {"role": "user", "content": partner.question})
        immediate = config.classmate_continue_mode == "immediate_answer"
        views = (
            View(messages=messages + turns, thought="" if immediate else None, close=immediate, example=span.text),
        )
    mask = np.ones(length, dtype=np.int64)
    return Shown(outcome=outcome, views=views, mask=mask, segments=mask * 0, kept_text=span.text, keep_rate=1.0)


def _keep_specs(config: ClassmateCotRewardConfig, seed: int, validate: bool) -> list[KeepSpec]:
    """What is handed over, fullest first."""
    if not config.cuts_at_random:
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
    return config.classmate_continue_mode == "immediate_answer" or should_close(kept, config.classmate_close_marker)


def _segments(kepts: Sequence[KeptCot]) -> np.ndarray:
    """(R,) number of the segment that a token belongs to: those of the smallest prefix are in segment 1."""
    prefixes_R = np.sum([kept.mask for kept in kepts], axis=0)
    return np.where(prefixes_R > 0, len(kepts) + 1 - prefixes_R, 0)
