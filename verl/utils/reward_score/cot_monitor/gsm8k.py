"""Verifier of GSM8K: the answer after `####`, in `\\boxed{}` or after "answer is", held against the reference.

Decision: an answer must be marked as one; the last marked answer counts. Taking just the last number of a text would
reward a model that stops in the middle of its computation. Where nothing else is marked, a number in bold in the last
line that has numbers is: "= **10**"; so is a number that is the whole text, or that its last sentence calls the result.

    verifier = get_verifier("openai/gsm8k")
    verifier.compute_score("So she pays \\boxed{$1,250}.", "1250")   # 1.0

Every pattern runs in linear time: what may repeat is bounded, or is never given back.
"""

import re

from verl.utils.reward_score.cot_monitor._boxed import last_boxed
from verl.utils.reward_score.cot_monitor._marked import MarkedAnswerVerifier
from verl.utils.reward_score.cot_monitor._marks import without_end_marks
from verl.utils.reward_score.cot_monitor._numbers import NUMBER
from verl.utils.reward_score.cot_monitor.BaseVerifier import register

_SHORT = 200
"""Characters of the end of a text in which its last line is looked for."""
_LONGEST = 1100
"""Characters of a text behind a mark that are looked at; so long an answer is none."""

# Between a number and a bracket or another number two asterisks are a power.
_BOLD_MARK = re.compile(r"(?<![0-9)])\*\*|\*\*(?![0-9(])|`")
_ITALIC = re.compile(r"(?<![\w*)])\*(?=[^\s*])([^*\n]{1,60})(?<=\S)\*(?![\w*])")

_MARK = re.compile(
    r"(?P<heading>^[#>\s-]{0,8}(?:(?:my|the|final|correct|best)\s){0,3}answer[ \t:]{0,4}$)"
    r"|(?P<hashes>####)|<answer>"
    r"|\banswer(?:\s{1,2}(?:to|for|of)\s(?:the|this|your|our)\s(?:\w{1,20}\s)?(?:question|problem|exercise))?"
    r"(?:,?\s(?:therefore|thus|hence|then)\b,?)?\s*+"
    r"(?:[:=]|(?:is|was|(?:would|will|must|should)\s{1,2}be|equals|comes\s(?:out\s)?to)\b)",
    re.IGNORECASE | re.MULTILINE,
)
_LEAD = re.compile(
    r"(?:[\s:*=\"'>,]|\\\[|\\\(|\$(?![-+.0-9])|\\(?=\s)|(?:therefore|thus|hence|then|indeed|simply|exactly|just|equal\sto)\b)*+",
    re.IGNORECASE,
)
_END = re.compile(r"[.!](?=[\s*\"')$]|$)|[,;](?=\s)|</|\s(?:because|since|so|as|which|where)\s", re.IGNORECASE)
_DENIED = re.compile(
    r"(?:\W{0,4}|certainly\s|definitely\s|clearly\s)(?:not|never|neither|nor|unlikely|anything\sbut)\b", re.I
)
_ASIDE = re.compile(
    r"(?P<answer>[^A-Za-z0-9]{0,8}[0-9][0-9,.]{0,30}\s?%?(?:\s(?!(?:in|for|with|on|at|per|and|or)\b)"
    r"[A-Za-z'-]{1,30}){0,4})\s(?:in|for|with|on|at|per|each|every|during|within|across|among)\b(?=[^0-9]{0,200}[0-9])"
)
"""An answer, and behind a preposition something with numbers of its own: "10 apples in 3 boxes"."""

_BOLD = re.compile(r"(?<!not )(?<!n\'t )(?<!never )\*\*([^*\n]{1,60})\*\*(?!\s?:)")
_BOLD_NUMBER = re.compile(rf"\\?[$€£]?\s?{NUMBER}\s?\\?%?(?:\s[A-Za-z][A-Za-z/'-]{{0,20}}){{0,5}}[.!]?")

