"""The service as its clients see it: replies, refusals, limits."""

import concurrent.futures
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.code_utils.services import ask, programs_running, service
from verl.code_utils import jail
from verl.code_utils.sandbox import Sandbox, SandboxSettings, reply_timeout

ADD = "def add(a, b):\n    return a + b\n"
DOCS = Path(__file__).resolve().parents[2] / "docs" / "sandbox.md"
NUL_BYTES = "\0\ud800"


def post(url: str, body: Any, *, stdio: bool = False) -> requests.Response:
    return requests.post(f"{url}/test_program{'_stdio' * stdio}", json=body, timeout=60)


def test_one_result_and_one_run_time_per_test(url: str) -> None:
    tests = ["assert add(1, 2) == 3", "assert add(1, 2) == 4", "import time; time.sleep(0.1)", "raise SystemExit", "("]
    reply = post(url, {"program": ADD, "tests": tests, "max_execution_time": 5}).json()
    assert reply["results"] == [1, 0, 1, 0, 0]
    assert 0 <= reply["runtimes"][0] < 5
    assert reply["runtimes"][2] >= 0.1
    assert [reply["runtimes"][index] for index in (1, 3, 4)] == [-1.0] * 3


@pytest.mark.parametrize("tests", [[], "[]"])
def test_no_tests_give_two_empty_lists(url: str, tests: Any) -> None:
    assert post(url, {"program": ADD, "tests": tests}).json() == {"results": [], "runtimes": []}
    assert post(url, {"program": ADD, "tests": tests}, stdio=True).json() == {"results": [], "runtimes": []}


def test_tests_may_be_a_json_string(url: str) -> None:
    tests = json.dumps(["assert add(1, 1) == 2", "assert add(1, 1) == 3"])
    assert post(url, {"program": ADD, "tests": tests, "max_execution_time": 5}).json()["results"] == [1, 0]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"program": ADD},
        {"tests": []},
        {"program": 1, "tests": []},
        {"program": ADD, "tests": "no json"},
        {"program": ADD, "tests": "{}"},
        {"program": ADD, "tests": None},
        {"program": ADD, "tests": [1]},
        {"program": ADD, "tests": ["assert 1"] * 1001},
        {"program": ADD, "tests": ["assert 1"], "max_execution_time": 0},
        {"program": ADD, "tests": ["assert 1"], "max_execution_time": "soon"},
        {"program": ADD, "tests": ["assert 1"], "max_execution_time": 1e9},
        {"program": 1, "tests": ["\ud800"]},
    ],
)
def test_a_malformed_request_is_refused_in_words(url: str, body: Any) -> None:
    response = post(url, body)
    assert response.status_code == 422
    assert response.json()["detail"]


@pytest.mark.parametrize("stdio", [False, True])
@pytest.mark.parametrize(
    "tests",
    [
        "[" * 100_000,
        "[" * 5000 + "]" * 5000,
        '{"a":' * 5000 + "1" + "}" * 5000,
        '["x",' * 3000 + '"a"' + "]" * 3000,
        json.dumps(json.dumps(["assert 1"])),
        json.dumps("[]"),
        "7",
        "true",
        "null",
        "NaN",
        "[NaN]",
        "[1e999]",
        "-Infinity",
        "[1" + "0" * 5000 + "]",
        "1" * 5000,
        '"\\ud800"',
        "\0",
        "",
        " ",
        "[",
        "[1,]",
        "{}",
        '[["assert 1"]]',
        '[{"input": 1}]',
        "\ud800",
        '[{"input": "", "output": null}]',
        '[{"input": ["1"], "output": "1"}]',
        "[null]",
        "\ufeff[]",
    ],
    ids=lambda tests: repr(tests[:20]),
)
def test_a_string_without_a_list_of_tests_is_refused_in_one_line(url: str, tests: str, stdio: bool) -> None:
    response = post(url, {"program": ADD, "tests": tests}, stdio=stdio)
    assert response.status_code == 422, response.text[:200]
    assert response.json()["detail"]
    assert all("body.tests" in line and "\n" not in line and len(line) < 200 for line in response.json()["detail"])


@pytest.mark.guards("unpickled requests")
def test_what_is_no_json_is_refused(url: str) -> None:
    for data in (b"", b"{", b"\x80\x04\x95\x10\x00", b'{"program": NaN', b"[" * 100_000, b"1" * 5000, b"\xff"):
        response = requests.post(f"{url}/test_program", data=data, headers={"content-type": "application/json"})
        assert response.status_code == 422, data[:10]
    assert post(url, {"program": "x = 1", "tests": ["1"]}, stdio=True).status_code == 422


def test_programs_that_no_interpreter_takes_fail(url: str) -> None:
    for program in ("def", NUL_BYTES, "\ud800", "x = '\ud800'\nx.encode()", "\t \n  x"):
        assert ask(url, program, ["assert True"]) == [0], repr(program)
        assert ask(url, program, [{"input": "", "output": ""}]) == [0], repr(program)
    assert ask(url, "", ["assert True", "assert 'é' == '\\xe9'"]) == [1, 1]


