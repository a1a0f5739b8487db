"""The exceptions of this project, all picklable, since they cross process borders.

A user's mistake is a `ConfigError` whose message is one line and says what to write instead. A helper that fails is no
exception where it is scored: it becomes an `Outcome` (see `scoring.py`); the classes below carry it there.

    >>> raise ConfigError("reward_model.cot_format: 'xml' is not possible; write one of: markers, plain")
"""


class ConfigError(ValueError):
    """A mistake of the user: one line, the full key, what to write instead."""


class ClassmateEngineError(RuntimeError):
    """A classmate's engine failed to answer a request."""


class ClassmateTimeout(ClassmateEngineError):
    """A classmate did not answer within `reward_model.classmate_request_timeout`."""


class ClassmateExcluded(ClassmateEngineError):
    """A classmate was taken out of the run after repeated failures (failure policy `exclude`)."""


class VerifierError(RuntimeError):
    """A verifier or judge could not score a text. Never turned into a number (spec D3)."""
