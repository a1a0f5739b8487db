"""Samples that are kept on disk, so that a stage which was killed goes on, and a second run draws nothing again.

One decision: the key is all that a completion follows from: weights, prompt, prefix, parameters, seed and index. What
was asked for together is no part of it, so that 16 samples find the 8 that were drawn before. Failures are not kept.

    >>> backend = CachedBackend(HFBackend("models/policy"), Path("outputs/samples.sqlite"))
    >>> backend.generate(["What is 3 + 4?"], n=8)
    >>> backend.hits, backend.misses
    (0, 8)
"""

import dataclasses
import json
import sqlite3
import threading
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

from tqdm import tqdm

from verl.reasoning.backends import Completion, GenBackend, SamplingParams

_Groups = dict[tuple[int, int], list[int]]


class CachedBackend:
    """A `GenBackend` that asks another one only for what it has not drawn yet."""

    def __init__(self, backend: GenBackend, file: Path | str, *, chunk: int = 256) -> None:
        """Opens the file.

        Args:
            backend: who is asked.
            file: an SQLite database; it is made where there is none.
            chunk: completions that are asked for before they are written; a kill loses no more than that.

        Raises:
            ValueError: the file is something else.
        """
        self.backend = backend
        self.file = Path(file)
        self.hits = self.misses = 0
        """Completions that were in the file, and that were not."""
        self._chunk = chunk
        self._lock = threading.Lock()
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(self.file, check_same_thread=False, timeout=60.0)
        try:
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("CREATE TABLE IF NOT EXISTS completions (key BLOB PRIMARY KEY, value TEXT NOT NULL)")
            self._database.commit()
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{self.file} keeps no samples ({error}); name another file") from None

    @property
    def model(self) -> str:
        """Of the backend behind."""
        return self.backend.model

    @property
    def revision(self) -> str:
        """Of the backend behind."""
        return self.backend.revision

    @property
    def tokenizer(self) -> Any:
        """Of the backend behind, where it has one."""
        return self.backend.tokenizer  # type: ignore[attr-defined]

    def max_model_len(self) -> int:
        """Of the backend behind, where it knows."""
        return self.backend.max_model_len()  # type: ignore[attr-defined]

    def generate(
        self, prompts: Sequence[str], *, n: int = 1, sampling: SamplingParams | None = None
    ) -> list[list[Completion]]:
        """As `GenBackend.generate`."""
        return self.continue_from(prompts, [""] * len(prompts), n=n, sampling=sampling)

    def continue_from(
        self, prompts: Sequence[str], prefixes: Sequence[str], *, n: int = 1, sampling: SamplingParams | None = None
    ) -> list[list[Completion]]:
        """As `GenBackend.continue_from`."""

        def ask(places: Sequence[int], count: int, how: SamplingParams) -> list[list[Completion]]:
            return self.backend.continue_from(
                [prompts[i] for i in places], [prefixes[i] for i in places], n=count, sampling=how
            )

        return self._drawn(list(zip(prompts, prefixes, strict=True)), n, sampling or SamplingParams(), ask)

    def complete_ids(
        self,
        ids: Sequence[Sequence[int]],
        *,
        keys: Sequence[tuple[str, str]] | None = None,
        n: int = 1,
        sampling: SamplingParams | None = None,
    ) -> list[list[Completion]]:
        """As `TokenBackend.complete_ids`, where the backend behind has it."""
        behind: Any = self.backend

        def ask(places: Sequence[int], count: int, how: SamplingParams) -> list[list[Completion]]:
            named = None if keys is None else [keys[i] for i in places]
            return behind.complete_ids([ids[i] for i in places], keys=named, n=count, sampling=how)

        asked = [[list(one), None if keys is None else list(keys[i])] for i, one in enumerate(ids)]
        return self._drawn(asked, n, sampling or SamplingParams(), ask)

    def log_probs(self, prompts: Sequence[str], texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        """As `GenBackend.log_probs`."""
        revision = self.revision
        keys = [_key("log_probs", revision, pair) for pair in zip(prompts, texts, strict=True)]
        known = self._find(keys)
        missing = [i for i, key in enumerate(keys) if key not in known]
        self._count(len(keys) - len(missing), len(missing))
        for start in range(0, len(missing), self._chunk):
            places = missing[start : start + self._chunk]
            told = self.backend.log_probs([prompts[i] for i in places], [texts[i] for i in places])
            self._keep({keys[i]: json.dumps(one) for i, one in zip(places, told, strict=True) if one})
            known |= {keys[i]: json.dumps(one) for i, one in zip(places, told, strict=True)}
        return [[(str(text), float(value)) for text, value in json.loads(known[key])] for key in keys]

    def count_tokens(self, text: str) -> int:
        """As `GenBackend.count_tokens`."""
        return self.backend.count_tokens(text)

    def close(self) -> None:
        """Ends the backend behind, and closes the file."""
        self.backend.close()
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drawn(
        self,
        asked: Sequence[Any],
        n: int,
        how: SamplingParams,
        ask: Callable[[Sequence[int], int, SamplingParams], list[list[Completion]]],
    ) -> list[list[Completion]]:
        if n < 1:
            raise ValueError(f"n={n}: write how many completions of each prompt, 1 or more")
        params = {key: value for key, value in dataclasses.asdict(how).items() if key != "first_index"}
        revision, indices = self.revision, range(how.first_index, how.first_index + n)
        keys = [[_key("completion", revision, one, params, index) for index in indices] for one in asked]
        known = {key: _completion(text) for key, text in self._find([key for row in keys for key in row]).items()}
        groups = self._missing(keys, known)
        misses = sum(count * len(places) for (_, count), places in groups.items())
        self._count(n * len(keys) - misses, misses)
        with tqdm(total=misses, desc="samples", unit="text", leave=False, disable=None if misses else True) as bar:
            for (first, count), places in groups.items():
                size = max(1, self._chunk // count)
                for start in range(0, len(places), size):
                    some = places[start : start + size]
                    drawn = ask(some, count, dataclasses.replace(how, first_index=how.first_index + first))
                    new = {
                        keys[i][first + k]: one for i, row in zip(some, drawn, strict=True) for k, one in enumerate(row)
                    }
                    self._keep({key: json.dumps(dataclasses.asdict(one)) for key, one in new.items() if one.ok})
                    known |= new
                    bar.update(len(new))
        return [[known[key] for key in row] for row in keys]

    def _missing(self, keys: Sequence[Sequence[bytes]], known: dict[bytes, Completion]) -> _Groups:
        """Runs of neighbouring indices that are not known, as (first, how many), with the rows that lack them."""
        groups: _Groups = {}
        seen: set[bytes] = set()
        for row, row_keys in enumerate(keys):
            lacking = [k for k, key in enumerate(row_keys) if key not in known and key not in seen]
            seen.update(row_keys)
            start = 0
            for place in range(1, len(lacking) + 1):
                if place == len(lacking) or lacking[place] != lacking[place - 1] + 1:
                    groups.setdefault((lacking[start], place - start), []).append(row)
                    start = place
        return groups

    def _count(self, hits: int, misses: int) -> None:
        with self._lock:
            self.hits, self.misses = self.hits + hits, self.misses + misses

    def _find(self, keys: Sequence[bytes]) -> dict[bytes, str]:
        found: dict[bytes, str] = {}
        with self._lock:
            # SQLite takes so many values in a statement.
            for start in range(0, len(keys), 500):
                some = keys[start : start + 500]
                marks = ",".join("?" * len(some))
                found |= dict(
                    self._database.execute(f"SELECT key, value FROM completions WHERE key IN ({marks})", some)
                )
        return found

    def _keep(self, values: dict[bytes, str]) -> None:
        with self._lock, self._database:
            self._database.executemany("INSERT OR REPLACE INTO completions VALUES (?, ?)", list(values.items()))


def _key(*parts: Any) -> bytes:
    return blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=20).digest()


def _completion(text: str) -> Completion:
    values = json.loads(text)
    return Completion(**values | {"token_ids": tuple(values["token_ids"]), "log_probs": tuple(values["log_probs"])})
