"""Back end `hf_scoring`: a reward model reads question and output as one chat and gives a number, without words.

One decision: it is an engine of the run, like the judges that are asked in words; what it says needs no parser, and as
it costs nothing but its own time, no cache.

    >>> judge = ScoringJudge(client, name="judge", tokenizer=tokenizer, max_context=32768, settings=settings)
    >>> (await judge.score(get_verifier("general_reward"), question, output)).score
    -3.1
"""

import math
from typing import Any

from verl.classmate.judgement import Judgement
from verl.classmate.outcome import Outcome
from verl.classmate.reply import Reply
from verl.utils.reward_score.cot_monitor._marks import defused
from verl.utils.reward_score.cot_monitor.BaseVerifier import BaseVerifier
from verl.utils.reward_score.cot_monitor.judges.backend import CallFailed, FailureKind
from verl.utils.reward_score.cot_monitor.judges.base import Calls, CallSettings, Judge, failure
from verl.utils.reward_score.cot_monitor.judges.pool import chat_ids


class ScoringJudge(Judge):
    """Asks a reward model."""

    def __init__(self, client: Any, *, name: str, tokenizer: Any, max_context: int, settings: CallSettings) -> None:
        """As `PoolBackend`."""
        self._client = client
        self._name = name
        self._tokenizer = tokenizer
        self._max_context = max_context
        self._calls = Calls(settings)

    async def _score(self, verifier: BaseVerifier, question: str, output: str) -> Judgement:
        """As `Judge.score`; the verifier has no say in it."""
        messages = [
            {"role": "user", "content": defused(question)},
            {"role": "assistant", "content": defused(output)},
        ]
        ids, _ = chat_ids(self._tokenizer, messages, add_generation_prompt=False)

        async def attempt() -> float:
            if len(ids) > self._max_context:
                raise CallFailed(
                    "refused", f"{len(ids)} tokens are more than llm_judge_max_context={self._max_context}"
                )
            scored: float | Reply = await self._client.score_tokens(self._name, ids)
            if isinstance(scored, Reply):
                kind: FailureKind = "timeout" if scored.outcome is Outcome.timeout else "unreachable"
                raise CallFailed(kind, scored.error or scored.outcome.value)
            return scored

        score, requests = await self._calls.make(attempt)
        if isinstance(score, CallFailed):
            return failure(score, requests)
        if not math.isfinite(score):
            return failure(CallFailed("server_error", f"the reward model's number is {score}"), requests)
        return Judgement(outcome=Outcome.ok, score=score, requests=requests, prompt_tokens=len(ids))

    async def close(self) -> None:
        """The engines are the run's to close."""
