"""Numbers in text, as exact decimals; shared by the rule verifiers.

all_numbers("costs $1,250.50, not 12")   # [Decimal('1250.50'), Decimal('12')]
"""

import re
from decimal import Decimal

NUMBER = r"(?<![\w.])[-+]?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)(?![0-9])"

_BEFORE = 80
"""Most characters before a number in which it can be rejected, or be said to be another's."""
_NOT_GIVEN = re.compile(
    r"(?:\b(?:not|never|cannot|rather\sthan|instead\sof)|n't"
    r"|\b(?:users?|you|they|he|she|hint|somebody|someone)(?:\s(?:also|have|has|had|wrongly))?"
    r"\s(?:says?|said|thinks?|thought|believes?|believed|suggests?|suggested|claims?|claimed|hints?|hinted|wrote|guess(?:es|ed)?)"
    r"|\b(?:your|their|his|her|hinted|suggested|user's|wrong)\s(?:wrong\s)?(?:answer|result|number|hint|guess))"
    r"(?:\s(?:be|is|was|that|it|it's|at|of|the|a|answer|result|number|number\sis|equal|to)){0,6}[\s:\"'*$(]{1,3}\Z",
    re.IGNORECASE,
)


def all_numbers(text: str) -> list[Decimal]:
    """All numbers of a text in their order; a minus sign counts unless a digit or a letter stands before it."""
    return [to_decimal(found) for found in re.findall(NUMBER, text.replace("\N{MINUS SIGN}", "-"))]


def last_given_number(text: str) -> Decimal | None:
    """The last number that the text gives in its own name: neither rejected ("not 75") nor another's ("you say 75")."""
    text = text.replace("\N{MINUS SIGN}", "-")
    for number in reversed(list(re.finditer(NUMBER, text))):
        if not _NOT_GIVEN.search(text, max(0, number.start() - _BEFORE), number.start()):
            return to_decimal(number.group())
    return None


def to_decimal(number: str) -> Decimal:
    """The value of a string that `NUMBER` matches."""
    return Decimal(number.replace(",", ""))


def only_number(text: str) -> Decimal | None:
    """The number of a text that holds exactly one, else None."""
    numbers = all_numbers(text)
    return numbers[0] if len(numbers) == 1 else None
