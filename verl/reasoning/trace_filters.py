"""What DeepSeek-R1 kept out of its fine-tuning set: mixed language, over-long paragraphs, code blocks
(arXiv 2501.12948, section 2.3.3).

One decision: a filter names why, so that a report says what was lost to which; a solution that is left out here stays a
right one, and is no example of a wrong one.

    >>> reasons("The sum ist 7. 答案是七。", ("language",))
    ['language']
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

FILTERS = ("language", "paragraphs", "code")
"""All of them."""

_ONE_SCRIPT = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "HANGUL": "HANGUL"}
_SYMBOLS = ("GREEK", "MATHEMATICAL", "DOUBLE-STRUCK", "SCRIPT", "BLACK-LETTER", "MODIFIER", "FULLWIDTH", "MICRO")
"""Letters that stand for quantities in any language."""
_MINOR_SHARE = 0.05
"""Of letters in a second script, from which on a text is mixed."""
_MINOR_LEAST = 2
"""Letters in a second script that are needed for that."""
_PARAGRAPH_WORDS = 300
"""Most words of a paragraph."""
_CODE = re.compile(r"^\s*(?:```|~~~)|\\begin\{(?:lstlisting|verbatim|minted)\}", re.MULTILINE)
_COMMAND = re.compile(r"\\[A-Za-z]+")


def reasons(text: str, filters: Sequence[str]) -> list[str]:
    """The filters that a text does not pass."""
    return [name for name in filters if _TESTS[name](text)]


def mixed_language(text: str) -> bool:
    """Whether letters of a second script are more than a few; names of quantities are of no script."""
    scripts: Counter[str] = Counter()
    for letter in _COMMAND.sub("", text):
        if not letter.isalpha():
            continue
        script = "LATIN" if letter.isascii() else unicodedata.name(letter, "UNKNOWN").split()[0]
        if script not in _SYMBOLS:
            scripts[_ONE_SCRIPT.get(script, script)] += 1
    minor = sum(scripts.values()) - max(scripts.values(), default=0)
    return minor >= _MINOR_LEAST and minor >= _MINOR_SHARE * sum(scripts.values())


def long_paragraph(text: str) -> bool:
    """Whether a paragraph has more words than anybody reads in one go."""
    return any(len(paragraph.split()) > _PARAGRAPH_WORDS for paragraph in re.split(r"\n\s*\n", text))


def code_block(text: str) -> bool:
    """Whether there is a fence, or an environment of LaTeX for listings."""
    return bool(_CODE.search(text))


_TESTS: Mapping[str, Callable[[str], bool]] = {
    "language": mixed_language,
    "paragraphs": long_paragraph,
    "code": code_block,
}
