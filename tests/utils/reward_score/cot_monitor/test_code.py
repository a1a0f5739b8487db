"""The verifier of programs against a real sandbox, and against servers that fail in every way they can."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
from omegaconf import OmegaConf

from tests.classmate.rows import asked, read_row
from tests.classmate.toy_tokenizers import byte_bpe
from tests.code_utils.services import service
from verl.classmate import cot
from verl.classmate.config import DEFAULT_MARKERS, ClassmateRewardModelConfig, from_mapping
from verl.classmate.errors import ConfigError
from verl.classmate.outcome import Outcome
from verl.classmate.row import Continuation, ScoredRow, Task
from verl.code_utils.sandbox import SandboxSettings
from verl.data_preprocessing.common import make_row, write_parquet
from verl.trainer.preflight.verifiers import check_sandbox
from verl.utils.reward_score.cot_monitor import code, get_verifier
from verl.utils.reward_score.cot_monitor._program import program_of
from verl.utils.reward_score.cot_monitor.code import CodeVerifier
from verl.workers.reward_manager.classmate_cot import ClassmateCoTRewardManager

DOUBLE = json.dumps({"tests": ["assert f(2) == four", "assert f(0) == 0"], "setup": "four = 4"})
ECHO = json.dumps({"stdio": [{"input": "a\n", "output": "a"}, {"input": "7", "output": "7.0"}]})
RIGHT = "I double it.\n```python\ndef f(x):\n    return 2 * x\n```\nDone."
WRONG = RIGHT.replace("2 * x", "x + 2")


ROW = make_row(data_source="code", question="Double a number.", ground_truth=DOUBLE, split="test", index=0)


def verifier(url: str | None = None, **options: Any) -> CodeVerifier:
    """One of its own, so that no test changes another's."""
    made = CodeVerifier()
    made.configure(ClassmateRewardModelConfig(code_sandbox_url=url, **options))
    return made


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with service(SandboxSettings(concurrency=2)) as address:
        yield address


