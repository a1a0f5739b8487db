"""The engine "hf" behind OpenAI's HTTP interface, for classmates and judges that are hosted outside of a run.

One decision: the words are vLLM's (token ids as prompt, `return_token_ids`, its errors), so that one client asks either
server. What the engine does not know is refused with 400, never ignored. A request with `prompt_logprobs` is only read:
unlike vLLM this server then writes no token. Loopback unless told otherwise; requests need the key of the environment
variable VLLM_API_KEY where it is set, as with vLLM.

    python -m verl.workers.rollout.hf_rollout_server.openai_api Qwen/Qwen3-0.6B --port 8003
    curl localhost:8003/v1/completions -H 'Content-Type: application/json' \
        -d '{"model": "Qwen/Qwen3-0.6B", "prompt": [1, 2, 3], "max_tokens": 8, "return_token_ids": true}'
"""

import argparse
import asyncio
import hmac
import os
import sys
import time
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Annotated, Any
from uuid import uuid4

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from verl.classmate.seeds import fresh_engine_seed
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig, HFEngine
from verl.workers.rollout.hf_rollout_server.request import GenerationOutput
from verl.workers.rollout.hf_rollout_server.sampling import SamplingParams

MAX_BODY_BYTES = 16 << 20
"""Largest request body: some 2 million token ids."""

MAX_SEQUENCES = 1024
"""Most sequences (prompts times `n`) of one request."""

KEY_VARIABLE = "VLLM_API_KEY"
"""Environment variable of the key that requests must bring."""

_IGNORED = {"user", "request_id", "priority", "skip_special_tokens", "spaces_between_special_tokens"}
"""Fields that change nothing in tokens."""
_OFF: dict[str, tuple[Any, ...]] = {
    "echo": (False, None),
    "stream": (False, None),
    "stream_options": (None,),
    "suffix": (None, ""),
}
_OFF |= {"best_of": (None, 1), "logit_bias": (None, {}), "use_beam_search": (False, None)}
"""Fields of the interface that this server lacks, with the values that mean "not used"."""

TokenIds = list[Annotated[int, Field(ge=0, strict=True)]]


class CompletionRequest(BaseModel):
    """The body of `POST /v1/completions`; further fields are the engine's sampling parameters or refused."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    prompt: str | TokenIds | list[str] | list[TokenIds]
    max_tokens: int | None = 16
    temperature: float | None = 1.0
    top_p: float | None = 1.0
    top_k: int | None = -1
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    n: int = Field(1, ge=1)
    logprobs: int | None = Field(None, ge=0)
    ignore_eos: bool = False
    add_special_tokens: bool = True
    return_token_ids: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Served:
    """What the server offers."""

    engine: HFEngine
    """It generates."""
    names: tuple[str, ...]
    """Names under which requests ask for the model; the first one stands in replies."""
    key: str | None = None
    """Key that requests must bring; None: none."""


class ApiError(Exception):
    """A request that gets an error: status, message, and the field it is about."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param = status, message, param

    def response(self) -> JSONResponse:
        """OpenAI's error object."""
        kinds = {401: "AuthenticationError", 404: "NotFoundError", 413: "BadRequestError", 400: "BadRequestError"}
        kind = kinds.get(self.status, "BadRequestError" if self.status < 500 else "InternalServerError")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.status}
        return JSONResponse({"error": error}, status_code=self.status)


