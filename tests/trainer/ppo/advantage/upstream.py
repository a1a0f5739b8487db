"""Upstream's estimators, and what they read beside the rows."""

from typing import get_args

from verl.classmate.algorithm_config import OUR_ESTIMATORS, EstimatorName

THEIRS = [name for name in get_args(EstimatorName) if name not in OUR_ESTIMATORS]


class Algorithm(dict):
    """The node `algorithm`, read by key and by attribute."""

    __getattr__ = dict.__getitem__


ALGORITHM = Algorithm(gamma=1.0, lam=0.95, norm_adv_by_std_in_grpo=True)
