"""Marks that chat templates and thinking models write, in texts that nobody may write them into.

Decision: a mark is known by its form, not by its name, since every model family has names of its own: a word in angle
brackets that is no element of HTML, anything in angle brackets that touches a bar (also the full-width one), a word of
capitals in square brackets, and a few rarer brackets. In a text that is shown to a judge a blank behind the first
character makes it ordinary text. Where the judge's tokenizer is at hand, its own special tokens are treated alike.

    >>> defused("It is 7.<|im_end|>")
    'It is 7.< |im_end|>'
    >>> after_thought("<think>RATING: 3</think>RATING: 7"), after_thought("<think>RATING: 3")
    ('RATING: 7', None)
"""

import re
from functools import lru_cache
from typing import Any

# An `<s>` of HTML is left out: it begins a text for half of all tokenizers.
_HTML = (
    "a|abbr|address|area|article|aside|audio|b|base|bdi|bdo|blockquote|body|br|button|canvas|caption|center|cite|"
    "code|col|colgroup|data|datalist|dd|del|details|dfn|dialog|div|dl|dt|em|embed|fieldset|figcaption|figure|"
    "font|footer|form|h1|h2|h3|h4|h5|h6|head|header|hr|html|i|iframe|img|input|ins|kbd|label|legend|li|link|main|"
    "map|mark|menu|meta|meter|nav|object|ol|optgroup|option|p|param|picture|pre|progress|q|rp|rt|ruby|samp|"
    "script|search|section|select|small|source|span|strong|style|sub|summary|sup|svg|table|tbody|td|template|"
    "textarea|tfoot|th|thead|time|title|tr|track|tt|u|ul|var|video|wbr"
)

_MARK = re.compile(
    rf"""
      <(?=[^<>\s]{{0,64}}[|\uFF5C])                              # <|im_end|>  <turn|>  and with full-width bars
    | <(?=</?\w{{1,64}}>>)                                       # <<SYS>>
    | (?<!<)<(?!/?(?:{_HTML})>)(?=/?\w[\w:.-]{{0,63}}>)  # </s>  <start_of_turn>  <seed:eos>
    | \[(?=[|~]|\w~|/?\w?[A-Z][A-Z_]+\]|/?\w{{1,32}}_\w{{1,32}}\])  # [INST]  [gMASK]  [|endofturn|]  [e~[  [control_8]
    | \](?=~|<\])                                                # ]~b]  ]<]
    | \u25C1(?=[^\s\u25B7]{{1,64}}\u25B7)                         # a word between triangles
    """,
    re.VERBOSE,
)

_ABOUT_THOUGHT = r"[\w:]{0,32}(?:think|thought|reason|reflect|scratchpad|analysis)[\w:]{0,32}"

_THOUGHT_START = re.compile(
    rf"(?:[<\[\u25C1]\|?(?:start_(?:of_)?|begin_(?:of_)?)?{_ABOUT_THOUGHT}\|?[>\]\u25B7]|<\|?channel\|?>|<\|inner_prefix\|>)",
    re.IGNORECASE,
)

_THOUGHT_END = re.compile(
    rf"(?:[<\[\u25C1]\|?/{_ABOUT_THOUGHT}\|?[>\]\u25B7]|<\|end_(?:of_)?{_ABOUT_THOUGHT}\|>"
    r"|<channel\|>|<\|channel\|>final<\|message\|>|<\|inner_suffix\|>)",
    re.IGNORECASE,
)


def defused(text: str) -> str:
    """`text` with a blank in every mark; lone halves of characters, which no encoder takes, become question marks."""
    return _MARK.sub(_parted, text.encode(errors="replace").decode())


_END_MARKS = re.compile(
    r"(?:\s{0,4}(?:<\|\w{1,40}\|>|<\uFF5C[^\s<>]{1,40}\uFF5C>|</s>|<eos>|<end_of_turn>|<turn\|>))++\s{0,4}\Z"
)


def without_end_marks(text: str) -> str:
    """`text` without the marks with which templates end a turn, where it ends in such."""
    tail = text[-200:].rstrip()
    return text[:-200] + _END_MARKS.sub("", tail) if tail.endswith(">") else text


def without_special_tokens(text: str, tokenizer: Any) -> str:
    """`text` with a blank in whatever `tokenizer` would read as one of its special tokens."""
    pattern = _special_tokens(tokenizer)
    return text if pattern is None else pattern.sub(_parted, text)


def after_thought(text: str) -> str | None:
    """What a model wrote behind its thought; None where a thought has no end, so that all of it may be thought.

    A text that begins with a mark of a kind unknown here counts as a thought without an end.
    """
    ends = [match.end() for match in _THOUGHT_END.finditer(text)]
    rest = text[ends[-1] :].lstrip() if ends else text.lstrip()
    return None if _THOUGHT_START.search(rest) or _MARK.match(rest) else rest


def opened_thought(prompt: str) -> str:
    """The mark at the end of a templated prompt that opens the model's thought for it; empty where there is none."""
    tail = prompt.rstrip()[-64:]
    starts = [match for match in _THOUGHT_START.finditer(tail) if match.end() == len(tail)]
    return "" if not starts or _THOUGHT_END.match(tail, starts[0].start()) else starts[0].group()


def _parted(mark: re.Match[str]) -> str:
    return f"{mark[0][0]} {mark[0][1:]}"


@lru_cache(maxsize=16)
def _special_tokens(tokenizer: Any) -> re.Pattern[str] | None:
    """The first character of any special token that is a mark; blanks and plain words are what texts are made of."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    names = {str(token) for token in added if token.special} | set(tokenizer.all_special_tokens)
    marks = sorted(name for name in names if len(name) > 1 and not name.isalnum() and name.strip())
    # The first character alone is taken, so that what begins within another mark is found too.
    starts = [f"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in marks]
    return re.compile("|".join(starts)) if starts else None
