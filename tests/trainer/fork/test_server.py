"""Worker processes that are forked: what they find, what Ray can do with them, and that none is left behind."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import ray

from verl.trainer.fork.server import ForkServer

REPORT = """
import json, os, sys
modules = "torch" in sys.modules, any(name in sys.modules for name in ("ray", "verl"))
import numpy
print(json.dumps({
    "argv": sys.argv[1:], "name": __name__, "cwd": os.getcwd(), "color": os.environ.get("COLOR"), "pid": os.getpid(),
    "group": os.getpgid(0), "torch": modules[0], "ours": modules[1], "draw": numpy.random.random(),
    "score": open("/proc/self/oom_score_adj").read().strip(),
}))
sys.stdout.flush()
sys.stderr.write("done")
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer.start({"VERL_PLATFORM": "cpu"})
    yield server
    server.close()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "a script.py"
    path.write_text(REPORT)
    return path


def eventually(condition: Callable[[], bool], seconds: float = 300) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def ask(
    py_executable: str, script: Path, *arguments: str, **environment: str
) -> tuple[dict, subprocess.CompletedProcess]:
    """What the script reports, started as Ray starts a worker: by a shell, its standard streams taken over."""
    out = script.with_suffix(".out")
    with out.open("w") as stdout:
        done = subprocess.run(
            f"exec {py_executable} {shlex.join([str(script), *arguments])}",
            shell=True,
            cwd=script.parent,
            env={**os.environ, **environment},
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
        )
    assert eventually(lambda: out.read_text().endswith("\n")), out.read_text()
    return json.loads(out.read_text()), done


def test_a_fork_is_the_process_that_was_asked_for(server: ForkServer, script: Path) -> None:
    report, done = ask(server.py_executable, script, "--name", "of two words", COLOR="blue")
    assert report["argv"] == ["--name", "of two words"]
    assert (report["name"], report["color"], report["cwd"]) == ("__main__", "blue", str(script.parent))
    assert report["score"] == Path("/proc/self/oom_score_adj").read_text().strip()
    assert done.stderr.startswith("done")
    assert psutil.Process().pid != report["pid"] != server.pid


def test_a_fork_has_libraries_and_neither_ray_nor_verl(server: ForkServer, script: Path) -> None:
    """Ray and verl read environment variables while they are imported, and those differ between workers."""
    report, _ = ask(server.py_executable, script)
    assert report["torch"]
    assert not report["ours"]
    assert server.log().count("Error") == 0, server.log()


def test_forks_share_neither_random_numbers_nor_a_process_group(server: ForkServer, script: Path) -> None:
    one, two = (ask(server.py_executable, script)[0] for _ in range(2))
    assert one["draw"] != two["draw"]
    # Ray kills the whole group of a worker.
    assert one["group"] == one["pid"] != two["group"] == two["pid"]


def test_without_a_server_the_client_runs_the_script_itself(script: Path) -> None:
    gone = ForkServer.start({})
    gone.close()
    report, done = ask(gone.py_executable, script, "x", COLOR="red")
    assert (report["argv"], report["color"], report["torch"], done.returncode) == (["x"], "red", False, 0)


def test_the_server_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    starter = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import time\nfrom verl.trainer.fork.server import ForkServer\ns = ForkServer.start({})\n"
            "print(s.pid, s.py_executable, flush=True)\ntime.sleep(600)",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert starter.stdout is not None
    pid, _, _, _, socket_path = starter.stdout.readline().split()
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    assert eventually(lambda: not psutil.pid_exists(int(pid)))
    assert eventually(lambda: not Path(socket_path).parent.exists())


def test_a_path_too_long_for_a_socket_leaves_nothing_behind(tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with pytest.raises(OSError, match="too long"):
        ForkServer.start({})
    assert list(folder.iterdir()) == []


def test_ray_works_with_forks(server: ForkServer) -> None:
    @ray.remote(max_restarts=1, max_task_retries=1)
    class Worker:
        def about(self) -> tuple[int, int, str | None]:
            return os.getpid(), os.getppid(), os.environ.get("SHADE")

    own = ForkServer.start({})
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"py_executable": own.py_executable, "env_vars": {"SHADE": "dark"}},
    )
    try:
        light = Worker.options(runtime_env={"env_vars": {"SHADE": "light"}}).remote()
        dark = Worker.remote()
        (_, *light_about), (pid, *dark_about) = ray.get([light.about.remote(), dark.about.remote()])
        assert light_about == [own.pid, "light"]
        assert dark_about == [own.pid, "dark"]

        os.kill(pid, signal.SIGKILL)
        restarted, parent, _ = ray.get(dark.about.remote(), timeout=300)
        assert restarted != pid
        assert parent == own.pid

        own.close()
        late = Worker.remote()
        late_pid, _, late_shade = ray.get(late.about.remote(), timeout=300)
        assert late_shade == "dark", "without a server, workers start the ordinary way"
        assert ray.get(dark.about.remote())[0] == restarted, "and those that are there outlive it"
    finally:
        ray.shutdown()
    assert eventually(lambda: not any(psutil.pid_exists(worker) for worker in (restarted, late_pid)))


def test_what_is_forked_has_no_thread_but_its_own(server: ForkServer, script: Path) -> None:
    """A fork gets its parent's locks and none of its threads. The allocator of pyarrow has a thread that is none of
    Python's, and sees to it at each fork that it is idle and unlocked."""
    ask(server.py_executable, script)
    tasks = Path(f"/proc/{server.pid}/task")
    threads = [(tasks / number / "comm").read_text().strip() for number in os.listdir(tasks)]
    assert len([name for name in threads if name != "jemalloc_bg_thd"]) == 1, threads
