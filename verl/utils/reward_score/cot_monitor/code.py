"""Verifier of programs: the share of tests that the program in the answer passes, all of them or nothing.

Decision: a program that could not be run has no score. The sandbox may be busy, down or broken, which is no answer's
fault; only a program that ran and failed is 0.

    verifier = get_verifier("code")
    verifier.configure(reward_model_config)                        # where the sandbox is, how long a test may take
    verifier.compute_score("```python\\ndef f(): return 1\\n```", '{"tests": ["assert f() == 1"], "setup": ""}')   # 1.0

Ground truth, a JSON string: `{"tests": [statements...], "setup": str}`, each test runnable by itself after program and
setup; or `{"stdio": [{"input", "output"}...]}` for a program that reads and prints.
"""

import json
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verl.classmate.config import ClassmateRewardModelConfig
from verl.code_utils.jail import same_output
from verl.code_utils.sandbox import reply_timeout
from verl.utils.reward_score.cot_monitor._program import asked_names, program_of
from verl.utils.reward_score.cot_monitor.BaseVerifier import BaseVerifier, register

__all__ = ["CodeTask", "CodeVerifier"]

logger = logging.getLogger(__name__)

ATTEMPTS = 4
"""Most requests for one program."""
FIRST_PAUSE_S = 0.5
"""Seconds before the second attempt; each further pause is twice as long."""
PASS_RATE = 0.99
"""Least share of passed tests that counts as correct."""


@dataclass(frozen=True, kw_only=True)
class CodeTask:
    """The tests of one row."""

    mode: str
    """assert or stdio."""
    tests: Sequence[Any]
    """Statements, with what they need before them; or {"input", "output"}."""

    @classmethod
    def parse(cls, ground_truth: str) -> "CodeTask":
        """From `reward_model.ground_truth`.

        Raises:
            ValueError: it is not of the form above.
        """
        form = 'write {"tests": [...], "setup": ...} or {"stdio": [{"input": ..., "output": ...}]}'
        try:
            truth = json.loads(ground_truth)
            mode = "stdio" if "stdio" in truth else "assert"
            setup = truth.get("setup") or ""
            tests: list[Any] = (
                [{"input": str(test["input"]), "output": str(test["output"])} for test in truth["stdio"]]
                if mode == "stdio"
                else [f"{setup}\n{test}" for test in truth["tests"]]
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"the ground truth of a code row is malformed ({type(error).__name__}); {form}") from error
        if not tests:
            raise ValueError(f"a code row has no tests; {form}")
        return cls(mode=mode, tests=tests)


class SandboxUnavailable(Exception):
    """No usable reply within the attempts."""


@register("code")
class CodeVerifier(BaseVerifier):
    """1 if the program passes at least 99 of 100 tests, less a penalty for its run time where one is set; else 0."""

    reward_description = "1 if the program in the answer passes all tests, else 0"
    blocking = True
    compares_answers = False
    answer_cue = "\n\n```python\n"

    _config = ClassmateRewardModelConfig()

    def configure(self, config: ClassmateRewardModelConfig) -> None:
        """Takes over where programs are run and for how long."""
        self._config = config

    def compute_score(self, text: str, ground_truth: str | None) -> float | None:
        """Runs the program; waits for the sandbox. None: nothing to score, or the sandbox gave no usable reply.

        Raises:
            ValueError: the ground truth is malformed.
        """
        if ground_truth is None or not text.strip():
            return None
        task = CodeTask.parse(ground_truth)
        program = program_of(text, asked_names(task.tests) if task.mode == "assert" else None)
        try:
            if self._config.sandbox_fusion_url:
                results, runtimes = self._ask_fusion(self._config.sandbox_fusion_url, program, task)
            else:
                results, runtimes = self._ask_sandbox(program, task)
        except SandboxUnavailable as error:
            logger.warning("%s", error)
            return None
        if sum(results) / len(results) < PASS_RATE:
            return 0.0
        seconds = [runtime for runtime in runtimes if runtime >= 0]
        share = sum(seconds) / len(seconds) / self._config.code_max_execution_time
        return max(0.0, 1.0 - self._config.code_runtime_penalty * min(share, 1.0))

    def _ask_sandbox(self, program: str, task: CodeTask) -> tuple[list[int], list[float]]:
        seconds = self._config.code_max_execution_time
        url = self._config.code_url + {"assert": "/test_program", "stdio": "/test_program_stdio"}[task.mode]
        request = {"program": program, "tests": list(task.tests), "max_execution_time": seconds}
        reply = _post(url, request, timeout=reply_timeout(seconds))
        try:
            results = [{0: 0, 1: 1}[value] for value in reply["results"]]
            runtimes = [float(value) for value in reply["runtimes"]]
        except (KeyError, TypeError, ValueError) as error:
            raise SandboxUnavailable(f"{url} gave a reply that is not one of a sandbox") from error
        if not len(results) == len(runtimes) == len(task.tests):
            raise SandboxUnavailable(f"{url} judged {len(results)} of {len(task.tests)} tests")
        return results, runtimes

    def _ask_fusion(self, url: str, program: str, task: CodeTask) -> tuple[list[int], list[float]]:
        """One request per test. That a program reached the end of its test is seen by a word that it cannot know."""
        seconds = self._config.code_max_execution_time
        results, runtimes = [], []
        for test in task.tests:
            word = secrets.token_hex(16)
            stdio = task.mode == "stdio"
            request = {
                "code": program if stdio else f"{program}\n{test}\nprint('\\n{word}')\n",
                "language": "python",
                "stdin": test["input"] if stdio else "",
                "run_timeout": seconds,
                "compile_timeout": seconds,
            }
            reply = _post(url, request, timeout=reply_timeout(seconds))
            run = reply.get("run_result") or reply.get("compile_result") if isinstance(reply, dict) else None
            if not isinstance(run, dict) or reply.get("status") not in ("Success", "Failed"):
                raise SandboxUnavailable(f"{url} could not run a program: {str(reply)[:200]}")
            printed = str(run.get("stdout") or "")
            ended = run.get("status") == "Finished" and run.get("return_code") == 0
            right = same_output(printed, test["output"]) if stdio else printed.rstrip().endswith(word)
            results.append(int(ended and right))
            runtimes.append(float(run.get("execution_time") or 0.0) if results[-1] else -1.0)
        return results, runtimes


def _post(url: str, request: dict[str, Any], *, timeout: float) -> Any:
    """The reply to a request, asked again where that may help.

    Raises:
        SandboxUnavailable: no attempt got one.
    """
    import requests

    pause, reason = FIRST_PAUSE_S, ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(pause)
            pause *= 2
        try:
            with requests.Session() as session:
                # A proxy of the environment knows no way to this machine's own ports.
                session.trust_env = False
                response = session.post(url, json=request, timeout=timeout)
            if response.status_code == 200:
                return response.json()
            reason = f"{response.status_code} {response.text[:200]}"
            if response.status_code < 500 and response.status_code != 429:
                break
            after = response.headers.get("retry-after", "")
            pause = max(pause, min(float(after), timeout)) if after.isdigit() else pause
        except (requests.RequestException, ValueError, RecursionError) as error:
            reason = type(error).__name__
    raise SandboxUnavailable(f"the code sandbox at {url} gave no answer: {reason}")
