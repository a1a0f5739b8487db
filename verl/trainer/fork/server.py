"""Ray workers forked from one process that has the large libraries imported, instead of each importing them again.

On two cores eight processes that import torch and transformers take longer to start than the whole of the rest. Ray
lets a run name the command that its Python workers are started with (`py_executable` of a runtime environment); ours
is a client that asks the server for a fork. The server imports neither Ray nor verl, which read environment variables
while they are imported, and those differ between workers; what it does import starts no thread of Python (one of
pyarrow's allocator there is, which prepares for forks).

    >>> server = ForkServer.start(env_vars={"TQ_NUM_THREADS": "1"})
    >>> ray.init(runtime_env={"py_executable": server.py_executable})
    >>> server.close()                 # workers that live on are not touched, later ones start the ordinary way
"""

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_HERE = Path(__file__).resolve().parent


class ForkServer:
    """The server's process, as long as this object lives and is not closed."""

    def __init__(self, folder: Path, process: subprocess.Popen, lifeline: socket.socket) -> None:
        self._folder = folder
        self._process = process
        self._lifeline = lifeline

    @classmethod
    def start(cls, env_vars: Mapping[str, str]) -> "ForkServer":
        """Starts the server and returns at once. Requests that come before its imports are done are answered after
        them.

        Args:
            env_vars: environment variables of all workers, which libraries may read while they are imported.

        Raises:
            OSError: when there can be no socket in the folder for temporary files, because its path is too long.
        """
        # Only this user can open the folder, and so ask for a process.
        folder = Path(tempfile.mkdtemp(prefix="fork_server_"))
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(folder / "socket"))
                listener.listen(128)
                lifeline, other_end = socket.socketpair()
                with other_end, (folder / "log").open("w") as log:
                    process = subprocess.Popen(
                        [
                            sys.executable,
                            "-P",
                            str(_HERE / "_server_process.py"),
                            str(listener.fileno()),
                            str(other_end.fileno()),
                        ],
                        pass_fds=(listener.fileno(), other_end.fileno()),
                        # Forks keep the number of threads that torch was imported with; Ray's default is one a CPU,
                        # and workers that ask for more CPUs set their own.
                        env={"OMP_NUM_THREADS": "1", **os.environ, **env_vars},
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
        except OSError:
            shutil.rmtree(folder)
            raise
        return cls(folder, process, lifeline)

    @property
    def py_executable(self) -> str:
        """The command that Ray starts Python workers with; it runs their script itself where no server answers."""
        return shlex.join([sys.executable, "-IS", str(_HERE / "_client.py"), str(self._folder / "socket")])

    @property
    def pid(self) -> int:
        return self._process.pid

    def log(self) -> str:
        """What the server and its imports have written."""
        return (self._folder / "log").read_text()

    def close(self) -> None:
        """Ends the server."""
        self._process.terminate()
        self._process.wait()
        self._lifeline.close()
        shutil.rmtree(self._folder, ignore_errors=True)
