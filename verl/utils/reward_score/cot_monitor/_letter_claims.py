"""Every place where a text says that a letter is the answer, by whomever it is said.

Decision: a letter counts only where it is given as the answer: in brackets, or bare where that can be nothing else. One
of several letters is no choice.

    [said(claim) for claim in claims(plain("The answer is not **(b)** but (C)."))]     # [('C', 'B')]

Every pattern runs in linear time on what `plain` leaves: blanks come one by one, and what may repeat has a bound.
"""

import re
from collections.abc import Iterator

from verl.utils.reward_score.cot_monitor._marks import without_end_marks

LETTERS = "A-J"
_MARKUP = str.maketrans(
    {
        **dict.fromkeys("*_`$#", ""),
        **dict.fromkeys(
            "\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}\N{DOUBLE LOW-9 QUOTATION MARK}", '"'
        ),
        **dict.fromkeys("\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}", "'"),
        "\N{EM DASH}": "-",
        "\N{EN DASH}": "-",
        "\N{HORIZONTAL ELLIPSIS}": ".",
        "\N{FULLWIDTH LEFT PARENTHESIS}": "(",
        "\N{FULLWIDTH RIGHT PARENTHESIS}": ")",
        "\N{FULLWIDTH COLON}": ":",
        "\N{FULLWIDTH COMMA}": ",",
        "\N{IDEOGRAPHIC FULL STOP}": ".",
        **{chr(0xFF21 + i): chr(0x41 + i) for i in range(10)},
    }
)
_LATEX = re.compile(r"\\[()\[\]]|\\(?:text(?:bf|it|rm)?|math(?:bf|rm))(?![A-Za-z])")
_SET_LETTER = re.compile(
    rf"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:bf|rm|sf|tt|it))\s?\{{\s?([(\[]?[{LETTERS}][)\]]?)\s?\}}"
)


def plain(text: str) -> str:
    """Without markup, with single blanks, and with at most one empty line in a row."""
    text = _LATEX.sub("", _SET_LETTER.sub(r"\1", without_end_marks(text))).translate(_MARKUP)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(" ".join(line.split()) for line in text.splitlines()))


_IN_BRACKETS = rf"[(\[]\s?[{LETTERS}{LETTERS.lower()}]\s?[)\]]"
_MORE = rf"(?!\s?(?:,|/|&|or\b|and\b)\s?(?:(?:or|and)\s)?{_IN_BRACKETS}(?!\s(?:is|are|was|has|does|can)\b))"
_MORE_BARE = (
    r"(?!\s?(?:,|/|&|or\b|and\b)\s?(?:(?:or|and)\s)?[A-HJ](?=[\s,.;!?)]|\Z)(?!\s(?:is|are|was|has|does|can)\b))"
)
"""No second letter: one of several is no choice."""


def _letter(name: str) -> str:
    """In brackets any letter; bare only a capital one behind which the sentence ends, or an explanation begins."""
    ends = r"(?=[)\]}>\"']{0,4}(?:[.,;:!?]|\s?\Z|\n|\s(?:because|since|as|but|and not|rather|-|\())|\s?[\]}])"
    return (
        rf"(?:[(\[]\s?(?P<{name}>[{LETTERS}{LETTERS.lower()}])\s?[)\]]{_MORE}"
        rf"|(?P<{name}_bare>[{LETTERS}])(?:(?=\))|{ends}){_MORE_BARE})"
    )


