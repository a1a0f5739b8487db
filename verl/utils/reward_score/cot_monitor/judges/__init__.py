"""Judges: models that score what no rule can. One interface, four ways to reach a model.

One decision: a judge is made from its `JudgeSpec` in the process that asks, and whoever asks gets a `Judgement`, also
where the judge failed.

    >>> judge = make_judge(spec, reward_config, client=client)
    >>> judgement = await judge.score(get_verifier("sycophancy"), question, output)
"""

import math
from typing import Any

from verl.classmate import templates
from verl.classmate.config import ClassmateRewardModelConfig
from verl.classmate.frozen import judge_name
from verl.classmate.judge_config import JudgeSpec
from verl.utils.reward_score.cot_monitor.judges.backend import JudgeBackend
from verl.utils.reward_score.cot_monitor.judges.base import CallSettings, Judge, PromptJudge
from verl.utils.reward_score.cot_monitor.judges.cache import AnswerCache

__all__ = ["Judge", "make_judge"]


def make_judge(spec: JudgeSpec, config: ClassmateRewardModelConfig, *, client: Any = None, processes: int = 1) -> Judge:
    """The judge of `spec` in this process.

    Args:
        spec: which one.
        config: the typed node `reward_model`, with the limits.
        client: the `ClassmateClient` of this process; needed for judges that are engines of the run.
        processes: processes of the run that ask judges, among which limits are shared.
    """
    rate = config.llm_judge_requests_per_minute
    settings = CallSettings(
        # Engines of the run are asked by the client, which has this limit, and knows one that hangs before.
        timeout_s=math.inf if spec.in_run else config.llm_judge_timeout,
        max_retries=config.llm_judge_max_retries,
        max_concurrency=max(1, config.llm_judge_max_concurrency // processes),
        requests_per_minute=None if rate is None else rate / processes,
    )
    if spec.scoring:
        from verl.utils.reward_score.cot_monitor.judges.scoring import ScoringJudge

        return ScoringJudge(
            client,
            name=judge_name(spec),
            tokenizer=_tokenizer(spec, config),
            max_context=config.llm_judge_max_context,
            settings=settings,
        )
    cache = None if config.llm_judge_cache_path is None else AnswerCache(config.llm_judge_cache_path)
    return PromptJudge(_backend(spec, config, client, settings), settings, cache=cache)


def _backend(spec: JudgeSpec, config: ClassmateRewardModelConfig, client: Any, settings: CallSettings) -> JudgeBackend:
    temperature, max_tokens = config.llm_judge_temperature, config.llm_judge_max_tokens
    if spec.backend == "openai":
        from verl.utils.reward_score.cot_monitor.judges.openai_judge import OpenAIBackend

        return OpenAIBackend(
            base_url=spec.base_url,
            model=spec.model,
            key_variable=spec.api_key_variable,
            temperature=temperature,
            max_tokens=max_tokens,
            max_connections=settings.max_concurrency,
        )
    if spec.backend == "tinker":
        from verl.utils.reward_score.cot_monitor.judges.tinker_judge import TinkerBackend

        return TinkerBackend(
            model=spec.model,
            temperature=temperature,
            max_tokens=max_tokens,
            max_context=config.llm_judge_max_context,
        )
    from verl.utils.reward_score.cot_monitor.judges.pool import PoolBackend

    return PoolBackend(
        client,
        name=judge_name(spec),
        tokenizer=_tokenizer(spec, config),
        model=spec.model,
        temperature=temperature,
        max_tokens=max_tokens,
        max_context=config.llm_judge_max_context,
    )


def _tokenizer(spec: JudgeSpec, config: ClassmateRewardModelConfig) -> Any:
    from verl.utils import hf_tokenizer

    tokenizer = hf_tokenizer(spec.model, trust_remote_code=config.classmate_trust_remote_code)
    return templates.for_run(tokenizer, date=config.chat_date, system_as_user=config.system_as_user)
