"""What a text answers, and whether that is right."""

import asyncio

import pytest

from verl.reasoning.answers import Answers, same_math, same_text
from verl.reasoning.blocking import await_here
from verl.reasoning.records import Problem


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        ("3 + 4 = 7. The answer is 7.", "7", True),
        (r"So \boxed{7}.", "7", True),
        ("#### 7", "7", True),
        ("<think>The answer is 8.</think>The answer is 7.", "7", True),
        ("<think>The answer is 7.", None, False),
        ("The answer is 7. No, the answer is 8.", "8", False),
        ("It is seven", None, False),
        ("So the answer is: blue. I am sure!", "blue", False),
        ("", None, False),
    ],
)
def test_marked_answers(text: str, answer: str | None, right: bool) -> None:
    problem = Problem(id="p", problem="What is 3 + 4?", answer="7")
    assert Answers().read(problem, text) == answer
    assert Answers().right(problem, text) is right
    assert Answers().right(Problem(id="p", problem="q"), text) is None


def test_the_verifier_of_the_source_reads() -> None:
    problem = Problem(id="p", problem="q", answer="7", source="hinted_arithmetic")
    assert Answers().read(problem, "So 3 + 4 makes 7") == "7"
    assert Answers().right(problem, "So 3 + 4 makes 7") is True
    unknown = Problem(id="p", problem="q", answer="7", source="of the user")
    assert Answers().read(unknown, "So 3 + 4 makes 7") is None


def test_equality() -> None:
    assert same_math("1/2", "0.5")
    assert not same_math("1/2", "0.6")
    assert same_text(" A  b", "a B")
    assert not same_text("7", "7.0")


def test_awaiting_works_wherever_it_is_called() -> None:
    async def seven() -> int:
        await asyncio.sleep(0)
        return 7

    async def nested() -> int:
        return await_here(seven())

    async def in_a_loop() -> int:
        return await_here(seven())

    async def fails() -> None:
        raise KeyError("x")

    assert await_here(seven()) == 7
    assert await_here(nested()) == 7
    assert asyncio.run(in_a_loop()) == 7
    with pytest.raises(KeyError):
        await_here(fails())
