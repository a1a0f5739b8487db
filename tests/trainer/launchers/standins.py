"""Small programs that stand in for a student's server and for a run, and a launcher that starts them.

>>> launcher = launched(tmp_path, server="ok", run="exit 7")
>>> launcher.ends()
7
"""

import json
import os
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace

import psutil

from tests.processes import CONTEXT

_SERVER = """
import json, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
kind, port, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
print("loading", name, flush=True)
if kind == "dies":
    print("out of memory", flush=True)
    sys.exit(3)
if kind == "hangs":
    time.sleep(600)
class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"data": [{"id": name}]}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
HTTPServer(("127.0.0.1", port), Answer).serve_forever()
"""

_RUN = """
import json, os, signal, sys, time
from pathlib import Path
what, folder = sys.argv[1], Path(sys.argv[2])
def end(number, _):
    with (folder / "signals").open("a") as file:
        file.write(signal.Signals(number).name + "\\n")
    time.sleep(0.3)
    sys.exit(128 + number)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, end)
mapping = folder / "servers" / "students.json"
seen = {"mapping": json.loads(mapping.read_text()) if mapping.exists() else None, "pid": os.getpid(),
        "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}
(folder / "seen.tmp").write_text(json.dumps(seen))
(folder / "seen.tmp").rename(folder / "seen.json")
if what.startswith("exit"):
    sys.exit(int(what.split()[1]))
if what == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    time.sleep(0.05)
"""


def _enter(folder: str, server: str, run: str, timeout_s: float, students: int) -> None:
    for number in (1, 2):
        os.dup2(os.open(f"{folder}/said.txt", os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
    from verl.trainer.hosting import servers
    from verl.trainer.hosting.options import Options
    from verl.trainer.launchers.__main__ import start
    from verl.trainer.launchers.plan import Plan
    from verl.trainer.launchers.steps import Step

    def command(options: Options, model: str, port: int, share: float) -> list[str]:
        return [sys.executable, "-c", _SERVER, server, str(port), model]

    servers.command = command
    own = Path(folder) / "run"
    hosted = [
        Options(
            models=(f"student{index}",),
            mapping=own / "servers" / "students.json",
            first_port=8765 + index,
            start_timeout_s=timeout_s,
            gpus=(str(index),),
        )
        for index in range(students)
    ]
    steps = ()
    if run.startswith("step"):
        steps = (Step(title="prepares rows", argv=(sys.executable, "-c", f"import sys; sys.exit({run.split()[1]})")),)
    check = None
    if run.startswith("check"):
        refuses = f"import sys; print('error: a wrong key', file=sys.stderr); sys.exit({run.split()[1]})"
        check = Step(title="checks the run", argv=(sys.executable, "-c", refuses))
    plan = Plan(
        argv=(sys.executable, "-c", _RUN, run, str(own)),
        environment={"CUDA_VISIBLE_DEVICES": "6,7"},
        folder=own,
        identity=("run",),
        steps=steps,
        check=check,
        servers=tuple(hosted),
    )
    sys.exit(start(plan))


class Launched:
    """A launcher in a process of its own."""

    def __init__(self, folder: Path, process: BaseProcess) -> None:
        self.folder, self.process = folder, process

    @property
    def said(self) -> str:
        """All that it has said."""
        file = self.folder / "said.txt"
        return file.read_text() if file.exists() else ""

    def seen(self) -> SimpleNamespace:
        """What the run has seen when it began; waits for it."""
        file = self.folder / "run" / "seen.json"
        while not file.exists():
            self.process.join(0.02)
            assert self.process.is_alive() or file.exists(), self.said
        return SimpleNamespace(**json.loads(file.read_text()))

    def servers(self, count: int) -> list[psutil.Process]:
        """The servers' processes; waits for them."""
        while True:
            children = psutil.Process(self.process.pid).children(recursive=True)
            found = [one for one in children if any(word.startswith("student") for word in one.cmdline()[-1:])]
            # Before it has become the server, the command is the wrapper's argument.
            if len(found) == count and all("-ISc" not in one.cmdline() for one in found):
                return found
            assert self.process.is_alive(), self.said
            time.sleep(0.02)

    def signal(self, number: int) -> None:
        """To the launcher alone."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def ends(self) -> int:
        """Its exit code."""
        self.process.join(60)
        assert self.process.exitcode is not None, self.said
        return self.process.exitcode


def launched(
    folder: Path, *, server: str = "ok", run: str = "waits", timeout_s: float = 60, students: int = 2
) -> Launched:
    """Starts a launcher.

    Args:
        folder: everything is written there.
        server: ok, dies or hangs.
        run: `exit N`, waits, killed, or `step N` for a preparation with that exit code.
        timeout_s: for the servers to answer.
        students: number of servers.
    """
    process = CONTEXT.Process(target=_enter, args=(str(folder), server, run, timeout_s, students))
    process.start()
    return Launched(folder, process)
