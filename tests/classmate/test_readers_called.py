"""Messages about a teacher's students speak of students, under the keys that were written."""

from pathlib import Path
from typing import Any

import pytest

from verl.classmate.config import from_mapping
from verl.classmate.errors import ConfigError
from verl.classmate.frozen import frozen_readers
from verl.trainer.silent_classmates import SilenceWatch
from verl.workers.classmates.remote import RemoteWatch


def told(**keys: Any) -> str:
    with pytest.raises(ConfigError) as error:
        from_mapping({"readers_called": "student", **keys})
    return str(error.value)


def test_no_student() -> None:
    assert told() == "no student is given; write 'rcl.students=[{model: path-or-hub-name}]'"


@pytest.mark.parametrize(
    ("keys", "begins"),
    [
        ({"classmates": [{"model": ""}]}, "rcl.students[0].model: is empty"),
        ({"classmates": [{"model": "a", "weight": 0}]}, "rcl.students: all weights are 0"),
        (
            {"classmates": [{"model": "/a"}], "evaluation_classmates": [{"model": "/a"}]},
            "rcl.unseen_students[0].model: /a is student 0, which",
        ),
    ],
)
def test_a_mistake_is_told_under_its_key(keys: dict[str, Any], begins: str) -> None:
    message = told(**keys)
    assert message.startswith(begins)
    assert "classmate" not in message


def test_keys_of_students_are_told() -> None:
    keys = {"classmates": [{"model": "a"}], "evaluation_classmates": [{"model": "b"}]}
    readers = frozen_readers(from_mapping({"readers_called": "student", **keys}))
    assert [one.keys for one in readers] == ["rcl.students[0].", "rcl.unseen_students[0]."]


def test_a_student_that_is_gone_is_no_classmate(tmp_path: Path) -> None:
    events: list[str] = []
    (tmp_path / "servers.json").write_text("{}")
    RemoteWatch({0: "some/model"}, tmp_path / "servers.json", called="student", on_event=events.append).check()
    assert events[0].startswith("student 0 (some/model) is down")
    assert SilenceWatch(["m"], steps=1, called="student").step([]) == []
