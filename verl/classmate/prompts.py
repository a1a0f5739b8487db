"""Puts the policy's chain of thought (CoT) into a classmate's prompt, as if it were the classmate's own.

One decision: token ids are built and sent, never a string that an engine would encode again (that doubles the BOS
token). The question goes through the classmate's chat template; the CoT is always re-encoded with the classmate's
tokenizer, in which special tokens that the policy spelled out are plain text.

    >>> prompt = build(messages, "3 + 4 = 7", tokenizer, markers=markers, classmate_markers=None, close=True,
    ...                max_len=2048)
    >>> prompt.ids, prompt.outcome
    ([151644, 872, ...], <Outcome.ok: 'ok'>)
    >>> answer("\\n\\nThe answer is 7", closed=True, markers=markers)
    ('The answer is 7', <Outcome.ok: 'ok'>)
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from verl.classmate.cot import CotKind, CotMarkers, CotSpan, KeptCot, find_thought, locate
from verl.classmate.errors import ConfigError
from verl.classmate.outcome import Outcome
from verl.classmate.reward_config import ClassmateCotRewardConfig


@dataclass(frozen=True, kw_only=True)
class ClassmatePrompt:
    """What one classmate is asked about one row."""

    ids: list[int] | None
    """Prompt in the classmate's own tokens; None if there is nothing to ask."""
    outcome: Outcome
    """`ok`, `too_long`, or `template_error`."""
    text: str
    """The prompt as text, for people."""
    error: str | None = None
    """Why the chat template cannot make a prompt."""


EXAMPLE = "\u2991classmate-cot-example\u2992"
"""Content of the assistant turn that `build` replaces by the example. Templates drop the CoTs of earlier turns, and
would read control tokens that a model spelled out. So the example is put in after templating, as plain text."""


def handover(span: CotSpan, unfinished_cot: Literal["no_classmate", "close_and_score"]) -> Outcome:
    """Whether this row's CoT is handed to classmates: `ok`, or why not
    (docs/method.md#what-fails-is-no-score)."""
    if not span.closed and (unfinished_cot == "no_classmate" or span.cot is None):
        return Outcome.unfinished_cot
    return Outcome.ok if span.cot and span.cot.strip() else Outcome.empty_cot


def should_close(kept: KeptCot, setting: Literal["auto", "always", "never"]) -> bool:
    """Whether the close marker follows the CoT for every classmate: `auto` closes a CoT whose end was handed over.
    `closes` adds what depends on the classmate."""
    return kept.whole if setting == "auto" else setting == "always"


def closes(*, for_all: bool, thinks: bool, setting: Literal["auto", "always", "never"]) -> bool:
    """Whether the close marker follows the CoT for one classmate.

    Args:
        for_all: what `should_close` says of the CoT.
        thinks: whether the classmate writes CoTs of its own (`templates.Traits`), and so can finish a part of one.
        setting: `classmate_close_marker`.
    """
    return for_all or (setting == "auto" and not thinks)


@lru_cache(maxsize=16)
def special_tokens(tokenizer: Any) -> tuple[str, ...]:
    """Texts that become one special token wherever they are spelled out, longest first.

    Not all of them have a purpose that the tokenizer names: Gemma's <end_of_turn>, which ends a turn, has none.
    """
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    names = {str(token) for token in added if token.special} | set(tokenizer.all_special_tokens)
    return tuple(
        sorted((name for name in names if len(name) > 1 and name.strip()), key=lambda name: (-len(name), name))
    )


