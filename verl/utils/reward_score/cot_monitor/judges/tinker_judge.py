"""Back end `tinker`: a judge sampled through the Tinker SDK, whose key is the environment's TINKER_API_KEY.

One decision: the SDK retries and waits on its own; here it is one attempt with a time limit, in a client of this
process that is made at the first question.

    reward_model.user_tinker_llm_judge=True reward_model.llm_judge_model_name=Qwen/Qwen3-30B-A3B-Instruct-2507

    >>> backend = TinkerBackend(model="Qwen/Qwen3-30B-A3B-Instruct-2507", temperature=0.0, max_tokens=2048,
    ...                         max_context=32768)
    >>> (await backend.ask("Rate this ...", None)).text
"""

import asyncio
import importlib.util
import os
import threading
from typing import Any

from verl.utils.reward_score.cot_monitor.judges.backend import CallFailed, FailureKind, JudgeAnswer
from verl.utils.reward_score.cot_monitor.judges.pool import answer_text, chat_ids

KEY_VARIABLE = "TINKER_API_KEY"
"""Environment variable of the key."""


def missing() -> str | None:
    """What is not there for this back end, as a sentence that says what to do; None if all is."""
    if importlib.util.find_spec("tinker") is None:
        return "the SDK tinker is not installed; run `pip install tinker`"
    if not os.environ.get(KEY_VARIABLE):
        return f"the environment variable {KEY_VARIABLE} is not set; export it"
    return None


class TinkerBackend:
    """Samples from one model, a base model's name or a path `tinker://...` of saved weights."""

    def __init__(
        self,
        *,
        model: str,
        temperature: float | None,
        max_tokens: int,
        max_context: int,
        tokenizer: Any = None,
    ) -> None:
        """Opens nothing.

        Args:
            model: base model, or path of saved weights.
            temperature: None counts as 0.
            max_tokens: of an answer.
            max_context: of prompt and answer together.
            tokenizer: the model's; the one that the SDK names when not given.
        """
        self._model = model
        self._temperature = temperature or 0.0
        self._max_tokens = max_tokens
        self._room = max_context - max_tokens
        self._tokenizer = tokenizer
        self._service: Any = None
        self._client: Any = None
        self._starting = threading.Lock()
        self.identity = {
            "backend": "tinker",
            "model": model,
            "temperature": self._temperature,
            "max_tokens": max_tokens,
        }

    async def ask(self, prompt: str, pattern: str | None) -> JudgeAnswer:
        """As `JudgeBackend.ask`."""
        import tinker

        try:
            # It waits for the server.
            await asyncio.to_thread(self._start)
            messages = [{"role": "user", "content": prompt}]
            ids, opened = chat_ids(self._tokenizer, messages, add_generation_prompt=True)
            if len(ids) > self._room:
                raise CallFailed(
                    "refused",
                    f"the prompt has {len(ids)} tokens, but llm_judge_max_context leaves room for {self._room}",
                )
            response = await self._client.sample(
                prompt=tinker.types.ModelInput.from_ints(ids),
                num_samples=1,
                sampling_params=tinker.types.SamplingParams(
                    max_tokens=self._max_tokens, temperature=self._temperature, seed=0
                ),
            )
        except tinker.APITimeoutError as error:
            raise CallFailed("timeout", _line(error), retry=True) from error
        except tinker.APIStatusError as error:
            code = error.status_code
            kinds: dict[bool, FailureKind] = {True: "server_error", False: "refused"}
            kind = "rate_limited" if code == 429 else kinds[code >= 500]
            raise CallFailed(kind, _line(error), retry=kind != "refused") from error
        except tinker.APIConnectionError as error:
            raise CallFailed("unreachable", _line(error), retry=True) from error
        except (tinker.TinkerError, ValueError) as error:
            # A ValueError is what the SDK makes of an answer that it cannot use.
            raise CallFailed("server_error", _line(error), retry=True) from error
        if not response.sequences:
            raise CallFailed("server_error", "the reply holds no sequence", retry=True)
        sequence = response.sequences[0]
        return JudgeAnswer(
            text=opened + answer_text(self._tokenizer, sequence.tokens),
            finish_reason=sequence.stop_reason,
            prompt_tokens=len(ids),
            completion_tokens=len(sequence.tokens),
        )

    async def close(self) -> None:
        """Ends the session."""
        with self._starting:
            service, self._service, self._client = self._service, None, None
        if service is not None:
            await service.close("success")

    def _start(self) -> None:
        """Makes the client, once; it lives in a thread of the SDK's and serves any event loop."""
        import tinker

        with self._starting:
            if self._client is not None:
                return
            self._service = self._service or tinker.ServiceClient()
            named = "model_path" if self._model.startswith("tinker://") else "base_model"
            client = self._service.create_sampling_client(**{named: self._model}).result()
            if self._tokenizer is None:
                self._tokenizer = client.get_tokenizer()
            self._client = client


def _line(error: BaseException) -> str:
    """An error on one line, without the key."""
    key = os.environ.get(KEY_VARIABLE)
    text = " ".join(str(error).split())
    return (text.replace(key, "***") if key else text)[:200]
