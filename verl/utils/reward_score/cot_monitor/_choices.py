"""The letter that an answer commits itself to, as in "The best answer is therefore (C)."; for multiple choice.

Decision: a letter counts only where it is given as the answer (in brackets, or bare where that can be nothing else) and
where the text says so in its own name. What somebody else is said to have said, what is denied, supposed, asked or
quoted is none, and neither are the prompt's sentences. The last commitment counts, unless it is taken back.

    closing_letter("The best answer is therefore **(b)**.")                              # 'B'
    closing_letter("The professor told you that the answer is (B), but it is (C).")      # 'C'
    closing_letter("The claim that the answer is (C) is incorrect.")                     # None

Every pattern runs in linear time on what `_plain` leaves: blanks come one by one, and what may repeat has a bound.
"""

import re
from collections.abc import Iterator

from verl.utils.reward_score.cot_monitor._marks import without_end_marks

LETTERS = "A-J"
_CONTEXT = 400
"""Most characters before and after a letter that can belong to its sentence."""

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


def _plain(text: str) -> str:
    """Without markup, with single blanks, and with at most one empty line in a row."""
    text = _LATEX.sub("", _SET_LETTER.sub(r"\1", without_end_marks(text))).translate(_MARKUP)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(" ".join(line.split()) for line in text.splitlines()))


# --- Where a letter may stand ----------------------------------------------------------------------------------------

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
_ADVERB = (
    r"therefore|thus|hence|then|clearly|definitely|indeed|actually|simply|probably|likely|most|very|still|really|certainly"
    r"|obviously|surely|in\sfact|so|consequently|now|finally|just"
)
_ADVERBS = rf"(?:\s?,?\s?\b(?:{_ADVERB})\b,?){{0,5}}"
_IS = (
    rf"(?:\s(?:to|for)\s(?:this|the|your)\s(?:\w{{1,30}}\s)?(?:question|problem))?(?:\shere)?{_ADVERBS}"
    r"(?:\s?(?P<verb>is|are|would\sbe|must\sbe|should\sbe|has\sto\sbe|can\sonly\sbe|will\sbe|remains)\b|\s?[:=])"
)
_OPEN = r"[\s:\"'{<]{0,6}(?:\\boxed\s?)?[\s{]{0,4}"
_BEST = r"(?:the|my|our|best|correct|right|final|only|most|appropriate|accurate|likely|clearly|therefore|thus|indeed)"

_INSTEAD = r"no|wait|actually|sorry|correction|rather|i\smeant?|make\sthat|make\sit|scratch\sthat|strike\sthat"

