"""Words by which a step shows what it does: it concludes, gives a reason, goes on, looks back, checks, takes back.

One decision: whole words only. "also" is not "so", and "within" is not "thin".

    >>> has(CONCLUDES, "So 7 it is"), has(CONCLUDES, "It is also 7")
    (True, False)
"""

import re

from verl.stepwise.step import StepKind


def words_of(phrases: str) -> re.Pattern[str]:
    """Finds any of the phrases, which commas part, as whole words, in small or capital letters, over any blanks."""
    parts = (r"\s{1,3}".join(re.escape(word) for word in phrase.split()) for phrase in phrases.split(","))
    return re.compile(rf"(?<![\w'-])(?:{'|'.join(parts)})(?![\w'-])", re.IGNORECASE)


CONCLUDES = words_of(
    "so, thus, hence, therefore, consequently, it follows, which means, this means, we get, we obtain, we "
    "conclude, as a result, which gives, this gives, implies"
)
"""Connectives behind which a conclusion stands."""
JUSTIFIES = words_of("because, since, as, given, due to, by, from, using, recall that, according to, for the reason")
"""Connectives behind which a reason stands."""
PROGRESSES = words_of(
    "first, second, third, next, then, now, after, afterwards, finally, so, thus, hence, therefore, subsequently, "
    "step, continuing"
)
"""Words by which one step leads to the next."""
REFERS_BACK = words_of(
    "this, that, these, those, it, above, previous, previously, earlier, former, the result, from step, as shown, "
    "we found, we know, the same"
)
"""Words that point at what stands before."""
BACKTRACKS = words_of(
    "wait, hold on, actually, let me reconsider, reconsider, that's wrong, that is wrong, that's not right, that "
    "is not right, not correct, a mistake, my mistake, an error, made an error, scratch that, go back, start "
    "over, try again, on second thought, hmm"
)
"""Words by which something is taken back."""
VERIFIES = words_of(
    "check, checking, verify, verifying, verification, double-check, double check, confirm, confirms, sanity "
    "check, substitute back, substituting back, plug back, makes sense, consistent with"
)
"""Words by which something is checked."""
SUBGOALS = words_of(
    "we need to, i need to, need to find, our goal, the goal is, let's find, let us find, first find, break this "
    "down, break it down, to solve this, we want to, the plan, subproblem"
)
"""Words by which a goal is set."""
CASES = words_of("case, cases, suppose, assume, either, if we, consider the case, otherwise")
"""Words by which cases are told apart."""
ANALOGIES = words_of("similarly, likewise, analogous, analogously, in the same way, for example, for instance")
"""Words by which one thing is likened to another."""
ANSWERS = re.compile(
    r"\\f?boxed\b|####|<answer>|(?<!\w)(?:final\s{1,3}answer|answer\s{1,3}is|answer\s{0,3}:)", re.IGNORECASE
)
"""Marks of an answer."""
EQUATION = re.compile(
    r"=\s{0,9}[-+(\\$]{0,3}[\d\w]|[\d)]\s{0,3}(?:[-+*/^\u00d7\u00f7\u00b7%<>\u2264\u2265]|\\times|\\cdot|\\div)\s{0,3}[\d(\\]",
    re.IGNORECASE,
)
"""Something is computed or set equal."""
OPERATOR = re.compile(
    r"[=<>+^\u2264\u2265\u2260\u2248\u00d7\u00f7\u00b7\u221a\u2211\u222b\u2192\u21d2\u2200\u2203\u2227\u2228\u00ac]|(?<=[\w)\s])[-*/](?=[\s\d(])"
    r"|\\(?:frac|sqrt|times|cdot|div|leq?|geq?|neq?|sum|int|pm|implies|Rightarrow)(?![A-Za-z])"
)
"""A sign of mathematics or logic."""
_LETTER = re.compile(r"[^\W\d_]")


def has(words: re.Pattern[str], text: str) -> bool:
    """Whether any of the words is in the text."""
    return words.search(text) is not None


def kind_of(text: str) -> StepKind:
    """What is done in a step; who takes back and computes, takes back."""
    for words, kind in _KINDS:
        if has(words, text):
            return kind
    return "other"


_KINDS: tuple[tuple[re.Pattern[str], StepKind], ...] = (
    (BACKTRACKS, "backtrack"),
    (VERIFIES, "verify"),
    (ANSWERS, "answer"),
    (EQUATION, "compute"),
    (_LETTER, "reason"),
)
