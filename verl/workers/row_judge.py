"""A row from the policy's answer to its rewards: find the thought, show it to the classmates, score both, write it.

Decision: nothing here knows where rows come from or where classmates run. The agent loop (schedule `streamed`), the
trainer (`batched`) and whoever judges a row again from a dump do it with these steps, and so agree on it.

    >>> judge = RowJudge.build(config, tokenizer, client)
    >>> row = judge.read(answer)                                  # pure: views, masks, prompts' texts
    >>> asked = [await judge.ask(row, m) for m in range(judge.classmates)]
    >>> judged = await judge.score(row, asked)
    >>> judged.scores.final_reward, judged.record["classmates"][0]["samples"]
"""

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf

from verl.classmate import cot, prompts, templates
from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.classmate.frozen import frozen_classmates
from verl.classmate.reply import Reply
from verl.classmate.scoring import ClassmateScores, Continuation, Outcome
from verl.classmate.seeds import request_seed, row_key
from verl.classmate.views import Partner, RowViews, View, row_views, similar_partner
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.utils import hf_tokenizer
from verl.utils.reward_score.cot_monitor import BaseVerifier, get_verifier
from verl.workers.classmates.engines import context_length
from verl.workers.classmates.shared_draws import drawn_once
from verl.workers.reward_manager.classmate_cot import ClassmateCoTRewardManager, RowTask, Verdict
from verl.workers.reward_manager.sycophancy_classmate_cot_rm import SycophancyClassmateCoTRewardManager

MANAGERS: dict[str, type[ClassmateCoTRewardManager]] = {
    "classmate_cot": ClassmateCoTRewardManager,
    "sycophancy_classmate_cot": SycophancyClassmateCoTRewardManager,
}
"""Reward managers by the names that `reward_model.reward_manager` takes."""

_POLICY = -1
"""Index that stands for the policy where seeds count classmates from 0."""

_ALL_ROLLOUTS = -1
"""Stands for the n answers to a prompt where seeds count them from 0."""

_ANSWER, _CUTS = 0, 1
"""What the policy's seeds of a row are for."""


class Asks(Protocol):
    """What a judge needs of a `ClassmateClient`."""

    async def sample(
        self,
        classmate: int,
        prompt_ids: list[int],
        *,
        seeds: Sequence[int],
        validate: bool,
        excluded: frozenset[int] = ...,
        max_new_tokens: int | None = ...,
    ) -> list[Reply]:
        """One reply per seed, in order; never raises for a failing classmate."""
        ...


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the policy wrote, and about what."""

    messages: Sequence[Mapping[str, Any]]
    """The chat that it answered."""
    prompt_ids: Sequence[int]
    """The same in its tokens; only the end is looked at."""
    response_ids: Sequence[int]
    """(R,) what it wrote."""
    task: RowTask
    """Data source, ground truth and the rest of the dataset's row."""
    uid: str | None
    """Of the prompt; None in validation, where verl's is random."""
    step: int
    """Global step."""
    rollout: int
    """Which of the n answers to the prompt this is."""
    validate: bool
    """Validation rows are sampled with the validation's settings."""
    partner: Partner | None = None
    """The other question of `help_other_questions`."""
    turns: tuple[tuple[int, int], ...] = ()
    """First token, and one past the last, of each turn that the policy wrote into a response in which others (tools)
    wrote as well; empty: it wrote all of it, in one turn."""

    @property
    def last_turn(self) -> slice:
        """The tokens of the response that are read: what classmates are handed and the verifier scores is in them."""
        return slice(*self.turns[-1]) if self.turns else slice(0, len(self.response_ids))


@dataclass(frozen=True, kw_only=True, eq=False)
class ReadRow:
    """An answer whose thought was found and cut."""

    answer: Answer
    """As it came."""
    span: cot.CotSpan
    """Where the thought is, in the answer's last turn."""
    shown: RowViews
    """What the classmates are shown; masks over the whole response."""
    samples: int
    """S; 0 where nobody is asked (baselines)."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What one classmate was asked about a row, and answered."""

    prompts: tuple[str | None, ...]
    """One per view, as text; None where it was not asked."""
    continuations: tuple[Continuation, ...]
    """Views x S, without scores."""


