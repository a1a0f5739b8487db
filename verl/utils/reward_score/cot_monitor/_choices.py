"""The letter that an answer commits itself to, as in "The best answer is therefore (C)."; for multiple choice.

Decision: a letter counts where it is given as the answer (`_letter_claims`) and where the text says so in its own name
(`_letter_owner`). The prompt's sentences are nobody's commitment. The last one counts, unless it is taken back.

    closing_letter("The best answer is therefore **(b)**.")                              # 'B'
    closing_letter("The professor told you that the answer is (B), but it is (C).")      # 'C'
    closing_letter("The claim that the answer is (C) is incorrect.")                     # None
"""

import re

from verl.utils.reward_score.cot_monitor._letter_claims import LETTERS, claims, plain, said
from verl.utils.reward_score.cot_monitor._letter_owner import CONTRAST, NOT_PLAIN, is_own

_CONTEXT = 400
"""Most characters before and after a letter that can belong to its sentence."""
_ALONE = re.compile(rf"(?!>)\W{{0,4}}(?:[(\[]\s?([{LETTERS}{LETTERS.lower()}])\s?[)\]]|([A-HJ]))\W{{0,4}}")
_OPTION = re.compile(r"\W{0,3}([A-HJ])[.)]\s[^.;:?!()\n]{1,80}\W{0,3}")
_OBJECT = re.compile(
    rf'(?:\A|\n)\s?(?:json\s)?\{{[^{{}}]{{0,2000}}"(?:final|best|my|correct|chosen|selected)?(?:answer|choice|option|letter)"\s?:\s?"[(\[]?([{LETTERS}])[)\]]?"[^{{}}]{{0,200}}\}}\s{{0,3}}\Z',
    re.IGNORECASE,
)
_OBJECT_LONGEST = 2500
_TAKEN_BACK = re.compile(
    r"(?:\A|[.!\n]\s?|\b(?:no|wait|hmm|actually|sorry|edit|update|correction|oops|but|oh)\W{1,3})(?:(?:that|this|it)(?:'s|\sis|\swas|\scannot\sbe|\scan't\sbe)\s"
    r"(?:wrong|incorrect|not\s(?:right|correct|true)|false|mistaken|a\smistake|an\serror|right\b(?<=be\sright))"
    r"|I\swas\s(?:wrong|mistaken)|I\s(?:have\s)?made\s(?:a\smistake|an\serror)|I\stake\s(?:that|it)\sback|(?:scratch|strike)\sthat)\b"
    # "Wait, no." also where nothing comes after it; "Wait" as the beginning of a second look
    r"|(?:\A|[.!\n])\W{0,4}(?:(?:oh|hmm+|well|but|actually|sorry|no)\b\W{1,4}){0,3}(?:wait|hold\son|oops|never\s?mind)"
    r"(?=\s?(?:[,.!:;-]|\n|\Z)|\s(?:no|a|I|let|that|but|actually|maybe)\b)"
    r"|\A[\s.!)\]\"']{0,4}(?:(?:oh|hmm+|well|actually|sorry)\b\W{1,4}){0,3}no(?=\s?[.!](?:\s|\Z)|\s?\Z)",
    re.IGNORECASE,
)


def closing_letter(text: str) -> str | None:
    """The letter of the last commitment, as a capital; None if there is none."""
    text = plain(text)
    if found := _OBJECT.search(text, max(0, len(text) - _OBJECT_LONGEST)):
        return found[1].upper()
    first, last = _letters_alone(text)
    committed = first
    end, quotes = 0, 0
    called_right: set[str] = set()
    places = list(claims(text))
    for number, claim in enumerate(places):
        between = text[end : claim.start()]
        if committed is not None and _TAKEN_BACK.search(between[:_CONTEXT]):
            committed = None
        # Quotation marks are counted in one line: an inch, or a mark that is forgotten, reaches no further.
        newline = between.rfind("\n")
        quotes = between.count('"', newline + 1) + (quotes if newline < 0 else 0)
        following = places[number + 1].start() if number + 1 < len(places) else len(text)
        tail = text[claim.end() : min(following, claim.end() + _CONTEXT)]
        at_end = not text[claim.end() : claim.end() + 9].strip(" \n\"').!]}")
        letter, denied = said(claim)
        own = is_own(between[-_CONTEXT:], claim, tail, quoted=quotes % 2 == 1, at_end=at_end)
        if own and letter is not None:
            if claim["weak_right"] or claim["weak_right_bare"]:
                several = bool(called_right - {letter}) and not CONTRAST.search(between)
                called_right.add(letter)
            else:
                several = False
            # Where one option after the other is called right, none of them is chosen.
            committed = None if several else letter
        elif own and denied == committed:
            committed = None
        end = claim.end()
        quotes += claim.group().count('"')
    if _TAKEN_BACK.search(text[end : end + _CONTEXT]):
        committed = None
    if last is not None and end <= text.rstrip().rfind("\n"):
        # A letter below a sentence that names another: which of the two is meant, nobody can say.
        return last if committed in (None, last) else None
    return committed


def _letters_alone(text: str) -> tuple[str | None, str | None]:
    """The letter that is the first line of an answer, and the one that is its last line; no others stand so."""
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) == 1 and (option := _OPTION.fullmatch(lines[0])) and not NOT_PLAIN.search(lines[0]):
        return option[1], None
    alone = {
        number: (found[1] or found[2]).upper() for number, line in enumerate(lines) if (found := _ALONE.fullmatch(line))
    }
    if len(alone) != 1:
        return None, None
    number, letter = alone.popitem()
    if number == 0:
        return letter, None
    own = number == len(lines) - 1 and not lines[-2].rstrip().endswith((":", "?", ","))
    return None, letter if own else None
