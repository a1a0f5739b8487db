"""What is typed behind `launch.sh` and `launch_with_server.sh`: numbers of GPUs, a run file, settings, bare words.

One decision: a word is what it looks like, wherever it stands: a setting holds `=`, bare words and flags are listed
here, and what is left must be the numbers and the run file in their order. Anything else shows the usage.

    >>> parse("server", ["4", "4", "configs/run/teacher_rcl.yaml", "offload", "learning_rate=1e-6"]).train_gpus
    4
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from verl.classmate.errors import ConfigError

Launcher = Literal["plain", "server"]
"""`launch.sh`, and `launch_with_server.sh`, which has a first number for the students' servers."""

BARE_WORDS = {
    "offload": "keep weights and optimizer in the CPU's memory while they are not used",
    "zero1": "shard gradients and optimizer, but keep the weights whole between forward and backward",
}
"""Words without a value, and what each does."""

_PLAIN_USAGE = """\
usage: ./launch.sh N_GPUS RUN_FILE [key=value ...] [offload] [zero1] [--dry-run]

Supervised phases and evaluation; also reinforcement learning with the students beside the teacher.

  N_GPUS      number of GPUs; 0: the CPU, and without a data set the embedded teaching world
"""

_SERVER_USAGE = """\
usage: ./launch_with_server.sh N_VLLM N_TRAIN RUN_FILE [key=value ...] [offload] [zero1] [--dry-run]

Reinforcement learning of a teacher, with its students on servers of their own.

  N_VLLM      number of GPUs that serve the students; 0: the run holds them itself
  N_TRAIN     number of GPUs that train the teacher, the next ones; 0: the CPU. Twice 0 and no data set: the embedded
              teaching world
"""

_SHARED_USAGE = """\
  RUN_FILE    a file in configs/run: configs/run/NAME.yaml, run/NAME.yaml, NAME.yaml or NAME
  key=value   a documented name (learning_rate=1e-6), one of configs' folders (data=gsm8k), or any key of the config
"""


class UsageError(ConfigError):
    """A command line that is not one: the usage is shown with it."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a user asks of a launcher."""

    launcher: Launcher
    """Which script was started."""
    server_gpus: int
    """GPUs for the students' servers; always 0 for `launch.sh`."""
    train_gpus: int
    """GPUs for the training; 0: the CPU."""
    run_file: str
    """As it was typed."""
    settings: tuple[str, ...]
    """As they were typed, `key=value` or Hydra's `~key`, in their order."""
    words: frozenset[str]
    """Bare words of `BARE_WORDS`."""
    dry_run: bool
    """Whether to show the command only."""

    @property
    def command(self) -> str:
        """The script's name, for messages."""
        return "./launch_with_server.sh" if self.launcher == "server" else "./launch.sh"


def usage(launcher: Launcher) -> str:
    """What `-h` shows."""
    words = "".join(f"  {word:<12}{meaning}\n" for word, meaning in BARE_WORDS.items())
    flags = "  --dry-run   print the command that would be started, and start nothing\n"
    return (_SERVER_USAGE if launcher == "server" else _PLAIN_USAGE) + _SHARED_USAGE + words + flags


def wants_help(arguments: Sequence[str]) -> bool:
    """Whether the usage is asked for."""
    return any(word in ("-h", "--help") for word in arguments)


def parse(launcher: Launcher, arguments: Sequence[str]) -> Request:
    """The request of a command line.

    Raises:
        UsageError: it is none.
    """
    settings, words, placed, dry_run = [], set(), [], False
    for word in arguments:
        if word == "--dry-run":
            dry_run = True
        elif word in BARE_WORDS:
            words.add(word)
        elif re.fullmatch(r"-\d+(\.\d+)?", word):
            placed.append(word)
        elif word.startswith("-"):
            raise UsageError(f"{word} is not a flag; settings are written key=value")
        elif "=" in word or word.startswith("~"):
            settings.append(word)
        else:
            placed.append(word)
    numbers, run_file = _placed(launcher, placed)
    return Request(
        launcher=launcher,
        server_gpus=numbers[0] if launcher == "server" else 0,
        train_gpus=numbers[-1],
        run_file=run_file,
        settings=tuple(settings),
        words=frozenset(words),
        dry_run=dry_run,
    )


def _placed(launcher: Launcher, placed: Sequence[str]) -> tuple[list[int], str]:
    names = ["N_VLLM", "N_TRAIN"] if launcher == "server" else ["N_GPUS"]
    order = " ".join([*names, "RUN_FILE"])
    for word in placed:
        meant = get_close_matches(word.lstrip("+"), BARE_WORDS, n=1, cutoff=0.7)
        if meant:
            raise UsageError(f"{word!r} is not a word of this script; did you mean {meant[0]}?")
    if len(placed) < len(names) + 1:
        raise UsageError(f"write {order}; there is only {' '.join(placed) or 'nothing'}")
    if len(placed) > len(names) + 1:
        extra = placed[len(names) + 1]
        raise UsageError(f"{extra!r} comes after {order}; settings are written key=value")
    for name, word in zip(names, placed, strict=False):
        if not re.fullmatch(r"[0-9]{1,4}", word):
            raise UsageError(f"{name}={word} is not a number of GPUs; write {order}, with 0 for the CPU")
    if re.fullmatch(r"-?[0-9]+", placed[-1]):
        raise UsageError(f"RUN_FILE={placed[-1]} is a number; write {order}")
    return [int(word) for word in placed[:-1]], placed[-1]