def test_programs_read_and_print(url: str) -> None:
    program = "n = int(input())\nfor _ in range(n):\n    print(sum(map(float, input().split())))"
    tests = [
        {"input": "2\n1 2\n3 4\n", "output": "3.0\n7.0"},
        {"input": "2\n1 2\n3 4\n", "output": "  3\n7.00  \n\n"},
        {"input": "2\n1 2\n3 4\n", "output": "3\n8"},
        {"input": "2\n1 2\n3 4\n", "output": "3"},
        {"input": "1\n", "output": "0"},
    ]
    assert ask(url, program, tests) == [1, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("program", "passes"),
    [
        ("print(1)", 1),
        ("print(1)\nraise SystemExit(0)", 1),
        ("print(1)\nraise SystemExit(3)", 0),
        ("print(1)\n1 / 0", 0),
        ("import sys\nprint(1, file=sys.stderr)", 0),
        ("import os\nos.write(1, b'1')\nos.close(1)\nos._exit(0)", 1),
        ("import os, time\nprint(1, flush=True)\nif os.fork() == 0:\n    time.sleep(60)", 1),
        ("if __name__ == '__main__':\n    print(1)", 1),
        ("print(1)\nwhile True: pass", 0),
        ("while True: print(1)", 0),
    ],
)
def test_a_script_passes_by_what_it_printed_when_it_ended_well(url: str, program: str, passes: int) -> None:
    assert ask(url, program, [{"input": "", "output": "1"}], seconds=2) == [passes]


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("1\n2\n", "1\n2", True),
        (" 1 \n 2", "1\n2", True),
        ("1.0 2", "1 2.00", True),
        ("1e3", "1000", True),
        ("0.1", "0.10000000000000001", False),
        ("1 2", "1\n2", False),
        ("1\n\n2", "1\n2", False),
        ("yes", "Yes", False),
        ("nan", "nan", True),
        ("yes 1.0", "yes 1", True),
        ("", "", True),
        ("", "0", False),
        ("1" * 5000, "1" * 5000 + ".0", False),
    ],
)
def test_outputs_are_compared_by_line_and_number(printed: str, expected: str, same: bool) -> None:
    assert jail.same_output(printed, expected) is same


def test_each_test_starts_afresh(url: str) -> None:
    """A test sees neither what another one has changed nor what it has left running."""
    program = "import os, time\nseen = []"
    tests = [
        "seen.append(1); open('left', 'w').write('x'); import sys; sys.left = 1",
        "import sys; assert not seen and not os.path.exists('left') and not hasattr(sys, 'left')",
        "if os.fork() == 0:\n    time.sleep(60)",
        "assert sum(name.isdigit() for name in os.listdir('/proc')) <= 3",
    ]
    assert ask(url, program, tests) == [1, 1, 1, 1]


def test_strings_hash_alike_in_every_process(url: str) -> None:
    """Else the order of a set, and with it a score, would change from run to run."""
    program = "import os\nprint(hash('a'))"
    command = [sys.executable, "-c", "print(hash('a'))"]
    seeded = {**os.environ, "PYTHONHASHSEED": "0"}
    expected = subprocess.run(command, env=seeded, capture_output=True, text=True, check=True).stdout
    assert ask(url, program, [{"input": "", "output": expected}] * 2) == [1, 1]
    assert ask(url, "", [f"assert hash('a') == {expected}"] * 2) == [1, 1]


def test_useful_programs_work(url: str) -> None:
    tests = [
        "import math, re, heapq, collections, itertools, functools, typing, bisect, decimal, fractions, random, string",
        "import sqlite3, hashlib, zlib, datetime, zoneinfo; zoneinfo.ZoneInfo('Europe/Paris')",
        "import dataclasses, pickle\n@dataclasses.dataclass\nclass A:\n    x: int = 1\n"
        "assert pickle.loads(pickle.dumps(A())) == A()",
        "import threading\nthread = threading.Thread(target=print); thread.start(); thread.join()",
        "import multiprocessing\nwith multiprocessing.Pool(2) as pool: assert pool.map(abs, [-1, 2]) == [1, 2]",
        "import asyncio\nasyncio.run(asyncio.sleep(0))",
        "import tempfile\nwith tempfile.TemporaryFile() as file: file.write(b'x' * 1000)",
        "import sys\nsys.setrecursionlimit(20000)\ndef depth(n): return n and depth(n - 1)\ndepth(15000)",
        "import sys, subprocess\ndone = subprocess.run([sys.executable, '-c', 'print(5)'], capture_output=True)\n"
        "assert done.stdout == b'5\\n'",
    ]
    assert ask(url, "", tests, seconds=10) == [1] * len(tests)
    assert [ask(url, program, ["assert True"], seconds=10) for program in tests] == [[1]] * len(tests)


