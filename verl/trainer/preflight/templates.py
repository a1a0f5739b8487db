"""Whether the chat templates of policy and classmates take the chats of the data, and what a user is told of them.

Decision: templates are tried, on rows of the real files: one of each sequence of roles that occurs, and the first few.
A template that refuses would otherwise cost its rows one by one, deep inside the run. One that leaves a turn out
without a word would cost the run itself: nobody would be asked the question.

    >>> check_templates(config, reward_config)             # raises ConfigError
    >>> template_notes(config, reward_config, chat_date="2026-11-22")
    ['roles        classmate 0 takes no system role: its text stands in front of the user\\'s turn']
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from verl.classmate import prompts, templates
from verl.classmate.config import REWARD_NODE, ClassmateRewardModelConfig
from verl.classmate.errors import ConfigError
from verl.classmate.frozen import frozen_readers
from verl.classmate.outcome import Outcome
from verl.trainer.preflight.chats import Chat, chat_samples, check_chats
from verl.trainer.preflight.models import load_tokenizer

_POLICY = "actor_rollout_ref.model.path"
_KWARGS = "data.apply_chat_template_kwargs"

_ROLES = {"developer": "system", "gpt": "assistant", "model": "assistant", "tool": "user"}
"""What to write for roles of other formats; for those that are not here, user."""

_SWITCHES = ("/no_think", "/think")
"""Words that some templates take out of a turn and act on."""


@dataclass(frozen=True, kw_only=True)
class _Reader:
    """Who is given prompts."""

    name: str
    """For a person: policy, or classmate and its number."""
    key: str
    """Where it was configured."""
    model: str
    """What was written there."""
    own: Any
    """Its tokenizer."""
    tokenizer: Any
    """The same with the chat template of the run."""


def policy_tokenizer(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> Any:
    """The policy's tokenizer with the chat template of the run."""
    return _policy(config, reward).tokenizer


