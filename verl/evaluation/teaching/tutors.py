"""Who tells a student something: a teacher that is asked, the answer itself, advice that is the same for all.

One decision: whatever is told goes through the same extraction with the same cap, in the student's tokens, so that no
rival of the teacher has more room than it.

    >>> teacher = Teacher(TEACHER, source, tokenizer)
    >>> told = await teacher.write(client, item, student, probe, setting)
    >>> told.teaching.text, told.leak
    ('Remember the carry.', False)
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verl.classmate import cot
from verl.classmate.cot import CotMarkers
from verl.classmate.errors import ConfigError
from verl.classmate.outcome import Outcome
from verl.classmate.reply import Reply
from verl.classmate.row import Task
from verl.classmate.seeds import POLICY_SEED, request_seed, row_key, sends_seed
from verl.classmate.templates import for_run
from verl.evaluation.teaching.items import Item
from verl.evaluation.teaching.serving import Patiently
from verl.evaluation.teaching.sources import Source
from verl.evaluation.teaching.trials import Asked, Setting, Told
from verl.teaching.answers import AnswerRules, extract_answer, same_as_truth
from verl.teaching.config import TeachingConfig
from verl.teaching.leak import find_leak
from verl.teaching.lesson import Probe
from verl.teaching.tags import extract_teaching
from verl.teaching.templates import Messages
from verl.utils import hf_tokenizer
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder
from verl.workers.probe_author import ProbeAuthor, closing_ids
from verl.workers.student import Student

REVEAL = "The answer is {ground_truth}."
"""What the answer-revealing teacher says."""

_WRITES, _ANSWERS = 0, 1
"""What a teacher's seeds are for."""


def tokenizer_of(source: Source, model: str, *, who: str) -> Any:
    """A model's tokenizer with the chat template that a run uses.

    Raises:
        ConfigError: it cannot be loaded, or has no chat template.
    """
    reward = source.run.reward
    try:
        tokenizer = hf_tokenizer(model, trust_remote_code=reward.classmate_trust_remote_code)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{who} {model} cannot be loaded ({reason}); name a folder or a model of the hub") from error
    own = source.config.actor_rollout_ref.model.get("custom_chat_template")
    if own is not None and model in (source.teacher, source.untrained):
        tokenizer.chat_template = own
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError(
            f"{who} {model} has no chat template (a base model?); name its chat or instruct version, or put a "
            "chat_template.jinja into the model's folder"
        )
    return for_run(tokenizer, date=reward.chat_date, system_as_user=reward.system_as_user)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a teacher samples."""

    temperature: float
    """0 in greedy settings."""
    top_p: float
    """Nucleus mass."""
    top_k: int
    """-1: all."""

    @classmethod
    def of(cls, source: Source, decoding: str) -> "Sampling":
        """As the run's rollouts, or greedy."""
        if decoding == "greedy":
            return cls(temperature=0.0, top_p=1.0, top_k=-1)
        rollout = source.config.actor_rollout_ref.rollout
        return cls(temperature=float(rollout.temperature), top_p=float(rollout.top_p), top_k=int(rollout.top_k))


