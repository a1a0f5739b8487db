"""The world's arithmetic once more, by rewriting of texts: shares nothing with the code that is tested."""

import re

_BRACKET = re.compile(r"\((\d+) ([+-]) (\d+)(\))?")
_FRONT = re.compile(r"(\d+) ([+-]) (\d+)")


def rewritten(question: str) -> list[str]:
    """The lines of the right solution: brackets first, then from left to right."""
    text, lines = question.removesuffix(" = ?"), []
    while found := _BRACKET.search(text):
        claim = f"{found[1]} {found[2]} {found[3]}"
        lines.append(f"{claim} = {eval(claim)}")
        text = text[: found.start()] + ("" if found[4] else "(") + str(eval(claim)) + text[found.end() :]
    while found := _FRONT.match(text):
        lines.append(f"So {found[0]} = {eval(found[0])}")
        text = str(eval(found[0])) + text[found.end() :]
    return lines


def first_difference(question: str, lines: list[str]) -> int:
    """Place of the first line that does not claim what the right solution claims there; -1: there is none."""
    right = [line.removeprefix("So ") for line in rewritten(question)]
    claims = [line.removeprefix("So ") for line in lines]
    return next((at for at, claim in enumerate(claims) if right[at : at + 1] != [claim]), -1)
