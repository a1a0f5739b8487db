"""Parts of a text that are one piece whatever is in them: code, tables, formulas.

One decision: a part counts only when it is closed, but for a code fence, which runs to the end of the text as in
Markdown. So a stray dollar or bracket hides nothing behind it.

    >>> protected_spans("so $x = 1. 5$ holds")
    [(3, 13)]

One pass over the text: time is linear in its length.
"""

import re

_TOKEN = re.compile(
    r"^[ \t]{0,3}(?P<fence>(?<!`)`{3,}+|(?<!~)~{3,}+)(?P<info>[^\n]*)"
    r"|\\(?P<edge>begin|end)\{(?P<name>[A-Za-z]{1,30}\*?)\}"
    r"|(?P<blank>^[ \t\r]*+$)"
    r"|\\(?P<bracket>[\[\]()])|\\."
    r"|(?P<display>\$\$)|(?P<dollar>\$)|(?P<tick>(?<!`)`(?!`))|(?P<line>\n)",
    re.MULTILINE,
)
_ROW = re.compile(r"^[ \t]*+(?P<row>\|[^\n]*)", re.MULTILINE)
_CLOSES = {"]": "[", ")": "("}


def protected_spans(text: str) -> list[tuple[int, int]]:
    """Begin and end of every part that must not be cut, in order, without overlaps.

    Code fences, `\\begin{...}` to `\\end{...}`, formulas (`$$`, `$`, `\\[`, `\\(`), code between backticks on one line,
    and rows of a table that follow each other.
    """
    return _merged(_marked(text) + _tables(text))


def _marked(text: str) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    environments: list[tuple[str, int]] = []
    opened: dict[str, int] = {}
    """Kind of a formula -> where the last one of it was opened."""
    fence, fence_start = "", 0
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup if token.lastgroup != "info" else "fence"
        if fence:
            mark = token["fence"]
            if mark and mark.startswith(fence) and not token["info"].strip():
                spans.append((fence_start, token.end()))
                fence = ""
        elif kind == "fence":
            fence, fence_start = token["fence"], token.start("fence")
        elif kind == "name":
            _environment(token, environments, spans)
        elif kind in ("blank", "line"):
            opened.pop("tick", None)
            if kind == "blank":
                opened.pop("dollar", None)
        elif kind == "bracket":
            side = token["bracket"]
            if side in "[(":
                opened[side] = token.start()
            elif (start := opened.pop(_CLOSES[side], None)) is not None:
                spans.append((start, token.end()))
        elif kind in ("display", "tick"):
            _toggle(kind, token, opened, spans)
        elif kind == "dollar":
            _dollar(text, token, opened, spans)
    if fence:
        spans.append((fence_start, len(text)))
    return spans


def _environment(token: re.Match[str], environments: list[tuple[str, int]], spans: list[tuple[int, int]]) -> None:
    if token["edge"] == "begin":
        environments.append((token["name"], token.start()))
    elif environments and environments[-1][0] == token["name"]:
        spans.append((environments.pop()[1], token.end()))


def _toggle(kind: str, token: re.Match[str], opened: dict[str, int], spans: list[tuple[int, int]]) -> None:
    start = opened.pop(kind, None)
    if start is None:
        opened[kind] = token.start()
    else:
        spans.append((start, token.end()))


def _dollar(text: str, token: re.Match[str], opened: dict[str, int], spans: list[tuple[int, int]]) -> None:
    """As in Pandoc: no blank behind the first dollar or before the last, no digit behind the last; else it is money."""
    before, after = text[token.start() - 1 : token.start()], text[token.end() : token.end() + 1]
    start = opened.get("dollar")
    if start is not None and before.strip() and not after.isdigit():
        spans.append((start, token.end()))
        del opened["dollar"]
    elif after.strip():
        opened["dollar"] = token.start()


def _tables(text: str) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    rows = 0
    for row in _ROW.finditer(text):
        if spans and row.start() == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], row.end())
            rows += 1
        else:
            if rows == 1:
                spans.pop()
            spans.append((row.start("row"), row.end()))
            rows = 1
    return spans[:-1] if rows == 1 else spans


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
