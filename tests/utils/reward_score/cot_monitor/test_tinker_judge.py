"""The Tinker SDK itself, as the judge asks it, against a server on loopback that speaks what it needs."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from transformers import AutoTokenizer

from tests.e2e.tiny import make_tiny_world
from tests.workers.servers import serving
from verl.classmate.aliases import resolve_aliases
from verl.classmate.config import from_mapping
from verl.classmate.errors import ConfigError
from verl.classmate.judgement import Judgement
from verl.classmate.outcome import Outcome
from verl.trainer.preflight.judges import check_judge
from verl.utils.reward_score.cot_monitor import BaseVerifier
from verl.utils.reward_score.cot_monitor.judges import tinker_judge
from verl.utils.reward_score.cot_monitor.judges.base import CallSettings, PromptJudge
from verl.utils.reward_score.cot_monitor.judges.tinker_judge import TinkerBackend

KEY = "tml-of-nobody"


class Lowercase(BaseVerifier):
    """A judge's prompt and answer within the tiny tokenizer's characters."""

    reward_description = "a number"

    def format_llm_judge_prompt(self, question: str, output: str) -> str:
        return f"{question} {output}"

    def parse_llm_judge_output(self, text: str) -> tuple[float | None, str]:
        _, _, number = text.partition("rating ")
        return (float(number) if number.isdigit() else None), text


class TinkerServer:
    """Sessions, sampling and its results; `answers` maps what a prompt ends with to text, or to a status."""

    def __init__(self, tokenizer: Any, answers: dict[str, str | int]) -> None:
        self.app = FastAPI()
        self.sampled: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self._tokenizer, self._answers = tokenizer, answers
        self._results: dict[str, str] = {}
        self._lock = threading.Lock()
        self.app.post("/api/v1/asample")(self._sample)
        self.app.post("/api/v1/retrieve_future")(self._retrieve)
        self.app.post("/api/v1/{name:path}")(self._rest)

    async def _rest(self, name: str) -> Response:
        bodies = {
            "client/config": {},
            "client/dynamic_config": {},
            "create_session": {"type": "create_session", "session_id": "s"},
            "create_sampling_session": {"type": "create_sampling_session", "sampling_session_id": "s:sample:0"},
            "session_heartbeat": {"type": "session_heartbeat"},
            "telemetry": {"status": "accepted"},
        }
        return JSONResponse(bodies.get(name, {}))

    async def _sample(self, request: Request) -> Response:
        body = await request.json()
        prompt = self._tokenizer.decode(body["prompt"]["chunks"][0]["tokens"])
        answer = next(answer for word, answer in self._answers.items() if word in prompt)
        with self._lock:
            self.sampled.append(body)
            self.keys.add(request.headers["x-api-key"])
            name = f"r{len(self.sampled)}"
            self._results[name] = str(answer)
        if isinstance(answer, int):
            return JSONResponse({"error": "injected", "message": f"refused, with {KEY}"}, answer)
        return JSONResponse({"request_id": name, "sample_sequence_ids": ["q"]})

    async def _retrieve(self, request: Request) -> Response:
        from tinker.proto import tinker_public_pb2 as wire

        answer = self._results[(await request.json())["request_id"]]
        if answer == "hang":
            await asyncio.sleep(3600)
        reason = wire.STOP_REASON_LENGTH if answer.endswith("cut") else wire.STOP_REASON_STOP
        tokens = np.array(self._tokenizer(answer.removesuffix("cut"))["input_ids"], dtype=np.int32).tobytes()
        sequence = wire.SampledSequence(stop_reason=reason, tokens=tokens)
        content = wire.SampleResponse(sequences=[sequence]).SerializeToString()
        return Response(content, media_type="application/x-protobuf")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return AutoTokenizer.from_pretrained(make_tiny_world(tmp_path_factory.mktemp("tiny")).model)


@pytest.fixture
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    monkeypatch.setenv("HOME", str(tmp_path))
    return


def ask(backend: TinkerBackend, *outputs: str, timeout: float = 60.0) -> list[Judgement]:
    settings = CallSettings(timeout_s=timeout, max_retries=0, max_concurrency=8, requests_per_minute=None)
    judge = PromptJudge(backend, settings, cache=None)

    async def run() -> list[Judgement]:
        try:
            return list(await asyncio.gather(*(judge.score(Lowercase(), "how", output) for output in outputs)))
        finally:
            await judge.close()

    return asyncio.run(run())


@pytest.mark.usefixtures("_environment")
def test_the_sdk_is_asked_and_its_answers_are_read(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tinker", reason="the Tinker SDK is an optional extra")
    answers = {"fine": "rating 7", "vague": "who knows", "long": "rating 7cut", "refused": 403}
    server = TinkerServer(tokenizer, answers)
    with serving(server.app, name="tinker") as served:
        monkeypatch.setenv("TINKER_BASE_URL", served.url)
        backend = TinkerBackend(model="tiny", temperature=0.0, max_tokens=16, max_context=64, tokenizer=tokenizer)
        fine, vague, long, refused, huge = ask(backend, "fine", "vague", "long", "refused", "fine" * 20)
    assert (fine.outcome, fine.score, fine.prompt_tokens, fine.completion_tokens) == (Outcome.ok, 7.0, 11, 8)
    assert (vague.score, vague.failure) == (None, "invalid")
    assert (long.score, long.failure) == (None, "cut")
    assert (refused.outcome, refused.score) == (Outcome.engine_error, None)
    assert KEY not in str(refused)
    assert (huge.score, huge.failure) == (None, "refused"), "a prompt that does not fit is not sent"
    assert server.keys == {KEY}
    params = server.sampled[0]["sampling_params"]
    assert (params["temperature"], params["max_tokens"]) == (0.0, 16)
    assert len(server.sampled) == 4


@pytest.mark.usefixtures("_environment")
def test_an_answer_of_the_sdk_that_does_not_come_is_a_timeout(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tinker", reason="the Tinker SDK is an optional extra")
    with serving(TinkerServer(tokenizer, {"": "hang"}).app, name="tinker") as served:
        monkeypatch.setenv("TINKER_BASE_URL", served.url)
        backend = TinkerBackend(model="tiny", temperature=0.0, max_tokens=16, max_context=64, tokenizer=tokenizer)
        (judgement,) = ask(backend, "fine", timeout=2.0)
    assert (judgement.outcome, judgement.score) == (Outcome.timeout, None)


def test_what_is_missing_is_one_line_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    (typed,) = resolve_aliases(["reward_model.user_tinker_llm_judge=True"])
    assert typed == "reward_model.llm_judge_backend_type=tinker"
    assert resolve_aliases(["reward_model.user_tinker_llm_judge=False"]) == []
    with pytest.raises(ConfigError, match=r"disagree on reward_model.llm_judge_backend_type"):
        resolve_aliases(["reward_model.user_tinker_llm_judge=True", "reward_model.llm_judge_backend_type=openai"])
    config = from_mapping({"llm_judge_backend_type": "tinker", "llm_judge_model_name": "m"}, require_classmates=False)
    (spec,) = config.judges
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    monkeypatch.setattr(tinker_judge.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="llm_judge_backend_type=tinker: the SDK tinker is not installed; run `pip"):
        check_judge(spec, config, deterministic=False)
    monkeypatch.setattr(tinker_judge.importlib.util, "find_spec", lambda name: name)
    with pytest.raises(ConfigError, match="TINKER_API_KEY is not set"):
        check_judge(spec, config, deterministic=False)
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    check_judge(spec, config, deterministic=False)
