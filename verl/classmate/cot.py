"""Finds the chain of thought (CoT) in a response, cuts it, and marks the tokens that are handed to classmates.

One decision: markers are searched in the decoded text, never as token ids, and characters are mapped back to tokens, so
that a policy which writes its marker in other tokens, or merged with a neighbour, is understood all the same. A token
that holds both marker and CoT characters is a marker token in the mask, while the text keeps its CoT characters.

    >>> span = locate(response_ids, tokenizer, CotMarkers(start="<think>", end="</think>"))
    >>> span.kind, span.cot, span.output
    (<CotKind.closed: 'closed'>, '3 + 4 = 7', 'The answer is 7')
    >>> kept = keep(span, response_ids, tokenizer, parse_keep_rate("first-5-tokens"))
    >>> kept.text, kept.mask                # mask: 1 on exactly the tokens that are handed over

Times are linear in the response's length, but for a few prefix decodes where a marker is no single token.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from verl.classmate.errors import ConfigError

MARKER_TOKENS = 16
"""Tokens at a prompt's end among which an open marker is looked for."""


@dataclass(frozen=True, kw_only=True)
class CotMarkers:
    """The strings around a CoT."""

    start: str
    """Open marker, for instance `<think>`."""
    end: str
    """Close marker, for instance `</think>`."""


class CotKind(StrEnum):
    """What became of the search for the CoT."""

    closed = "closed"
    unfinished = "unfinished"
    no_marker = "no_marker"
    plain = "plain"


@dataclass(frozen=True, kw_only=True)
class CotSpan:
    """Where CoT and output stand in a response, in characters and in tokens."""

    kind: CotKind
    """closed: both found (or the template opened the CoT); unfinished: opened, never closed; no_marker: neither."""
    text: str
    """The decoded response, without trailing special tokens."""
    cot: str | None
    """The CoT, exactly the characters between the markers; None without any marker."""
    cot_char: int
    """First character of the CoT in `text`."""
    start: int
    """First CoT token."""
    end: int
    """One past the last CoT token."""
    output: str | None
    """What is scored: the text after the close marker; None if the CoT was not closed
    (docs/method.md#what-fails-is-no-score)."""
    output_start: int
    """First output token."""
    output_end: int
    """One past the last output token."""
    skip_special: bool
    """Whether `text` was decoded without special tokens (not so where markers are made of them)."""

    @property
    def closed(self) -> bool:
        """Whether there is an output to score."""
        return self.output is not None

    @property
    def cot_length(self) -> int:
        """Tokens of the CoT."""
        return self.end - self.start

    @property
    def output_length(self) -> int:
        """Tokens of the output."""
        return self.output_end - self.output_start


@dataclass(frozen=True, kw_only=True)
class KeepSpec:
    """How much of a CoT is handed over."""

    kind: Literal["all", "ratio", "first", "last"]
    """ratio counts from the start."""
    amount: float = 1.0
    """The ratio, or the number of units."""
    unit: Literal["tokens", "words"] = "tokens"
    """Tokens of the main model, or runs of non-white-space."""


@dataclass(frozen=True, kw_only=True)
class KeptCot:
    """The slice of a CoT that is handed over."""

    text: str
    """The slice; empty if there is none."""
    mask: np.ndarray
    """(R,) int64, R = number of response ids: 1 on exactly the tokens of the slice."""
    whole: bool
    """Whether the slice reaches the end of the CoT, so that the CoT may be closed behind it."""
    rate: float
    """Share of the CoT's units that was kept."""