Answer = Callable[[int, dict[str, Any]], tuple[int, Any]]
"""What a server says to its n-th request: status, content (text as it is, else JSON)."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answer], tuple[str, list[dict[str, Any]]]]]:
    """Starts a server that answers as told; gives its address and the requests that it has got."""
    monkeypatch.setattr(code, "FIRST_PAUSE_S", 0.01)
    running = []

    def start(answer: Answer) -> tuple[str, list[dict[str, Any]]]:
        got: list[dict[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                status, content = answer(len(got), got[-1])
                if status == 0:
                    self.connection.close()
                    return
                data = (content if isinstance(content, str) else json.dumps(content)).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.append((httpd, thread))
        return f"http://127.0.0.1:{httpd.server_port}", got

    yield start
    for httpd, thread in running:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


def test_it_is_the_verifier_of_code_rows_and_waits_in_a_thread() -> None:
    assert isinstance(get_verifier("code"), CodeVerifier)
    assert get_verifier("code").blocking
    assert (CodeVerifier.reward_direction, CodeVerifier.main_correct_threshold) == ("maximize", 0.5)


@pytest.mark.parametrize(
    ("text", "truth", "score"),
    [
        (RIGHT, DOUBLE, 1.0),
        (WRONG, DOUBLE, 0.0),
        (f"{WRONG}\nNo:\n{RIGHT}", DOUBLE, 1.0),
        (f"{RIGHT}\nNo:\n{WRONG}", DOUBLE, 0.0),
        (f"{RIGHT}\nFor example:\n```python\nprint(f(2))\n```\nwhich prints\n```\n4\n```", DOUBLE, 1.0),
        (f"{WRONG}\nFor example:\n```python\nprint(f(2))\n```", DOUBLE, 0.0),
        ("def f(x): return x + x", DOUBLE, 1.0),
        ("It is 2 * x.", DOUBLE, 0.0),
        ("```python\nimport os\nos._exit(0)\n```", DOUBLE, 0.0),
        ("```\nprint(input())\n```", ECHO, 1.0),
        ("```python\nprint(7)\n```", ECHO, 0.0),
        ("```\nprint(input())\n```\nWith the input\n```\n7\n```\nit prints\n```\n7\n```", ECHO, 1.0),
    ],
)
def test_a_program_is_right_if_it_passes_all_tests(url: str, text: str, truth: str, score: float) -> None:
    assert verifier(url).compute_score(text, truth) == score


def test_nothing_to_run_has_no_score() -> None:
    assert verifier("http://127.0.0.1:9").compute_score(" \n", DOUBLE) is None
    assert verifier("http://127.0.0.1:9").compute_score(RIGHT, None) is None


@pytest.mark.parametrize(
    "truth", ["", "7", "[]", "[" * 100_000, "{}", '{"tests": []}', '{"tests": 3}', '{"stdio": [{"input": "a"}]}']
)
def test_a_malformed_ground_truth_is_an_error_and_no_score(truth: str) -> None:
    with pytest.raises(ValueError, match=r"code row .*write \{\"tests\""):
        verifier("http://127.0.0.1:9").compute_score(RIGHT, truth)


def test_a_slow_program_costs_what_the_penalty_says(server: Any) -> None:
    address, _ = server(lambda *_: (200, {"results": [1, 1], "runtimes": [1.0, 4.0]}))
    assert verifier(address).compute_score(RIGHT, DOUBLE) == 1.0
    assert verifier(address, code_runtime_penalty=0.5).compute_score(RIGHT, DOUBLE) == pytest.approx(0.75)
    strict = verifier(address, code_runtime_penalty=1.0, code_max_execution_time=2.0)
    assert strict.compute_score(RIGHT, DOUBLE) == 0.0


@pytest.mark.parametrize(("passed", "score"), [(100, 1.0), (99, 1.0), (98, 0.0), (0, 0.0)])
def test_99_of_100_tests_are_enough(server: Any, passed: int, score: float) -> None:
    results = [1] * passed + [0] * (100 - passed)
    address, _ = server(lambda *_: (200, {"results": results, "runtimes": [0.1 if one else -1.0 for one in results]}))
    truth = json.dumps({"tests": ["assert f(0) == 0"] * 100})
    assert verifier(address).compute_score(RIGHT, truth) == score


@pytest.mark.parametrize(
    ("status", "content", "asked"),
    [
        (500, {"detail": "unshare: Operation not permitted"}, 4),
        (503, "busy", 4),
        (502, "<html>", 4),
        (0, "", 4),
        (422, {"detail": "no"}, 1),
        (404, "not found", 1),
        (200, "no json", 4),
        (200, "[" * 100_000, 4),
        (200, {"results": [1, 1]}, 1),
        (200, {"results": [1], "runtimes": [0.1]}, 1),
        (200, {"results": [1, 2], "runtimes": [0.1, 0.1]}, 1),
        (200, {"results": ["pass", "pass"], "runtimes": [0.1, 0.1]}, 1),
        (200, [], 1),
    ],
)
def test_a_sandbox_that_fails_gives_no_score(server: Any, status: int, content: Any, asked: int) -> None:
    address, got = server(lambda *_: (status, content))
    assert verifier(address).compute_score(RIGHT, DOUBLE) is None
    assert len(got) == asked


def test_a_sandbox_that_is_not_there_gives_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "FIRST_PAUSE_S", 0.01)
    assert verifier("http://127.0.0.1:9").compute_score(RIGHT, DOUBLE) is None


def test_a_sandbox_that_is_busy_is_asked_again(server: Any) -> None:
    address, got = server(lambda n, _: (503, "") if n < 3 else (200, {"results": [1, 1], "runtimes": [0.1, 0.1]}))
    assert verifier(address + "/").compute_score(RIGHT, DOUBLE) == 1.0
    assert (
        got[0]
        == got[2]
        == {
            "program": program_of(RIGHT),
            "tests": ["four = 4\nassert f(2) == four", "four = 4\nassert f(0) == 0"],
            "max_execution_time": 5.0,
        }
    )


def test_a_sandbox_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts: list[float] = []

    def hang(self: requests.Session, url: str, *, timeout: float, **_: Any) -> None:
        timeouts.append(timeout)
        raise requests.Timeout

    monkeypatch.setattr(code, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(requests.Session, "post", hang)
    assert verifier(code_max_execution_time=20.0).compute_score(RIGHT, DOUBLE) is None
    assert timeouts == [200.0] * 4


def _fusion(n: int, request: dict[str, Any]) -> tuple[int, Any]:
    """What SandboxFusion's /run_code says, of a program that is run right here."""
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-S", "-c", request["code"]], input=request["stdin"], capture_output=True, text=True
    )
    result = {"status": "Finished", "return_code": done.returncode, "stdout": done.stdout, "execution_time": 0.1}
    return 200, {"status": "Success" if done.returncode == 0 else "Failed", "run_result": result}


@pytest.mark.parametrize(
    ("text", "truth", "score"),
    [
        (RIGHT, DOUBLE, 1.0),
        (WRONG, DOUBLE, 0.0),
        ("import os\nos._exit(0)", DOUBLE, 0.0),
        ("print('ok')\nraise SystemExit", DOUBLE, 0.0),
        ("print(input())", ECHO, 1.0),
        ("print(7)", ECHO, 0.0),
    ],
)
def test_sandbox_fusion_runs_programs_instead(server: Any, text: str, truth: str, score: float) -> None:
    address, got = server(_fusion)
    assert verifier(sandbox_fusion_url=f"{address}/run_code").compute_score(text, truth) == score
    assert {request["language"] for request in got} == {"python"}
    assert len(got) == 2


