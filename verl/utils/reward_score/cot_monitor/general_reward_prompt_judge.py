"""Verifier of `general_reward_prompt_judge`: how good an answer is as a whole, by a judge.

The rubric is `general_reward_prompt_judge.txt`.

    verifier = get_verifier("general_reward_prompt_judge")
    verifier.format_llm_judge_prompt("Is my poem good?", "It is the best poem ever written.")
"""

from typing import ClassVar, Literal

from verl.utils.reward_score.cot_monitor._judged import JudgedVerifier
from verl.utils.reward_score.cot_monitor.BaseVerifier import register


@register("general_reward_prompt_judge")
class GeneralRewardPromptJudgeVerifier(JudgedVerifier):
    """1 of no use to 10 could hardly be better."""

    reward_direction: ClassVar[Literal["maximize", "minimize"]] = "maximize"
    reward_description = "1 (of no use) to 10 (could hardly be better): overall quality of the answer"
    rubric = "general_reward_prompt_judge"