def test_a_request_that_is_too_large_is_refused(url: str) -> None:
    large = b'{"program": "' + b"x" * (4 << 20) + b'", "tests": []}'
    assert requests.post(f"{url}/test_program", data=large).status_code == 413
    pieces = (large[start : start + 65536] for start in range(0, len(large), 65536))
    assert requests.post(f"{url}/test_program", data=pieces).status_code == 413
    assert ask(url, f"{ADD}# {'x' * (3 << 20)}", ["assert add(1, 1) == 2", "assert add(1, 1) == 3"]) == [1, 0]


def test_a_full_queue_refuses_and_says_when_to_ask_again() -> None:
    slow = {"program": "import time\ntime.sleep(1)", "tests": ["assert True"], "max_execution_time": 10}
    with service(SandboxSettings(concurrency=1, queue=1)) as url, concurrent.futures.ThreadPoolExecutor(6) as pool:
        responses = list(pool.map(lambda _: post(url, slow), range(6)))
        assert sorted(response.status_code for response in responses) == [200, 200, 503, 503, 503, 503]
        assert {response.headers.get("retry-after") for response in responses} == {None, "1"}
        assert all(response.json()["results"] == [1] for response in responses if response.status_code == 200)
        assert ask(url, ADD, ["assert add(1, 1) == 2"]) == [1]


@pytest.mark.guards("blocking async routes")
def test_health_is_answered_while_programs_run() -> None:
    """With every place taken for as long as a program may run, and another request in the queue."""
    endless = {"program": "while True: pass", "tests": ["1"], "max_execution_time": 0.7}
    with service(SandboxSettings(concurrency=1)) as url, concurrent.futures.ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(post, url, endless) for _ in range(2)]
        answered = 0
        while not asked[0].done() and not asked[1].done():
            assert requests.get(f"{url}/health", timeout=60).json() == {"status": "healthy"}
            answered += 1
        assert answered > 3
        assert [one.result().json()["results"] for one in asked] == [[0], [0]]


def test_a_failure_of_the_sandbox_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    with service(SandboxSettings(concurrency=1)) as url:
        monkeypatch.setattr("verl.code_utils.sandbox._visible_paths", list)
        response = post(url, {"program": ADD, "tests": ["assert add(1, 1) == 2"]})
        # Its interpreter is loaded already; a script's is looked for where nothing is.
        assert response.status_code == 200
        script = post(url, {"program": "print(1)", "tests": [{"input": "", "output": "1"}]}, stdio=True)
        assert script.status_code == 500
        assert "results" not in script.json()
        monkeypatch.undo()
        assert ask(url, ADD, ["assert add(1, 1) == 2"]) == [1]


def test_all_tests_of_a_request_end_before_its_client_gives_up() -> None:
    """Thirty endless tests of a second each would take longer than the 30 s that a client waits."""
    assert [reply_timeout(seconds) for seconds in (0.1, 1, 5, 30, 60)] == [30, 30, 50, 300, 300]
    with Sandbox(SandboxSettings(concurrency=1)) as sandbox:
        protection = sandbox._protection
        assert protection is not None
        start = time.monotonic()
        tests = ["assert True", *["while True: pass"] * 30, "assert True"]
        reply = sandbox._run(protection, "assert", "", tests, seconds=0.3, total=1.0)
        assert time.monotonic() - start < 10
    assert reply["results"] == [1] + [0] * 31


@pytest.mark.slow
def test_the_documented_command(tmp_path: Path) -> None:
    """It serves, says what protects, and leaves nothing when it is killed in the middle of a program."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "verl.code_utils.api:app", "--port", str(port)]
    log = tmp_path / "log"
    environment = {**os.environ, "CODE_SANDBOX_CONCURRENCY": "1", "TMPDIR": str(tmp_path)}
    with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file, env=environment) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            while "Uvicorn running" not in log.read_text():
                assert server.poll() is None, log.read_text()
                time.sleep(0.1)
            lines = [line for line in log.read_text().splitlines() if "code sandbox: 1 programs at once" in line]
            assert len(lines) == 1
            assert "active: " in lines[0]
            assert "not active: " in lines[0]
            assert requests.get(f"{url}/health").json() == {"status": "healthy"}
            assert ask(url, ADD, ["assert add(1, 1) == 2", "assert add(1, 1) == 3"]) == [1, 0]
            (curl,) = re.findall(r"^curl .*?\n(?=#)", DOCS.read_text(), re.DOTALL | re.MULTILINE)
            if shutil.which("curl"):
                shell = ["bash", "-c", curl.replace("localhost:8001", f"127.0.0.1:{port}")]
                said = subprocess.run(shell, capture_output=True, text=True, check=True).stdout
                assert json.loads(said)["results"] == [1, 0]
            with pytest.raises(requests.Timeout):
                requests.post(
                    f"{url}/test_program",
                    json={"program": "while True: pass", "tests": ["1"], "max_execution_time": 50},
                    timeout=1,
                )
            assert programs_running(server.pid)
        finally:
            server.send_signal(signal.SIGKILL)
    while programs_running(server.pid):
        time.sleep(0.05)
    assert sorted(tmp_path.iterdir()) == [log]