def create_app(served: Served) -> FastAPI:
    """The application: `POST /v1/completions`, `GET /v1/models`, `GET /health`."""
    app = FastAPI(title="classmate-cot", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.served = served

    @app.exception_handler(ApiError)
    async def on_api_error(_: Request, error: ApiError) -> Response:
        return error.response()

    @app.exception_handler(HTTPException)
    async def on_http_error(_: Request, error: HTTPException) -> Response:
        return ApiError(error.status_code, str(error.detail)).response()

    @app.exception_handler(Exception)
    async def on_failure(_: Request, error: Exception) -> Response:
        return ApiError(500, f"{type(error).__name__}: {error}").response()

    @app.get("/health")
    async def health() -> Response:
        return Response(status_code=200 if served.engine.alive else 503)

    @app.get("/v1/models")
    async def models(request: Request) -> dict[str, Any]:
        _check_key(request, served.key)
        card = {"object": "model", "created": int(started), "owned_by": "classmate-cot"}
        card |= {"root": served.engine.config.model_path, "max_model_len": served.engine.max_model_len}
        return {"object": "list", "data": [{"id": name, **card} for name in served.names]}

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        _check_key(request, served.key)
        body = await _read_body(request)
        try:
            asked = CompletionRequest.model_validate_json(body)
        except ValidationError as error:
            raise _first_problem(error) from error
        return JSONResponse(await _unless_disconnected(request, _complete(served, asked)))

    started = time.time()
    return app


def _check_key(request: Request, key: str | None) -> None:
    if key is not None:
        given = request.headers.get("authorization", "").encode()
        if not hmac.compare_digest(given, f"Bearer {key}".encode()):
            raise ApiError(401, "Unauthorized")


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise ApiError(413, f"the request's body is larger than {MAX_BODY_BYTES} bytes")
    return bytes(body)


def _first_problem(error: ValidationError) -> ApiError:
    problems = error.errors(include_url=False, include_input=False)
    field = str(problems[0]["loc"][0]) if problems[0]["loc"] else None
    message = f"{field}: {problems[0]['msg']}" if field else problems[0]["msg"]
    if field == "prompt":
        message = "prompt: expected text, a list of texts, a list of token ids, or a list of such lists"
    return ApiError(400, message, field)


async def _unless_disconnected(request: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """The result of `work`, which is cancelled when the client goes away: nobody would read it."""

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(disconnected())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ApiError(499, "the client closed the connection")
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


async def _complete(served: Served, asked: CompletionRequest) -> dict[str, Any]:
    """The reply: prompts in their order, `n` choices each."""
    engine = served.engine
    if asked.model is not None and asked.model not in served.names:
        raise ApiError(404, f"The model `{asked.model}` does not exist.", "model")
    if asked.logprobs is not None and asked.logprobs > 1:
        raise ApiError(400, "logprobs: the engine knows those of sampled tokens only; write 0 or 1", "logprobs")
    prompts = _prompt_ids(engine, asked)
    if len(prompts) * asked.n > MAX_SEQUENCES:
        raise ApiError(400, f"{len(prompts)} prompts times n={asked.n}: at most {MAX_SEQUENCES} at once", "n")
    requests = []
    for ids in prompts:
        params = _sampling_params(asked, room=engine.max_model_len - len(ids))
        if len(ids) + params.max_tokens > engine.max_model_len:
            raise ApiError(
                400,
                f"This model's maximum context length is {engine.max_model_len} tokens. However, you requested "
                f"{len(ids) + params.max_tokens} tokens ({len(ids)} in the prompt, {params.max_tokens} in the "
                "completion); shorten one of them.",
                "prompt" if len(ids) >= engine.max_model_len else "max_tokens",
            )
        # As in vLLM: choice i of a seeded request has the seed plus i.
        requests += [
            (ids, params if params.seed is None else replace(params, seed=params.seed + choice))
            for choice in range(asked.n)
        ]
    try:
        outputs = await engine.generate_batch(requests)
    except ValueError as error:
        raise ApiError(400, str(error)) from error
    except RuntimeError as error:
        raise ApiError(500, str(error)) from error
    read, written = sum(map(len, prompts)), sum(len(output.token_ids) for output in outputs)
    return {
        "id": f"cmpl-{uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": asked.model or served.names[0],
        "choices": [
            _choice(engine.tokenizer, index, asked, ids, output)
            for index, ((ids, _), output) in enumerate(zip(requests, outputs, strict=True))
        ],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


def _prompt_ids(engine: HFEngine, asked: CompletionRequest) -> list[list[int]]:
    prompt = asked.prompt
    entries: list[Any] = (
        [prompt] if isinstance(prompt, str) or (prompt and isinstance(prompt[0], int)) else list(prompt)
    )
    ids = [
        engine.tokenizer(entry, add_special_tokens=asked.add_special_tokens)["input_ids"]
        if isinstance(entry, str)
        else entry
        for entry in entries
    ]
    if not ids or not all(ids):
        raise ApiError(400, "prompt: is empty", "prompt")
    return ids


def _sampling_params(asked: CompletionRequest, *, room: int) -> SamplingParams:
    extra = {key: value for key, value in (asked.model_extra or {}).items() if key not in _IGNORED}
    for key, unused in _OFF.items():
        if extra.pop(key, unused[0]) not in unused:
            raise ApiError(400, f"{key}: not supported by this server; leave it out", key)
    given = {
        "temperature": 1.0 if asked.temperature is None else asked.temperature,
        "top_p": 1.0 if asked.top_p is None else asked.top_p,
        "top_k": -1 if asked.top_k is None else asked.top_k,
        "seed": asked.seed,
        "stop": asked.stop,
        "stop_token_ids": asked.stop_token_ids,
        "ignore_eos": asked.ignore_eos,
        **extra,
    }
    try:
        return SamplingParams.from_dict(
            given, max_tokens=max(1, room) if asked.max_tokens is None else asked.max_tokens
        )
    except (ValueError, TypeError) as error:
        raise ApiError(400, str(error)) from error


def _choice(
    tokenizer: PreTrainedTokenizerBase,
    index: int,
    asked: CompletionRequest,
    prompt_ids: list[int],
    output: GenerationOutput,
) -> dict[str, Any]:
    """One choice; its text ends before a stop string, its tokens with the one that completed it."""
    ids = output.token_ids
    text = str(tokenizer.decode(ids, skip_special_tokens=True))
    stop_reason: str | int | None = None
    if output.finish_reason == "stop":
        stops = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
        found = [(text.find(stop), stop) for stop in stops if stop in text]
        if found:
            place, stop_reason = min(found)
            text = text[:place]
        elif ids[-1] in (asked.stop_token_ids or ()):
            stop_reason = ids[-1]
    logprobs = None
    if asked.logprobs is not None:
        pieces = [str(tokenizer.decode([token])) for token in ids]
        offsets = [sum(map(len, pieces[:place])) for place in range(len(pieces))]
        logprobs = {"tokens": pieces, "token_logprobs": output.log_probs, "top_logprobs": None, "text_offset": offsets}
    return {
        "index": index,
        "text": text,
        "logprobs": logprobs,
        "finish_reason": output.finish_reason,
        "stop_reason": stop_reason,
        "prompt_logprobs": _prompt_logprobs(tokenizer, prompt_ids, output.prompt_log_probs),
        "prompt_token_ids": prompt_ids if asked.return_token_ids else None,
        "token_ids": ids if asked.return_token_ids else None,
    }


def _prompt_logprobs(tokenizer: PreTrainedTokenizerBase, prompt_ids: list[int], told: list[float]) -> list[Any] | None:
    """One entry per token of the prompt, as vLLM has them; None for those that are not told of."""
    if not told:
        return None
    entries = [
        {str(token): {"logprob": value, "rank": None, "decoded_token": str(tokenizer.decode([token]))}}
        for token, value in zip(prompt_ids[-len(told) :], told, strict=True)
    ]
    return [None] * (len(prompt_ids) - len(told)) + entries


def main(arguments: list[str]) -> None:
    """Loads the model and serves until a signal."""
    import torch
    import uvicorn
    from transformers.utils.logging import disable_progress_bar

    parser = argparse.ArgumentParser(
        prog="python -m verl.workers.rollout.hf_rollout_server.openai_api",
        description="Serves a transformers model behind OpenAI's /v1/completions.",
    )
    parser.add_argument("model", metavar="MODEL", help="folder or hub name")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--served-model-name", nargs="+", metavar="NAME", help="names to ask for (default: MODEL)")
    parser.add_argument("--dtype", default="auto", help="auto (float32 on a CPU, else bfloat16), float32, float16, ...")
    parser.add_argument("--device", default="auto", help="auto (a GPU where there is one), cpu, cuda, cuda:1, ...")
    parser.add_argument("--max-model-len", type=int, help="most tokens of prompt and completion (default: the model's)")
    parser.add_argument("--max-batch-size", type=int, default=EngineConfig.max_batch_size, help="default: %(default)s")
    parser.add_argument("--threads", type=int, help="threads of torch on a CPU (default: torch's own)")
    parser.add_argument("--seed", type=int, help="of requests without one (default: another one at every start)")
    asked = parser.parse_args(arguments)

    device = asked.device if asked.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    disable_progress_bar()
    engine = HFEngine.from_config(
        EngineConfig(
            model_path=asked.model,
            dtype=asked.dtype if asked.dtype != "auto" else "float32" if device == "cpu" else "bfloat16",
            device=device,
            max_model_len=asked.max_model_len,
            max_batch_size=asked.max_batch_size,
            num_threads=asked.threads,
            seed=fresh_engine_seed() if asked.seed is None else asked.seed,
        )
    )
    names = tuple(asked.served_model_name or [asked.model])
    served = Served(engine=engine, names=names, key=os.environ.get(KEY_VARIABLE) or None)
    try:
        uvicorn.run(
            create_app(served),
            host=asked.host,
            port=asked.port,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=3,
        )
    finally:
        engine.close()


if __name__ == "__main__":
    main(sys.argv[1:])
