"""Chat templates as a run uses them: what one takes, whether its models think, and the day that it is told.

One decision: what has to be different for a run is written in front of the template, in its own language. So whatever
renders it (upstream's data set and agent loops, this project's prompts, a replay) gets the same text, and nothing but
the tokenizer's `chat_template` changes. What a template takes is found out by rendering it, never by its name.

    >>> tokenizer = for_run(tokenizer, date="2026-11-22", system_as_user=True)
    >>> traits(tokenizer, markers)
    Traits(system=False, alternates=True, thinks=False, dated=False)
"""

import copy
import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from verl.classmate.cot import CotMarkers

_PROBES = ("zebra one", "quartz two", "fjord three", "maple four")
"""Contents that no template writes by itself."""

_REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
"""Where templates look for the CoT of an assistant's turn."""

_THINKING_SWITCHES = tuple({name: on} for name in ("enable_thinking", "thinking") for on in (True, False))
"""Arguments by which templates are told to think or not to."""

_MARK = "{#- classmate-cot: for one run -#}"
"""Beginning of what is put in front of a template."""

_DIRECTIVES = "aAbBcdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ"
"""Of strftime; those of the time count from midnight."""

# Text of system turns goes in front of the user turn behind them, without one it is a user turn of its own.
_FOLD = """\
{%- set cc = namespace(messages=[], text='') -%}
{%- for m in messages -%}
{%- if m['role'] == 'system' and m['content'] is string -%}
{%- set cc.text = cc.text ~ m['content'] ~ '\\n\\n' -%}
{%- elif m['role'] == 'user' and m['content'] is string and cc.text -%}
{%- set cc.messages = cc.messages + [{'role': 'user', 'content': cc.text ~ m['content']}] -%}{%- set cc.text = '' -%}
{%- else -%}
{%- set cc.messages = cc.messages + [m] -%}
{%- endif -%}
{%- endfor -%}
{%- if cc.text -%}{%- set cc.messages = cc.messages + [{'role': 'user', 'content': cc.text | trim}] -%}{%- endif -%}
{%- set messages = cc.messages -%}
"""

# Turns of one role that follow each other become one.
_JOIN = """\
{%- set cc = namespace(messages=[]) -%}
{%- for m in messages -%}
{%- set last = cc.messages[-1] if cc.messages else none -%}
{%- if last and last['role'] == m['role'] and last['content'] is string and m['content'] is string -%}
{%- set joined = {'role': m['role'], 'content': last['content'] ~ '\\n\\n' ~ m['content']} -%}
{%- set cc.messages = cc.messages[:-1] + [joined] -%}
{%- else -%}
{%- set cc.messages = cc.messages + [m] -%}
{%- endif -%}
{%- endfor -%}
{%- set messages = cc.messages -%}
"""

_DAY = """\
{%- macro strftime_now(format) -%}
{%- set cc = namespace(text=format) -%}
{%- for mark, value in MARKS -%}{%- set cc.text = cc.text | replace(mark, value) -%}{%- endfor -%}
{{- cc.text -}}
{%- endmacro -%}
"""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a chat template does."""

    system: bool
    """Whether the text of a system turn reaches the prompt."""
    alternates: bool
    """Whether two turns of the user in a row are refused, or one of them dropped."""
    thinks: bool
    """Whether its models write CoTs of their own between the markers: the template opens one, writes an empty one,
    shows one that a turn brings along, or takes it out of earlier turns."""
    dated: bool
    """Whether it asks for the day."""


def traits(tokenizer: Any, markers: CotMarkers) -> Traits:
    """What a tokenizer's chat template does, found by rendering small chats."""
    return _traits(tokenizer, json.dumps(tokenizer.chat_template), markers)


def for_run(tokenizer: Any, *, date: str | None, system_as_user: bool) -> Any:
    """The tokenizer with its chat template as one run uses it; the same object where nothing has to be different.

    Args:
        tokenizer: left as it is.
        date: the day, YYYY-MM-DD, for templates that ask for it; None: today's, whenever that is.
        system_as_user: whether text that the template takes only from the user is put into the user's turn.
    """
    own = tokenizer.chat_template
    if not own:
        return tokenizer
    changed = (
        {name: _front(tokenizer, one, date, system_as_user) + one for name, one in own.items()}
        if isinstance(own, Mapping)
        else _front(tokenizer, own, date, system_as_user) + own
    )
    if changed == own:
        return tokenizer
    tokenizer = copy.copy(tokenizer)
    tokenizer.chat_template = changed
    return tokenizer


