"""Programs that forge the exchange with their test do not pass; right ones that come close to it do."""

import concurrent.futures
from collections.abc import Mapping

from tests.code_utils.forgeries import FORGERIES, HEAD, HONEST
from tests.code_utils.services import ask


def results(url: str, asked: Mapping[str, tuple[str, str]], *, seconds: float) -> dict[str, int]:
    """What becomes of each program's test."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda one: ask(url, one[0], [one[1]], seconds=seconds)[0], asked.values())
        return dict(zip(asked, found, strict=True))


def test_forgeries_do_not_pass(url: str) -> None:
    forged = {what: (f"{HEAD}{program}", test) for what, (program, test) in FORGERIES.items()}
    assert len(forged) >= 100
    assert [what for what, result in results(url, forged, seconds=2).items() if result] == []


def test_honest_programs_pass(url: str) -> None:
    assert [what for what, result in results(url, HONEST, seconds=30).items() if not result] == []


def test_what_forgeries_begin_with_works(url: str) -> None:
    """Else none of them would have forged anything."""
    early = "give(['value', [[[], None]], ['dict', ['g', 3], None], ''])"
    forged = "reply_by(lambda operation, data: ['value', states(data), 3, ''] if operation == 'call' else None)"
    changed = "def f(x): return 0\nanswer_by(lambda operation, *rest: 3 if operation == 'call' else None)"
    honest = {
        "early": (early, "assert g == 3"),
        "forged": (f"def f(x): pass\n{forged}", "x = [1]\nassert f(x) == 3 and x == []"),
        "changed": (changed, "assert f(1) == 3"),
        "names": ("names(g=3)", "assert g == 3"),
    }
    asked = {what: (f"{HEAD}{program}", test) for what, (program, test) in honest.items()}
    assert set(results(url, asked, seconds=20).values()) == {1}
