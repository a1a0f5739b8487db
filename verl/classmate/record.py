"""What is kept of a row: one line of `rollouts/step_N.jsonl`, typed, and the one place that writes and reads them.

One decision: a line has what judging and scoring the row again needs, so that `verl.evaluation.replay` asks nobody.

    >>> line = RowRecord.of(scored).to_json()
    >>> RowRecord.from_json(line).rewards.final_reward
    2.0
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verl.classmate.cot import MARKER_TOKENS, CotKind
from verl.classmate.errors import ConfigError
from verl.classmate.judgement import Judgement
from verl.classmate.outcome import Outcome
from verl.classmate.row import Answer, Asked, Continuation, Rewards, ScoredRow, Task, Verdict

SCHEMA = 1
"""Version of the lines, in their key `schema`. Lines without that key are from before it, and otherwise the same."""


@dataclass(frozen=True, kw_only=True)
class Thought:
    """How the answer was read and cut."""

    response: str
    """The last turn as text."""
    cot: str | None
    """The CoT; None without any marker."""
    cot_kind: CotKind
    """How it was found."""
    kept_cot: str
    """What the classmates were shown of it."""
    keep_rate: float
    """Share of the CoT that this is."""
    output: str | None
    """What was scored; None if the CoT was not closed."""
    handed_over_tokens: int
    """Tokens that the classmates were shown."""
    transcript: str | None
    """The whole response, where it has several turns."""


@dataclass(frozen=True, kw_only=True)
class Advantage:
    """What the row was trained with, as means over its tokens; None where there is no such token."""

    elsewhere: float | None
    """On tokens that were not handed over."""
    on_cot: float | None
    """On tokens that were handed over."""
    on_segments: tuple[float | None, ...] | None = None
    """On each segment of these; None but for step-wise utility."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowRecord:
    """A row as it is kept."""

    answer: Answer
    """What the policy wrote; of `prompt_ids` only the end is kept."""
    thought: Thought
    """How that was read."""
    main: Verdict
    """What the verifier made of the main output."""
    asked: tuple[Asked, ...]
    """What each classmate was asked and answered; empty where nobody was asked (baselines)."""
    rewards: Rewards
    """What it earned."""
    follows_hint: float
    """1 or 0 for an answer to a row with a wrong hint, else NaN."""
    advantage: Advantage | None = None
    """None before the advantage is computed, and in validation."""

    @classmethod
    def of(cls, scored: ScoredRow) -> "RowRecord":
        """What is kept of a row that has just been scored."""
        read = scored.read
        return cls(
            answer=read.answer,
            thought=Thought(
                response=read.span.text,
                cot=read.span.cot,
                cot_kind=read.span.kind,
                kept_cot=read.shown.kept_text,
                keep_rate=read.shown.keep_rate,
                output=read.span.output,
                handed_over_tokens=int(scored.mask.sum()),
                transcript=read.transcript,
            ),
            main=scored.main,
            asked=scored.asked,
            rewards=scored.scores,
            follows_hint=math.nan if scored.follows_hint is None else scored.follows_hint,
        )

    @property
    def judgements(self) -> list[Judgement]:
        """What judges said of the main output, then of the classmates' answers."""
        found = [self.main.judge, *(item.judge for one in self.asked for item in one.continuations)]
        return [judge for judge in found if judge is not None]

    @property
    def place(self) -> tuple[str, str, int]:
        """Sorts validation rows: by data source, number in the data set and answer."""
        task = self.answer.task
        return task.data_source, str(task.extra_info["index"]).zfill(12), self.answer.rollout

    def with_advantage(self, advantage: Advantage) -> "RowRecord":
        """The row as it was trained on."""
        return replace(self, advantage=advantage)

    def as_dict(self) -> dict[str, Any]:
        """The line's keys and values."""
        answer, thought, main = self.answer, self.thought, self.main
        return {
            "schema": SCHEMA,
            "uid": answer.uid,
            "step": answer.step,
            "rollout": answer.rollout,
            "data_source": answer.task.data_source,
            "index": answer.task.extra_info["index"],
            "question": answer.task.question,
            "ground_truth": answer.task.ground_truth,
            "response": thought.response,
            "cot": thought.cot,
            "cot_kind": thought.cot_kind.value,
            "kept_cot": thought.kept_cot,
            "keep_rate": thought.keep_rate,
            "output": thought.output,
            "main_outcome": main.outcome.value,
            "main_score": _number(main.score),
            "main_error": main.error,
            **({} if main.judge is None else {"judge": main.judge.record()}),
            "classmates": [asked_as_dict(one) for one in self.asked],
            **_rewards_as_dict(self.rewards),
            "follows_hint": _number(self.follows_hint),
            "response_tokens": len(answer.response_ids),
            "handed_over_tokens": thought.handed_over_tokens,
            # What `verl.evaluation.replay` needs to do it all again.
            "messages": [dict(message) for message in answer.messages],
            "reward_model": dict(answer.task.reward_model),
            "extra_info": dict(answer.task.extra_info),
            "partner": None if answer.partner is None else vars(answer.partner),
            "prompt_end_ids": [int(token) for token in answer.prompt_ids[-MARKER_TOKENS:]],
            "response_ids": [int(token) for token in answer.response_ids],
            **_turns_as_dict(answer, thought),
            **_advantage_as_dict(self.advantage),
        }

    def to_json(self) -> str:
        """The line, without its end."""
        return json.dumps(self.as_dict(), ensure_ascii=False, default=str)

    @classmethod
    def from_json(cls, line: str, *, name: str = "the row") -> "RowRecord":
        """The inverse of `to_json`; reads lines without `schema` too.

        Args:
            line: as it stands in the file.
            name: of the row, for messages.

        Raises:
            json.JSONDecodeError: the line is cut or damaged.
            ConfigError: another version has written it.
        """
        content = json.loads(line)
        schema = content.get("schema", SCHEMA)
        if schema != SCHEMA:
            raise ConfigError(f"of another format ({name} has schema {schema}, this version reads {SCHEMA})")
        try:
            return cls(
                answer=_answer(content),
                thought=_thought(content),
                main=Verdict(
                    outcome=Outcome(content["main_outcome"]),
                    score=content["main_score"],
                    error=content["main_error"],
                    judge=_judgement(content),
                ),
                asked=tuple(_asked(one) for one in content["classmates"]),
                rewards=_rewards(content),
                follows_hint=_or_nan(content["follows_hint"]),
                advantage=_advantage(content),
            )
        except KeyError as error:
            raise ConfigError(f"of an older format ({name} has no {error.args[0]})") from error
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            raise ConfigError(f"of another format ({name}: {' '.join(str(error).split())})") from error


