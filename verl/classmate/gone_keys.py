"""Keys of the original code that had no effect: they are refused with the reason, wherever they are written.

>>> refuse_gone("reward_model.cl_rollout_is_threshold")
ConfigError: reward_model.cl_rollout_is_threshold: weighted a ratio without any parameter of the policy, ...
"""

from verl.classmate.errors import ConfigError

_GONE = {
    "classmate_clip_ratio": "clipped a ratio without any parameter of the policy, so that it had no gradient",
    "cl_rollout_is_": "weighted a ratio without any parameter of the policy, so that it had no gradient",
}
"""Beginnings of keys of the original code that are refused, and why (spec 4.5)."""


def refuse_gone(key: str) -> None:
    """Refuses keys of the original code that had no effect.

    Raises:
        ConfigError: with the reason.
    """
    leaf = key.rpartition(".")[2]
    for beginning, reason in _GONE.items():
        if leaf.startswith(beginning):
            raise ConfigError(
                f"{key}: {reason}; leave it out (classmate_reward_weight sets the classmates' share, "
                "reward_model.rollout_is_threshold corrects for the rollout engine)"
            )