class Teacher:
    """A model that reads a question and an outline, and writes."""

    def __init__(
        self, name: str, source: Source, tokenizer: Any, *, engine: str, model_type: str | None = None
    ) -> None:
        """Keeps its parts.

        Args:
            name: of the frozen model.
            source: with lengths, templates, sampling.
            tokenizer: its own.
            engine: who runs it: hf, vllm or openai.
            model_type: of its config, which says how turns are joined; None: as most are.
        """
        self.name = name
        self._source = source
        self._tokenizer = tokenizer
        self._model_type = model_type
        self._seeded = sends_seed(engine, deterministic=source.run.deterministic)

    async def ask(self, client: Patiently, item: Item, student: Student, setting: Setting) -> Asked:
        """What it asks a student that it is to teach (`probe.author: teacher`)."""
        author = ProbeAuthor(self._source.teaching)
        ids = self._prompt_ids(author.asks(item.question, [student]))
        if self._too_long(ids):
            return Asked(outcome=Outcome.too_long, error=self._too_long(ids))
        most = min(author.most_tokens, self._source.run.max_response_length)
        reply = await self._request(client, ids, item, setting, purpose=_WRITES + 2 * student.reader, most=most)
        if reply.outcome is not Outcome.ok:
            return Asked(outcome=reply.outcome, error=reply.error)
        raw = self._decoded(reply.token_ids)
        return Asked(
            raw=raw,
            prompt_ids=tuple(ids),
            turn_ids=(*reply.token_ids, *closing_ids(reply.token_ids, most, self._tokenizer)),
            question=author.question_in(raw, [student], thought_opened=self._thought_opened(ids)),
        )

    async def write(
        self,
        client: Patiently,
        item: Item,
        student: Student,
        probe: Probe,
        setting: Setting,
        *,
        asked: Asked | None = None,
    ) -> Told:
        """What it tells a student; where it has `asked` the student itself, `probe` is the reply to that."""
        for before in (asked, probe):
            if before is not None and before.outcome is not Outcome.ok:
                return Told.failed(before.outcome, before.error)
        teaching = self._source.teaching
        protocol = teaching.protocol
        messages = teaching.templates.adaptive(
            item.question,
            approach=probe.text or None,
            student_name=student.name if protocol.name_student else None,
            teaching_limit=protocol.max_teaching_tokens,
        )
        ids, room = self._prompt_ids(messages), self._source.run.max_response_length
        too_long = self._too_long(ids)
        if asked is not None:
            # Its own first turn stands in its context, as in training, and takes its part of the response's length.
            ids = self._second_prompt(asked, item, student, messages)
            room -= len(ids) - len(asked.prompt_ids)
            too_long = None if room > 0 else f"its question and what follows leave no room in {room + len(ids)} tokens"
        if too_long:
            return Told.failed(Outcome.too_long, too_long)
        # Students have seeds of their own for one item, and so have those who write for them.
        purpose = _WRITES + 2 * student.reader
        again = asked is not None
        reply = await self._request(client, ids, item, setting, purpose=purpose, most=room, again=again)
        if reply.outcome is not Outcome.ok:
            return Told.failed(reply.outcome, reply.error)
        raw = self._decoded(reply.token_ids)
        written = student.count(raw) + (0 if asked is None else student.count(asked.raw))
        opened = self._thought_opened(ids)
        return await told(raw, teaching, item.task, student, thought_opened=opened, raw_tokens=written)

    async def said(
        self, client: Patiently, messages: Messages, item: Item, setting: Setting
    ) -> tuple[Outcome, str, str | None]:
        """What became of a request of another kind, the text, and what an engine said of a failure.

        Args:
            client: asks it.
            messages: the chat.
            item: that it is about.
            setting: greedy or sampled, and the seed.
        """
        ids = self._prompt_ids(messages)
        if self._too_long(ids):
            return Outcome.too_long, "", self._too_long(ids)
        most = self._source.run.max_response_length
        reply = await self._request(client, ids, item, setting, purpose=_ANSWERS, most=most)
        return reply.outcome, self._decoded(reply.token_ids) if reply.outcome is Outcome.ok else "", reply.error

    def _prompt_ids(self, messages: Messages) -> list[int]:
        text = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **self._source.run.template_kwargs
        )
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _second_prompt(self, asked: Asked, item: Item, student: Student, adaptive: Messages) -> list[int]:
        """All that stands before its second turn, joined as in training."""
        author = ProbeAuthor(self._source.teaching)
        chat = [*author.asks(item.question, [student]), {"role": "assistant", "content": asked.raw}]
        builder = create_continuous_token_builder(
            self._tokenizer,
            hf_model_type=self._model_type,
            chat_template_kwargs=dict(self._source.run.template_kwargs),
        )
        begun = [*asked.prompt_ids, *asked.turn_ids]
        return list(builder.merge_context_tokens(chat, [*chat, *author.goes_on(adaptive)], begun).token_ids)

    def _too_long(self, ids: Sequence[int]) -> str | None:
        most = self._source.run.max_prompt_length
        return f"its prompt has {len(ids)} tokens of {most}" if len(ids) > most else None

    async def _request(
        self,
        client: Patiently,
        ids: list[int],
        item: Item,
        setting: Setting,
        *,
        purpose: int,
        most: int,
        again: bool = False,
    ) -> Reply:
        """Asks its engine; of several requests about one item each has its own `purpose`, or is a second turn."""
        params: dict[str, Any] = {**vars(Sampling.of(self._source, setting.decoding)), "max_tokens": most}
        if self._seeded:
            key = row_key(item.task.data_source, item.task.extra_info["index"])
            params["seed"] = request_seed(setting.seed, 0, key, 0, POLICY_SEED, purpose) ^ again
        return await client.complete(self.name, ids, params)

    def _decoded(self, ids: Sequence[int]) -> str:
        text = self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return str(text)

    def _thought_opened(self, ids: Sequence[int]) -> bool:
        tags = self._source.teaching.templates.tags
        return cot.opens_thought(ids, self._tokenizer, CotMarkers(start=tags.thought_open, end=tags.thought_close))


async def told(
    raw: str,
    teaching: TeachingConfig,
    task: Task,
    student: Student,
    *,
    thought_opened: bool = False,
    raw_tokens: int = 0,
) -> Told:
    """What a teacher's text says to a student, and whether it gives the answer away."""
    found = extract_teaching(
        raw,
        teaching.templates.tags,
        count_tokens=student.count,
        max_tokens=teaching.protocol.max_teaching_tokens,
        overflow=teaching.protocol.teaching_overflow,
        thought_opened=thought_opened,
    )
    rules = AnswerRules.of(
        task.data_source, teaching.templates.tags, allow_last_number=teaching.extract.allow_last_number
    )

    def is_right(advice: str, truth: str) -> bool:
        return same_as_truth(extract_answer(advice, rules).text, truth) is True

    leak = await asyncio.to_thread(
        find_leak, found.text, question=str(task.question), truth=str(task.ground_truth), is_right=is_right
    )
    return Told(raw=raw, raw_tokens=raw_tokens, teaching=found, leak=leak.any)


async def advised(text: str, teaching: TeachingConfig, task: Task, student: Student) -> Told:
    """The same of advice that no model wrote for this question; all that it costs is itself."""
    tags = teaching.templates.tags
    # Escaped as every value of a template is, so that advice cannot end its own section.
    one = await told(f"{tags.visible_open}{tags.escaped(text)}{tags.visible_close}", teaching, task, student)
    return Told(raw="", raw_tokens=one.teaching.tokens, teaching=one.teaching, leak=one.leak)