def check_tokenizer(tokenizer: Any, name: str) -> None:
    """Refuses, at start, a classmate that cannot be asked.

    Raises:
        ConfigError: the tokenizer has no chat template.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError(
            f"classmate {name} has no chat template (a base model?); name its chat or instruct version, or put a "
            "chat_template.jinja into the model's folder"
        )


def build(
    messages: Sequence[Mapping[str, Any]],
    thought: str | None,
    tokenizer: Any,
    *,
    markers: CotMarkers,
    classmate_markers: CotMarkers | None,
    close: bool,
    max_len: int,
    template_kwargs: Mapping[str, Any] | None = None,
    classmate_template: Literal["thought_block", "open_assistant_turn"] = ClassmateCotRewardConfig.classmate_template,
    example: str | None = None,
    cue: str = "",
) -> ClassmatePrompt:
    """The prompt of one classmate.

    docs/method.md#what-classmates-are-shown-classmate_reward_type

    Args:
        messages: the row's chat, as the main model got it.
        thought: the slice of the CoT; empty for the question alone; None opens no thought block at all.
        tokenizer: the classmate's.
        markers: the main model's, used where `classmate_markers` is None.
        close: whether the CoT is closed; without meaning for `open_assistant_turn`.
        max_len: the classmate's context, of which at least one token must stay free.
        template_kwargs: for the chat template, for instance `enable_thinking`.
        example: what stands in the place of an assistant turn with the content `EXAMPLE`.
        cue: beginning of the answer, which the classmate goes on from.

    A template that refuses these messages is an outcome.

    Raises:
        ConfigError: no chat template.
    """
    inner = classmate_markers or markers
    key = json.dumps([list(map(dict, messages)), dict(template_kwargs or {})], sort_keys=True, default=str)
    opening = inner if thought is not None and classmate_template == "thought_block" else None
    check_tokenizer(tokenizer, tokenizer.name_or_path or "tokenizer")
    # Pieces of the template's own text, in which control tokens count, and of text that a model wrote, in which they do
    # not.
    pieces: list[tuple[str, list[int]]] = []
    try:
        templated = _opened(tokenizer, str(tokenizer.chat_template), key, opening)
    except _Refused as refusal:
        return ClassmatePrompt(ids=None, outcome=Outcome.template_error, text="", error=str(refusal))
    for i, (text, ids) in enumerate(templated):
        if i:
            pieces.append((example or "", plain_ids(tokenizer, example or "")))
        pieces.append((text, list(ids)))
    if thought:
        pieces.append((thought, plain_ids(tokenizer, thought)))
    if close and opening is not None:
        pieces.append((opening.end, list(_marker(tokenizer, opening.end))))
    if cue:
        pieces.append((cue, plain_ids(tokenizer, cue)))
    whole = "".join(text for text, _ in pieces)
    prompt_ids = [token for _, ids in pieces for token in ids]
    if len(prompt_ids) + 1 > max_len:
        return ClassmatePrompt(ids=None, outcome=Outcome.too_long, text=whole)
    return ClassmatePrompt(ids=prompt_ids, outcome=Outcome.ok, text=whole)


def answer(
    continuation: str | Sequence[int],
    *,
    closed: bool,
    markers: CotMarkers | None,
    tokenizer: Any = None,
    opened: bool = True,
) -> tuple[str | None, Outcome]:
    """The part of a classmate's continuation that is scored, and `ok` or `no_answer`.

    Behind a closed CoT, or with `markers=None` (there is no thought block), all of it is scored. Behind a CoT that was
    left open, only what follows the classmate's own close marker. Where no thought block was opened (`opened=False`),
    all but a CoT of its own. Empty text is never scored. Token ids need the classmate's `tokenizer`.
    """
    if isinstance(continuation, str):
        text: str | None = continuation
        if not closed and markers is not None:
            open_at, _, close_at = find_thought(continuation, markers, preopened=opened)
            if close_at >= 0:
                text = continuation[close_at + len(markers.end) :]
            elif opened or open_at >= 0:
                text = None
    elif not closed and markers is not None:
        span = locate(continuation, tokenizer, markers, preopened=opened)
        text = span.text if span.kind is CotKind.no_marker else span.output
    else:
        text = locate(continuation, tokenizer, None).text
    text = (text or "").strip()
    return (text, Outcome.ok) if text else (None, Outcome.no_answer)


def begun(cue: str, text: str) -> str:
    """The whole answer of a classmate: the beginning that was written for it, and what it wrote.

    The text may leave a brace of the cue open, if the budget is small or it stopped behind the answer. The brace is
    then closed at the end of the text's first line.
    """
    if not cue.strip():
        return text
    glued = cue[-1].isspace() or cue[-1] in "([{"
    whole = f"{cue.lstrip()}{'' if glued else ' '}{text}"
    begin = len(whole) - len(text)
    if whole[:begin].count("{") > whole[:begin].count("}") and not _closes_brace(text):
        line, found, rest = text.partition("\n")
        whole = f"{whole[:begin]}{line.rstrip().rstrip('.$').rstrip()}}}{found}{rest}"
    return whole


def statement(cue: str, truth: str) -> str:
    """The text that gives an answer behind a cue, which it begins with."""
    return cue[: len(cue) - len(cue.lstrip())] + begun(cue, truth)


def _closes_brace(text: str) -> bool:
    """Whether a brace that is open in front of a text is closed in it."""
    depth = 1
    for mark in re.findall(r"\\.|[{}]", text):
        depth += {"{": 1, "}": -1}.get(mark, 0)
        if depth == 0:
            return True
    return False


class _Refused(Exception):
    """A chat template that makes no prompt of these messages."""


@lru_cache(maxsize=4096)
def _opened(
    tokenizer: Any, template: str, key: str, opening: CotMarkers | None
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The templated chat, with the thought block opened, in front of and behind the example: text and ids of each part.

    The n rollouts of a prompt share it. `template` is the tokenizer's own and only tells cached entries apart.
    """
    messages, template_kwargs = json.loads(key)
    try:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **template_kwargs)
    except Exception as error:
        # Templates refuse roles they do not know with exceptions of their own.
        roles = ", ".join(str(message.get("role")) for message in messages)
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise _Refused(f"its chat template refuses the roles [{roles}] ({reason})") from error
    if opening is not None:
        # With thinking switched off some templates end in an empty thought block; ours takes its place.
        empty_thought = re.escape(opening.start) + r"\s*" + re.escape(opening.end) + r"\s*\Z"
        text = re.sub(empty_thought, "", text)
    parts = text.split(EXAMPLE)
    if len(parts) - 1 != sum(message.get("content") == EXAMPLE for message in messages):
        raise _Refused("its chat template changes or drops earlier assistant turns, which help_other_* rewards need")
    pieces = [(part, tuple(_encode(tokenizer, part))) for part in parts]
    if opening is not None and not text.rstrip().endswith(opening.start):
        last, ids = pieces[-1]
        pieces[-1] = (last + opening.start, ids + tuple(_encode(tokenizer, opening.start)))
    return tuple(pieces)


def forget() -> None:
    """Empties the cache of templated chats."""
    _opened.cache_clear()


def _encode(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


@lru_cache(maxsize=256)
def _marker(tokenizer: Any, marker: str) -> tuple[int, ...]:
    return tuple(_encode(tokenizer, marker))


def plain_ids(tokenizer: Any, text: str) -> list[int]:
    """Ids of text that a model wrote: a special token spelled out in it stays text."""
    return list(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))