def parse_keep_rate(
    value: float | str, *, unit: Literal["tokens", "words"] = "tokens", path: str = "main_cot_keep_rate"
) -> KeepSpec:
    """`1`, a ratio in (0, 1), `first-N-tokens` or `last-N-tokens` (also `-words`); `unit` is what a ratio counts.

    Raises:
        ConfigError: anything else.
    """
    text = str(value).strip()
    match = re.fullmatch(r"(first|last)-(\d+)-(tokens|words)", text)
    if match and int(match[2]) > 0:
        return KeepSpec(kind=match[1], amount=int(match[2]), unit=match[3])  # type: ignore[arg-type]
    if text == "all":
        return KeepSpec(kind="all", unit=unit)
    try:
        ratio = 0.0 if isinstance(value, bool) else float(text)
    except ValueError:
        ratio = 0.0
    if ratio == 1:
        return KeepSpec(kind="all", unit=unit)
    if 0 < ratio < 1:
        return KeepSpec(kind="ratio", amount=ratio, unit=unit)
    raise ConfigError(
        f"{path}: {value!r} is not possible; write 1, a ratio such as 0.5, first-100-tokens or last-100-tokens"
    )


def opens_thought(prompt_ids: Sequence[int], tokenizer: Any, markers: CotMarkers | None) -> bool:
    """Whether a prompt ends with the open marker, as some chat templates write it."""
    if markers is None:
        return False
    ending = tokenizer.decode(list(prompt_ids[-MARKER_TOKENS:]), skip_special_tokens=False)
    return bool(ending.rstrip().endswith(markers.start))


def find_thought(text: str, markers: CotMarkers, *, preopened: bool) -> tuple[int, int, int]:
    """Positions of the open marker, of the CoT's first character and of the close marker; -1 where there is no marker.

    Without `preopened` the first open marker counts, and the first close marker behind it. With `preopened` the
    response begins inside the CoT, and the first close marker ends it. An open marker is then plain text, unless the
    response begins with it because the policy opens its CoT once more.
    """
    open_at = text.find(markers.start)
    if preopened and text[: max(open_at, 0)].strip():
        open_at = -1
    cot_char = open_at + len(markers.start) if open_at >= 0 else 0
    return open_at, cot_char, text.find(markers.end, cot_char)


