"""Programs that forge the exchange with their test do not pass; right ones that come close to it do."""

import concurrent.futures

import pytest

from tests.code_utils.forgeries import FORGERIES, HEAD, HONEST
from tests.code_utils.services import ask


@pytest.mark.parametrize("what", FORGERIES)
def test_forgeries_do_not_pass(url: str, what: str) -> None:
    program, test = FORGERIES[what]
    assert ask(url, f"{HEAD}{program}", [test], seconds=2) == [0]


@pytest.mark.parametrize("what", HONEST)
def test_honest_programs_pass(url: str, what: str) -> None:
    program, test = HONEST[what]
    assert ask(url, program, [test], seconds=20) == [1]
