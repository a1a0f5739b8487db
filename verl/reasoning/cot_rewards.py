"""How a chain of thought is written, as numbers of 0 to 1: clear, flowing, complete, in its format, in its language.

One decision: style is measured by whole words and signs, and never pays for a wrong answer (`CoTReward`, mode "gated").

    >>> steps = ["3 + 4 = 7, since both are whole.", "So 7 * 2 = 14 by doubling it."]
    >>> clarity(steps), flow(steps), completeness(steps, force_thinking_steps=3)

Steps are texts; whoever has `Step`s passes their `text`. docs/reasoning.md#chains-of-thought
"""

import re
import unicodedata
from collections.abc import Collection, Sequence
from itertools import pairwise

from verl.stepwise import lexicon
from verl.stepwise.lexicon import has

SHORTEST, LONGEST = 5, 60
"""Words of a step that is neither a scrap nor a paragraph."""
NEAR_DUPLICATE = 0.8
"""Jaccard similarity above which two steps are one."""
SCRIPTS = {"en": "LATIN", "de": "LATIN", "fr": "LATIN", "es": "LATIN", "ru": "CYRILLIC", "zh": "CJK", "el": "GREEK",
           "ar": "ARABIC", "he": "HEBREW", "hi": "DEVANAGARI", "ko": "HANGUL", "ja": "HIRAGANA"}  # fmt: skip
"""Language -> the script in which its words are written."""

_TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+(?:['\u2019][^\W\d_]+)*|[^\w\s.,;:!?'\"()\[\]{}$\\]")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WORD = re.compile(r"[^\W\d_]+")
_COMMAND = re.compile(r"\\[A-Za-z]+|[`$][^`$\n]*[`$]")
_FUNCTION_WORDS = re.compile(
    r"(?:an?|the|and|or|but|if|of|to|in|on|at|by|for|with|from|as|is|are|was|were|be|been|it|its|this|that|these|those|we|"
    r"i|you|he|she|they|our|so|thus|hence|therefore|then|now|next|first|second|finally|since|because|let|us|step|do|does|"
    r"not|no|which|what|there|here|have|has|had|can|will|would)"
)


def content(text: str) -> set[str]:
    """The words, numbers and signs of a text that carry its content, in small letters."""
    return {token for token in _TOKEN.findall(text.lower()) if not _FUNCTION_WORDS.fullmatch(token)}


def clarity(steps: Sequence[str]) -> float:
    """Mean over steps of 0.3 concluding word + 0.3 justifying word + 0.2 operator + 0.2 length; each counts once.

    0 without steps.
    """
    return sum(map(_clarity_of, steps)) / len(steps) if steps else 0.0


def _clarity_of(step: str) -> float:
    return (
        0.3 * has(lexicon.CONCLUDES, step)
        + 0.3 * has(lexicon.JUSTIFIES, step)
        + 0.2 * has(lexicon.OPERATOR, step)
        + 0.2 * (SHORTEST <= len(step.split()) <= LONGEST)
    )


def flow(steps: Sequence[str]) -> float:
    """Mean over neighbours of 0.3 back-reference + 0.3 progress word + 0.4 overlap + 0.2 used result, at most 1.

    The overlap of two steps is highest where half of the larger one's content is the other's: neither a copy nor a
    change of subject earns it. 0.5 with fewer than two steps.
    """
    pairs = list(pairwise(steps))
    return sum(_flow_of(*pair) for pair in pairs) / len(pairs) if pairs else 0.5


def _flow_of(before: str, after: str) -> float:
    one, other = content(before), content(after)
    shared = len(one & other) / max(len(one), len(other), 1)
    return min(
        1.0,
        0.3 * has(lexicon.REFERS_BACK, after)
        + 0.3 * has(lexicon.PROGRESSES, after)
        + 0.4 * (1 - abs(2 * shared - 1))
        + 0.2 * _uses_result(before, after),
    )


def _uses_result(before: str, after: str) -> bool:
    """Whether the last number of a step is computed with in the next; as that one's own result it is only repeated."""
    numbers = _NUMBER.findall(before)
    used = after.rpartition("=")[0] if "=" in after else after
    return bool(numbers) and numbers[-1] in _NUMBER.findall(used)


def completeness(steps: Sequence[str], *, force_thinking_steps: int = 3) -> float:
    """Distinct steps of `force_thinking_steps`, at most 1; a step without content or nearly like another is none.

    Raises:
        ValueError: `force_thinking_steps` is not positive.
    """
    if force_thinking_steps < 1:
        raise ValueError(f"force_thinking_steps={force_thinking_steps}; write at least 1")
    distinct: list[set[str]] = []
    for step in steps:
        mine = content(step)
        if mine and not any(_jaccard(mine, other) > NEAR_DUPLICATE for other in distinct):
            distinct.append(mine)
        if len(distinct) == force_thinking_steps:
            break
    return len(distinct) / force_thinking_steps


def language_share(text: str, language: str = "en") -> float:
    """Share of words that are written in the language's script, 1 without words; formulas and code are no words.

    Languages of one script are not told apart.

    Raises:
        ValueError: the language is not known.
    """
    if language not in SCRIPTS:
        raise ValueError(f"language={language!r}; write one of {', '.join(SCRIPTS)}")
    scripts = {SCRIPTS[language], *(("CJK", "KATAKANA") if language == "ja" else ())}
    right = total = 0
    for word in _WORD.findall(_COMMAND.sub(" ", text)):
        # Scripts without blanks between words: each character counts.
        for unit in word if _script(word[0]) in ("CJK", "HIRAGANA", "KATAKANA") else (word,):
            total += 1
            right += _script(unit[0]) in scripts
    return right / total if total else 1.0


def _script(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0]


def _jaccard(one: Collection[str], other: Collection[str]) -> float:
    both = len(set(one) & set(other))
    return both / (len(one) + len(other) - both) if one or other else 1.0


def similarity(one: str, other: str) -> float:
    """Jaccard similarity of two texts' words and pairs of words, 0 to 1."""
    return _jaccard(_grams(one), _grams(other))


def _grams(text: str) -> set[str]:
    tokens = _TOKEN.findall(text.lower())
    return {*tokens, *(f"{a} {b}" for a, b in pairwise(tokens))}