_BRACKET = re.compile(r"(?<=[0-9A-Za-z%])\s\((?!(?:mod|or|and|if|base)\b)[A-Za-z][^()]{0,80}\)?\W{0,3}\Z")
"""An explanation in brackets behind a number: "12 (in 2 days)"."""
_SET = re.compile(r"\\(?:math(?:bf|rm)|text(?:bf)?|bold(?:symbol)?)\s?\{([^{}\n]{1,40})\}")
_RESULT = re.compile(
    r"(?:(?:so|thus|therefore|hence)[,:]?\s)?(?:it\swould\sbe|(?:the|our|my)\s(?:(?:final|overall)\s)?result\s(?:is|would\sbe))\s"
    rf"\$?(?P<number>\\?[$€£]?\s?{NUMBER}\s?\\?%?"
    r"(?:\s(?!(?:times|plus|minus|more|less|fewer|of|if|and|or|to)\b)[A-Za-z][A-Za-z/'-]{0,20}){0,2})\$?[.!]?",
    re.IGNORECASE,
)
_ONLY_NUMBER = re.compile(rf"\$?(\\?[$€£]?\s?{NUMBER}\s?\\?%?(?:\s[A-Za-z]{{1,20}})?)\$?\.?")


def marked_answer(text: str) -> str | None:
    """The last marked answer of a text; None if there is none."""
    text = without_end_marks(text)
    plain = _ITALIC.sub(r"\1", _BOLD_MARK.sub("", text))
    at, answer = _last_mark(plain)
    box = max(plain.rfind("\\boxed"), plain.rfind("\\fbox"))
    if box > at and (boxed := last_boxed(plain)) is not None:
        return boxed
    return answer if answer is not None else _bold_number(text) or _closing_number(plain)


def _closing_number(text: str) -> str | None:
    """The number that a text consists of, or that its last line calls the result."""
    text = text.strip()
    if len(text) <= _SHORT and (only := _ONLY_NUMBER.fullmatch(text)):
        return only[1]
    line = _SET.sub(r"\1", text[-_SHORT:].rpartition("\n")[2].strip())
    found = _RESULT.fullmatch(re.split(r"(?<=[.!?])\s", line)[-1])
    return found["number"].rstrip() if found else None


def _last_mark(text: str) -> tuple[int, str | None]:
    """Where the last mark stands that has an answer behind it, and the answer; -1, None if there is none."""
    end = len(text)
    for mark in reversed(list(_MARK.finditer(text))):
        after = text[mark.end() : min(end, mark.end() + _LONGEST)]
        end = mark.start()
        if mark["hashes"]:
            return mark.start(), _without_aside(after.partition("\n")[0].partition("#")[0].strip())
        lead = _LEAD.match(text, mark.end(), mark.end() + len(after))
        assert lead is not None
        line = after[lead.end() - mark.end() :].partition("\n")[0]
        stop = _END.search(line)
        sentence = line[: stop.start()] if stop else line
        if re.search(r"\d", sentence) and not _DENIED.match(sentence):
            return mark.start(), _without_aside(sentence.strip())
    return -1, None


def _without_aside(answer: str) -> str:
    answer = _BRACKET.sub("", answer)
    aside = _ASIDE.match(answer)
    # Without a unit the preposition belongs to the answer: 5 in 6.
    if aside is None or not re.search("[A-Za-z%$€£]", aside["answer"]):
        return answer
    return aside["answer"].strip()


def _bold_number(text: str) -> str | None:
    """The last number in bold of the last line that has numbers."""
    lines = text[-_LONGEST:].split("\n")
    line = next((line for line in reversed(lines) if re.search("[0-9]", line)), "")
    found = [span.strip() for span in _BOLD.findall(line) if _BOLD_NUMBER.fullmatch(span.strip())]
    return found[-1].rstrip(".!") if found else None


@register("openai/gsm8k")
class GSM8KVerifier(MarkedAnswerVerifier):
    """1 if the marked answer equals the ground truth as a number, else 0."""

    reward_description = "1 if the final answer of the grade-school problem is correct, else 0"

    def marked_answer(self, text: str) -> str | None:
        """What the last mark of any kind marks."""
        return marked_answer(text)
