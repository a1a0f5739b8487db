"""Numbers in text, as exact decimals; shared by the rule verifiers.

all_numbers("costs $1,250.50, not 12")   # [Decimal('1250.50'), Decimal('12')]
"""

import re
from decimal import Decimal

NUMBER = r"(?<![\w.])[-+]?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)(?![0-9])"


def all_numbers(text: str) -> list[Decimal]:
    """All numbers of a text in their order; a minus sign counts unless a digit or a letter stands before it."""
    return [to_decimal(found) for found in re.findall(NUMBER, text.replace("\N{MINUS SIGN}", "-"))]


def to_decimal(number: str) -> Decimal:
    """The value of a string that `NUMBER` matches."""
    return Decimal(number.replace(",", ""))


def only_number(text: str) -> Decimal | None:
    """The number of a text that holds exactly one, else None."""
    numbers = all_numbers(text)
    return numbers[0] if len(numbers) == 1 else None
