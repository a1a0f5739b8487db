"""The reward types: what the classmates are shown of a row, and what their scores are compared with.

One decision: a reward type is a value with a name, and whoever depends on it asks the value. A new type is one line in
`REWARD_TYPES`; a new way to show a row is one more value of `shown`, which `views.py` follows. What each type means is
told under `ClassmateCotRewardConfig.classmate_reward_type`.

    >>> REWARD_TYPES["remove_wo_cot"].compares_with_question_alone
    True
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class RewardType:
    """One way to show a row to the classmates, and to make a reward of their scores."""

    shown: Literal["keep_rate", "random_cut", "segments", "example"]
    """The CoT as `main_cot_keep_rate` cuts it, cut at one random place, cut at K random places with a reward for each
    segment, or the whole response as an example for another question."""
    compares_with_question_alone: bool = False
    """Whether the classmates also answer without any of the CoT, and the score that they then reach is subtracted."""
    partner: Literal["batch", "row"] | None = None
    """Where the other question comes from: another row of the batch, or the row's own columns; None: there is none."""
    by_likelihood: bool = False
    """Whether the classmates say in training how likely they find the ground truth, and write no answer."""

    @property
    def cuts_at_random(self) -> bool:
        """Whether the CoT is cut at random places."""
        return self.shown in ("random_cut", "segments")


REWARD_TYPES: Mapping[str, RewardType] = {
    "vanilla_reward": RewardType(shown="keep_rate"),
    "random_truncate": RewardType(shown="random_cut"),
    "remove_wo_cot": RewardType(shown="keep_rate", compares_with_question_alone=True),
    "random_truncate_remove_wo_cot": RewardType(shown="random_cut", compares_with_question_alone=True),
    "random_truncate_step_wise_utility": RewardType(shown="segments", compares_with_question_alone=True),
    "help_other_questions": RewardType(shown="example", partner="batch"),
    "help_other_similar_questions": RewardType(shown="example", partner="row"),
    "likelihood": RewardType(shown="keep_rate", by_likelihood=True),
    "likelihood_gain": RewardType(shown="keep_rate", by_likelihood=True, compares_with_question_alone=True),
}
"""By the names that `classmate_reward_type` takes, in the order in which they are told."""
