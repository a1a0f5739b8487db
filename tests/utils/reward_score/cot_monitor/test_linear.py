"""No text makes a verifier slow: what is read on the event loop, or with the interpreter's lock held, is linear.

Judged is the processor time of this thread alone, for texts of 1 MB and for parts of them.
"""

import time
from collections.abc import Callable, Iterator

import pytest

from verl.utils.reward_score.cot_monitor import get_verifier, known_data_sources
from verl.utils.reward_score.cot_monitor._marked import MarkedAnswerVerifier
from verl.utils.reward_score.cot_monitor._program import asked_names, program_of

SIZE = 1_000_000
SECONDS = 10.0
"""Of processor time for one text of 1 MB on a slow machine; where a pattern is quadratic it takes hours."""
RATIO = 10.0
"""Most that four times the text may take; a quadratic pattern takes 16."""
FLOOR = 0.1
"""Seconds below which a ratio says nothing."""

UNITS = [
    *(
        " ",
        "\n",
        "\t",
        " \n",
        "9",
        "1,",
        "1,111,",
        ".",
        "*",
        "**",
        "_",
        "`",
        "{",
        "}",
        "(",
        "$",
        "#",
        "-",
        ">",
        "~",
        "\\",
    ),
    *('"', "'", "|", "<", "a", "A ", "(C) ", "**a ", "**a\n ", "*a", "\n*", "> \n", "a b\n\n", "1/2 ", "1 1/2 "),
    *(
        "answer",
        "answer ",
        "answer is ",
        "answer is 7 ",
        "answer is (C) ",
        "answer:",
        "answer\n",
        "### Answer\n",
        "#### ",
    ),
    *("The best answer is therefore ", "the answer is not (A) but ", "I choose ", "I would ", "option C is the best "),
    *("no, ", "no, (C). ", "not that the ", "if the hint ", "the professor said that ", "That is wrong. ", "A, B or "),
    *("\\boxed{", "\\boxed{7}", "\\boxed{7}, ", "\\boxed{7} and ", "\\boxed ", "\\boxed{(C)} ", "\\text{", "\\frac{"),
    *("RATING: ", "RATING: 7\n", "EXPLANATION: ", "not 75 ", "you say 75 ", "-1 "),
    *("```", "```\n", "```python\n", "```python\nx = 1\n```\n", "````\n", "~~~\n", "x = ```", "```x``` ", "> ```\n"),
    *('"""\n', "'''\n```\n", "```\n'''\n", "# ```\n", "```\ndef f(x):\n    return x\n", '```\n"""\n```\n"""\n'),
]
AROUND = [
    ("", ""),
    ("The answer is", "x"),
    ("RATING: 7", "x"),
    ("\\boxed{", "}"),
    ("```python\n", "\n```"),
    ("**a", "x**"),
]


def readers() -> Iterator[tuple[str, Callable[[str], object]]]:
    """Everything that reads a text, under its name; what compares mathematics and runs programs is elsewhere."""
    asked = asked_names(["assert f(2) == 4"])
    yield "code program", lambda text: program_of(text, asked)
    yield "code program that prints", lambda text: program_of(text)
    for name in known_data_sources():
        verifier = get_verifier(name)
        yield f"{name} judge's answer", verifier.parse_llm_judge_output
        yield f"{name} has_answer", verifier.has_answer
        yield f"{name} reference_answer", verifier.reference_answer
        if verifier.judged_in_words:
            yield f"{name} prompt", lambda text, verifier=verifier: verifier.format_llm_judge_prompt(text, text)
        elif name != "code" and not verifier.scored_by_reward_model and not isinstance(verifier, MarkedAnswerVerifier):
            yield f"{name} score", lambda text, verifier=verifier: verifier.compute_score(text, "7")
            yield f"{name} hint", lambda text, verifier=verifier: verifier.follows_hint(text, {"hinted_answer": "C"})


def seconds(read: Callable[[str], object], text: str) -> float:
    start = time.thread_time()
    read(text)
    return time.thread_time() - start


def text_of(unit: str, size: int, around: tuple[str, str]) -> str:
    return around[0] + unit * (size // len(unit)) + around[1]


def quadratic(read: Callable[[str], object], unit: str, around: tuple[str, str]) -> bool:
    """Whether four times the text takes much more than four times as long; a chance slowness does not repeat."""
    large, small = text_of(unit, SIZE // 20, around), text_of(unit, SIZE // 80, around)
    return all(seconds(read, large) > max(FLOOR, RATIO * seconds(read, small)) for _ in range(3))


def test_every_verifier_is_among_them() -> None:
    names = [name for name, _ in readers()]
    assert all(any(name.startswith(f"{source} ") for name in names) for source in known_data_sources())


@pytest.mark.parametrize("name", [name for name, _ in readers()])
def test_time_grows_with_the_text_and_no_faster(name: str) -> None:
    read = dict(readers())[name]
    # Small texts first, so that what is quadratic fails at once and not after hours.
    slow = [(around, unit) for unit in UNITS for around in AROUND if quadratic(read, unit, around)]
    assert not slow
    for unit in UNITS:
        assert seconds(read, text_of(unit, SIZE, AROUND[0])) < SECONDS, unit
    for around in AROUND[1:]:
        for unit in (" ", "\n", "9", "*", "{", "`", "answer is ", "1,"):
            assert seconds(read, text_of(unit, SIZE, around)) < SECONDS, (around, unit)


@pytest.mark.parametrize("source", ["openai/gsm8k", "hendrycks_math"])
def test_long_marked_answers_are_refused_at_once(source: str) -> None:
    """They are compared in a process of its own, but brought into one form here."""
    verifier = get_verifier(source)
    for unit in UNITS:
        for around in (("\\boxed{", "}"), ("The answer is 7", ""), ("#### ", "")):
            text = text_of(unit, SIZE, around)
            assert seconds(lambda text: verifier.compute_score(text, "7"), text) < SECONDS, (unit, around)