def locate(
    response_ids: Sequence[int], tokenizer: Any, markers: CotMarkers | None, *, preopened: bool = False
) -> CotSpan:
    """Finds CoT and output in a response (docs/method.md#chat-templates).

    Args:
        response_ids: the (R,) sampled tokens, without padding.
        tokenizer: the tokenizer that decodes them.
        markers: None is `cot_format: plain`, where the whole response is both CoT source and output.
        preopened: the prompt ended with the open marker (`opens_thought`), so that the CoT begins with the response.
    """
    ids = np.asarray(response_ids, dtype=np.int64).tolist()
    reader = _reader(tokenizer, markers)
    length = len(ids)
    while length and ids[length - 1] in reader.trailing:
        length -= 1
    del ids[length:]
    text = reader.decode(ids)

    def span(
        kind: CotKind, cot: tuple[int, int] | None, tokens: tuple[int, int], output: str | None, output_start: int
    ) -> CotSpan:
        return CotSpan(
            kind=kind,
            text=text,
            cot=None if cot is None else text[cot[0] : cot[1]],
            cot_char=0 if cot is None else cot[0],
            start=tokens[0],
            end=tokens[1],
            output=output,
            output_start=output_start,
            output_end=length,
            skip_special=reader.skip_special,
        )

    if markers is None:
        return span(CotKind.plain, (0, len(text)), (0, length), text, 0)

    offsets = _Offsets(ids, text, reader.decode)
    open_at, cot_char, close_at = find_thought(text, markers, preopened=preopened)
    start = 0
    if open_at >= 0:
        start = _only_token(ids, text, markers.start, reader.start_id)
        start = start + 1 if start >= 0 else offsets.first_from(cot_char)
    if close_at < 0:
        if open_at < 0 and not preopened:
            return span(CotKind.no_marker, None, (0, 0), None, length)
        return span(CotKind.unfinished, (cot_char, len(text)), (start, length), None, length)

    output_char = close_at + len(markers.end)
    # With a close marker before the open one, the first id is not the one that closes.
    end = _only_token(ids, text, markers.end, reader.end_id) if text.find(markers.end) == close_at else -1
    output_start = end + 1 if end >= 0 else offsets.first_from(output_char)
    end = end if end >= 0 else max(start, offsets.last_until(close_at))
    output = text[output_char:]
    if not reader.skip_special:
        output = tokenizer.decode(ids[output_start:], skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return span(CotKind.closed, (cot_char, close_at), (start, end), output, output_start)


def loss_mask(span: CotSpan, tokens: int, mode: Literal["all_tokens", "cot_only", "output_only"]) -> np.ndarray:
    """(tokens,) int64: 1 on what `token_level_main_reward_mode` trains on; markers belong to both parts.

    A response without a CoT has neither part; one whose CoT was not closed has no output.
    """
    mask = np.zeros(tokens, dtype=np.int64)
    if mode == "all_tokens":
        mask[:] = 1
    elif span.kind in (CotKind.closed, CotKind.unfinished):
        if mode == "cot_only":
            mask[: span.output_start] = 1
        else:
            mask[: span.start] = 1
            mask[span.end if span.closed else tokens :] = 1
    return mask


def keep(span: CotSpan, response_ids: Sequence[int], tokenizer: Any, spec: KeepSpec) -> KeptCot:
    """Cuts the located CoT to what is handed over, and marks its tokens.

    docs/method.md#what-classmates-are-shown-classmate_reward_type

    The text is a prefix or suffix of `span.cot` by whole characters. A token is in the mask if it contributes to the
    text (tokens merged with a marker excepted). A ratio keeps at least one unit.
    """
    mask = np.zeros(len(response_ids), dtype=np.int64)
    if not span.cot:
        return KeptCot(text="", mask=mask, whole=True, rate=0.0)
    words = [match.span() for match in re.finditer(r"\S+", span.cot)] if spec.unit == "words" else []
    total = len(words) if spec.unit == "words" else span.cot_length
    kept = _kept_units(spec, total)
    if kept == total:
        mask[span.start : span.end] = 1
        return KeptCot(text=span.cot, mask=mask, whole=True, rate=1.0)

    ids = np.asarray(response_ids[: span.output_end], dtype=np.int64).tolist()
    offsets = _Offsets(ids, span.text, _decoder(tokenizer, skip_special=span.skip_special))
    from_start = spec.kind != "last"
    if spec.unit == "words":
        cut = span.cot_char + (words[kept - 1][1] if from_start else words[total - kept][0])
        token = offsets.first_from(cut) if from_start else offsets.last_until(cut)
        token = min(max(token, span.start), span.end)
    else:
        token = span.start + kept if from_start else span.end - kept
        cut = offsets.end_of(token) if from_start else offsets.start_of(token)
    cut = min(max(cut - span.cot_char, 0), len(span.cot))
    if from_start:
        mask[span.start : token] = 1
        return KeptCot(text=span.cot[:cut], mask=mask, whole=False, rate=kept / total)
    mask[token : span.end] = 1
    return KeptCot(text=span.cot[cut:], mask=mask, whole=True, rate=kept / total)


def first_token_from(span: CotSpan, response_ids: Sequence[int], tokenizer: Any, char: int) -> int:
    """The first token at which the first `char` characters of `span.text` are complete."""
    ids = np.asarray(response_ids[: span.output_end], dtype=np.int64).tolist()
    return _Offsets(ids, span.text, _decoder(tokenizer, skip_special=span.skip_special)).first_from(char)


def _kept_units(spec: KeepSpec, total: int) -> int:
    if spec.kind == "all":
        return total
    if spec.kind == "ratio":
        # The small number undoes binary rounding: 0.29 * 100 is 28.999999999999996.
        return min(total, max(1, int(total * spec.amount + 1e-9)))
    return min(total, int(spec.amount))


@dataclass(frozen=True, kw_only=True)
class _Reader:
    """How responses with given markers are decoded by one tokenizer."""

    decode: Callable[[list[int]], str]
    """Token ids to text."""
    skip_special: bool
    """Whether special tokens are left out of the text; not so where a marker is made of them."""
    start_id: int | None
    """The open marker's token, if it is a single one."""
    end_id: int | None
    """The close marker's token, if it is a single one."""
    trailing: frozenset[int]
    """Special tokens, such as end of sequence, that are no part of a marker."""


@lru_cache(maxsize=64)
def _reader(tokenizer: Any, markers: CotMarkers | None) -> _Reader:
    marker_text = "" if markers is None else markers.start + "\n" + markers.end
    special = {int(i): str(tokenizer.convert_ids_to_tokens(int(i))) for i in tokenizer.all_special_ids}
    skip = not any(text in marker_text for text in special.values())

    decode = _decoder(tokenizer, skip_special=skip)

    def single(marker: str) -> int | None:
        ids = tokenizer.encode(marker, add_special_tokens=False)
        return int(ids[0]) if len(ids) == 1 and decode(list(ids)) == marker else None

    return _Reader(
        decode=decode,
        skip_special=skip,
        start_id=None if markers is None else single(markers.start),
        end_id=None if markers is None else single(markers.end),
        trailing=frozenset(i for i, text in special.items() if text not in marker_text),
    )


def _only_token(ids: list[int], text: str, marker: str, token: int | None) -> int:
    """Index of the first marker token if every marker in the text is that single token, else -1."""
    if token is None or ids.count(token) != text.count(marker):
        return -1
    return ids.index(token)


def _decoder(tokenizer: Any, *, skip_special: bool) -> Callable[[list[int]], str]:
    # As an array, since transformers looks at each element of a list.
    return lambda ids: tokenizer.decode(
        np.asarray(ids, dtype=np.int64), skip_special_tokens=skip_special, clean_up_tokenization_spaces=False
    )


class _Offsets:
    """Characters to tokens by decoding prefixes, which is exact for every kind of tokenizer.

    The text of `ids[:i]` is a prefix of the whole text, but for a character of several tokens that `i` splits.
    """

    def __init__(self, ids: list[int], text: str, decode: Callable[[list[int]], str]) -> None:
        self.ids, self.text, self.decode = ids, text, decode
        self._bounds: dict[int, tuple[int, int]] = {0: (0, 0), len(ids): (len(text), len(text))}

    def end_of(self, token: int) -> int:
        """Whole characters in the first `token` tokens."""
        return self._bound(token)[0]

    def start_of(self, token: int) -> int:
        """Characters of which the first `token` tokens hold at least a part."""
        return self._bound(token)[1]

    def first_from(self, char: int) -> int:
        """The first token at which the first `char` characters are complete."""
        return self._search(char, lambda token: self.end_of(token) >= char)

    def last_until(self, char: int) -> int:
        """One past the last token that holds nothing behind the first `char` characters."""
        return self._search(char, lambda token: self.start_of(token) > char) - 1

    def _bound(self, token: int) -> tuple[int, int]:
        if token not in self._bounds:
            prefix = self.decode(self.ids[:token])
            whole = min(len(prefix), len(self.text))
            while whole and prefix[whole - 1] != self.text[whole - 1]:
                whole -= 1
            self._bounds[token] = (whole, min(whole + (len(prefix) > whole), len(self.text)))
        return self._bounds[token]

    def _search(self, char: int, is_right: Callable[[int], bool]) -> int:
        """The smallest token index for which `is_right` holds, or one past the last.

        Steps from the nearest known bound by the mean token length, and halves if that does not arrive soon.
        """
        low, high = -1, len(self.ids) + 1
        rate = len(self.ids) / max(len(self.text), 1)
        steps = 0
        while high - low > 1:
            near = min(self._bounds, key=lambda token: abs(char - self._bounds[token][0]))
            guess = near + round((char - self._bounds[near][0]) * rate)
            middle = min(max(guess, low + 1), high - 1) if steps < 8 else (low + high) // 2
            low, high = (low, middle) if is_right(middle) else (middle, high)
            steps += 1
        return high
