"""The exceptions of this project, all picklable, since they cross process borders.

A user's mistake is a `ConfigError` whose message is one line and says what to write instead. The failure of a helper
becomes an `Outcome` where the row is scored (see `outcome.py`); the other classes here carry it there.

    >>> raise ConfigError("reward_model.cot_format: 'xml' is not possible; write one of: markers, plain")
"""

import os
import traceback


class ConfigError(ValueError):
    """A mistake of the user: one line, the full key, what to write instead."""


class MissingKeyError(ConfigError, KeyError):
    """A key that is read is not in the config: whoever looks for one by trial finds a `KeyError`."""

    __str__ = ConfigError.__str__


class ClassmateEngineError(RuntimeError):
    """A classmate's engine failed to answer a request."""


class VerifierError(RuntimeError):
    """A verifier or judge could not score a text. Never turned into a number
    (docs/method.md#what-fails-is-no-score)."""


def reason_of(error: BaseException, file: str) -> str:
    """Why a user's file could not be executed, in one line: what it raised, and where in it.

    Args:
        error: what the loader raised; if upstream raised it, its cause is what the file raised.
        file: its path.
    """
    if error.__cause__ is not None and str(error).startswith("Error loading module"):
        error = error.__cause__
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    name = os.path.realpath(file.removeprefix("file://"))
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if os.path.realpath(frame.filename) == name]
    # A syntax error says its own line.
    return f"{reason}, line {lines[-1]}" if lines else reason