def closes_thought(text: str, markers: CotMarkers) -> bool:
    """Whether a prompt ends with a CoT that is closed already, so that no answer to it has one."""
    _, found, after = text.rstrip().rpartition(markers.start)
    return bool(found) and after.endswith(markers.end) and not after[: -len(markers.end)].strip()


def _front(tokenizer: Any, template: str, date: str | None, system_as_user: bool) -> str:
    """What goes in front of a template, empty where nothing does.

    Its last tag takes one line break away and no other white space, so that the template begins as on a line of its
    own.
    """
    if template.startswith(_MARK):
        return ""
    front = _day(date) if date is not None and _asks_for_day(template) else ""
    if system_as_user:
        front += _system_front(tokenizer, template)
    return f"{_MARK}\n{front}{{%- if false %}}{{% endif %}}\n" if front else ""


@lru_cache(maxsize=64)
def _system_front(tokenizer: Any, template: str) -> str:
    one, two, *_ = _PROBES
    user = [{"role": "user", "content": one}]
    if not _shows(tokenizer, template, user):
        return ""  # It cannot be helped here.
    front = ""
    if not _shows(tokenizer, template, [{"role": "user", "content": two}, *user]):
        front = _JOIN
    if not _shows(tokenizer, front + template, [{"role": "system", "content": two}, *user]):
        front = _FOLD + front
    return front


@lru_cache(maxsize=64)
def _traits(tokenizer: Any, template_json: str, markers: CotMarkers) -> Traits:
    template = json.loads(template_json)
    if isinstance(template, dict):
        template = template.get("default") or next(iter(template.values()))
    one, two, *_ = _PROBES
    user = {"role": "user", "content": one}
    return Traits(
        system=_shows(tokenizer, template, [{"role": "system", "content": two}, user]),
        alternates=not _shows(tokenizer, template, [{"role": "user", "content": two}, user]),
        thinks=_thinks(tokenizer, template, markers),
        dated=_asks_for_day(template),
    )


def _thinks(tokenizer: Any, template: str, markers: CotMarkers) -> bool:
    one, two, three, four = _PROBES
    user, more = {"role": "user", "content": one}, {"role": "user", "content": four}

    def marked(text: str | None) -> bool:
        return text is not None and (markers.start.strip() in text or markers.end.strip() in text)

    prompts = [_render(tokenizer, template, [user], **kwargs) for kwargs in ({}, *_THINKING_SWITCHES)]
    if any(marked(text) for text in prompts):
        return True
    fields = dict.fromkeys(_REASONING_FIELDS, two)
    if marked(_render(tokenizer, template, [user, {"role": "assistant", "content": three, **fields}], prompt=False)):
        return True
    written = {"role": "assistant", "content": f"{markers.start}\n{two}\n{markers.end}\n\n{three}"}
    earlier = _render(tokenizer, template, [user, written, more])
    return earlier is not None and three in earlier and two not in earlier


def _shows(tokenizer: Any, template: str, messages: Sequence[Mapping[str, str]]) -> bool:
    text = _render(tokenizer, template, messages)
    return text is not None and all(message["content"] in text for message in messages)


def _render(
    tokenizer: Any, template: str, messages: Sequence[Mapping[str, str]], *, prompt: bool = True, **kwargs: Any
) -> str | None:
    """The templated chat; None where the template refuses it, with whatever exception."""
    try:
        return tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            chat_template=template,
            add_generation_prompt=prompt,
            tokenize=False,
            **kwargs,
        )
    except Exception:
        return None


def _asks_for_day(template: str) -> bool:
    return "strftime_now" in template


def _day(date: str) -> str:
    day = datetime.datetime.fromisoformat(date)
    marks = [[f"%{flag}{letter}", day.strftime(f"%{flag}{letter}")] for flag in ("-", "") for letter in _DIRECTIVES]
    return _DAY.replace("MARKS", json.dumps([*marks, ["%%", "%"]]))
