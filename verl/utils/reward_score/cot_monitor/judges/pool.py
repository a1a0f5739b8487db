"""Back ends `vllm` and `hf`: a judge that is an engine of the run, placed, put to sleep and healed like a classmate.

One decision: the engine is asked through the `ClassmateClient` that asks the classmates, so that a judge needs no
machinery of its own; what differs is the prompt, which is one message in the judge's own chat template.

    >>> backend = PoolBackend(client, index=2, tokenizer=tokenizer, model="Qwen/Qwen3-4B", temperature=0.0,
    ...                       max_tokens=2048, max_context=32768)
    >>> (await backend.ask("Rate this ...", None)).text
"""

from typing import Any

from verl.classmate.reply import Reply
from verl.classmate.scoring import Outcome
from verl.utils.reward_score.cot_monitor.judges.base import CallFailed, FailureKind, JudgeAnswer

_GREEDY_SEED = 0
"""An engine wants a seed; at temperature 0 none is used."""


class PoolBackend:
    """Asks the engine of a judge."""

    def __init__(
        self,
        client: Any,
        *,
        index: int,
        tokenizer: Any,
        model: str,
        temperature: float | None,
        max_tokens: int,
        max_context: int,
    ) -> None:
        """Asks nothing.

        Args:
            client: the `ClassmateClient` of this process.
            index: place of the judge in `frozen_models`.
            tokenizer: the judge's.
            model: its name.
            temperature: None counts as 0.
            max_tokens: of an answer.
            max_context: of prompt and answer together.
        """
        self._client = client
        self._index = index
        self._tokenizer = tokenizer
        self._room = max_context - max_tokens
        self._params = {
            "temperature": temperature or 0.0,
            "top_p": 1.0,
            "top_k": -1,
            "max_tokens": max_tokens,
            "seed": _GREEDY_SEED,
        }
        self.identity = {"backend": "engine", "model": model, **self._params}

    async def ask(self, prompt: str, pattern: str | None) -> JudgeAnswer:
        """As `JudgeBackend.ask`."""
        ids = chat_ids(self._tokenizer, [{"role": "user", "content": prompt}], add_generation_prompt=True)
        if len(ids) > self._room:
            raise CallFailed("refused", f"the prompt has {len(ids)} tokens, llm_judge_max_context leaves {self._room}")
        reply: Reply = await self._client.complete(self._index, ids, self._params)
        if reply.outcome is not Outcome.ok:
            # The client has tried every engine again already.
            kind: FailureKind = "timeout" if reply.outcome is Outcome.timeout else "unreachable"
            raise CallFailed(kind, reply.error or reply.outcome.value)
        return JudgeAnswer(
            text=self._tokenizer.decode(list(reply.token_ids), skip_special_tokens=True),
            finish_reason=reply.finish_reason,
            prompt_tokens=len(ids),
            completion_tokens=len(reply.token_ids),
        )

    async def close(self) -> None:
        """The engines are the run's to close."""


def chat_ids(tokenizer: Any, messages: list[dict[str, str]], *, add_generation_prompt: bool) -> list[int]:
    """A chat in a model's tokens; models that can think are asked to answer at once."""
    text = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=add_generation_prompt, enable_thinking=False
    )
    return tokenizer(text, add_special_tokens=False)["input_ids"]
