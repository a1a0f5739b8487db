"""Scores a row: the verifier reads the main output and every classmate's answer, then the parts become rewards.

Decision: one verifier, chosen by the row's exact data source, scores both with the same ground truth; what is reward
and what is only logged is decided in `verl.classmate.scoring`, not here.

    >>> manager = ClassmateCoTRewardManager(config, tokenizer)
    >>> scored = await manager.score(task, span, continuations, samples=1)
    >>> scored.scores.base_reward, scored.scores.classmate_reward
"""

import asyncio
import bdb
import inspect
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import DictConfig

from verl.classmate import cot
from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.classmate.errors import VerifierError
from verl.classmate.judge_config import JudgeSpec
from verl.classmate.scoring import (
    ClassmateScores,
    Continuation,
    Outcome,
    RewardScale,
    condition_factor,
    declares_range,
    score_row,
)
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RawRewardFn, RewardManagerBase
from verl.protocol import DataProto
from verl.utils.reward_score.cot_monitor import BaseVerifier, get_verifier, known_data_sources
from verl.utils.reward_score.cot_monitor.judges import Judge, make_judge
from verl.workers.classmates.client import ClassmateClient
from verl.workers.classmates.engines import context_length

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RowTask:
    """What a verifier needs to know of a row."""

    data_source: str
    """Chooses the verifier, exactly."""
    reward_model: Mapping[str, Any]
    """The dataset column of that name (spec 9.1): ground truth, hints."""
    extra_info: Mapping[str, Any]
    """The dataset column of that name."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a verifier made of one text."""

    score: float | None = None
    """The raw score; None if it has none."""
    error: str | None = None
    """Why not, if the verifier failed."""
    judge: Mapping[str, Any] | None = None
    """What a judge made of it (`Judgement.record`), where one was asked."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredRow:
    """A row's rewards and what they were made of."""

    scores: ClassmateScores
    """The rewards."""
    continuations: tuple[Continuation, ...]
    """As they came, with scores and final outcomes."""
    main: Verdict
    """What the verifier said of the main output."""