# Without a representation: `asyncio.run` makes one of what it returns, which took longer than judging.
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class JudgedRow:
    """Everything that is known of a row but its advantage."""

    scores: ClassmateScores
    """The rewards."""
    mask: np.ndarray
    """(R,) 1 on the tokens that were handed to the classmates."""
    segments: np.ndarray
    """(R,) segment of each of these tokens, 0 where there is none."""
    actor_mask: np.ndarray | None
    """(R,) 1 on the tokens that the actor's loss counts; None: on all."""
    info: dict[str, float]
    """Numbers, with the same keys in every row of a run."""
    continuations: tuple[Continuation, ...]
    """What the classmates answered, with scores."""
    record: dict[str, Any]
    """The row's line in the dump."""


class RowJudge:
    """Judges rows; made once per process."""

    def __init__(
        self,
        *,
        reward: ClassmateRewardModelConfig,
        tokenizer: Any,
        tokenizers: Sequence[Any],
        client: Asks,
        manager: ClassmateCoTRewardManager,
        max_model_len: int,
        template_kwargs: Mapping[str, Any],
        trains_with_classmates: bool,
    ) -> None:
        """Keeps its parts.

        Args:
            reward: the typed `reward_model` node.
            tokenizer: the policy's.
            tokenizers: one per classmate, with chat templates as the run uses them (`templates.for_run`).
            client: asks the classmates.
            manager: scores.
            max_model_len: context of the classmates' engines, in their own tokens.
            template_kwargs: chat-template arguments, the policy's and the classmates'.
            trains_with_classmates: whether training rows are shown to them too, or validation rows only.
        """
        self.reward = reward
        self.client = client
        self.manager = manager
        self._tokenizer = tokenizer
        self._tokenizers = tokenizers
        self._max_model_len = max_model_len
        self._template_kwargs = template_kwargs
        self._trains_with_classmates = trains_with_classmates
        self._thinks = tuple(templates.traits(one, reward.classmate_markers).thinks for one in tokenizers)
        self._markers = None if reward.cot_format == "plain" else reward.markers

    @classmethod
    def build(cls, config: DictConfig, tokenizer: Any, client: Asks) -> "RowJudge":
        """Loads the classmates' tokenizers and the verifier's settings from the whole config.

        Raises:
            ConfigError: a classmate that cannot be asked.
        """
        container: Any = OmegaConf.to_container(config, resolve=True)
        reward = from_mapping(container["reward_model"], require_classmates=False)
        trust = reward.classmate_trust_remote_code
        tokenizers = tuple(
            tokenizer if one.is_policy else hf_tokenizer(one.model, trust_remote_code=trust)
            for one in frozen_classmates(reward)
        )
        for spec, one in zip(reward.classmates, tokenizers, strict=True):
            prompts.check_tokenizer(one, spec.model)
        tokenizers = tuple(
            templates.for_run(one, date=reward.chat_date, system_as_user=reward.system_as_user) for one in tokenizers
        )
        manager = MANAGERS[reward.reward_manager](config, tokenizer, get_custom_reward_fn(config))
        manager.client = client
        return cls(
            reward=reward,
            tokenizer=tokenizer,
            tokenizers=tokenizers,
            client=client,
            manager=manager,
            max_model_len=context_length(config, reward),
            template_kwargs=container["data"]["apply_chat_template_kwargs"] or {},
            trains_with_classmates=container["trainer"]["v1"]["trainer_mode"] == "classmate_cot",
        )

    @property
    def classmates(self) -> int:
        """M."""
        return len(self._tokenizers)

    def answer_seed(self, data_source: str, index: Any, step: int, rollout: int) -> int:
        """The seed with which the policy answers."""
        return request_seed(self.reward.seed, step, row_key(data_source, index), rollout, _POLICY, _ANSWER)

    async def judge(self, answer: Answer, *, excluded: frozenset[int] = frozenset()) -> JudgedRow:
        """All steps, with all M classmates asked at once."""
        row = self.read(answer)
        main, needed = await self.weigh(row)
        asked = await asyncio.gather(*(self.ask(row, m, excluded=excluded, needed=needed) for m in self.asks(row)))
        return await self.score(row, asked, main=main)

    def read(self, answer: Answer) -> ReadRow:
        """Finds the thought and cuts it into what is shown."""
        asks = bool(self._tokenizers) and (answer.validate or self._trains_with_classmates)
        config = self.reward.classmate_cot_reward_configs
        turn = answer.last_turn
        turn_ids, before = answer.response_ids[turn], [*answer.prompt_ids, *answer.response_ids[: turn.start]]
        span = cot.locate(turn_ids, self._tokenizer, self._markers, preopened=self._opens_thought(before))
        shown = row_views(
            span,
            turn_ids,
            self._tokenizer,
            answer.messages,
            config,
            seed=self._seed(answer, _POLICY, _CUTS, rollout=answer.rollout),
            validate=answer.validate,
            partner=self._partner(answer),
        )
        shown = replace(shown, mask=_in_response(answer, shown.mask), segments=_in_response(answer, shown.segments))
        samples = self.reward.classmate_generation_configs.sampling(validate=answer.validate).n if asks else 0
        return ReadRow(answer=answer, span=span, shown=shown, samples=samples)

    def asks(self, row: ReadRow) -> range:
        """The classmates to ask about a row: all, or in a baseline's training none."""
        return range(self.classmates if row.samples else 0)

    async def weigh(self, row: ReadRow) -> tuple[Verdict | None, bool]:
        """Whether the classmates' answers can count (`ask_when_it_counts_only`), and the verdict that says so.

        The verdict is None where the verifier need not be asked before the classmates.
        """
        config = self.reward.classmate_cot_reward_configs
        option, condition, task = config.ask_when_it_counts_only, config.use_classmate_main_cond, row.answer.task
        if option is False or row.answer.validate or not row.samples or row.shown.outcome is not Outcome.ok:
            return None, True
        if config.add_consistency_reward or condition in ("always", "neg_classmate_when_main_incorrect"):
            return None, True
        if condition == "no_classmate":
            return None, False
        # A judge among the engines of the run is awake when all classmates have answered.
        if not self.manager.judges_at_once(task) and (option == "auto" or self.manager.judged_in_run(task)):
            return None, True
        main, gamma = await self.manager.weigh(task, row.span)
        return main, gamma != 0

    async def ask(self, row: ReadRow, m: int, *, excluded: frozenset[int] = frozenset(), needed: bool = True) -> Asked:
        """Shows classmate m every view, S times each; or only says what it would have been shown, if not `needed`."""
        if row.shown.outcome is not Outcome.ok:
            return Asked(prompts=(None,), continuations=self._not_asked(row, m, 0, row.shown.outcome))
        built = self.prompts_of(row, m)
        unasked = next((prompt for prompt in built if prompt.ids is None), None)
        if unasked is not None:
            # Views are compared with each other: without the fullest one the others say nothing.
            continuations = [
                item
                for v, _ in enumerate(built)
                for item in self._not_asked(row, m, v, unasked.outcome, error=unasked.error)
            ]
            return Asked(prompts=(None,) * len(built), continuations=tuple(continuations))
        if not needed and m not in excluded:
            spared = [self._not_asked(row, m, v, Outcome.not_needed) for v in range(len(built))]
            return Asked(
                prompts=tuple(prompt.text for prompt in built),
                continuations=tuple(item for view in spared for item in view),
            )
        views = await asyncio.gather(*(self._ask_view(row, m, v, built[v], excluded) for v in range(len(built))))
        return Asked(
            prompts=tuple(prompt.text for prompt in built), continuations=tuple(item for view in views for item in view)
        )

    def prompts_of(self, row: ReadRow, m: int) -> tuple[prompts.ClassmatePrompt, ...]:
        """What classmate m is shown, one prompt per view; empty where nobody is asked."""
        return tuple(self._prompt(row, m, view) for view in row.shown.views)

    def _prompt(self, row: ReadRow, m: int, view: View) -> prompts.ClassmatePrompt:
        config = self.reward.classmate_cot_reward_configs
        return prompts.build(
            view.messages,
            view.thought,
            self._tokenizers[m],
            markers=self.reward.markers,
            classmate_markers=self.reward.classmate_markers,
            close=self._closes(m, view),
            max_len=self._max_model_len,
            template_kwargs=self._template_kwargs,
            classmate_template=config.classmate_template,
            example=view.example,
            cue=self._cue(row.answer),
        )

    @property
    def _immediate(self) -> bool:
        return self.reward.classmate_cot_reward_configs.classmate_continue_mode == "immediate_answer"

    def _cue(self, answer: Answer) -> str:
        """Beginning of the classmates' answers about a row."""
        given = self.reward.classmate_cot_reward_configs.immediate_answer_cue
        if not self._immediate or given is not None:
            return given or ""
        partner = self._partner(answer)
        return answer_cue(answer.task.data_source if partner is None else partner.data_source)

    def _partner(self, answer: Answer) -> Partner | None:
        """The other question that the classmates answer about a row, if they do."""
        if self.reward.classmate_cot_reward_configs.classmate_reward_type == "help_other_similar_questions":
            return similar_partner(answer.task.data_source, answer.task.reward_model)
        return answer.partner

    def _not_asked(
        self, row: ReadRow, m: int, v: int, outcome: Outcome, *, error: str | None = None
    ) -> tuple[Continuation, ...]:
        return tuple(
            Continuation(view=v, classmate=m, sample=s, outcome=outcome, error=error) for s in range(row.samples)
        )

    def _closes(self, m: int, view: View) -> bool:
        """Whether the thought is closed for classmate m."""
        setting = self.reward.classmate_cot_reward_configs.classmate_close_marker
        if view.thought is None:
            return view.close
        return prompts.closes(for_all=view.close, thinks=self._thinks[m], setting=setting)

    async def _ask_view(
        self, row: ReadRow, m: int, v: int, prompt: prompts.ClassmatePrompt, excluded: frozenset[int]
    ) -> tuple[Continuation, ...]:
        reward, tokenizer, view = self.reward, self._tokenizers[m], row.shown.views[v]
        config, cue = reward.classmate_cot_reward_configs, self._cue(row.answer)
        assert prompt.ids is not None, "a prompt that does not fit is not asked"
        alone = config.compares_with_question_alone and v == len(row.shown.views) - 1
        if alone:
            # All rows of a prompt are compared with the same answers; whether the thought is closed may differ.
            seeds = self._seeds(row, m, first=0 if view.close else row.samples, rollout=_ALL_ROLLOUTS)
        else:
            seeds = self._seeds(row, m, first=v * row.samples, rollout=row.answer.rollout)
        ask = partial(
            self.client.sample,
            m,
            prompt.ids,
            seeds=seeds,
            validate=row.answer.validate,
            excluded=excluded,
            max_new_tokens=config.immediate_answer_max_new_tokens if self._immediate else None,
        )
        replies = await (drawn_once((m, tuple(seeds), tuple(prompt.ids)), ask) if alone else ask())
        in_thought = view.thought is None or config.classmate_template == "thought_block"
        opened = view.thought is not None or prompt.text.rstrip().endswith(reward.classmate_markers.start)
        continuations = []
        for s, reply in enumerate(replies):
            text, outcome = None, reply.outcome
            if outcome is Outcome.ok:
                text, outcome = prompts.answer(
                    list(reply.token_ids),
                    closed=self._closes(m, view),
                    opened=opened,
                    markers=reward.classmate_markers if in_thought else None,
                    tokenizer=tokenizer,
                )
            continuations.append(
                Continuation(
                    view=v,
                    classmate=m,
                    sample=s,
                    outcome=outcome,
                    text=None if text is None else prompts.begun(cue, text),
                    token_length=len(reply.token_ids),
                    finish_reason=reply.finish_reason,
                    error=reply.error,
                )
            )
        return tuple(continuations)

    async def score(self, row: ReadRow, asked: Sequence[Asked], *, main: Verdict | None = None) -> JudgedRow:
        """Rewards, the numbers to log, and the row's line in the dump.

        Args:
            row: what was read.
            asked: one entry per classmate asked; continuations that have a score keep it.
            main: what the verifier said of the main output, if it was asked before.
        """
        answer, partner = row.answer, self._partner(row.answer)
        scored = await self.manager.score(
            answer.task,
            row.span,
            [item for one in asked for item in one.continuations],
            samples=row.samples,
            views=max(1, len(row.shown.views)),
            keep_rate=row.shown.keep_rate,
            main=main,
            validate=answer.validate,
            classmate_task=None
            if partner is None
            else RowTask(
                data_source=partner.data_source, reward_model=partner.reward_model, extra_info=partner.extra_info
            ),
        )
        scores = scored.scores
        handed_over = 1 if scores.asked else 0
        follows = self.manager.follows_hint(answer.task, row.span.output)
        mask_R = row.shown.mask * handed_over
        mode = self.reward.token_level_main_reward_mode
        record = {
            "uid": answer.uid,
            "step": answer.step,
            "rollout": answer.rollout,
            "data_source": answer.task.data_source,
            "index": answer.task.extra_info["index"],
            "question": answer.messages[-1]["content"],
            "ground_truth": answer.task.reward_model.get("ground_truth"),
            "response": row.span.text,
            "cot": row.span.cot,
            "cot_kind": row.span.kind.value,
            "kept_cot": row.shown.kept_text,
            "keep_rate": row.shown.keep_rate,
            "output": row.span.output,
            "main_outcome": scores.main_outcome.value,
            "main_score": _number(scores.main_score),
            "main_error": scored.main.error,
            **({} if scored.main.judge is None else {"judge": dict(scored.main.judge)}),
            "classmates": [self._classmate_record(m, one, scored.continuations) for m, one in enumerate(asked)],
            "base_reward": _number(scores.base_reward if scores.main_valid else math.nan),
            "classmate_score": _number(scores.classmate_score),
            "gamma": _number(scores.gamma),
            "classmate_reward": _number(scores.classmate_reward if scores.classmate_valid else math.nan),
            "final_reward": _number(scores.final_reward if scores.main_valid else math.nan),
            "main_valid": scores.main_valid,
            "classmate_valid": scores.classmate_valid,
            "consistency_reward": _number(scores.consistency_reward if scores.consistency_valid else math.nan),
            "segment_rewards": [_number(reward) for reward in scores.segment_rewards_K],
            "follows_hint": _number(follows),
            "response_tokens": len(answer.response_ids),
            "handed_over_tokens": int(mask_R.sum()),
            # What `verl.evaluation.replay` needs to do it all again.
            "messages": [dict(message) for message in answer.messages],
            "reward_model": dict(answer.task.reward_model),
            "extra_info": dict(answer.task.extra_info),
            "partner": None if partner is None else vars(partner),
            "prompt_end_ids": [int(token) for token in answer.prompt_ids[-cot.MARKER_TOKENS :]],
            "response_ids": [int(token) for token in answer.response_ids],
            **self._turns_record(answer),
        }
        loss_mask = None
        if mode != "all_tokens":
            turn = answer.last_turn
            loss_mask = _in_response(answer, cot.loss_mask(row.span, turn.stop - turn.start, mode))
        return JudgedRow(
            scores=scores,
            mask=mask_R,
            segments=row.shown.segments * handed_over,
            actor_mask=loss_mask,
            info=scores.extra_info() | {"follows_hint": follows},
            continuations=scored.continuations,
            record=record,
        )

    def _classmate_record(self, m: int, asked: Asked, continuations: Sequence[Continuation]) -> dict[str, Any]:
        """What one classmate was asked and answered; `prompt` is the fullest view's."""
        views = list(asked.prompts)
        return {
            "model": self.reward.classmates[m].model,
            "thinks": self._thinks[m],
            "prompt": views[0],
            **({"further_prompts": views[1:]} if len(views) > 1 else {}),
            "samples": [
                {
                    **({"view": item.view} if len(views) > 1 else {}),
                    "outcome": item.outcome.value,
                    "text": item.text,
                    "tokens": item.token_length,
                    "finish_reason": item.finish_reason,
                    "score": _number(item.score),
                    **({} if item.consistency is None else {"consistency": _number(item.consistency)}),
                    **({} if item.error is None else {"error": item.error}),
                    **({} if item.judge is None else {"judge": dict(item.judge)}),
                }
                for item in continuations
                if item.classmate == m
            ],
        }

    def _turns_record(self, answer: Answer) -> dict[str, Any]:
        """Of a response of several turns: where they are, and all of it as text."""
        if not answer.turns:
            return {}
        text = self._tokenizer.decode(list(answer.response_ids), skip_special_tokens=False)
        return {"turns": [list(turn) for turn in answer.turns], "transcript": text}

    def _seed(self, answer: Answer, classmate: int, sample: int, *, rollout: int) -> int:
        key = row_key(answer.task.data_source, answer.task.extra_info["index"])
        return request_seed(self.reward.seed, answer.step, key, rollout, classmate, sample)

    def _seeds(self, row: ReadRow, m: int, *, first: int, rollout: int) -> list[int]:
        """Of the S samples of classmate m, counted from `first`."""
        return [self._seed(row.answer, m, first + s, rollout=rollout) for s in range(row.samples)]

    def _opens_thought(self, prompt_ids: Sequence[int]) -> bool:
        """Whether the chat template has already written the open marker."""
        return cot.opens_thought(prompt_ids, self._tokenizer, self._markers)