def asked_as_dict(asked: Asked) -> dict[str, Any]:
    """What one classmate was asked and answered; `prompt` is the fullest view's."""
    several = len(asked.prompts) > 1
    return {
        "model": asked.model,
        "thinks": asked.thinks,
        "prompt": asked.prompts[0],
        **({"further_prompts": list(asked.prompts[1:])} if several else {}),
        "samples": [
            {
                **({"view": item.view} if several else {}),
                "outcome": item.outcome.value,
                "text": item.text,
                "tokens": item.token_length,
                "finish_reason": item.finish_reason,
                "score": _number(item.score),
                **({} if item.consistency is None else {"consistency": _number(item.consistency)}),
                **({} if item.error is None else {"error": item.error}),
                **({} if item.judge is None else {"judge": item.judge.record()}),
            }
            for item in asked.continuations
        ],
    }


def asked_to_json(asked: Asked) -> str:
    """What a classmate said, as text: upstream's row fields keep no dataclasses."""
    return json.dumps(asked_as_dict(asked))


def asked_from_json(text: str) -> Asked:
    """The inverse of `asked_to_json`."""
    return _asked(json.loads(text))


def _asked(content: Mapping[str, Any]) -> Asked:
    prompts = (content["prompt"], *content.get("further_prompts", ()))
    samples = [0] * len(prompts)
    continuations = []
    for sample in content["samples"]:
        view = sample.get("view", 0)
        continuations.append(
            Continuation(
                view=view,
                sample=samples[view],
                outcome=Outcome(sample["outcome"]),
                text=sample["text"],
                token_length=sample["tokens"],
                finish_reason=sample["finish_reason"],
                score=sample["score"],
                consistency=sample.get("consistency"),
                error=sample.get("error"),
                judge=_judgement(sample),
            )
        )
        samples[view] += 1
    return Asked(model=content["model"], thinks=content["thinks"], prompts=prompts, continuations=tuple(continuations))


