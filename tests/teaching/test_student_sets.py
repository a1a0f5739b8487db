"""Training sets for students: what each mode makes of a row, which rows are taken, and that none is cut."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.classmate.errors import ConfigError
from verl.teaching.student_sets import (
    MODES,
    PICKS,
    Collected,
    SelectionRules,
    StudentResponse,
    StudentSet,
    TraceFormat,
    build_student_set,
    question_hash,
    without_evaluation,
)
from verl.teaching.templates import Messages, Templates

TEMPLATES = Templates()
QUESTION = "What is 58 + 27?"


def words(chat: Messages) -> int:
    return sum(len(turn["content"].split()) for turn in chat)


def right(*texts: str) -> tuple[StudentResponse, ...]:
    return tuple(StudentResponse(text=text, correct=True) for text in texts)


def wrong(*texts: str) -> tuple[StudentResponse, ...]:
    return tuple(StudentResponse(text=text, correct=False) for text in texts)


CUT_OFF = (StudentResponse(text="It is 85, as", correct=True, complete=False),)


def row(**changed: Any) -> Collected:
    told = {
        "question": QUESTION,
        "student": "small",
        "variation": 0,
        "reward": 1.0,
        "gain": 0.5,
        "solve_rate": 1.0,
        "teaching": "Carry the 1.",
        "baseline": wrong("It is 75."),
        "guided": right("It is 85."),
        "explanation": "First the ones.",
        "solution": "85",
    }
    return Collected(**{**told, **changed})


def made(rows: Sequence[Collected], mode: Any = "self_guided", **options: Any) -> StudentSet:
    rules = {name: options.pop(name) for name in [*options] if name in SelectionRules.__dataclass_fields__}
    told = {"count_tokens": words, "max_length": 1000, "evaluation_hashes": (), **options}
    return build_student_set(rows, mode, rules=SelectionRules(**rules), templates=TEMPLATES, **told)


def answers(rows: Sequence[Collected], **options: Any) -> list[str]:
    return [one["messages"][-1]["content"] for one in made(rows, **options).rows]


def test_a_guided_answer_to_the_question_alone() -> None:
    (one,) = made([row()]).rows
    assert one["messages"] == [*TEMPLATES.baseline(QUESTION), {"role": "assistant", "content": "It is 85."}]
    told = {name: one[name] for name in ("mode", "question", "student", "variation", "reward", "gain")}
    assert told == {
        "mode": "self_guided",
        "question": QUESTION,
        "student": "small",
        "variation": 0,
        "reward": 1.0,
        "gain": 0.5,
    }
    assert one["tokens"] == words(one["messages"])


def test_a_guided_answer_with_its_teaching() -> None:
    (one,) = made([row()], "with_teaching").rows
    asked = TEMPLATES.with_teaching(QUESTION, "Carry the 1.")
    assert one["messages"] == [*asked, {"role": "assistant", "content": "It is 85."}]


def test_an_explanation_as_the_students_thought() -> None:
    (one,) = made([row(gain=None, solve_rate=None, guided=())], "rlt_trace").rows
    told = (
        "<|begin_of_thought|>\n\nFirst the ones.\n\n<|end_of_thought|>\n\n"
        "<|begin_of_solution|>\n\n85\n\n<|end_of_solution|>"
    )
    assert one["messages"] == [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": told}]
    form = TraceFormat(
        system="Think.",
        think_prefix="Hm. ",
        think_open="<think>",
        think_close="</think>",
        delimiter="\n",
        solution_open="",
        solution_close="",
    )
    (one,) = made([row()], "rlt_trace", trace_format=form).rows
    assert [turn["content"] for turn in one["messages"]] == [
        "Think.",
        QUESTION,
        "Hm. <think>First the ones.</think>\n85",
    ]


def test_right_with_the_teaching_against_wrong_alone() -> None:
    (one,) = made([row()], "contrastive").rows
    assert one["prompt"] == TEMPLATES.baseline(QUESTION)
    assert one["chosen"] == [{"role": "assistant", "content": "It is 85."}]
    assert one["rejected"] == [{"role": "assistant", "content": "It is 75."}]


@pytest.mark.parametrize(
    ("mode", "changed", "reason"),
    [
        ("self_guided", {"guided": ()}, "nothing_to_learn"),
        ("self_guided", {"guided": wrong("It is 75.")}, "nothing_to_learn"),
        ("self_guided", {"guided": right(" ")}, "nothing_to_learn"),
        ("self_guided", {"guided": CUT_OFF}, "nothing_to_learn"),
        ("with_teaching", {"teaching": " \n"}, "nothing_to_learn"),
        ("contrastive", {"baseline": right("It is 85.")}, "nothing_to_learn"),
        ("contrastive", {"baseline": ()}, "nothing_to_learn"),
        ("contrastive", {"baseline": wrong("it  is 85.")}, "nothing_to_learn"),
        ("rlt_trace", {"explanation": " "}, "nothing_to_learn"),
        ("rlt_trace", {"solution": ""}, "nothing_to_learn"),
        ("self_guided", {"reward": None}, "invalid"),
        ("self_guided", {"reward": float("nan")}, "invalid"),
        ("self_guided", {"gain": float("inf")}, "invalid"),
    ],
)  # fmt: skip
def test_what_is_left_out_is_counted(mode: Any, changed: dict[str, Any], reason: str) -> None:
    found = made([row(**changed)], mode)
    assert (found.rows, found.counts) == ([], {"collected": 1, reason: 1, "kept": 0})


def test_lowest_gain_and_solve_rate() -> None:
    rows = [row(question=str(i), gain=i / 4, solve_rate=1 - i / 4) for i in range(5)]
    kept = made(rows, min_gain=0.25, min_solve_rate=0.5)
    assert [one["gain"] for one in kept.rows] == [0.25, 0.5]
    assert kept.counts == {"collected": 5, "low_gain": 1, "low_solve_rate": 2, "kept": 2}
    assert made([row(gain=None)], min_gain=0.0).counts == {"collected": 1, "unscored": 1, "kept": 0}
    assert made([row(gain=None)]).counts["kept"] == 1


VARIATIONS = [
    row(variation=2, reward=0.5, guided=right("It is 85, I say.")),
    row(variation=0, reward=0.7, guided=right("It is 85, as 50 + 20 is 70 and 8 + 7 is 15.")),
    row(variation=1, reward=0.9, guided=right("It is 85, as 8 + 7 is 15.")),
    row(variation=3, reward=0.6, guided=right("It is the 85.")),
]


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ({"pick": "first_fit"}, [0]),
        ({"pick": "first_fit", "max_length": 28}, [1]),
        ({"pick": "first_fit", "max_length": 24}, [2]),
        ({"pick": "best_reward"}, [1]),
        ({"pick": "best_reward", "max_length": 24}, [3]),
        ({"pick": "shortest_correct"}, [3]),
        ({"pick": "all"}, [1]),
        ({"pick": "all", "per_question": 3}, [1, 0, 3]),
        ({"pick": "all", "per_question": 9}, [1, 0, 3, 2]),
        ({"pick": "all", "per_question": 9, "max_length": 24}, [3, 2]),
        ({"pick": "first_fit", "per_question": 9}, [0]),
        ({"pick": "best_reward", "max_length": 10}, []),
    ],
)
def test_which_variation_is_picked(options: dict[str, Any], taken: list[int]) -> None:
    """Of the words of each chat, 19 are the prompt's."""
    lengths = {
        one.variation: words([*TEMPLATES.baseline(QUESTION), {"content": one.guided[0].text}]) for one in VARIATIONS
    }
    assert lengths == {0: 34, 1: 28, 2: 24, 3: 23}
    found = made(VARIATIONS, **options)
    assert [one["variation"] for one in found.rows] == taken
    assert sum(found.counts.values()) == 4 + 4, "each is collected, and kept or left out for a reason"