def answer_cue(data_source: str) -> str:
    """How an answer begins that the verifier of a data source reads."""
    try:
        return get_verifier(data_source).answer_cue
    except ValueError:
        # Scored by a function of the user's.
        return BaseVerifier.answer_cue


def _in_response(answer: Answer, mask: np.ndarray) -> np.ndarray:
    """(R,) what is told of the last turn's tokens, 0 on all others."""
    if not answer.turns:
        return mask
    whole_R = np.zeros(len(answer.response_ids), dtype=mask.dtype)
    whole_R[answer.last_turn] = mask
    return whole_R


def asked_to_json(asked: Asked) -> str:
    """What a classmate said, as text: upstream's row fields keep no dataclasses."""
    return json.dumps({"prompts": asked.prompts, "continuations": [vars(item) for item in asked.continuations]})


def asked_from_json(text: str) -> Asked:
    """The inverse of `asked_to_json`."""
    content = json.loads(text)
    items = [item | {"outcome": Outcome(item["outcome"])} for item in content["continuations"]]
    return Asked(prompts=tuple(content["prompts"]), continuations=tuple(Continuation(**item) for item in items))


def advantage_fields(judged: JudgedRow) -> dict[str, torch.Tensor]:
    """What the advantage needs of a row: scalars, `classmate_mask` and `classmate_segments` (R,), `classmate_scores`
    (M, S), `segment_rewards` (K,); and `actor_mask` (R,) where the loss does not count all tokens."""
    scores = judged.scores
    fields = {"classmate_mask": torch.tensor(judged.mask, dtype=torch.int64)}
    for name in ("base_reward", "classmate_reward", "final_reward", "consistency_reward"):
        fields[name] = torch.tensor(getattr(scores, name), dtype=torch.float32)
    for name in ("main_valid", "main_correct", "classmate_valid", "consistency_valid"):
        fields[name] = torch.tensor(getattr(scores, name))
    fields["classmate_asked"] = torch.tensor(scores.counts)
    if judged.actor_mask is not None:
        fields["actor_mask"] = torch.tensor(judged.actor_mask, dtype=torch.int64)
    if scores.scores_MS.size:
        fields["classmate_scores"] = torch.tensor(scores.scores_MS, dtype=torch.float32)
    if scores.segment_rewards_K.size:
        fields["classmate_segments"] = torch.tensor(judged.segments, dtype=torch.int64)
        fields["segment_rewards"] = torch.tensor(scores.segment_rewards_K, dtype=torch.float32)
    return fields


def partner_from_json(text: str | None) -> Partner | None:
    """The partner that the agent loop's manager has put into a row's columns."""
    return None if not text else Partner(**json.loads(text))


def _number(value: float | None) -> float | None:
    """JSON has no NaN."""
    return float(value) if value is not None and math.isfinite(value) else None