def check_templates(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    """Every template takes the chats of the data, whole, and the policy's leaves room for a CoT.

    Raises:
        ConfigError: naming model, file and row.
    """
    chats = chat_samples(config["data"])
    check_chats(chats)
    policy = _policy(config, reward)
    for chat in chats:
        _check_policy(policy, chat, config["data"], reward)
    for reader in _classmates(config, reward, policy):
        for chat in chats:
            _check_classmate(reader, chat, config["data"], reward)


def template_notes(
    config: Mapping[str, Any], reward: ClassmateRewardModelConfig, *, chat_date: str | None
) -> list[str]:
    """Lines for a person: what was decided by the templates.

    Args:
        config: resolved, as a plain mapping.
        reward: its typed node `reward_model`.
        chat_date: the day that templates are told in this run.
    """
    policy = _policy(config, reward)
    classmates = _classmates(config, reward, policy)
    readers = [policy, *(one for one in classmates if one.own is not policy.own)]
    return [
        *_role_notes(readers, chat_samples(config["data"]), reward),
        # A teacher's thoughts are nobody's to read.
        *([] if "rcl" in config else _thought_notes(policy, classmates, reward)),
        *_date_notes(readers, reward, chat_date),
    ]


def _policy(config: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> _Reader:
    model = config["actor_rollout_ref"]["model"]
    tokenizer = load_tokenizer(_POLICY, model["tokenizer_path"] or model["path"])
    if model["custom_chat_template"] is not None:
        tokenizer.chat_template = model["custom_chat_template"]
    if not tokenizer.chat_template:
        raise ConfigError(
            f"{_POLICY}={model['path']} has no chat template (a base model?); name its instruct version, or write "
            "actor_rollout_ref.model.custom_chat_template=TEMPLATE"
        )
    return _reader("policy", _POLICY, model["path"], tokenizer, reward)


def _classmates(config: Mapping[str, Any], reward: ClassmateRewardModelConfig, policy: _Reader) -> list[_Reader]:
    readers = []
    for one in frozen_readers(reward):
        key = f"{one.keys}model"
        own = policy.own
        if not one.is_policy:
            own = load_tokenizer(key, one.model, trust_remote_code=reward.classmate_trust_remote_code)
            prompts.check_tokenizer(own, one.model)
        readers.append(_reader(one.label, key, one.model, own, reward))
    return readers


def _reader(name: str, key: str, model: str, own: Any, reward: ClassmateRewardModelConfig) -> _Reader:
    tokenizer = templates.for_run(own, date=reward.chat_date, system_as_user=reward.system_as_user)
    return _Reader(name=name, key=key, model=model, own=own, tokenizer=tokenizer)


def _check_policy(policy: _Reader, chat: Chat, data: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    kwargs = dict(data["apply_chat_template_kwargs"] or {})

    def render(messages: Sequence[Mapping[str, Any]]) -> str:
        return policy.tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=False, **kwargs
        )

    try:
        text = render(chat.messages)
    except Exception as error:
        # Templates refuse with exceptions of their own.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        refusal = f"its chat template refuses the roles [{', '.join(chat.roles)}] ({reason})"
        raise _refused(policy, chat, refusal, reward) from error
    _check_whole(policy, chat, text, render, reward)
    if reward.cot_format == "markers" and templates.closes_thought(text, reward.markers):
        key = "reward_model.enable_thinking" if not reward.enable_thinking else _KWARGS
        value = "false" if not reward.enable_thinking else kwargs
        raise ConfigError(
            f"{key}={value}: the policy's chat template ends each prompt with an empty, closed CoT, so no response "
            "has a CoT and all rows score lowest; write reward_model.enable_thinking=true, or "
            f"reward_model.cot_format=plain {REWARD_NODE}.main_cot_keep_rate=0.5"
        )


def _check_classmate(reader: _Reader, chat: Chat, data: Mapping[str, Any], reward: ClassmateRewardModelConfig) -> None:
    more: list[Mapping[str, Any]] = []
    if reward.classmate_cot_reward_configs.reward_type.shown == "example":
        more = [{"role": "assistant", "content": prompts.EXAMPLE}, {"role": "user", "content": "?"}]

    def build(messages: Sequence[Mapping[str, Any]]) -> prompts.ClassmatePrompt:
        return prompts.build(
            [*messages, *more],
            "",
            reader.tokenizer,
            markers=reward.markers,
            classmate_markers=reward.classmate_markers,
            close=True,
            max_len=1 << 30,
            template_kwargs=data["apply_chat_template_kwargs"] or {},
            example="",
        )

    prompt = build(chat.messages)
    if prompt.outcome is Outcome.template_error:
        raise _refused(reader, chat, str(prompt.error), reward)
    _check_whole(reader, chat, prompt.text, lambda messages: build(messages).text, reward)


def _check_whole(
    reader: _Reader,
    chat: Chat,
    prompt: str,
    render: Callable[[Sequence[Mapping[str, Any]]], str],
    reward: ClassmateRewardModelConfig,
) -> None:
    """Every turn's text is in the prompt.

    It is also tried with turns that can be told apart, since a short text is in many prompts by chance, and one turn
    may repeat another.
    """
    marked = [
        {**message, "content": f"{message['content']} turn{i}of{len(chat.messages)}"}
        if isinstance(message.get("content"), str) and message["content"].strip()
        else message
        for i, message in enumerate(chat.messages, 1)
    ]
    try:
        lost = _first_lost(marked, render(marked), reward)
    except Exception:
        # It takes the turns as they are, and these are not.
        lost = None
    lost = _first_lost(chat.messages, prompt, reward) if lost is None else lost
    if lost is None:
        return
    role, roles = chat.roles[lost], chat.roles
    raise ConfigError(
        f"{reader.key}={reader.model}: its chat template leaves out text of the {role} turn (turn {lost + 1} of "
        f"{len(roles)}) of data.{chat.key}={chat.file}, row {chat.row}; {_instead(role, roles, reward)}"
    )


def _first_lost(messages: Sequence[Mapping[str, Any]], prompt: str, reward: ClassmateRewardModelConfig) -> int | None:
    """The first turn whose text is not in the prompt; None if there is none. No two turns share a place there."""
    rest, lost = _plain(prompt), []
    texts = [(i, str(message.get("role")), text) for i, message in enumerate(messages) for text in _texts(message)]
    for i, role, text in sorted(texts, key=lambda one: len(one[2]), reverse=True):
        found = next((form for form in _forms(role, text, reward) if form in rest), None)
        if found is None:
            lost.append(i)
        elif found:
            rest = rest.replace(found, "\0", 1)
    return min(lost, default=None)


def _texts(message: Mapping[str, Any]) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str)]


