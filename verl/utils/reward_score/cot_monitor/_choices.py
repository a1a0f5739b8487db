"""The letter of a closing sentence such as "The best answer is therefore (C)."; for the multiple-choice verifiers.

Decision: a letter counts only where it is given as the answer: in brackets, or bare where the sentence ends. The "A" of
"the answer is a matter of taste", or of any other prose, is none. The last such sentence counts.

    closing_letter("The best answer is therefore **(b)**.")     # 'B'
    closing_letter("A good answer is hard to find.")            # None
"""

import re

LETTERS = "A-J"
_MARKUP = r"[\s*_`$:\"']*(?:\\(?:boxed|text|textbf|mathbf|mathrm)\s*\{[\s*_`]*)*"
_ANOTHER = rf"[\s*_`]*(?:or|and|,|/)[\s*_`]*[(\[][{LETTERS}{LETTERS.lower()}][)\]]"
"""Behind a letter: it was not the only one."""
_CLOSING = re.compile(
    rf"\b(?i:answer|option|choice)\s*(?:(?i:\s*(?:is|are|would\s+be|must\s+be)\b)|\s*[*_]*:)"
    rf"(?i:\s*,?\s*(?:therefore|thus|hence|then|clearly|definitely|indeed|option|choice|answer)\b,?)*{_MARKUP}"
    # In brackets any letter; bare only a capital one that nothing but the end, or another text in markup, follows.
    rf"(?:[(\[]\s*(?P<bracketed>(?i:[{LETTERS}]))\s*[)\]](?!{_ANOTHER})|(?P<bare>[{LETTERS}])(?=[)\]}}*_`$\"']*(?:[.,;:!)}}*]|\s*$|\s*\n)))"
)
_BOXED = re.compile(
    rf"\\boxed\s*\{{\s*(?:\\(?:text|textbf|mathbf|mathrm)\s*\{{\s*)?\(?\s*(?P<boxed>[{LETTERS}])\s*\)?[\s.}}]"
)


def closing_letter(text: str) -> str | None:
    """The letter of the last closing sentence (or box), as a capital; None if there is none."""
    found = [*_CLOSING.finditer(text), *_BOXED.finditer(text)]
    if not found:
        return None
    last = max(found, key=lambda match: match.end())
    return next(letter for letter in last.groups() if letter).upper()
