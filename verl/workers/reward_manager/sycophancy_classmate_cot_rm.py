"""The reward manager of sycophancy runs: the reward is shared between main answer and classmates, and format counts.

Decision: what differs from `classmate_cot` are two defaults (`reward_fusion=weighted_average`, `format_weight=0.1`),
and defaults live in `verl.classmate.config`; so this class is only the name.

    reward_model.reward_manager=sycophancy_classmate_cot reward_model.classmate_reward_weight=0.3
"""

from verl.experimental.reward_loop.reward_manager import register
from verl.workers.reward_manager.classmate_cot import ClassmateCoTRewardManager


@register("sycophancy_classmate_cot")
class SycophancyClassmateCoTRewardManager(ClassmateCoTRewardManager):
    """F = (1 - w) r + w W, with r = score + 0.1 x format."""