def test_equal_ones_are_picked_by_reward() -> None:
    same = [
        row(variation=0, reward=reward, guided=right(f"It is {text}."))
        for reward, text in ((1, "a"), (3, "b"), (2, "c"))
    ]
    for pick in PICKS:
        assert answers(same, pick=pick) == ["It is b."]
    tied = [row(guided=right("It is a.", "It is b."))]
    assert answers(tied, pick="all", per_question=5) == ["It is a.", "It is b."]


def test_the_shortest_response_is_not_the_shortest_prompt() -> None:
    rows = [
        row(variation=0, teaching="Add the ones, and carry the 1.", guided=right("It is 85.")),
        row(variation=1, teaching="Carry.", guided=right("It is 85, as I say.")),
    ]
    (one,) = made(rows, "with_teaching", pick="shortest_correct").rows
    assert one["variation"] == 0


def test_letters_that_look_alike_may_differ() -> None:
    rows = [row(question=f"What is 3{power}?") for power in ("2", "\N{SUPERSCRIPT TWO}")]
    assert made(rows).counts == {"collected": 2, "kept": 2}


def test_repeats_are_taken_once() -> None:
    rows = [
        row(reward=1, guided=right("It is 85.", "it  IS\n85.", "It is\u00a085.")),
        row(reward=2, question="what is  58 + 27?", guided=right("It is 85.")),
    ]
    found = made(rows, pick="all", per_question=9)
    assert [one["reward"] for one in found.rows] == [2]
    assert found.counts == {"collected": 2, "duplicate": 3, "kept": 1}
    # Another teaching makes another prompt.
    taught = [row(teaching="Carry."), row(teaching="Carry the 1.")]
    assert made(taught, "with_teaching", pick="all", per_question=9).counts["kept"] == 2
    assert made(taught, pick="all", per_question=9).counts["kept"] == 1


