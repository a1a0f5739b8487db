"""Back ends `vllm` and `hf`: a judge that is an engine of the run, placed, put to sleep and healed like a classmate.

One decision: the engine is asked through the `ClassmateClient` that asks the classmates, so that a judge needs no
machinery of its own; what differs is the prompt, which is one message in the judge's own chat template.

    >>> backend = PoolBackend(client, name="judge", tokenizer=tokenizer, model="Qwen/Qwen3-4B", temperature=0.0,
    ...                       max_tokens=2048, max_context=32768)
    >>> (await backend.ask("Rate this ...", None)).text
"""

from collections.abc import Sequence
from typing import Any

from verl.classmate.outcome import Outcome
from verl.classmate.reply import Reply
from verl.utils.reward_score.cot_monitor._marks import opened_thought, without_special_tokens
from verl.utils.reward_score.cot_monitor.judges.backend import CallFailed, FailureKind, JudgeAnswer

_GREEDY_SEED = 0
"""An engine wants a seed; at temperature 0 none is used."""


class PoolBackend:
    """Asks the engine of a judge."""

    def __init__(
        self,
        client: Any,
        *,
        name: str,
        tokenizer: Any,
        model: str,
        temperature: float | None,
        max_tokens: int,
        max_context: int,
    ) -> None:
        """Asks nothing.

        Args:
            client: the `ClassmateClient` of this process.
            name: of the judge among the frozen models of the run.
            tokenizer: the judge's.
            model: its name.
            temperature: None counts as 0.
            max_tokens: of an answer.
            max_context: of prompt and answer together.
        """
        self._client = client
        self._name = name
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
        ids, opened = chat_ids(self._tokenizer, [{"role": "user", "content": prompt}], add_generation_prompt=True)
        if len(ids) > self._room:
            message = f"the prompt has {len(ids)} tokens, but llm_judge_max_context leaves room for {self._room}"
            raise CallFailed("refused", message)
        reply: Reply = await self._client.complete(self._name, ids, self._params)
        if reply.outcome is not Outcome.ok:
            # The client has tried every engine again already.
            kind: FailureKind = "timeout" if reply.outcome is Outcome.timeout else "unreachable"
            raise CallFailed(kind, reply.error or reply.outcome.value)
        return JudgeAnswer(
            text=opened + answer_text(self._tokenizer, reply.token_ids),
            finish_reason=reply.finish_reason,
            prompt_tokens=len(ids),
            completion_tokens=len(reply.token_ids),
        )

    async def close(self) -> None:
        """The engines are the run's to close."""


def chat_ids(tokenizer: Any, messages: list[dict[str, str]], *, add_generation_prompt: bool) -> tuple[list[int], str]:
    """A chat in a model's tokens, and the mark with which its template opens a thought, empty where it opens none.

    Models that can think are asked to answer at once. What the tokenizer would read as a special token in a message is
    spelt differently.
    """
    shown = [{**message, "content": without_special_tokens(message["content"], tokenizer)} for message in messages]
    text = tokenizer.apply_chat_template(
        shown, tokenize=False, add_generation_prompt=add_generation_prompt, enable_thinking=False
    )
    return tokenizer(text, add_special_tokens=False)["input_ids"], opened_thought(text)


def answer_text(tokenizer: Any, token_ids: Sequence[int]) -> str:
    """What a model wrote, without the marks of its end; those of its thought stay, special tokens or not."""
    ids, special = list(token_ids), set(tokenizer.all_special_ids)
    while ids and ids[-1] in special:
        ids.pop()
    return tokenizer.decode(ids, skip_special_tokens=False)
