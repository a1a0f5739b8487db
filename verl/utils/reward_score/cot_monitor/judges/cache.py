"""Answers of judges on disk: no text is judged twice by the same judge.

One decision: one small file per answer, under the hash of everything that the answer depends on, put in place
by a rename. So any number of processes and machines may share the folder, nothing is ever locked or half written, and
whoever wants to be rid of it deletes it.

    >>> cache = AnswerCache("outputs/judge_cache")
    >>> key = cache.key(model="judge", temperature=0.0, prompt="Rate this: ...")
    >>> cache.put(key, answer)
    >>> cache.get(key).text
"""

import contextlib
import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

from verl.utils.reward_score.cot_monitor.judges.backend import JudgeAnswer


class AnswerCache:
    """A folder of answers. What cannot be read or written there is as if it were not there."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def key(self, **parts: Any) -> str:
        """Hash of all that an answer depends on."""
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def get(self, key: str) -> JudgeAnswer | None:
        """The answer, if there is one that can be read."""
        try:
            answer = JudgeAnswer(**json.loads(self._file(key).read_text()))
        except (OSError, ValueError, TypeError, RecursionError):
            return None
        types_ = [type(value) for value in dataclasses.astuple(answer)]
        return answer if types_ in ([str, str, int, int], [str, type(None), int, int]) else None

    def put(self, key: str, answer: JudgeAnswer) -> None:
        """Keeps an answer; a full disk costs the cache, not the run."""
        file = self._file(key)
        draft = file.with_name(f".{uuid4().hex}")
        # A ValueError: the text holds what no encoding takes.
        with contextlib.suppress(OSError, ValueError):
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                draft.write_text(json.dumps(dataclasses.asdict(answer), ensure_ascii=False))
                os.replace(draft, file)
            finally:
                draft.unlink(missing_ok=True)

    def _file(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.json"
