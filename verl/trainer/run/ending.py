"""How a run ends that did not come to its end: what failed, and what to type to go on.

>>> how_to_go_on(folder, "auto")
'the same command resumes the run at its last checkpoint, step 40'
"""

import traceback
from pathlib import Path

from verl.classmate.errors import ConfigError
from verl.trainer.run.checkpoints import latest_step
from verl.trainer.run.folder import RunFolder


class RunFailed(Exception):
    """A run that failed: what happened, and the log that says more."""

    @classmethod
    def of(cls, error: BaseException, log: Path) -> "RunFailed":
        """One line about `error`, whose traceback is in `log`."""
        text = str(error).strip().splitlines()
        return cls(f"the run failed ({type(error).__name__}: {text[-1] if text else 'no message'}); see {log}")


def caught(error: BaseException) -> BaseException:
    """The error that ended a run, with its traceback in the run's log, to be told when the terminal is free again.

    Called where it is caught; what is no failure (Ctrl-C, a debugger's end) goes on from there.
    """
    if not isinstance(error, KeyboardInterrupt):
        traceback.print_exc()
    # Upstream's progress bar prints once more when it is collected: now, into the log.
    traceback.clear_frames(error.__traceback__)
    if not isinstance(error, Exception | SystemExit):
        raise error
    return error


def tell(error: BaseException | None, log: Path) -> None:
    """Raises what a run ended with, if it failed.

    Args:
        error: that was `caught`; None: the run ended well.
        log: of the run.

    Raises:
        ConfigError: a user's mistake, as it is.
        RunFailed: anything else.
    """
    if isinstance(error, ConfigError):
        raise error
    if error is not None:
        raise RunFailed.of(error, log) from error


def how_to_go_on(folder: RunFolder, resume_mode: str) -> str:
    """What to type after a run that did not come to its end.

    Args:
        folder: the run's.
        resume_mode: `trainer.resume_mode` as the user wrote it.
    """
    try:
        step = latest_step(folder.path)
    except ConfigError as error:
        return str(error)
    if resume_mode == "auto":
        resumes = f"the same command resumes the run at its last checkpoint, step {step}"
        return resumes if step else "there is no checkpoint yet: the same command starts the run again"
    resumes = f"trainer.resume_mode=auto trainer.default_local_dir={folder.path} resumes it at step {step}"
    return resumes if step else "there is no checkpoint to resume from"
