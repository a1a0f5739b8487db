"""Token ids of a chat whose last turn is given up to a point and written from there on.

One decision: the chat, what is given and what is written are tokenised apart and their ids put together. So a model in
training reads exactly the ids that it is given when it generates, whatever tokens would reach across a border.

    >>> ids = written_turn(tokenizer, [{"role": "user", "content": "1+1?"}], given="<answer>", written="2</answer>")
    >>> ids.given == given_turn(tokenizer, [{"role": "user", "content": "1+1?"}], "<answer>")
    True
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Chat = Sequence[Mapping[str, str]]

_PROBE = "Two plus 2 = 4"


@dataclass(frozen=True, kw_only=True)
class TurnIds:
    """Ids of a chat; a model reads both parts and is trained on the second."""

    given: list[int]
    """The prompt, and the beginning of the answer where that is given."""
    written: list[int]
    """The rest of the answer, with the token that ends the turn."""


def given_turn(tokenizer: Any, prompt: Chat, given: str = "", **template_kwargs: Any) -> list[int]:
    """Ids of a chat in the model's own template, with the answer opened and begun by `given`."""
    chat = [dict(message) for message in prompt]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False, **template_kwargs)
    return _encoded(tokenizer, text) + _encoded(tokenizer, given)


def written_turn(tokenizer: Any, prompt: Chat, *, given: str = "", written: str, **template_kwargs: Any) -> TurnIds:
    """Ids of a chat with its answer.

    Args:
        tokenizer: with a chat template.
        prompt: the turns before the answer.
        given: the beginning of the answer that is not learnt.
        written: the rest of it.
        template_kwargs: of the chat template.

    Raises:
        ValueError: the template does not write answers as they are.
    """
    end = turn_end(tokenizer, **template_kwargs)
    return TurnIds(
        given=given_turn(tokenizer, prompt, given, **template_kwargs), written=_encoded(tokenizer, written) + end
    )


def turn_end(tokenizer: Any, **template_kwargs: Any) -> list[int]:
    """Ids with which a model ends its turn: what the template writes behind an answer, up to the end token.

    Raises:
        ValueError: the template does not write the answer.
    """
    chat = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _PROBE}]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=False, tokenize=False, **template_kwargs)
    _, found, behind = text.rpartition(_PROBE)
    if not found:
        raise ValueError("the chat template does not write an assistant's turn; name a model for chats")
    # A line break behind the mark belongs to the next turn, which the model does not write.
    ids = _encoded(tokenizer, behind.rstrip())
    eos = tokenizer.eos_token_id
    if eos in ids:
        return ids[: ids.index(eos) + 1]
    return ids or ([] if eos is None else [eos])


def _encoded(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids
