"""Upstream's estimators, and what they read beside the rows."""

from verl.classmate.estimators import ESTIMATORS

THEIRS = [name for name, one in ESTIMATORS.items() if not one.ours]


class Algorithm(dict):
    """The node `algorithm`, read by key and by attribute."""

    __getattr__ = dict.__getitem__


ALGORITHM = Algorithm(gamma=1.0, lam=0.95, norm_adv_by_std_in_grpo=True)
