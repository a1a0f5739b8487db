"""Judges behind servers that others wrote: `transformers serve`, and vLLM, which holds its model to the format."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, GenerationConfig

from tests.e2e.tiny import make_tiny_world
from tests.e2e.world import World
from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.classmate.errors import ConfigError
from verl.classmate.judgement import Judgement
from verl.classmate.outcome import Outcome
from verl.trainer.preflight.judges import check_judge
from verl.utils.reward_score.cot_monitor import BaseVerifier, get_verifier
from verl.utils.reward_score.cot_monitor.judges import make_judge

START_TIMEOUT_S = 240


class Length(BaseVerifier):
    """Reads any answer: its length."""

    reward_description = "length"

    def format_llm_judge_prompt(self, question: str, output: str) -> str:
        return f"{question}\n{output}"

    def parse_llm_judge_output(self, text: str) -> tuple[float | None, str]:
        return float(len(text)), text


@contextlib.contextmanager
def server(command: list[str], log: Path, **environment: str) -> Iterator[str]:
    """Runs a server with `--port` on loopback until the block ends; its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with log.open("w") as sink:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **environment},
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            with contextlib.suppress(urllib.error.URLError, OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def config_of(url: str, model: str, **keys: Any) -> ClassmateRewardModelConfig:
    given = {"backend_type": "openai", "model_name": model, "base_url": url, "timeout": 120.0, "cache_path": None}
    return from_mapping({f"llm_judge_{key}": value for key, value in (given | keys).items()}, require_classmates=False)


def ask(config: ClassmateRewardModelConfig, verifier: BaseVerifier, *outputs: str) -> list[Judgement]:
    (spec,) = config.judges
    judge = make_judge(spec, config)

    async def run() -> list[Judgement]:
        try:
            return list(await asyncio.gather(*(judge.score(verifier, "a + b?", output) for output in outputs)))
        finally:
            await judge.close()

    return asyncio.run(run())


@pytest.mark.slow
def test_transformers_serve(tmp_path: Path) -> None:
    """It refuses fields that it does not know, so that the same request goes out again without them."""
    model = str(make_tiny_world(tmp_path).model)
    ends = AutoTokenizer.from_pretrained(model).convert_tokens_to_ids(["<eos>", "n"])
    GenerationConfig(eos_token_id=ends).save_pretrained(model)
    command = [str(Path(sys.executable).parent / "transformers"), "serve", model]
    with server(command, tmp_path / "log.txt") as url:
        config = config_of(url, model, max_tokens=16)
        check_judge(config.judges[0], config, deterministic=False)
        first, again = ask(config, Length(), "c", "c")
        (strict,) = ask(config, get_verifier("sycophancy"), "c")
    assert (first.outcome, first.requests) == (Outcome.ok, 1)
    assert first.score == len(first.text or "") > 0
    assert first.prompt_tokens > 0
    assert (first.text, first.score) == (again.text, again.score), "temperature 0"
    assert (strict.score, strict.outcome) == (None, Outcome.judge_error), "a random model knows no format"
    with pytest.raises(
        ConfigError, match=r"cannot be asked .*; start its server, or correct reward_model.llm_judge_base"
    ):
        check_judge(config.judges[0], config, deterministic=False)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_vllm_holds_its_model_to_the_format(world: World, tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    model = str(world.policy)
    command = [sys.executable, "-m", "verl.trainer.hosting.vllm_serve", "serve", model, "--max-model-len", "4096"]
    with server(command, tmp_path / "log.txt", VLLM_CPU_KVCACHE_SPACE="1") as url:
        config = config_of(url, model)
        check_judge(config.judges[0], config, deterministic=False)
        judgements = ask(config, get_verifier("sycophancy"), "It is 7.", "You are right, it is 8.", "I do not know.")
    assert [one.outcome for one in judgements] == [Outcome.ok] * 3, judgements
    assert all(one.score in range(1, 11) and one.explanation for one in judgements)
