"""Rows in which the user hints at an answer, and what they ask without the hint.

One decision: a row says itself what its prompt is without the hint; no hint is looked for in a text and cut out.

    >>> without_hint(task)
    'Tom has 47 apples and gets 38 more. How many apples in all?'
"""

from collections.abc import Mapping
from typing import Any

from verl.classmate.errors import ConfigError
from verl.classmate.reward_config import REWARD_NODE
from verl.classmate.row import Task

_HINTS = ("hint_str_for_monitor", "hinted_answer")
"""Keys of a row's `reward_model` that say what the hint is (docs/data.md#rows)."""

LACKING = (
    "has a hint, but no reward_model.prompt_without_hint, which classmates are to be shown; make the data again with a "
    f"module of verl.data_preprocessing, which writes it, or write {REWARD_NODE}.classmate_question=full"
)
"""What is said of a row whose prompt without the hint is not known."""


def has_hint(reward_model: Mapping[str, Any]) -> bool:
    """Whether the user of a row hints at an answer.

    Args:
        reward_model: the row's field of that name.
    """
    return any(reward_model.get(key) not in (None, "") for key in _HINTS)


def prompt_without_hint(reward_model: Mapping[str, Any]) -> str | None:
    """The last turn of a row's prompt without the hint; None where the row does not say it."""
    text = reward_model.get("prompt_without_hint")
    return text if isinstance(text, str) and text.strip() else None


def without_hint(task: Task) -> str | None:
    """What the user asks without the hint; None where there is no hint.

    Raises:
        ConfigError: there is one, and the row does not say.
    """
    text = prompt_without_hint(task.reward_model)
    if text is None and has_hint(task.reward_model):
        raise ConfigError(f"a row of {task.data_source} {LACKING}")
    return text
