"""Warm-up rows: what is given, what is learnt, and that both are what a run asks and expects."""

import pytest

from verl.data_preprocessing.reasoning_traces import DATA_CONFIGS, TracedRow, sft
from verl.teaching.explanation import STYLES
from verl.teaching.tags import TeachingState, extract_teaching
from verl.teaching.templates import Templates

FORM = STYLES["stratos"]
ROW = TracedRow(question="What is 58 + 27?", solution="85", trace="Add the ones, carry, add the tens.")
LESSON = TracedRow(
    question="What is 58 + 27?", approach="Ones, then tens.", diagnosis="Forgets to carry.", teaching="Mind the carry."
)


def words(text: str) -> int:
    return len(text.split())


def test_an_explaining_row_learns_what_follows_the_solution() -> None:
    row = sft.explaining_row(ROW, FORM)
    system, user, answer = row["messages"]
    given, learnt = answer["content"][: row["loss_from"]], answer["content"][row["loss_from"] :]
    assert [system["role"], user] == ["system", {"role": "user", "content": ROW.question}]
    assert given == ("<|begin_of_solution|>\n\n85\n\n<|end_of_solution|>\n\n<|begin_of_explanation|>\n\n")
    assert FORM.explanation_of(learnt) == (ROW.trace, True)
    assert all(mark in system["content"] for mark in FORM.marks)


@pytest.mark.guards("SFT format unlike RL format")
def test_what_rl_gives_a_teacher_is_what_the_warm_up_gave() -> None:
    from verl.data_preprocessing.teaching_rows import rl_row

    warm = sft.explaining_row(ROW, FORM)
    info = rl_row(ROW, DATA_CONFIGS["custom"], data_source="custom", info={"split": "train", "index": 0})["extra_info"]
    assert info["teacher_opening"] == warm["messages"][-1]["content"][: warm["loss_from"]]
    assert info["teacher_system_prompt"] == warm["messages"][0]["content"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"trace": None}, "no reasoning trace"),
        ({"solution": None}, "the solution is blank"),
        ({"trace": "see <|end_of_explanation|>"}, "stands within a text"),
        ({"question": "<|begin_of_solution|>?"}, "stands within a text"),
    ],
)
def test_a_row_that_cannot_be_explained_is_refused(more: dict[str, str | None], told: str) -> None:
    fields = {"question": ROW.question, "solution": ROW.solution, "trace": ROW.trace, **more}
    with pytest.raises(ValueError, match=told):
        sft.explaining_row(TracedRow(**fields), FORM)  # type: ignore[arg-type]


@pytest.mark.guards("SFT format unlike RL format")
def test_an_advising_row_is_asked_what_the_run_asks() -> None:
    templates = Templates()
    row = sft.advising_row(LESSON, templates, teaching_limit=64, student_name="Ada")
    prompt = templates.adaptive(LESSON.question, LESSON.approach, teaching_limit=64, student_name="Ada")
    assert row["messages"][:-1] == prompt
    assert row["loss_from"] == 0


@pytest.mark.guards("SFT format unlike RL format")
@pytest.mark.parametrize(
    ("teaching", "state"),
    [
        ("Mind the carry.", TeachingState.ok),
        ("", TeachingState.empty),
        ("Write </teaching> <teaching> or </thinking>.", TeachingState.ok),
    ],
)
def test_what_is_learnt_keeps_the_tag_contract(teaching: str, state: TeachingState) -> None:
    templates = Templates()
    lesson = TracedRow(question="?", approach="a", diagnosis="Says <teaching>.", teaching=teaching)
    answer = sft.advising_row(lesson, templates, teaching_limit=64)["messages"][-1]["content"]
    found = extract_teaching(answer, templates.tags, count_tokens=words, max_tokens=64, overflow="penalize")
    assert found.state is state
    assert found.text == templates.tags.escaped(teaching)


def test_the_ground_truth_is_in_no_part_of_an_advising_row() -> None:
    lesson = TracedRow(question="q", approach="a", diagnosis="d", teaching="t", solution="4711", ground_truth="4711")
    assert "4711" not in str(sft.advising_row(lesson, Templates(), teaching_limit=64))


def test_bootstrap_rows_take_outlines_of_a_student() -> None:
    asked: list[list[str]] = []

    def student(questions: list[str]) -> list[str]:
        asked.append(questions)
        return [f"plan for {question}" for question in questions]

    rows = [TracedRow(question=f"q{i}", solution="2", trace="one two three four five") for i in range(5)]
    rows[1] = TracedRow(question="q1", solution="2", trace="one two", approach="my own")
    made = list(sft.bootstrap_rows(rows, max_tokens=3, count_tokens=words, outlines=student, batch=2))
    assert [row.approach for row in made] == ["plan for q0", "my own", "plan for q2", "plan for q3", "plan for q4"]
    assert [row.teaching for row in made] == ["one two three", "one two", *["one two three"] * 3]
    assert asked == [["q0"], ["q2", "q3"], ["q4"]]


def test_without_a_student_no_outline_is_made_up() -> None:
    (row,) = sft.bootstrap_rows([ROW], max_tokens=50, count_tokens=words)
    asked = sft.advising_row(row, Templates(), teaching_limit=50)["messages"][1]["content"]
    assert row.approach is None
    assert "was not asked" in asked


@pytest.mark.parametrize(("most", "kept"), [(1, "Add"), (4, "Add the ones, carry,"), (99, ROW.trace)])
def test_the_beginning_of_a_thought_ends_with_a_word(most: int, kept: str) -> None:
    assert sft.beginning(str(ROW.trace), max_tokens=most, count_tokens=words) == kept


def test_a_budget_without_room_for_a_word_is_told() -> None:
    with pytest.raises(ValueError, match="no word of the trace fits into 2 tokens"):
        sft.beginning("incomprehensible", max_tokens=2, count_tokens=len)


def test_the_solution_stands_in_for_a_thought_on_demand_only() -> None:
    row = TracedRow(question="?", solution="2")
    with pytest.raises(ValueError, match="no reasoning trace"):
        sft.explained(row)
    assert sft.explained(row, solution_as_trace=True).trace == "2"


def test_a_student_learns_thought_and_solution_in_the_sets_marks() -> None:
    config = DATA_CONFIGS["bespoke_stratos"]
    row = sft.student_row(ROW, config)
    assert config.split(row["messages"][-1]["content"]).think == ROW.trace
    assert row["messages"][0] == {"role": "system", "content": config.student_system}
    assert row["loss_from"] == 0