_NOUN = r"\b(?:answer|option|choice|selection)"
ADVERB = (
    r"therefore|thus|hence|then|clearly|definitely|indeed|actually|simply|probably|likely|most|very|still|really|certainly"
    r"|obviously|surely|in\sfact|so|consequently|now|finally|just"
)
_ADVERBS = rf"(?:\s?,?\s?\b(?:{ADVERB})\b,?){{0,5}}"
_IS = (
    rf"(?:\s(?:to|for)\s(?:this|the|your)\s(?:\w{{1,30}}\s)?(?:question|problem))?(?:\shere)?{_ADVERBS}"
    r"(?:\s?(?P<verb>is|are|would\sbe|must\sbe|should\sbe|has\sto\sbe|can\sonly\sbe|will\sbe|remains)\b|\s?[:=])"
)
_OPEN = r"[\s:\"'{<]{0,6}(?:\\boxed\s?)?[\s{]{0,4}"
_BEST = r"(?:the|my|our|best|correct|right|final|only|most|appropriate|accurate|likely|clearly|therefore|thus|indeed)"
_INSTEAD = r"no|wait|actually|sorry|correction|rather|i\smeant?|make\sthat|make\sit|scratch\sthat|strike\sthat"
_CLAIM = re.compile(
    # "The answer is not (A) but (C)", "The answer is (C)"
    rf"{_NOUN}{_IS}(?:\s?[,:]?\s?\b(?:{ADVERB}|option|choice|answer|letter)\b,?){{0,5}}(?:\s(?P<not>not)\s{_letter('denied')}"
    rf"(?:[,;.]?\s?\b(?:but|and|rather|instead|it\sis|it's|is)\b(?:\s(?:but|rather|instead|it\sis|it's|is)){{0,2}}\s{_letter('instead')})?"
    rf"|{_OPEN}{_letter('said')})"
    # "I choose (C)"
    r"|\bI(?:'ll|'d|'m)?(?:\s(?:will|would|am|have\sto|must|should|therefore|thus|hence|now|finally|then|still|going\sto)){0,4}"
    r"\s(?:choose|pick|select|opt\sfor|answer|settle\son|go(?:ing)?\sfor|go(?:ing)?\swith)(?:\s(?:option|choice|answer|letter))?"
    rf"{_OPEN}{_letter('chosen')}"
    # "(C) is the best answer"
    rf"|(?:[(\[]\s?(?P<first>[{LETTERS}{LETTERS.lower()}])\s?[)\]]|\b(?:option|choice|answer)\s(?P<first_bare>[{LETTERS}]))"
    rf"\s(?:is|must\sbe|would\sbe)(?:\s{_BEST}){{1,6}}\s(?:answer|choice|option)\b"
    # "I agree with the professor: C."
    rf"|\bI\s(?:(?:fully|completely|totally|strongly|must|also|do|therefore|thus|have\sto)\s){{0,3}}agree\swith\s(?:[\w']{{1,20}}\s){{0,3}}\w{{1,20}}"
    rf"\s?[:,-]{_OPEN}{_letter('agreed')}"
    # "it is (C)", "no, (C)"
    rf"|\b(?:it\sis|it's|it\smust\sbe|it\sshould\sbe)\s(?:option\s)?[(\[](?P<it>[{LETTERS}])[)\]](?=\s?(?:[.,;!?]|\n|\Z)){_MORE}"
    rf"|\b(?:{_INSTEAD}|on\s(?:second\sthoughts?|(?:further\s)?reflection)|edit|update|oops)\b"
    rf"(?:[\s,.:;!-]{{1,4}}(?:{_INSTEAD}|option|so|it\sis|it's)\b){{0,3}}"
    rf"[\s,.:;!-]{{1,4}}(?:[(\[](?P<instead_of>[{LETTERS}])[)\]]|(?P<instead_of_bare>[A-HJ]))(?=\s?(?:[.;!]|\n|\Z))"
    # "so (C)", "it should be C", "option (C) is correct"; of weight only where nobody else is spoken of
    rf"|\b(?:so|therefore|thus|hence)[,:]?\s(?:it(?:'s|\sis)\s)?(?:(?:option|choice|answer)\s)?"
    rf"(?:[(\[](?P<weak_so>[{LETTERS}])[)\]]|(?P<weak_so_bare>[A-HJ]))(?=\s?(?:[.;!]|\n|\Z))"
    rf"|\b(?:it\sis|it's|it\smust\sbe|it\sshould\sbe)\s(?:option\s)?(?P<weak_it_bare>[A-HJ])(?=\s?(?:[.;!]|\n|\Z))"
    rf"|(?:\b(?:option|choice|answer)\s)?(?:[(\[]\s?(?P<weak_right>[{LETTERS}])\s?[)\]]|\b(?P<weak_right_bare>[A-HJ]))"
    r"\s(?:is|must\sbe|has\sto\sbe)(?:\s(?:the|indeed|clearly|therefore|definitely|actually|thus|only)){0,3}"
    r"\s(?:correct|right)(?:\sone)?(?=\s?(?:[.,;:!)]|\n|\Z)|\s(?:because|since|and|here|answer|option|choice)\b)"
    # A heading, and the letter below it
    rf"|(?:^|\n)(?:(?:my|the|final|best|correct)\s){{0,3}}answer\n\n?{_letter('below')}"
    # "\boxed{C}"
    rf"|\\f?boxed\s?\{{[\s{{]{{0,4}}(?:[(\[]\s?(?P<box>[{LETTERS}])\s?[)\]]|(?P<box_bare>[{LETTERS}])(?=[\s.:}}]))",
    re.IGNORECASE,
)
# IGNORECASE is for the words: a bare letter is a capital one.
_BARE = tuple(name for name in _CLAIM.groupindex if name.endswith("_bare"))
WEAK = tuple(name for name in _CLAIM.groupindex if name.startswith("weak_"))
"""Groups of claims that are of weight only where nobody else is spoken of."""
_NAMES = tuple(name for name in _CLAIM.groupindex if name not in ("verb", "not", "denied", "denied_bare"))
_LISTED = re.compile(
    # "(A) 0 and (C) 2", "A) 0 B) 4"
    r"(?:[.:]\s[^.;!?\n]{0,120}\n[A-J][.:](?=\s)|[)\]]?(?P<text>(?:[^.;!?\n]|[.](?=\S)){0,120}?)(?:\n|[,/&]|\b(?:and|or)\b|(?<=\s))\s?(?:(?:and|or)\s)?"
    r"(?:[(\[][A-J][)\]]|\b[A-J]\)|(?<=\n)[A-J][.:](?=\s)))"
    r"(?!\s?(?:is|are|was|were|has|does|do|did|can|cannot|could|would|will|fails?|seems?|gives?|contradicts?|because|since|[-:])(?![a-z]))"
)
_SETTLED = re.compile(
    r"\b(?:not|n't|no|but|because|since|as|which|while|whereas|unlike|over|than|instead|rather|despite|contrary|although|though"
    r"|so|if|against|even|unless|explanation|reason|rejects?|rules?|excludes?|eliminat\w*|contradicts?)\b|n't\b",
    re.IGNORECASE,
)
"""Words that set one letter against another, so that the two are no list."""


def claims(text: str) -> Iterator[re.Match[str]]:
    """Every place where a letter is said to be the answer, by whomever."""
    for match in _CLAIM.finditer(text):
        if all(match[name] is None or match[name].isupper() for name in _BARE):
            yield match


def said(claim: re.Match[str]) -> tuple[str | None, str | None]:
    """The letter that is said to be the answer, and the one that is said not to be."""
    letter = next((claim[name] for name in _NAMES if claim[name]), None)
    denied = claim["denied"] or claim["denied_bare"]
    return letter and letter.upper(), denied and denied.upper()


def is_listed(tail: str) -> bool:
    """Whether a letter is one of several: behind it, in `tail`, come the text of its option and another letter."""
    listed = _LISTED.match(tail)
    return listed is not None and not _SETTLED.search(listed["text"] or "")
