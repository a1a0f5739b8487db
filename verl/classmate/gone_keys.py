"""Keys of the original code that had no effect: they are refused with the reason, wherever they are written.

>>> refuse_gone("reward_model.cl_rollout_is_threshold")
ConfigError: reward_model.cl_rollout_is_threshold: had no effect, since no parameter of the policy ...
"""

from verl.classmate.errors import ConfigError

_GONE = {
    "classmate_clip_ratio": "had no effect, since no parameter of the policy was in the ratio that it clipped",
    "cl_rollout_is_": "had no effect, since no parameter of the policy was in the ratio that it weighted",
}
"""Beginnings of keys of the original code that are refused, and why."""


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