def test_the_cap_is_a_questions() -> None:
    rows = [row(question=f"q{i % 2}", guided=right(f"It is {i}.")) for i in range(10)]
    found = made(rows, pick="all", per_question=2)
    assert [one["question"] for one in found.rows] == ["q0", "q0", "q1", "q1"]
    assert found.counts == {"collected": 10, "not_picked": 6, "kept": 4}


def test_both_answers_of_a_pair_must_fit() -> None:
    long = row(baseline=wrong("It is 75, " + "as I say, " * 20))
    assert made([long], "contrastive", max_length=40).counts == {"collected": 1, "too_long": 1, "kept": 0}
    assert made([long], max_length=40).counts["kept"] == 1


@settings(deadline=None)
@given(
    length=st.integers(1, 60), sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8), pick=st.sampled_from(PICKS)
)
def test_no_row_is_cut(length: int, sizes: list[int], pick: Any) -> None:
    """Every row that is taken ends in a whole response, and fits."""
    rows = [row(variation=i, guided=right(" ".join([str(i)] * size))) for i, size in enumerate(sizes)]
    found = made(rows, max_length=length, pick=pick, per_question=5)
    whole = {response.text for one in rows for response in one.guided}
    for one in found.rows:
        assert one["messages"][-1]["content"] in whole
        assert words(one["messages"]) == one["tokens"] <= length
    fitting = sum(19 + size <= length for size in sizes)
    assert len(found.rows) == min(fitting, 5 if pick == "all" else 1)


@pytest.mark.guards("delimiter inside data")
@pytest.mark.parametrize("field", ["question", "explanation", "solution"])
def test_a_delimiter_in_a_trace_is_no_end_of_it(field: str) -> None:
    """Such a row would be read as another thought or solution than it has."""
    found = made([row(**{field: "It says <|end_of_thought|> here."})], "rlt_trace")
    assert found.counts == {"collected": 1, "delimiter_in_text": 1, "kept": 0}


def test_held_out_questions_are_refused_and_can_be_taken_out() -> None:
    rows = [row(), row(question=" what IS 58 + 27?"), row(question="What is 58 + 28?")]
    held_out = {question_hash(QUESTION)}
    with pytest.raises(ConfigError) as error:
        made(rows, evaluation_hashes=held_out)
    assert str(error.value) == "2 of 3 rows are of held-out questions; take them out with without_evaluation first"
    kept, lost = without_evaluation(rows, held_out)
    assert (kept, lost) == (rows[2:], 2)
    assert made(kept, evaluation_hashes=held_out).counts["kept"] == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"mode": "guided"},
            "mode: 'guided' is not possible; write one of: self_guided, with_teaching, rlt_trace, cont",
        ),
        ({"max_length": 0}, "max_length: 0 takes no row; write the student's context length"),
        ({"pick": "best"}, "pick: 'best' is not possible; write one of: first_fit, best_reward, shortest_correct, all"),
        ({"per_question": 0}, "per_question: 0 takes no row; write 1 or more"),
        ({"min_gain": 2}, "min_gain: 2 is no difference or share; write a number up to 1"),
        ({"min_solve_rate": float("nan")}, "min_solve_rate: nan is no difference"),
    ],
)
def test_wrong_options_are_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        made([row()], **options)
    assert str(error.value).startswith(told)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_collected_makes_nothing(mode: Any) -> None:
    assert made([], mode) == StudentSet(rows=[], counts={"collected": 0, "kept": 0})


@pytest.mark.parametrize("mode", MODES)
def test_rows_can_be_written_as_json(mode: Any) -> None:
    (one,) = made([row()], mode).rows
    assert json.loads(json.dumps(one)) == one