@register("classmate_cot")
class ClassmateCoTRewardManager(RewardManagerBase):
    """The reward manager `classmate_cot`."""

    def __init__(self, config: DictConfig, tokenizer: Any, compute_score: RawRewardFn = None, **kwargs: Any) -> None:
        """As upstream; `compute_score` (sync or async) replaces the verifier when given."""
        super().__init__(config, tokenizer, compute_score)
        self.reward_config: ClassmateRewardModelConfig = from_mapping(config.reward_model, require_classmates=False)
        for source in known_data_sources():
            get_verifier(source).configure(self.reward_config)
        self.client: Any = None
        """The `ClassmateClient` that asks judges which are engines of the run."""
        self._judges: dict[JudgeSpec, Judge] = {}

    async def score(
        self,
        task: RowTask,
        span: cot.CotSpan,
        continuations: Sequence[Continuation],
        *,
        samples: int,
        views: int = 1,
        keep_rate: float = 1.0,
        classmate_task: RowTask | None = None,
        main: Verdict | None = None,
        validate: bool = False,
    ) -> ScoredRow:
        """Rewards of one row.

        Args:
            task: the row.
            span: its located CoT and output.
            continuations: the classmates' answers; scores that are known already stay as they are.
            samples: S, requests per classmate and view.
            views: V, what each classmate was shown.
            keep_rate: share of the CoT that was handed over.
            classmate_task: what the classmates answered, if another question than the row's.
            main: what the verifier said of the main output, if it was asked before.
            validate: whether the row is the validation's, which may have a judge of its own.
        """
        config = self.reward_config.classmate_cot_reward_configs
        main, main_outcome = await self._main_score(task, span, main, validate)
        reference = None
        if config.add_consistency_reward and main_outcome is Outcome.ok and span.output is not None:
            verifier = self._verifier(task)
            reference = span.output.strip() if verifier is None else verifier.reference_answer(span.output)
        scored = await asyncio.gather(
            *(self._score_continuation(classmate_task or task, item, reference, validate) for item in continuations)
        )
        scores = score_row(
            main_score=main.score,
            main_outcome=main_outcome,
            continuations=scored,
            scale=self._scale(task),
            classmate_scale=None if classmate_task is None else self._scale(classmate_task),
            config=config,
            weights=self.reward_config.classmate_weights if self.reward_config.classmates and samples else (),
            samples=samples,
            views=views,
            span=span,
            keep_rate=keep_rate,
            format_score=float(span.closed),
            format_weight=self.reward_config.format_weight or 0.0,
        )
        return ScoredRow(scores=scores, continuations=tuple(scored), main=main)

    async def weigh(self, task: RowTask, span: cot.CotSpan) -> tuple[Verdict, float]:
        """What the verifier says of a training row's main output, and the row's condition factor gamma."""
        main, outcome = await self._main_score(task, span, None, False)
        config = self.reward_config.classmate_cot_reward_configs
        return main, condition_factor(main.score, outcome, self._scale(task), config)

    def judges_at_once(self, task: RowTask) -> bool:
        """Whether nobody but a verifier of ours scores the row: no judge, and no function of the user's."""
        if self.compute_score is not None:
            return False
        verifier = get_verifier(task.data_source)
        return not (verifier.judged_in_words or verifier.scored_by_reward_model)

    def judged_in_run(self, task: RowTask) -> bool:
        """Whether an engine of the run scores the row, which may be asleep."""
        spec = self.reward_config.judge(validate=False)
        return self.compute_score is None and not self.judges_at_once(task) and spec is not None and spec.in_run

    def _scale(self, task: RowTask) -> RewardScale:
        """How the scores of a row's verifier, or of the function that replaces it, are read in this run."""
        direction = self.reward_config.reward_direction
        if self.compute_score is None:
            return RewardScale.of(get_verifier(task.data_source), direction)
        return RewardScale.of_function(self.compute_score, self.reward_config.custom_reward_range).turned(direction)

    def _verifier(self, task: RowTask) -> BaseVerifier | None:
        """The verifier of a row; None where a function of the user's scores rows that have none."""
        known = self.compute_score is None or task.data_source in known_data_sources()
        return get_verifier(task.data_source) if known else None

    def _answers(self, task: RowTask, text: str) -> bool:
        """Whether a text gives an answer; a function of the user's that replaces the verifier reads all but blanks."""
        return get_verifier(task.data_source).has_answer(text) if self.compute_score is None else bool(text.strip())

    async def _main_score(
        self, task: RowTask, span: cot.CotSpan, known: Verdict | None, validate: bool
    ) -> tuple[Verdict, Outcome]:
        if span.output is None:
            return Verdict(), Outcome.unfinished_cot
        if not self._answers(task, span.output):
            return Verdict(), Outcome.no_answer
        verdict = known or await self._verify(task, span.output, task.reward_model.get("ground_truth"), validate)
        return verdict, Outcome.judge_error if verdict.score is None else Outcome.ok

    async def _score_continuation(
        self, task: RowTask, item: Continuation, reference: str | None, validate: bool
    ) -> Continuation:
        if item.outcome is not Outcome.ok or item.text is None:
            return item
        if not self._answers(task, item.text):
            return replace(item, outcome=Outcome.no_answer)
        verdict, agreement = Verdict(score=item.score, judge=item.judge), Verdict(score=item.consistency)
        if item.score is None:
            verdict = await self._verify(task, item.text, task.reward_model.get("ground_truth"), validate)
        if item.consistency is None and reference is not None:
            agreement = await self._verify(task, item.text, reference, validate)
        return replace(
            item,
            outcome=Outcome.judge_error if verdict.score is None else Outcome.ok,
            score=verdict.score,
            consistency=agreement.score,
            error=verdict.error or item.error,
            judge=verdict.judge,
        )

    async def compute_classmate_score(self, task: RowTask, continuation: Continuation) -> float | None:
        """The verifier's raw score of one classmate's answer; None where there is no answer to score."""
        return (await self._score_continuation(task, continuation, None, False)).score

    async def _verify(self, task: RowTask, text: str, ground_truth: str | None, validate: bool) -> Verdict:
        """One verdict; a verifier or custom function that raises is a failure of that row, not of the run."""
        try:
            if self.compute_score is None:
                verifier = get_verifier(task.data_source)
                if verifier.judged_in_words or verifier.scored_by_reward_model:
                    return await self._judge(verifier, task, text, validate)
                if verifier.blocking:
                    result = await asyncio.to_thread(verifier.compute_score, text, ground_truth)
                else:
                    result = verifier.compute_score(text, ground_truth)
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
            score = None if result is None else float(result)
        except bdb.BdbQuit:
            # `q` at a breakpoint in a verifier ends the run, as it does anywhere else.
            raise
        except (Exception, SystemExit) as error:
            logger.exception("the verifier of %s failed", task.data_source)
            return Verdict(error=f"{type(error).__name__}: {error}")
        if score is None or not math.isfinite(score):
            return Verdict(error=f"the score is {score}, no finite number")
        reason = None if self.compute_score is None else self._beyond_range(score, task)
        if reason is not None:
            logger.error("reward.custom_reward_function: %s", reason)
            return Verdict(error=reason)
        return Verdict(score=score)

    def _beyond_range(self, score: float, task: RowTask) -> str | None:
        """Why a user's function cannot give this score, by what is known of it; None if it can."""
        assert self.compute_score is not None
        scale, reason = self._scale(task), None
        if scale.is_below_lowest(score):
            # Taken as it is, it would make not answering pay.
            reason = f"the score {score:g} is worse than that of a row without an answer ({scale.lowest:g}, directed)"
        elif declares_range(self.compute_score, self.reward_config.custom_reward_range) and scale.is_above_highest(
            score
        ):
            # The range is not the function's: its other end, which rows without an answer get, is as doubtful.
            reason = f"the score {score:g} is better than the best ({scale.low} to {scale.high}, to {scale.direction})"
        return f"{reason}; write reward_model.custom_reward_range" if reason else None

    async def _judge(self, verifier: BaseVerifier, task: RowTask, text: str, validate: bool) -> Verdict:
        """What the judge of training or validation makes of a text.

        Raises:
            VerifierError: there is no judge, or nothing to tell it.
        """
        spec = self.reward_config.judge(validate=validate)
        if spec is None:
            raise VerifierError(f"{task.data_source} is scored by a judge; write reward_model.llm_judge_backend_type")
        question = task.reward_model.get("raw_question_for_monitor")
        if not isinstance(question, str):
            raise VerifierError("the row has no reward_model.raw_question_for_monitor to show to the judge")
        judgement = await self._judge_of(spec).score(verifier, question, text)
        reason = None if judgement.score is not None else f"judge: {judgement.failure}: {judgement.error}"
        return Verdict(score=judgement.score, error=reason, judge=judgement.record())

    def _judge_of(self, spec: JudgeSpec) -> Judge:
        if spec not in self._judges:
            if spec.in_run and self.client is None:
                self.client = ClassmateClient(
                    self.reward_config, max_model_len=context_length(self.config, self.reward_config)
                )
            self._judges[spec] = make_judge(
                spec, self.reward_config, client=self.client, processes=judging_processes(self.config)
            )
        return self._judges[spec]

    async def close(self) -> None:
        """Closes the judges' connections."""
        await asyncio.gather(*(judge.close() for judge in self._judges.values()))

    def follows_hint(self, task: RowTask, text: str | None) -> float:
        """1 or 0 for an answer to a row with a wrong hint, NaN for every other row."""
        verifier = self._verifier(task)
        if text is None or verifier is None or not hasattr(verifier, "follows_hint"):
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
        prompt_ids = item.batch["prompts"][-cot.MARKER_TOKENS :].tolist()
        preopened = cot.opens_thought(prompt_ids, self.tokenizer, markers)
        span = cot.locate(item.batch["responses"][:length].tolist(), self.tokenizer, markers, preopened=preopened)
        scores = (await self.score(task, span, [], samples=0)).scores
        return {"reward_score": scores.final_reward, "reward_extra_info": scores.extra_info()}


def judging_processes(config: DictConfig) -> int:
    """Processes that ask judges at the same time: the run's agent-loop workers, or one where nothing runs in others."""
    if config.get("debug", True):
        return 1
    return int(config.actor_rollout_ref.rollout.agent.num_workers)
