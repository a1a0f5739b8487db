"""Seeds and keys that are the same in every process, run and resume.

One decision: they are hashes of what identifies a request, never of the order in which requests happen to arrive, so
that streamed and batched schedules draw the same samples. verl's own `uid` is random per step, hence `row_key`.

    >>> key = row_key("gsm8k", 17)
    >>> request_seed(1, 40, key, rollout=0, classmate=1, sample=0)
"""

import secrets
from hashlib import blake2b

POLICY_SEED = -1
"""Stands for the policy where seeds count classmates from 0."""

_FIRST_UNSEEN_SEED = -2
"""Stands for the first unseen reader there; the others follow downwards."""

SEEDED_ENGINE = "hf"
"""The engine that draws every request from a seed in any case, so that a given seed costs it nothing."""


def request_seed(seed: int, global_step: int, row_key: str, rollout: int, classmate: int, sample: int) -> int:
    """The sampling seed of one request, in `0 .. 2**31 - 1`.

    Requests that differ in any argument get unrelated seeds; `rollout` counts the n answers to one prompt.
    """
    text = f"{int(seed)}|{int(global_step)}|{row_key}|{int(rollout)}|{int(classmate)}|{int(sample)}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 33


def seed_number(reader: int, *, classmates: int) -> int:
    """The number of a reader in its requests' seeds: a classmate's own, and one below 0 for an unseen reader.

    It does not depend on how many classmates there are, so that unseen readers draw the same for the same row in runs
    with and without classmates.

    Args:
        reader: r, counted over classmates and then unseen readers.
        classmates: M.
    """
    return reader if reader < classmates else _FIRST_UNSEEN_SEED - (reader - classmates)


def row_key(data_source: str, index: int | str) -> str:
    """A stable name of a dataset row: 16 hexadecimal digits (verl splits row keys at underscores, so it has none)."""
    return blake2b(f"{data_source}|{index}".encode(), digest_size=8).hexdigest()


def sends_seed(engine: str, *, deterministic: bool) -> bool:
    """Whether a request to an engine (`hf`, `vllm`, `openai`) carries its `request_seed`.

    vLLM draws for seeded requests one by one, which slows a whole batch; only `trainer.deterministic` is worth that.
    """
    return deterministic or engine == SEEDED_ENGINE


def fresh_engine_seed() -> int:
    """What an engine's own generator starts from, for requests without a seed: another number at every start.

    With a fixed one a restarted engine, or two engines of a run, would draw the same numbers.
    """
    # Upstream adds the number of the replica, and numpy takes 32 bits.
    return secrets.randbelow(2**30)
