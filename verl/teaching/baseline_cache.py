"""What a frozen student reaches alone, stored on disk: it is asked once for all rollouts, steps, runs and processes.

One decision: what was stored first stays. Whoever comes second, at the same time or later, gets the first one's
baseline, so that all rollouts of a question are compared with the same one.

    >>> cache = BaselineCache(Path("baselines.sqlite"))
    >>> key = BaselineKey(student_revision="a1b2", template_hash=templates.baseline_hash, question="What is 58 + 27?",
    ...                   sampling={"temperature": 0.7, "max_tokens": 512, "n": 8})
    >>> baseline = cache.get(key) or cache.put(key, ask_student())
    >>> baseline.solve_rate
    0.625

The file is opened anew for each access, which takes a fraction of a millisecond: any thread and any process may use it,
forked ones too.
"""

import hashlib
import json
import math
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError

SCHEMA = 1
"""Version of the file."""
_BUSY_S = 60.0
"""Seconds for which an access waits while another process writes."""


@dataclass(frozen=True, kw_only=True)
class BaselineKey:
    """All that a baseline is a function of; a change of any of these makes another baseline."""

    student_revision: str
    """Which weights: a commit, or a hash of them. Never a mere path, whose content may change."""
    template_hash: str
    """Of the baseline template (`Templates.baseline_hash`)."""
    question: str
    """The question as it is put into the template."""
    sampling: Mapping[str, Any]
    """The number of samples, and whatever else the engine is told: temperature, top_p, budget, seed."""
    truth: str | None = None
    """The ground truth that the scores are of, so that a corrected one makes another baseline."""

    @property
    def digest(self) -> str:
        """Sha256 of all of it, in hex.

        Raises:
            ConfigError: a sampling parameter is no plain value, or no number.
        """
        try:
            told = json.dumps(
                [self.student_revision, self.template_hash, self.question, _plain(self.sampling), self.truth],
                sort_keys=True,
                allow_nan=False,
            )
        except (TypeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"the sampling parameters {dict(self.sampling)!r} cannot be stored ({reason}); write numbers and texts"
            ) from error
        return hashlib.sha256(told.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """M answers of a student to the question alone.

    Raises:
        ValueError: no sample, fields of different lengths, or a score outside of [0, 1].
    """

    scores: tuple[float, ...]
    """0 or 1 for each; a response without an answer has 0. Failed calls are no samples."""
    response_lengths: tuple[int, ...]
    """Of each response, in the student's tokens."""
    finish_reasons: tuple[str, ...]
    """Of each response, in the engine's words: `stop`, `length`."""
    texts: tuple[str, ...] = ()
    """The responses themselves, which a student may be shown as what to avoid (`contrastive` sets); none where a
    baseline was stored without them."""

    def __post_init__(self) -> None:
        lengths = {len(self.scores), len(self.response_lengths), len(self.finish_reasons)}
        if lengths == {0} or len(lengths) != 1 or len(self.texts) not in {0, *lengths}:
            raise ValueError("a baseline has a score, a length and a finish reason for each sample; store all of them")
        for score in self.scores:
            if not isinstance(score, int | float) or not math.isfinite(score) or not 0 <= score <= 1:
                raise ValueError(f"{score!r} is no score; store numbers from 0 to 1, and nothing after a failed call")
        for length in self.response_lengths:
            if not isinstance(length, int) or length < 0:
                raise ValueError(f"{length!r} is no length; store numbers of tokens")
        if not all(isinstance(reason, str) for reason in self.finish_reasons):
            raise ValueError("a finish reason is no text; store the engine's word for it")

    @property
    def solve_rate(self) -> float:
        """Mean score, b."""
        return math.fsum(self.scores) / len(self.scores)


class BaselineCache:
    """A file of baselines."""

    def __init__(self, file: Path) -> None:
        """Makes the file unless it is there.

        Raises:
            ConfigError: it is damaged or something else, or cannot be opened.
        """
        self._file = Path(file)
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"baselines: {file} cannot be made ({error.strerror}); name another file") from error
        with self._open(writes=True) as connection:
            (schema,) = connection.execute("PRAGMA user_version").fetchone()
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if (schema and schema != SCHEMA) or (not schema and tables):
                raise ConfigError(f"baselines: {file} was made by something else; name another file")
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise self._damaged(found)
            connection.execute(
                "CREATE TABLE IF NOT EXISTS baselines (key TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID"
            )
            connection.execute(f"PRAGMA user_version = {SCHEMA}")

    def get(self, key: BaselineKey) -> Baseline | None:
        """What is stored; None if nothing is.

        Raises:
            ConfigError: the file is damaged or cannot be read.
        """
        return self.stored(key.digest)

    def stored(self, digest: str) -> Baseline | None:
        """The same, by `BaselineKey.digest`, for those who were told that alone.

        Raises:
            ConfigError: the file is damaged or cannot be read.
        """
        with self._open() as connection:
            return self._read(connection, digest)

    def put(self, key: BaselineKey, baseline: Baseline) -> Baseline:
        """Stores a baseline unless there is one; the one that is stored now.

        Raises:
            ConfigError: the file is damaged or cannot be written.
        """
        content = json.dumps(asdict(baseline))
        with self._open(writes=True) as connection:
            connection.execute("INSERT OR IGNORE INTO baselines VALUES (?, ?)", (key.digest, content))
            stored = self._read(connection, key.digest)
        assert stored is not None
        return stored

    def __len__(self) -> int:
        """Number of stored baselines."""
        with self._open() as connection:
            (number,) = connection.execute("SELECT count(*) FROM baselines").fetchone()
        return int(number)

    def _read(self, connection: sqlite3.Connection, digest: str) -> Baseline | None:
        row = connection.execute("SELECT content FROM baselines WHERE key = ?", (digest,)).fetchone()
        if row is None:
            return None
        try:
            return Baseline(**{name: tuple(values) for name, values in json.loads(row[0]).items()})
        except (ValueError, TypeError, AttributeError) as error:
            raise self._damaged(" ".join(str(error).split())) from error

    @contextmanager
    def _open(self, *, writes: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection, and one transaction on it."""
        try:
            with closing(sqlite3.connect(self._file, timeout=_BUSY_S)) as connection, connection:
                # Who reads first and then wants to write would wait for another one that does the same.
                connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                yield connection
        except sqlite3.OperationalError as error:
            raise ConfigError(
                f"baselines: {self._file} cannot be used ({error}); name one that can, on a disk with room"
            ) from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from error

    def _damaged(self, reason: str) -> ConfigError:
        return ConfigError(f"baselines: {self._file} is damaged ({reason}); delete it, and they are asked for again")


def _plain(value: Any) -> Any:
    """A value as JSON has it; 1.0 is 1, as both are the same to an engine."""
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise TypeError("a name is no text")
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
