"""What the trainer sees of a teacher's row: its rewards where a classmate run has the verifier's and the classmates'.

>>> scores_of(taught, asked, samples=1).base_reward
1.5
"""

import math
from collections.abc import Sequence

import numpy as np

from verl.classmate.outcome import Outcome
from verl.classmate.row import Asked, RowScores, Verdict
from verl.teaching.taught import Taught


def verdict_of(taught: Taught) -> Verdict:
    """What stands for the verifier's in the dump: the solve rate with the teaching."""
    reward = taught.rcl
    if taught.outcome is not Outcome.ok or reward is None or reward.effect is None:
        return Verdict(outcome=taught.outcome, error=_error(taught))
    return Verdict(score=reward.effect.guided)


def _error(taught: Taught) -> str | None:
    return next((one.lesson.probe.error for one in taught.students if one.lesson.probe.error), None)


def scores_of(taught: Taught, asked: Sequence[Asked], samples: int) -> RowScores:
    """The rewards: RCL's is the main part; RLT's the classmates' part where there are both."""
    raw_VMS, lengths_VMS, cut_VMS = (np.full((1, len(asked), samples), math.nan) for _ in range(3))
    outcomes = []
    for m, one in enumerate(asked):
        for item in one.continuations:
            outcomes.append(item.outcome)
            raw_VMS[0, m, item.sample] = math.nan if item.score is None else item.score
            if item.outcome in (Outcome.ok, Outcome.no_answer, Outcome.judge_error):
                lengths_VMS[0, m, item.sample] = item.token_length
                cut_VMS[0, m, item.sample] = float(item.finish_reason == "length")
    rcl = None if taught.rcl is None else taught.rcl.reward
    rlt = None if taught.rlt is None else taught.rlt.reward
    main = rlt if taught.rcl is None else rcl
    both = taught.rcl is not None and taught.rlt is not None
    valid = main is not None
    reward = main if main is not None else 0.0
    known = [one.guided.rate for one in taught.students if one.guided is not None]
    return RowScores(
        base_reward=reward,
        reward_before_cost=reward,
        length_cost=None,
        main_valid=valid,
        classmate_score=float(np.mean(known)) if known else math.nan,
        gamma=1.0 if both else 0.0,
        classmate_reward=rlt if both and rlt is not None else 0.0,
        classmate_valid=both and rlt is not None,
        final_reward=reward,
        consistency_reward=0.0,
        consistency_valid=False,
        segment_rewards_K=np.zeros(0),
        main_correct=False,
        raw_scores_VMS=raw_VMS,
        scores_VMS=raw_VMS,
        outcomes=tuple(outcomes),
        lengths_VMS=lengths_VMS,
        cut_VMS=cut_VMS,
        best_classmate_score=max(known, default=math.nan),
        avg_classmate_score=float(np.mean(known)) if known else math.nan,
        with_cot_score=None,
        alone_score=None,
        classmate_reward_weight=1.0,
        consistency_asked=False,
    )
