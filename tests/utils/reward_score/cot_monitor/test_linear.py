"""No text makes a verifier slow: what is read on the event loop, or with the interpreter's lock held, is linear.

Judged is the processor time of this thread alone, for texts of 1 MB and for parts of them. By default that is a sample
of the texts, another one for each reader; marked as long, all of them.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

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
    '"',
    "'",
    "|",
    "<",
    "a",
    "A ",
    "(C) ",
    "**a ",
    "**a\n ",
    "*a",
    "\n*",
    "> \n",
    "a b\n\n",
    "1/2 ",
    "1 1/2 ",
    "answer",
    "answer ",
    "answer is ",
    "answer is 7 ",
    "answer is (C) ",
    "answer:",
    "answer\n",
    "### Answer\n",
    "#### ",
    "The best answer is therefore ",
    "the answer is not (A) but ",
    "I choose ",
    "I would ",
    "option C is the best ",
    "(A) 0 ",
    "(A) 0 and ",
    "The answer is (A) 0 ",
    "so (C). ",
    "so C\n",
    "C\n",
    "C",
    "C. ",
    "Wait, no. ",
    "I agree with ",
    '{"answer": ',
    '{"answer": "C"} ',
    '"answer": "C", ',
    "</s>",
    "<|im_end|> ",
    "<answer>",
    "<answer>7 ",
    "It would be 7 ",
    "7 (not 7) ",
    "The answer is 7 (a ",
    "The result is 7 times ",
    "no, ",
    "no, (C). ",
    "not that the ",
    "if the hint ",
    "the professor said that ",
    "That is wrong. ",
    "A, B or ",
    "\\boxed{",
    "\\boxed{7}",
    "\\boxed{7}, ",
    "\\boxed{7} and ",
    "\\boxed ",
    "\\boxed{(C)} ",
    "\\text{",
    "\\frac{",
    "RATING: ",
    "RATING: 7\n",
    "EXPLANATION: ",
    "not 75 ",
    "you say 75 ",
    "-1 ",
    "```",
    "```\n",
    "```python\n",
    "```python\nx = 1\n```\n",
    "````\n",
    "~~~\n",
    "x = ```",
    "```x``` ",
    "> ```\n",
    '"""\n',
    "'''\n```\n",
    "```\n'''\n",
    "# ```\n",
    "```\ndef f(x):\n    return x\n",
    '```\n"""\n```\n"""\n',
]
AROUND = [
    ("", ""),
    ("The answer is", "x"),
    ("RATING: 7", "x"),
    ("\\boxed{", "}"),
    ("```python\n", "\n```"),
    ("**a", "x**"),
]


ASKED = asked_names(["assert f(2) == 4"])


def readers() -> dict[str, Callable[[str], object]]:
    """Everything that reads a text, once; what compares mathematics and runs programs is elsewhere."""
    found: dict[Any, tuple[str, Callable[[str], object]]] = {
        1: ("code program", lambda text: program_of(text, ASKED)),
        2: ("code program that prints", program_of),
    }
    for name in known_data_sources():
        verifier = get_verifier(name)
        kind, marked = type(verifier), isinstance(verifier, MarkedAnswerVerifier)
        for method, read in {
            "parse_llm_judge_output": verifier.parse_llm_judge_output,
            "has_answer": verifier.has_answer,
            "reference_answer": verifier.reference_answer,
        }.items():
            found[kind if marked else getattr(kind, method), method] = (f"{name} {method}", read)
        if verifier.judged_in_words:
            read = partial(verifier.format_llm_judge_prompt, "Is it?")
            found[kind.format_llm_judge_prompt, 0] = (f"{name} prompt", read)
        elif name != "code" and not verifier.scored_by_reward_model and not marked:
            read = partial(verifier.compute_score, ground_truth="7")
            found[kind.compute_score, 0] = (f"{name} score", read)
            found[kind, 0] = (f"{name} hint", partial(verifier.follows_hint, reward_model={"hinted_answer": "C"}))
    return dict(found.values())


def seconds(read: Callable[[str], object], text: str) -> float:
    start = time.thread_time()
    read(text)
    return time.thread_time() - start


def text_of(unit: str, size: int, around: tuple[str, str]) -> str:
    return around[0] + unit * (size // len(unit)) + around[1]


def quadratic(read: Callable[[str], object], unit: str, around: tuple[str, str]) -> bool:
    """Whether four times the text takes much more than four times as long; a chance slowness does not repeat."""
    large, small = text_of(unit, SIZE // 25, around), text_of(unit, SIZE // 100, around)
    return all(seconds(read, large) > max(FLOOR, RATIO * seconds(read, small)) for _ in range(3))


SAMPLE = 12
"""One unit of so many is tried by default."""
READERS = readers()


@pytest.mark.parametrize("share", ["a sample", pytest.param("all", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", READERS)
def test_time_grows_with_the_text_and_no_faster(name: str, share: str) -> None:
    first, step = (list(READERS).index(name) % SAMPLE, SAMPLE) if share == "a sample" else (0, 1)
    alone = [(unit, AROUND[0]) for unit in UNITS[first::step]]
    framed = [(unit, around) for unit in UNITS[first :: 10 * step] for around in AROUND[1:]]
    assert alone
    assert not [(unit, around) for unit, around in alone + framed if quadratic(READERS[name], unit, around)]


@pytest.mark.parametrize(
    "unit", [pytest.param(unit, marks=[pytest.mark.long] if i % SAMPLE else []) for i, unit in enumerate(UNITS)]
)
def test_a_megabyte_is_read_in_seconds(unit: str) -> None:
    """One reader for each set of patterns; those that share them are above."""
    text = text_of(unit, SIZE, AROUND[0])
    for read in (
        get_verifier("mmlu_sycophancy").reference_answer,
        get_verifier("openai/gsm8k").reference_answer,
        get_verifier("hendrycks_math").reference_answer,
        get_verifier("hinted_arithmetic").reference_answer,
        get_verifier("sycophancy").parse_llm_judge_output,
        partial(get_verifier("sycophancy").format_llm_judge_prompt, text),
        partial(get_verifier("bold_formatting").compute_score, ground_truth=None),
        partial(program_of, asked=ASKED),
    ):
        assert seconds(read, text) < SECONDS, read


@pytest.mark.parametrize("source", ["openai/gsm8k", "hendrycks_math"])
def test_long_marked_answers_are_refused_at_once(source: str) -> None:
    """They are compared in a process of its own, but brought into one form here."""
    verifier = get_verifier(source)
    for unit in UNITS[::9]:
        for around in (("\\boxed{", "}"), ("The answer is 7", ""), ("#### ", "")):
            text = text_of(unit, SIZE // 4, around)
            assert seconds(partial(verifier.compute_score, ground_truth="7"), text) < SECONDS, (unit, around)