@pytest.mark.parametrize("reply", [{"status": "SandboxError", "message": "x"}, {"status": "Success"}, [], "no json"])
def test_a_sandbox_fusion_that_fails_gives_no_score(server: Any, reply: Any) -> None:
    address, _ = server(lambda *_: (200, reply))
    assert verifier(sandbox_fusion_url=f"{address}/run_code").compute_score(RIGHT, DOUBLE) is None


@pytest.mark.parametrize("step", ["run_result", "compile_result"])
def test_a_program_that_is_too_slow_for_sandbox_fusion_fails(server: Any, step: str) -> None:
    slow = {"status": "TimeLimitExceeded", "return_code": None, "stdout": ""}
    address, _ = server(lambda *_: (200, {"status": "Failed", "run_result": None, step: slow}))
    assert verifier(sandbox_fusion_url=f"{address}/run_code").compute_score(RIGHT, DOUBLE) == 0.0


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("code_sandbox_url", "localhost:8001"),
        ("sandbox_fusion_url", "run_code"),
        ("code_max_execution_time", 0.0),
        ("code_max_execution_time", 600.0),
        ("code_runtime_penalty", 2.0),
    ],
)
def test_impossible_options_are_refused_in_one_line(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"reward_model\.{option}: .*write") as refused:
        from_mapping({option: value}, require_classmates=False)
    assert "\n" not in str(refused.value)


def score_row(reward_model: dict[str, Any]) -> ScoredRow:
    """A row whose policy is right, with one classmate that is right and one that is wrong."""
    rewards = {"classmate_model_name_or_path_list": ["a", "b"], "use_classmate_main_cond": "always"}
    config = OmegaConf.create({"reward_model": {"classmate_cot_reward_configs": rewards, **reward_model}})
    manager = ClassmateCoTRewardManager(config, byte_bpe())
    task = Task(data_source="code", reward_model=ROW["reward_model"], extra_info={"index": 0})
    ids = byte_bpe().encode(f"<think>twice</think>{RIGHT}", add_special_tokens=False)
    answers = [asked([Continuation(sample=0, outcome=Outcome.ok, text=text)]) for text in (RIGHT, WRONG)]
    read = read_row(cot.locate(ids, byte_bpe(), DEFAULT_MARKERS), task=task)
    return asyncio.run(manager.score(read, answers))


def test_rows_are_scored_where_the_config_says(url: str) -> None:
    scored = score_row({"code_sandbox_url": url})
    assert (scored.scores.main_valid, scored.scores.base_reward) == (True, 1.0)
    assert [one.continuations[0].score for one in scored.asked] == [1.0, 0.0]


def test_rows_without_a_sandbox_have_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay out of the statistics: 0 would teach that right programs are wrong."""
    monkeypatch.setattr(code, "FIRST_PAUSE_S", 0.01)
    scored = score_row({"code_sandbox_url": "http://127.0.0.1:9"})
    assert not scored.scores.main_valid
    assert [one.continuations[0].outcome for one in scored.asked] == [Outcome.judge_error] * 2
    assert [one.continuations[0].score for one in scored.asked] == [None, None]


def test_a_run_with_programs_asks_for_a_sandbox_first(url: str, server: Any, tmp_path: Path) -> None:
    def check(rows: dict[str, Any], **options: Any) -> None:
        write_parquet([rows], tmp_path / "rows.parquet")
        files = [str(tmp_path / "rows.parquet")]
        data = {"train_files": files, "val_files": files, "custom_cls": {"path": None}}
        check_sandbox(data, ClassmateRewardModelConfig(**options))

    check(ROW, code_sandbox_url=url)
    other, _ = server(lambda *_: (404, "not found"))
    check(ROW, sandbox_fusion_url=f"{other}/run_code")
    check({**ROW, "data_source": "openai/gsm8k"}, code_sandbox_url="http://127.0.0.1:9")
    for options in ({"code_sandbox_url": "http://127.0.0.1:9"}, {"code_sandbox_url": other}):
        with pytest.raises(ConfigError, match=r"no code sandbox answers at http.*`uvicorn verl\.code_utils\.api:app"):
            check(ROW, **options)
    with pytest.raises(ConfigError, match=r"nothing answers at reward_model.sandbox_fusion_url=http.*; start"):
        check(ROW, sandbox_fusion_url="http://127.0.0.1:9/run_code")