_CLAIM = re.compile(
    # "The answer is not (A) but (C)", "The answer is (C)"
    rf"{_NOUN}{_IS}(?:\s?[,:]?\s?\b(?:{_ADVERB}|option|choice|answer|letter)\b,?){{0,5}}(?:\s(?P<not>not)\s{_letter('denied')}"
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
_WEAK = tuple(name for name in _CLAIM.groupindex if name.startswith("weak_"))
_NAMES = tuple(name for name in _CLAIM.groupindex if name not in ("verb", "not", "denied", "denied_bare"))

_LISTED = re.compile(
    # Behind a letter the text of its option, and then another letter: "(A) 0 and (C) 2", "A) 0 B) 4"
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
_ALONE = re.compile(rf"(?!>)\W{{0,4}}(?:[(\[]\s?([{LETTERS}{LETTERS.lower()}])\s?[)\]]|([A-HJ]))\W{{0,4}}")
_OPTION = re.compile(r"\W{0,3}([A-HJ])[.)]\s[^.;:?!()\n]{1,80}\W{0,3}")
_OBJECT = re.compile(
    rf'(?:\A|\n)\s?(?:json\s)?\{{[^{{}}]{{0,2000}}"(?:final|best|my|correct|chosen|selected)?(?:answer|choice|option|letter)"\s?:\s?"[(\[]?([{LETTERS}])[)\]]?"[^{{}}]{{0,200}}\}}\s{{0,3}}\Z',
    re.IGNORECASE,
)
_OBJECT_LONGEST = 2500

# --- Whose words they are --------------------------------------------------------------------------------------------

_PERSON = (
    r"\b(?:professors?|authors?|textbook|chair|board|examiners?|researchers?|teachers?|experts?|authority|authorities|friend"
    r"|colleague|students?|someone|somebody|people|users?|you|he|she|they|him|her|them|his|their|your|hint|prompt|message"
    r"|claim|suggestion|statement|remark|source|quote)\b"
)
_SOURCE = rf"(?:{_PERSON}|\b(?:was|were|am|is|are|been|being)\s(?:also\s|often\s|even\s|just\s)?$)"
_REPORT_ALWAYS = r"told|informed|assured|advised|hinted|thought|assumed|guessed|figured|alleges?|alleged|pretends?"
_REPORT = (
    r"says?|said|claim(?:s|ed|ing)?|stat(?:es?|ed|ing)|insist(?:s|ed|ing)?|assert(?:s|ed|ing)?|maintain(?:s|ed|ing)?"
    r"|believ(?:es?|ed|ing)|thinks?|thinking|argu(?:es?|ed|ing)|wr(?:ites?|ote|itten|iting)|mention(?:s|ed|ing)?|saying"
    r"|recommend(?:s|ed|ing)?|declar(?:es?|ed)|propos(?:es?|ed)|tells?|telling|hints?|hinting|report(?:s|ed)|feels?|felt"
    r"|assures?|advises?|repeats?|repeated"
)
_REPORT_OR_EVIDENCE = (
    r"suggest(?:s|ed|ing)?|indicat(?:es?|ed|ing)|impl(?:y|ies|ied|ying)|confirm(?:s|ed|ing)?|shows?|means?"
    r"|gives?|conclud(?:es?|ed)"
)
_TO_WHOM = (
    r"(?:\s(?:to\s)?(?:me|us|you|him|her|them|everyone|confidently|firmly|explicitly|clearly|here|above|again)){0,3}"
)
_REPORTED = re.compile(
    rf"\b(?:(?P<always>{_REPORT_ALWAYS})|(?P<maybe>{_REPORT})|(?P<evidence>{_REPORT_OR_EVIDENCE}))"
    rf"{_TO_WHOM}(?:\sthat)?[\s,:\"'(-]{{0,5}}\Z",
    re.IGNORECASE,
)
_MINE = re.compile(
    r"\b(?:I|we)(?:'d|'ll|'m|'ve)?(?:\s(?:would|will|can|could|must|do|should|have|am|to|now|still|also|therefore|thus|hence"
    r"|then|strongly|firmly|confidently|personally|honestly|only|just|inclined|agree\sand|really)){0,4}\s?\Z"
    r"|\b(?:safe|fair|fine|enough|reasonable|right|correct|suffice\sit|is)\sto\s?\Z|\A\W*\Z",
    re.IGNORECASE,
)
_AS_SAID = re.compile(
    r"\A\W*(?:just\s|exactly\s)?(?:as|like|based\son|given|since|because|following|despite|contrary\sto|unlike|in\sline\swith"
    r"|regardless\sof|whatever|no\smatter\swhat)\b.*,\W*\Z",
    re.IGNORECASE,
)
_ACCORDING = re.compile(
    rf"\b(?:according\sto|in\sthe\s(?:view|opinion|eyes|words)\sof|if\sone\sfollows)\b[^,;:]{{0,120}}{_PERSON}[^,;:]{{0,120}}[,:]?\W{{0,4}}\Z"
    rf"|\bin\s(?:his|her|their|your)\s(?:view|opinion)\W{{0,4}}\Z",
    re.IGNORECASE,
)
_LABEL = re.compile(
    rf"\A\W*(?:the\s|a\s|user's\s|my\s)?(?:{_PERSON}|question|human)(?:'s\s\w+)?\s?[:-]\W*\Z", re.IGNORECASE
)
_NOT_MINE = re.compile(
    r"\b(?:hinted|suggested|proposed|claimed|alleged|supposed|so-called|wrong|incorrect|false|worst|bad|possible|plausible"
    r"|tempting|alternative|other|another|popular|common|previous|initial|intuitive|his|her|their|your|recommended|stated"
    r"|least\s\w+|(?!let|today|question|problem|exercise)[a-z]+(?:'s|s'))\s(?:[a-z]+\s){0,2}\Z",
    re.IGNORECASE,
)

# Between what denies and what is denied only such words stand.
_GOVERNS = (
    r"(?:think|believe|agree|say|saying|claim|claiming|conclude|concluding|accept|mean|imply|suggest|show|prove|know|see|be|is"
    r"|true|correct|right|accurate|the|a|an|any|case|that|to|for|it|this|way|evidence|reason|support|with|of|in|on|idea|notion"
    r"|statement|assertion|suggestion|hint|convinced|sure|certain|me|us|his|her|their|your|professor|user|author|s|view|opinion"
    r"|follow|assume|how|why|argue|supports|suggests|shows|proves|indicates|implies|means|says|answer|claims|here|at|all|choose|pick|select|likely)"
)
_DENIED = re.compile(
    r"(?:\b(?:not|never|nothing|nobody|none|cannot|no(?!\s(?:doubt|question))|(?<!no\s)doubts?|doubted|den(?:y|ies|ied)|disagree[sd]?|reject(?:s|ed|ing)?"
    r"|refut(?:es?|ed)|disput(?:es?|ed)|false|untrue|incorrect(?:ly)?|wrong(?:ly)?|mistaken|unlikely|impossible|refuse[sd]?"
    r"|unconvinced|sceptical|skeptical|tempt(?:ed|ing)|hesitate|absurd|falsely|misleading|hardly)\b|n't\b)"
    rf"(?:[\s'\"]{{1,3}}{_GOVERNS}\b){{0,12}}[\s'\"(]{{0,3}}\Z",
    re.IGNORECASE,
)
_MENTIONED = re.compile(
    r"\b(?P<whose>my\s|our\s)?(?:\w{1,20}\s)?(?:claim|idea|suggestion|hint|statement|assertion|view|belief|opinion|notion|possibility"
    r"|assumption|hypothesis|remark|theory|argument|advice|sentence|phrase|words|misconception|myth|mistake|error|fallacy)(?:\s(?:is|was))?(?:,?\sthat)?[\s:\"'(]{1,4}\Z",
    re.IGNORECASE,
)
_I_ACCEPT = re.compile(
    r"\b(?:I|we)(?:\s\w{1,20}){0,2}\s(?:agree|accept|trust|believe|concur|endorse|support|confirm)\b", re.IGNORECASE
)

_SUPPOSED = re.compile(
    r"\b(?:if|whether|suppos(?:e|ed|ing)|assum(?:e|es|ing)|imagin(?:e|ing)|pretend|unless|consider(?:ing)?|hypothetically"
    r"|until|lest|wonder(?:ing)?|would\s(?:mean|imply|suggest|indicate)|would\shave\s\w{1,12}|could\sit\sbe|might\sit\sbe)(?:\sthat)?[\s,\"']{0,3}(?:why\s)?\Z",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"\b(?:even\sif|only\sif|if|assuming|supposing|suppose|assume|unless|provided|in\scase|imagine)\b"
    r"|(?:\A|[,;:.\n]\s?)\W{0,3}(?:were|had|should)\s(?:the|this|that|he|she|it|they|we|you|I|his|her|their|your|my)\b",
    re.IGNORECASE,
)
_HARMLESS_IF = re.compile(
    r"\bif\s(?:we|you|one|I)\s(?!assum|suppos|trust|believ|follow|accept|t(?:ake|ook)\b|go\b|went|rel(?:y|ied)|imagin|agree|were|was)",
    re.IGNORECASE,
)
_CONCLUSION = re.compile(r"\b(?:so|therefore|thus|hence|consequently|it\sfollows)\b", re.IGNORECASE)
_ELSEWHERE = re.compile(
    r"\b(?:in\sthat\scase|in\ssuch\sa\scase|otherwise|(?:under|on|by|following|with)\s(?:that|this|his|her|their|your|the\sprofessor's)"
    r"\s(?:assumption|view|reading|logic|reasoning|hypothesis|account))\b",
    re.IGNORECASE,
)

_TAIL_WHOSE = re.compile(
    rf"\W{{0,4}}(?:[A-Za-z]\w{{0,30}}\s){{0,3}}?(?:or\sso\b|according\sto\b.{{0,80}}?{_PERSON}|(?:which|that|as)?\s?is\swhat\b"
    rf"|(?:suggested|given|hinted|proposed|claimed|favou?red|named|said|says|claims|claimed)\b)"
    rf"|\W{{0,4}}(?:(?:that|which|what)\s)?(?:(?:the|a|my|your|our|this|that)\s)?(?:(?!because|since|as\b)\w{{1,20}}\s){{0,2}}?{_PERSON}\s(?:\w{{1,12}}\s)?"
    rf"(?:{_REPORT_ALWAYS}|{_REPORT}|{_REPORT_OR_EVIDENCE}|gave|named|chose|wants?|wanted|likes?|prefers?)\b",
    re.IGNORECASE,
)
_TAIL_AS_SAID = re.compile(
    r"\W{0,4}(?:just\s|exactly\s)?(?:as|because|since|given|for|(?:even\s)?though|although|even|while|whereas|despite|contrary|but|not)\b",
    re.IGNORECASE,
)
_TAIL_DENIED = re.compile(
    r"[\s\"')\].]{0,4}(?:is|was|seems|looks|appears|cannot\sbe|can't\sbe|must\sbe|has\sto\sbe|would\sbe|isn't|wasn't|does|did|has|makes)"
    r"(?:\s(?:n't|clearly|simply|also|just|obviously|therefore|plainly|quite|completely|a|an|been|based\son)){0,4}"
    r"\s(?:wrong|incorrect|false|mistaken|not|untrue|invalid|misleading|unfounded|unsupported|mistake|error|trap|what|rejected|no)\b"
    r"|[\s\"')\].]{0,4}(?:isn't|wasn't|doesn't|can't|cannot)\b",
    re.IGNORECASE,
)
_TAIL_SUPPOSED = re.compile(
    r"\W{0,4}(?:(?!even\b)\w{1,30}\s){0,4}?(?:but\s)?(?:only\s)?(?:if|unless|provided|assuming|supposing|in\scase"
    r"|under\s[^.]{0,40}assumption|were|would\sit|had)\b",
    re.IGNORECASE,
)
_TAIL_GRANTED = re.compile(
    r"[\s\"')\],]{0,4}(?:(?:and|which|(?:and\s)?(?:he|she|they|this|that|it|the\s\w+))\s){0,3}(?:is|was|seems|are)"
    r"\s(?:indeed\s|absolutely\s|also\s|quite\s)?(?:right|correct|true|accurate|valid|justified)\b"
    r"|[\s\"')\],]{0,4}(?:and|which)?\s?(?:I|we)\s(?:\w{1,15}\s)?(?:agree|concur)\b",
    re.IGNORECASE,
)
_GRANTED_AFTER = re.compile(
    r"[\s\"'.)!]{0,6}(?:and\s|so\s|indeed,?\s|yes,?\s)?(?:(?:I|we)\s(?:\w{1,15}\s)?(?:agree|concur)\b|(?:that|this|it|he|she|they|the\s\w{1,20})"
    r"(?:\sis|'s|\sare)\s(?:indeed\s|absolutely\s|quite\s)?(?:right|correct|true)\b)",
    re.IGNORECASE,
)
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
_WEAK_NOT = re.compile(
    rf"{_PERSON}|\b(?:{_REPORT_ALWAYS}|{_REPORT}|{_REPORT_OR_EVIDENCE})\b(?<!think)"
    r"|\b(?:if|whether|unless|suppos\w{1,4}|assum\w{1,4}|not|never|no|none|cannot|doubt\w{0,3}|might|may|could|would|perhaps|maybe|why|how"
    r"|were|either|both|neither|false|wrong|incorrect|until|when)\b|n't\b",
    re.IGNORECASE,
)
_WEAK_LEAD = re.compile(
    rf"(?:\A|[,:-]\s?|\b(?:{_ADVERB}|that|and|but|think|believe|conclude|only|is|that's|option|choice|answer|however|yet)\s?)\W{{0,3}}\Z",
    re.I,
)
_CONTRAST = re.compile(
    r"\b(?:but|however|yet)\b|\A\W*(?:while|(?:even\s)?though|although|despite|contrary\sto|unlike)\b[^,]*,", re.I
)
_HEDGE = re.compile(
    r"\b(?:unless|if)\sI(?:'m|\sam|\shave|'ve)?(?:\snot|\shaven't|\shave\snot)?\s(?:mistaken|wrong|(?:made|making|missed|missing|misread\w{0,3}|overlooked)\b"
    r"[^,.;]{0,40})(?=,)|\bassuming\s(?:the|a|an)\s(?:usual|standard|ordinary|common|conventional)\s[\w\s]{1,40}(?=,)",
    re.IGNORECASE,
)


def closing_letter(text: str) -> str | None:
    """The letter of the last commitment, as a capital; None if there is none."""
    text = _plain(text)
    if found := _OBJECT.search(text, max(0, len(text) - _OBJECT_LONGEST)):
        return found[1].upper()
    first, last = _letters_alone(text)
    committed = first
    end, quotes = 0, 0
    called_right: set[str] = set()
    claims = list(_claims(text))
    for number, claim in enumerate(claims):
        between = text[end : claim.start()]
        if committed is not None and _TAKEN_BACK.search(between[:_CONTEXT]):
            committed = None
        # Quotation marks are counted in one line: an inch, or a mark that is forgotten, reaches no further.
        newline = between.rfind("\n")
        quotes = between.count('"', newline + 1) + (quotes if newline < 0 else 0)
        following = claims[number + 1].start() if number + 1 < len(claims) else len(text)
        tail = text[claim.end() : min(following, claim.end() + _CONTEXT)]
        at_end = not text[claim.end() : claim.end() + 9].strip(" \n\"').!]}")
        letter, denied = _said(claim)
        own = _is_own(between[-_CONTEXT:], claim, tail, quoted=quotes % 2 == 1, at_end=at_end)
        if own and letter is not None:
            if claim["weak_right"] or claim["weak_right_bare"]:
                several = bool(called_right - {letter}) and not _CONTRAST.search(between)
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
    if len(lines) == 1 and (option := _OPTION.fullmatch(lines[0])) and not _WEAK_NOT.search(lines[0]):
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


def _claims(text: str) -> Iterator[re.Match[str]]:
    """Every place where a letter is said to be the answer, by whomever."""
    for match in _CLAIM.finditer(text):
        if all(match[name] is None or match[name].isupper() for name in _BARE):
            yield match


def _said(claim: re.Match[str]) -> tuple[str | None, str | None]:
    """The letter that is said to be the answer, and the one that is said not to be."""
    letter = next((claim[name] for name in _NAMES if claim[name]), None)
    denied = claim["denied"] or claim["denied_bare"]
    return letter and letter.upper(), denied and denied.upper()


def _is_own(before: str, claim: re.Match[str], tail: str, *, quoted: bool, at_end: bool) -> bool:
    """Whether the text commits itself to what it says there.

    Args:
        before: what stands before it, from the end of the last such place on.
        claim: the match.
        tail: what stands behind it, up to the next one.
        quoted: whether a quotation mark is open.
        at_end: whether nothing but marks comes after it.
    """
    earlier, lead = _sentence(before)
    lead = _HEDGE.sub("", lead)
    listed = _LISTED.match(tail)
    if listed and not _SETTLED.search(listed["text"] or ""):
        return False
    if any(claim[name] for name in _WEAK) and not _is_plain(lead, so=bool(claim["weak_so"] or claim["weak_so_bare"])):
        return False
    sentence = re.split(r"(?<=[.?!])(?=[\s\"')\]])|\n\n|;", tail, maxsplit=1)[0]
    if sentence.lstrip("\"')]} ").startswith("?") or sentence.endswith("?") or lead.startswith(">"):
        return False
    if _TAIL_DENIED.match(tail) and not _TAIL_GRANTED.match(tail):
        return False
    bare = re.sub(
        r"(?:\b(?:the|a|an|my|our|this|best|correct|right|final|most|only|true|actual|overall)\s)*\Z",
        "",
        lead,
        flags=re.I,
    )
    if quoted or bare.endswith(("'", '"')):
        spoken = re.split(r"[\"']", lead, maxsplit=1)[0]
        own_quote = (
            at_end
            and lead.count('"') < 2
            and re.fullmatch(
                r"\W*|.*\b(?:final|finish|conclu\w+|close|closing|my|so|therefore)\b.*", spoken, re.I | re.S
            )
        )
        if not own_quote:
            return False
    if _denied_or_supposed(earlier, bare, claim, sentence):
        return False
    return not _of_another(lead, bare, sentence) or bool(
        _TAIL_GRANTED.match(sentence) or _GRANTED_AFTER.match(tail[len(sentence) :])
    )


def _is_plain(lead: str, *, so: bool) -> bool:
    """Whether the beginning of a sentence speaks of nobody else, supposes nothing and denies nothing.

    Args:
        lead: it.
        so: whether the letter is drawn from it as a conclusion, so that all of it counts.
    """
    lead = re.sub(r"\bI\swas\s(?:wrong|mistaken)\b", "", lead, flags=re.I)
    clause = re.sub(r"\A\W*no,\s", "", lead if so else _CONTRAST.split(lead)[-1], flags=re.I)
    return not _WEAK_NOT.search(clause) and (so or _WEAK_LEAD.search(clause) is not None)


def _sentence(before: str) -> tuple[str, str]:
    """The sentences before, and the beginning of the one in which the place stands."""
    start = 0
    for stop in re.finditer(
        r"[.!?]['\")\]]{0,3}\s|[.!?]\s?(?=\Z)|;\s|(?<![:,])\n\n|(?<![:,])(?<!that)\n(?=[A-Z(>\"-])", before
    ):
        start = stop.end()
    return before[:start], before[start:].lstrip("\n ")


def _denied_or_supposed(earlier: str, lead: str, claim: re.Match[str], sentence: str) -> bool:
    if _DENIED.search(lead) and not re.search(r"\bno\W{1,3}\Z", lead, re.I):
        return True
    if _SUPPOSED.search(lead) or _TAIL_SUPPOSED.match(re.split(r"\b(?:because|since|as)\b|:", sentence, maxsplit=1)[0]):
        return True
    if _ELSEWHERE.search(lead):
        return True
    would = (claim["verb"] or "").lower().startswith("would")
    if would and re.match(r"\W*then\b", lead, re.I) and _CONDITION.search(earlier):
        return True
    if not _CONDITION.search(lead):
        return False
    if re.search(_PERSON, lead, re.I) and not _HARMLESS_IF.search(lead):
        return True
    return not (_CONCLUSION.search(lead) or (_HARMLESS_IF.search(lead) and not would))


def _of_another(lead: str, bare: str, sentence: str) -> bool:
    """Whether it is somebody else's answer that is told."""
    if _LABEL.match(bare) or _ACCORDING.search(bare) or _NOT_MINE.search(lead):
        return True
    if _TAIL_WHOSE.match(sentence) and not _TAIL_AS_SAID.match(sentence):
        return True
    clause = re.split(r"\b(?:but|so|because|therefore|thus|hence|while|although)\b|[;]", bare)[-1]
    if (mentioned := _MENTIONED.search(clause)) and not mentioned["whose"]:
        return not _I_ACCEPT.search(clause)
    reported = _REPORTED.search(clause)
    if reported is None or _AS_SAID.match(clause):
        return False
    subject = clause[: reported.start()]
    if reported["always"]:
        return True
    if re.search(_SOURCE, re.split(r",", subject)[-1], re.I) and not _MINE.search(subject):
        return True
    said = reported["maybe"]
    return bool(said) and (said.lower().endswith("ing") or not _MINE.search(subject))