def _judgement(content: Mapping[str, Any]) -> Judgement | None:
    record = content.get("judge")
    return None if record is None else Judgement.from_record(record)


def _answer(content: Mapping[str, Any]) -> Answer:
    partner = content["partner"]
    return Answer(
        messages=content["messages"],
        prompt_ids=content["prompt_end_ids"],
        response_ids=content["response_ids"],
        task=Task(
            question=content["question"],
            data_source=content["data_source"],
            reward_model=content["reward_model"],
            extra_info=content["extra_info"],
        ),
        uid=content["uid"],
        step=content["step"],
        rollout=content["rollout"],
        validate=content["uid"] is None,
        partner=None if partner is None else Task(**partner),
        turns=tuple((first, end) for first, end in content.get("turns", ())),
    )


def _turns_as_dict(answer: Answer, thought: Thought) -> dict[str, Any]:
    if not answer.turns:
        return {}
    return {"turns": [list(turn) for turn in answer.turns], "transcript": thought.transcript}


def _thought(content: Mapping[str, Any]) -> Thought:
    return Thought(
        response=content["response"],
        cot=content["cot"],
        cot_kind=CotKind(content["cot_kind"]),
        kept_cot=content["kept_cot"],
        keep_rate=content["keep_rate"],
        output=content["output"],
        handed_over_tokens=content["handed_over_tokens"],
        transcript=content.get("transcript"),
    )


def _rewards_as_dict(rewards: Rewards) -> dict[str, Any]:
    return {
        "base_reward": _number(rewards.known_base),
        "classmate_score": _number(rewards.classmate_score),
        "gamma": _number(rewards.gamma),
        "classmate_reward": _number(rewards.known_classmate),
        "final_reward": _number(rewards.known_final),
        "main_valid": rewards.main_valid,
        "classmate_valid": rewards.classmate_valid,
        "consistency_reward": _number(rewards.known_consistency),
        "segment_rewards": [_number(reward) for reward in rewards.segment_rewards_K],
    }


def _rewards(content: Mapping[str, Any]) -> Rewards:
    return Rewards(
        base_reward=_or_zero(content["base_reward"]),
        main_valid=content["main_valid"],
        classmate_score=_or_nan(content["classmate_score"]),
        gamma=_or_nan(content["gamma"]),
        classmate_reward=_or_zero(content["classmate_reward"]),
        classmate_valid=content["classmate_valid"],
        final_reward=_or_nan(content["final_reward"]),
        consistency_reward=_or_zero(content["consistency_reward"]),
        consistency_valid=content["consistency_reward"] is not None,
        segment_rewards_K=np.array([_or_nan(reward) for reward in content["segment_rewards"]], dtype=float),
    )


def _advantage_as_dict(advantage: Advantage | None) -> dict[str, Any]:
    if advantage is None:
        return {}
    segments = advantage.on_segments
    return {
        "advantage": advantage.elsewhere,
        "advantage_on_cot": advantage.on_cot,
        **({} if segments is None else {"advantage_on_segments": list(segments)}),
    }


def _advantage(content: Mapping[str, Any]) -> Advantage | None:
    if "advantage" not in content:
        return None
    segments = content.get("advantage_on_segments")
    return Advantage(
        elsewhere=content["advantage"],
        on_cot=content["advantage_on_cot"],
        on_segments=None if segments is None else tuple(segments),
    )


def _number(value: float | None) -> float | None:
    """JSON has no NaN."""
    return float(value) if value is not None and math.isfinite(value) else None


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _or_zero(value: float | None) -> float:
    return 0.0 if value is None else value
