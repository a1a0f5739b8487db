"""Scores a row: the verifier reads the main output and every classmate's answer, then the parts become rewards.

Decision: one verifier, chosen by the row's exact data source, scores both with the same ground truth; what is reward
and what is only logged is decided in `verl.classmate.scoring`, not here.

    >>> manager = ClassmateCoTRewardManager(config, tokenizer)
    >>> scores = await manager.score(row, span, continuations)
    >>> scores.base_reward, scores.classmate_reward
"""

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl.classmate import cot
from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.classmate.scoring import ClassmateScores, Continuation, Outcome, RewardScale, score_row
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RawRewardFn, RewardManagerBase
from verl.protocol import DataProto
from verl.utils.reward_score.cot_monitor import get_verifier


@dataclass(frozen=True, kw_only=True)
class RowTask:
    """What a verifier needs to know of a row."""

    data_source: str
    """Chooses the verifier, exactly."""
    reward_model: Mapping[str, Any]
    """The dataset column of that name (spec 9.1): ground truth, hints."""
    extra_info: Mapping[str, Any]
    """The dataset column of that name."""


@register("classmate_cot")
class ClassmateCoTRewardManager(RewardManagerBase):
    """The reward manager `classmate_cot`."""

    def __init__(self, config: DictConfig, tokenizer: Any, compute_score: RawRewardFn = None, **kwargs: Any) -> None:
        """As upstream; `compute_score` (sync or async) replaces the verifier when given."""
        super().__init__(config, tokenizer, compute_score)
        container = OmegaConf.to_container(config.reward_model, resolve=True)
        self.reward_config: ClassmateRewardModelConfig = from_mapping(container, require_classmates=False)

    async def score(
        self, task: RowTask, span: cot.CotSpan, continuations: Sequence[Continuation], *, samples: int
    ) -> ClassmateScores:
        """Rewards of one row.

        Args:
            task: the row.
            span: its located CoT and output.
            continuations: the classmates' answers, without scores.
            samples: S, requests per classmate.
        """
        verifier = get_verifier(task.data_source)
        low, high = verifier.reward_range
        scale = RewardScale(
            direction=verifier.reward_direction, low=low, high=high, threshold=verifier.main_correct_threshold
        )
        main_score, main_outcome = await self._main_score(task, span)
        scored = [replace(item, score=await self.compute_classmate_score(task, item)) for item in continuations]
        return score_row(
            main_score=main_score,
            main_outcome=main_outcome,
            continuations=scored,
            scale=scale,
            config=self.reward_config.classmate_cot_reward_configs,
            weights=self.reward_config.classmate_weights if self.reward_config.classmates else (),
            samples=samples,
            span=span,
            format_score=float(span.closed),
            format_weight=self.reward_config.format_weight,
        )

    async def _main_score(self, task: RowTask, span: cot.CotSpan) -> tuple[float | None, Outcome]:
        if span.output is None:
            return None, Outcome.unfinished_cot
        if not span.output.strip():
            return None, Outcome.no_answer
        score = await self._verify(task, span.output)
        return (None, Outcome.judge_error) if score is None else (score, Outcome.ok)

    async def compute_classmate_score(self, task: RowTask, continuation: Continuation) -> float | None:
        """The verifier's raw score of one classmate's answer; None where there is no answer to score."""
        if continuation.outcome is not Outcome.ok or continuation.text is None:
            return None
        return await self._verify(task, continuation.text)

    async def _verify(self, task: RowTask, text: str) -> float | None:
        ground_truth = task.reward_model.get("ground_truth")
        if self.compute_score is None:
            result = get_verifier(task.data_source).compute_score(text, ground_truth)
        else:
            result = self.compute_score(
                data_source=task.data_source,
                solution_str=text,
                ground_truth=ground_truth,
                extra_info=dict(task.extra_info),
            )
        if inspect.isawaitable(result):
            result = await result
        if isinstance(result, Mapping):
            result = result["score"]
        return None if result is None or not math.isfinite(result) else float(result)

    def follows_hint(self, task: RowTask, text: str | None) -> float:
        """1 or 0 for an answer to a row with a wrong hint, NaN for every other row."""
        verifier = get_verifier(task.data_source)
        if text is None or not hasattr(verifier, "follows_hint"):
            return math.nan
        follows = verifier.follows_hint(text, task.reward_model)
        return math.nan if follows is None else float(follows)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Upstream's interface, for runs whose rows are scored by reward workers: the main output alone.

        Classmates are asked where rows are made, in the agent loop; a reward worker has none to ask.
        """
        item = data[0]
        length = int(item.batch["attention_mask"][-item.batch["responses"].shape[-1] :].sum())
        columns = item.non_tensor_batch
        task = RowTask(
            data_source=columns["data_source"],
            reward_model=columns["reward_model"],
            extra_info=columns.get("extra_info") or {},
        )
        markers = None if self.reward_config.cot_format == "plain" else self.reward_config.markers
        span = cot.locate(item.batch["responses"][:length].tolist(), self.tokenizer, markers)
        scores = await self.score(task, span, [], samples=0)
        return {"reward_score": scores.final_reward, "reward_extra_info": scores.extra_info()}
