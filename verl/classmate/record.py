"""What is kept of a row: one line of `rollouts/step_N.jsonl`, typed, and the one place that writes and reads them.

One decision: a line has what judging and scoring the row again needs, so that `verl.evaluation.replay` asks nobody.

    >>> line = RowRecord.of(scored).to_json()
    >>> RowRecord.from_json(line).final_reward
    2.0
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl.classmate.cot import MARKER_TOKENS, CotKind
from verl.classmate.errors import ConfigError
from verl.classmate.judgement import Judgement
from verl.classmate.outcome import Outcome
from verl.classmate.row import Answer, Asked, Continuation, ScoredRow, Task, Verdict

SCHEMA = 1
"""Version of the lines, in their key `schema`. Lines without that key are from before it, and otherwise the same."""

REWARDS = (
    "base_reward",
    "classmate_score",
    "gamma",
    "classmate_reward",
    "final_reward",
    "main_valid",
    "classmate_valid",
    "consistency_reward",
)
"""Keys of the line that are fields of the record as they stand, in the line's order."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowRecord:
    """A row as it is kept. A number that there is not is None, as in the line."""

    answer: Answer
    """What the policy wrote; of `prompt_ids` only the end is kept."""
    response: str
    """Its last turn as text."""
    transcript: str | None
    """All of it, where it has several turns."""
    cot: str | None
    """The CoT; None without any marker."""
    cot_kind: CotKind
    """How it was found."""
    kept_cot: str
    """What the classmates were shown of it."""
    keep_rate: float
    """Share of the CoT that this is."""
    handed_over_tokens: int
    """Tokens of it."""
    output: str | None
    """What was scored; None if the CoT was not closed."""
    main: Verdict
    """What the verifier made of that."""
    asked: tuple[Asked, ...]
    """What each classmate was asked and answered; empty where nobody was asked (baselines)."""
    base_reward: float | None
    """r."""
    classmate_score: float | None
    """C."""
    gamma: float | None
    """The condition factor."""
    classmate_reward: float | None
    """W."""
    final_reward: float | None
    """F."""
    main_valid: bool
    """Whether there is an r."""
    classmate_valid: bool
    """Whether there is a W."""
    consistency_reward: float | None
    """K."""
    segment_rewards: tuple[float | None, ...]
    """(K,) of each segment of the CoT."""
    follows_hint: float | None
    """1 or 0 for an answer to a row with a wrong hint."""
    has_advantage: bool = False
    """Whether the next three say anything: not before they are computed, nor in validation."""
    advantage: float | None = None
    """What the row was trained with: mean over the tokens that were not handed over."""
    advantage_on_cot: float | None = None
    """Mean over the tokens that were handed over."""
    advantage_on_segments: tuple[float | None, ...] | None = None
    """Mean over each segment of these; None where segments have no rewards."""

    @classmethod
    def of(cls, scored: ScoredRow) -> "RowRecord":
        """What is kept of a row that has just been scored."""
        read, scores = scored.read, scored.scores
        return cls(
            answer=read.answer,
            response=read.span.text,
            transcript=read.transcript,
            cot=read.span.cot,
            cot_kind=read.span.kind,
            kept_cot=read.kept_text,
            keep_rate=read.keep_rate,
            handed_over_tokens=int(scored.mask.sum()),
            output=read.span.output,
            main=scored.main,
            asked=scored.asked,
            base_reward=_number(scores.known_base),
            classmate_score=_number(scores.classmate_score),
            gamma=_number(scores.gamma),
            classmate_reward=_number(scores.known_classmate),
            final_reward=_number(scores.known_final),
            main_valid=scores.main_valid,
            classmate_valid=scores.classmate_valid,
            consistency_reward=_number(scores.known_consistency),
            segment_rewards=tuple(_number(reward) for reward in scores.segment_rewards_K),
            follows_hint=_number(scored.follows_hint),
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

    def as_dict(self) -> dict[str, Any]:
        """The line's keys and values."""
        answer, main = self.answer, self.main
        return {
            "schema": SCHEMA,
            "uid": answer.uid,
            "step": answer.step,
            "rollout": answer.rollout,
            "data_source": answer.task.data_source,
            "index": answer.task.extra_info["index"],
            "question": answer.task.question,
            "ground_truth": answer.task.ground_truth,
            "response": self.response,
            "cot": self.cot,
            "cot_kind": self.cot_kind.value,
            "kept_cot": self.kept_cot,
            "keep_rate": self.keep_rate,
            "output": self.output,
            "main_outcome": main.outcome.value,
            "main_score": _number(main.score),
            "main_error": main.error,
            **({} if main.judge is None else {"judge": main.judge.record()}),
            "classmates": [asked_as_dict(one) for one in self.asked],
            **{name: getattr(self, name) for name in REWARDS},
            "segment_rewards": list(self.segment_rewards),
            "follows_hint": self.follows_hint,
            "response_tokens": len(answer.response_ids),
            "handed_over_tokens": self.handed_over_tokens,
            # What `verl.evaluation.replay` needs to do it all again.
            "messages": [dict(message) for message in answer.messages],
            "reward_model": dict(answer.task.reward_model),
            "extra_info": dict(answer.task.extra_info),
            "partner": None if answer.partner is None else vars(answer.partner),
            "prompt_end_ids": [int(token) for token in answer.prompt_ids[-MARKER_TOKENS:]],
            "response_ids": [int(token) for token in answer.response_ids],
            **({"turns": [list(turn) for turn in answer.turns], "transcript": self.transcript} if answer.turns else {}),
            **self._advantage_as_dict(),
        }

    def _advantage_as_dict(self) -> dict[str, Any]:
        if not self.has_advantage:
            return {}
        segments = self.advantage_on_segments
        return {
            "advantage": self.advantage,
            "advantage_on_cot": self.advantage_on_cot,
            **({} if segments is None else {"advantage_on_segments": list(segments)}),
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
                response=content["response"],
                transcript=content.get("transcript"),
                cot=content["cot"],
                cot_kind=CotKind(content["cot_kind"]),
                kept_cot=content["kept_cot"],
                keep_rate=content["keep_rate"],
                handed_over_tokens=content["handed_over_tokens"],
                output=content["output"],
                main=Verdict(
                    outcome=Outcome(content["main_outcome"]),
                    score=content["main_score"],
                    error=content["main_error"],
                    judge=_judgement(content),
                ),
                asked=tuple(_asked(one) for one in content["classmates"]),
                **{name: content[name] for name in REWARDS},
                segment_rewards=tuple(content["segment_rewards"]),
                follows_hint=content["follows_hint"],
                **_advantage(content),
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


def _advantage(content: Mapping[str, Any]) -> dict[str, Any]:
    if "advantage" not in content:
        return {}
    segments = content.get("advantage_on_segments")
    return {
        "has_advantage": True,
        "advantage": content["advantage"],
        "advantage_on_cot": content["advantage_on_cot"],
        "advantage_on_segments": None if segments is None else tuple(segments),
    }


def _number(value: float | None) -> float | None:
    """JSON has no NaN."""
    return float(value) if value is not None and math.isfinite(value) else None
