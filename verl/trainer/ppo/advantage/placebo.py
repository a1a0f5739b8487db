"""The control arm: each row gets the classmate reward of another answer to the same prompt, drawn at random.

A row keeps its own condition factor gamma, and only rows with the same gamma exchange. So rewards have the same
distribution as without it, row for row of a prompt, and say nothing about the thought that they are given to. Whatever
a run learns beyond its placebo, it learns from what the classmates said of this thought.

One decision: all permutations are equally likely, those that leave rows in their place too. Only then is a row's reward
uncorrelated with its own; permutations that move every row would turn it around.

    >>> permuted(inputs).classmate_reward_B

docs/method.md#placebo
"""

import dataclasses
import hashlib
from typing import Any

import numpy as np
import torch

from verl.trainer.ppo.advantage.base import AdvantageInputs


def permuted(inputs: AdvantageInputs) -> AdvantageInputs:
    """The same rows, with the classmate rewards of each prompt's rows permuted among those of equal gamma.

    The permutation follows from the prompt's uid, which names the step too, and the rows' numbers: not from the order
    in which they come.
    """
    assert inputs.rollout_B is not None
    assert inputs.gamma_B is not None
    reward_B = inputs.classmate_reward_B.clone()
    gamma, rollout = inputs.gamma_B.tolist(), inputs.rollout_B.tolist()
    strata: dict[tuple[Any, float], list[int]] = {}
    for i in torch.nonzero(inputs.classmate_rows_B).flatten().tolist():
        strata.setdefault((inputs.group_B[i], gamma[i]), []).append(i)
    for (uid, factor), rows in strata.items():
        rows.sort(key=lambda i: rollout[i])
        order = _generator(uid, factor).permutation(len(rows))
        reward_B[rows] = inputs.classmate_reward_B[[rows[k] for k in order]]
    return dataclasses.replace(inputs, classmate_reward_B=reward_B)


def _generator(uid: Any, factor: float) -> np.random.Generator:
    digest = hashlib.sha256(f"placebo {uid} {factor:g}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))
