"""What stands in the boxes of a text, `\\boxed{...}`; the last one is the answer.

last_boxed(r"first \\boxed{3}, then \\boxed{\\frac{1}{2}}")     # '\\frac{1}{2}'
"""

import re

_BOX_OR_BRACE = re.compile(
    r"\\(?:f?boxed|fbox)\s*(?:\{|([-+]?[0-9](?:[0-9.,/]*[0-9])?|[A-Za-z](?![A-Za-z])))|\\[\\{}]|[{}]"
)


def last_boxed(text: str) -> str | None:
    """What is in the last whole `\\boxed{}`, None if there is none.

    Neighbours joined by "and", "or" or a comma are one answer, `a, b`. `\\fbox{5}` and `\\boxed 5` count too.
    """
    boxes = _boxes(text)
    if not boxes:
        return None
    start, _, content = boxes[-1]
    contents = [content]
    for before_start, before_end, before in reversed(boxes[:-1]):
        glue = re.sub(r"\\text\s*\{([^{}]*)\}|\\[(),;\s]|[$\s]", r"\1", text[before_end:start])
        if not re.fullmatch(r"(?:,|,?and|,?or)(?:[A-Za-z]=)?", glue):
            break
        start = before_start
        contents.append(before)
    return ", ".join(reversed(contents)).strip()


def _boxes(text: str) -> list[tuple[int, int, str]]:
    """Start, end and content of every whole box without a box in it, in one pass."""
    boxes = []
    # Of every open brace: where its box starts (None: no box), where its content does, whether it holds a box.
    open_braces: list[tuple[int | None, int, bool]] = []
    for token in re.finditer(_BOX_OR_BRACE, text):
        if token.group().startswith("\\") and token.group()[1:] not in ("\\", "{", "}"):
            if token.group(1):
                boxes.append((token.start(), token.end(), token.group(1)))
            else:
                open_braces.append((token.start(), token.end(), False))
        elif token.group() == "{":
            open_braces.append((None, token.end(), False))
        elif token.group() == "}" and open_braces:
            start, inside, holds_box = open_braces.pop()
            if start is not None and not holds_box:
                boxes.append((start, token.end(), text[inside : token.start()]))
            if open_braces and (start is not None or holds_box):
                open_braces[-1] = (*open_braces[-1][:2], True)
    return boxes
