"""What a person is told the run's readers are, and under which keys they are written.

One decision: a teacher's run has students in the place of classmates, and whoever wrote `rcl.students` hears of
students. Messages about readers take their words from here.

    >>> READER_WORDS["student"].many
    'students'
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ReaderName = Literal["classmate", "student"]


@dataclass(frozen=True, kw_only=True)
class ReaderWords:
    """Words of messages about a run's readers."""

    one: str
    """One of them."""
    many: str
    """All."""
    key: str
    """Where a user lists them."""
    unseen_key: str
    """Where a user lists those that are asked in validation only."""
    none_is_given: str
    """The message where there are none."""


READER_WORDS: Mapping[ReaderName, ReaderWords] = {
    "classmate": ReaderWords(
        one="classmate",
        many="classmates",
        key="reward_model.classmates",
        unseen_key="reward_model.evaluation_classmates",
        none_is_given="no classmate is given; write "
        "reward_model.classmate_cot_reward_configs.classmate_model_name_or_path_list=[path-or-hub-name]",
    ),
    "student": ReaderWords(
        one="student",
        many="students",
        key="rcl.students",
        unseen_key="rcl.unseen_students",
        none_is_given="no student is given; write 'rcl.students=[{model: path-or-hub-name}]'",
    ),
}
"""By `reward_model.readers_called`."""
