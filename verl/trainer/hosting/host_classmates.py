"""Hosts classmates outside of a run: one OpenAI-compatible server per model, entered in the mapping file while it runs.

One decision: the launcher owns what it starts. It stays in the foreground, and when it ends, by Ctrl-C, by a signal or
because one of its servers died, its entries leave the file first and its servers end after them.

    bash my_scripts/host_classmate_model.sh Qwen/Qwen3-0.6B              # vLLM where it can run, else the engine hf
    bash my_scripts/host_classmate_model.sh --backend hf models/a models/b
    bash my_scripts/host_classmate_model.sh reward_model.classmate_model_name_or_path_list=[models/a]
"""

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError
from verl.trainer.hosting.options import Options, parse
from verl.trainer.hosting.ports import reserved_ports
from verl.trainer.hosting.servers import Hosted, HostingError, start, stop, wait_until_ready
from verl.utils.model_servers.mapping import Server, changing, find, problem


class Stopped(BaseException):
    """A signal asked the launcher to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def refuse_doubles(options: Options) -> None:
    """Raises ConfigError for a model that another launcher hosts; entries of dead servers are no obstacle."""
    with changing(options.mapping) as servers:
        for model in options.models:
            _refuse_double(options.mapping, find(servers, model))


def _refuse_double(mapping: Path, there: Server | None) -> None:
    if there is not None and problem(there) is None:
        raise ConfigError(
            f"{there.name} is hosted already at {there.url} ({mapping}); end that launcher first, or leave it out"
        )


@contextlib.contextmanager
def entered(mapping: Path, hosted: Sequence[Hosted]) -> Iterator[None]:
    """The entries of servers, in the mapping file as long as the block runs."""
    mine = {one.server.name: one.server for one in hosted}
    try:
        with changing(mapping) as servers:
            for name in mine:
                _refuse_double(mapping, servers.get(name))
            servers.update(mine)
        yield
    finally:
        _ignore_signals()
        with changing(mapping) as servers:
            for name, server in mine.items():
                if servers.get(name) == server:
                    del servers[name]


def host(options: Options, say: Callable[[str], None] = print) -> None:
    """Hosts until a signal (`Stopped`) or until a server dies.

    Raises:
        ConfigError: a port is taken, or a model is hosted already.
        HostingError: a server did not start or did not stay; its log's end is in the message.
    """
    refuse_doubles(options)
    hosted: list[Hosted] = []
    with reserved_ports(options) as ports:
        try:
            for index, (model, port) in enumerate(zip(options.models, ports, strict=True)):
                hosted.append(start(options, model, port, index))
                say(f"{model}: starting on {options.backend}, port {port}, log {hosted[-1].log}")
            wait_until_ready(hosted, options.start_timeout_s, say)
            with entered(options.mapping, hosted):
                say(f"hosting {len(hosted)} of {len(hosted)}; entered in {options.mapping}; Ctrl-C ends it")
                while True:
                    for one in hosted:
                        one.check()
                    time.sleep(0.2)
        finally:
            _ignore_signals()
            stop(hosted)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _ignore_signals() -> None:
    """A second Ctrl-C must not interrupt the cleaning up."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def main(arguments: Sequence[str]) -> int:
    """Runs the launcher; the exit code: 2 for a user's mistake, 1 for a failed server, 128 + n for signal n."""

    def on_signal(number: int, _: Any) -> None:
        _ignore_signals()
        raise Stopped(number)

    def say(line: str) -> None:
        print(line, flush=True)

    try:
        options = parse(arguments)
        for number in _SIGNALS:
            signal.signal(number, on_signal)
        host(options, say)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except HostingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except Stopped as stopped:
        say(f"stopped by {stopped}; the servers have ended and their entries are removed")
        return 128 + stopped.number
    raise AssertionError("host ends by an exception")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