def _forms(role: str, text: str, reward: ClassmateRewardModelConfig) -> list[str]:
    """The forms in which a prompt may have a text. White space, escapes and switches do not count; of an assistant's
    turn, what follows its CoT is enough."""
    switched = text
    for switch in _SWITCHES:
        switched = switched.replace(switch, "")
    forms = [text, switched, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]]
    if role == "assistant":
        ends = {one.end.strip() for one in (reward.markers, reward.classmate_markers) if one is not None}
        forms += [text.rpartition(end)[2] for end in sorted({*ends, "</think>"}) if end and end in text]
    return [_plain(form) for form in forms]


def _plain(text: str) -> str:
    return " ".join(text.split())


def _instead(role: str, roles: Sequence[str], reward: ClassmateRewardModelConfig) -> str:
    """What to write for a turn that is left out."""
    if role == "system" and "user" not in roles:
        return "write its role as user"
    if role == "system" and not reward.system_as_user:
        return "write reward_model.system_as_user=true, or put its text into the user's turn"
    if role == "system" and roles.count("system") > 1:
        return "write the system turns as one"
    if role in ("system", "user", "assistant"):
        return "write its text into another turn, or name another model"
    known = role.strip().lower()
    instead = known if known in ("system", "user", "assistant") else _ROLES.get(known, "user")
    return f"write its role as {instead}, or name another model"


def _refused(reader: _Reader, chat: Chat, reason: str, reward: ClassmateRewardModelConfig) -> ConfigError:
    instead = "name another model, or change the roles in the data"
    if not reward.system_as_user:
        instead = f"write reward_model.system_as_user=true, {instead}"
    return ConfigError(
        f"{reader.key}={reader.model}: {reason} of data.{chat.key}={chat.file}, row {chat.row}; {instead}"
    )


def _role_notes(readers: Sequence[_Reader], chats: Sequence[Chat], reward: ClassmateRewardModelConfig) -> list[str]:
    if not reward.system_as_user:
        return []
    lines = []
    traits = [(reader.name, templates.traits(reader.own, reward.classmate_markers)) for reader in readers]
    without = [name for name, one in traits if not one.system]
    followed = {_user_follows(chat.roles) for chat in chats if "system" in chat.roles}
    if without and True in followed:
        lines.append(f"roles        {_names(without)} no system role: its text stands in front of the user's turn")
    if without and False in followed:
        lines.append(f"roles        {_names(without)} no system role: where no user turn follows, its text becomes one")
    strict = [name for name, one in traits if one.alternates]
    if strict and any(a == b for chat in chats for a, b in pairwise(chat.roles)):
        lines.append(f"roles        {_names(strict)} no two turns of one role in a row: they are joined")
    return lines


def _user_follows(roles: Sequence[str]) -> bool:
    """Whether there is a user's turn behind the last system turn."""
    return "user" in roles[len(roles) - roles[::-1].index("system") :]


def _names(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'takes' if len(names) == 1 else 'take'}"


def _thought_notes(policy: _Reader, classmates: Sequence[_Reader], reward: ClassmateRewardModelConfig) -> list[str]:
    lines = []
    config = reward.classmate_cot_reward_configs
    parts = config.reward_type.cuts_at_random or config.keep.kind != "all" or config.strip_answer
    if parts and config.classmate_close_marker == "auto" and not config.answers_at_once:
        thinks = [(one.name, templates.traits(one.own, reward.classmate_markers).thinks) for one in classmates]
        closed, open_for = [name for name, does in thinks if not does], [name for name, does in thinks if does]
        told = [f"closed for {', '.join(closed)} (no CoT in the chat template)"] if closed else []
        told += [f"left open for {', '.join(open_for)}, to be finished"] if open_for else []
        if told:
            lines.append(f"CoT          a part of it is {' and '.join(told)}")
    marker = reward.markers.start
    known = len(policy.own.encode(marker, add_special_tokens=False)) == 1
    if reward.cot_format == "markers" and not known and not templates.traits(policy.own, reward.markers).thinks:
        lines.append(
            f"warning: neither chat template nor vocabulary of the policy know {marker}; all rows count as unfinished "
            f"until the policy writes {marker}...{reward.markers.end} by itself; ask for these markers in the prompts, "
            "or write reward_model.cot_format=plain"
        )
    return lines


def _date_notes(readers: Sequence[_Reader], reward: ClassmateRewardModelConfig, chat_date: str | None) -> list[str]:
    dated = [reader.name for reader in readers if templates.traits(reader.own, reward.markers).dated]
    if not dated or chat_date is None:
        return []
    return [f"date         chat templates ({', '.join(dated)}) are told {chat_date}, also in resumed runs and replays"]
