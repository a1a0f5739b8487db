"""What can happen to a request: to one answer of a classmate, or to the verifier's look at the main output.

One decision: a failure is a value that is counted, never a score and never an exception.

    >>> Reply(outcome=Outcome.timeout, error="no answer within 60 s")
    >>> Outcome.too_long in NOT_ASKED
    True
"""

from enum import StrEnum


class Outcome(StrEnum):
    """What became of one answer, the main model's or a classmate's."""

    ok = "ok"
    empty_cot = "empty_cot"
    unfinished_cot = "unfinished_cot"
    too_long = "too_long"
    no_answer = "no_answer"
    no_partner = "no_partner"
    template_error = "template_error"
    not_needed = "not_needed"
    excluded = "excluded"
    timeout = "timeout"
    engine_error = "engine_error"
    judge_error = "judge_error"


NOT_ASKED = frozenset({Outcome.empty_cot, Outcome.unfinished_cot, Outcome.too_long, Outcome.no_partner})
"""Outcomes that are decided before any classmate is asked, by what the policy wrote or by the batch; with `empty_cot`
the row may have a classmate reward all the same (`empty_cot_score`). `not_needed` is not one of them: the row could be
shown, but W is 0 whatever they answer (`ask_when_it_counts_only`)."""

POLICY_FAILURES = frozenset({Outcome.unfinished_cot, Outcome.no_answer})
"""The policy wrote no answer: its own failure, scored by `unfinished_main_score` (docs/method.md)."""

SEEN_BY_VERIFIER = frozenset({Outcome.ok, Outcome.judge_error})
"""Outcomes of texts that a verifier was given."""
