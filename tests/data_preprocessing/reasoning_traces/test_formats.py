"""Formats of data sets with thoughts: what is read, how it is written back, and what is refused in one line."""

import json

import pytest

from verl.classmate.errors import ConfigError
from verl.data_preprocessing.reasoning_traces import (
    DATA_CONFIGS,
    Columns,
    Completion,
    DataConfig,
    TracedRow,
    data_config,
    register_data_config,
)
from verl.data_preprocessing.reasoning_traces.rows import truth_in

STRATOS = DATA_CONFIGS["bespoke_stratos"]
WRITTEN = (
    "<|begin_of_thought|>\n\nAdd the ones.\n\n<|end_of_thought|>\n\n"
    "<|begin_of_solution|>\n\nIt is $\\boxed{85}$.\n\n<|end_of_solution|>"
)


def stratos(written: str = WRITTEN, **more: object) -> dict[str, object]:
    turns = [{"from": "user", "value": "What is 58 + 27?"}, {"from": "assistant", "value": written}]
    return {"system": "Think first.", "conversations": turns, **more}


def test_a_stratos_record_is_read_and_written_back() -> None:
    row = STRATOS.read(stratos())
    assert (row.question, row.trace, row.solution) == ("What is 58 + 27?", "Add the ones.", "It is $\\boxed{85}$.")
    assert (row.system, row.ground_truth) == ("Think first.", "85")
    assert STRATOS.question_and_completion(stratos()) == ("What is 58 + 27?", WRITTEN)


def test_line_breaks_of_windows_are_those_of_unix() -> None:
    row = STRATOS.read(stratos(WRITTEN.replace("\n", "\r\n").replace("Add the", "Add\r\nthe")))
    assert row.trace == "Add\nthe ones."
    assert "\r" not in STRATOS.completion(row)


@pytest.mark.guards("missing tag as IndexError")
@pytest.mark.parametrize("mark", STRATOS.form.marks)
def test_a_missing_mark_is_one_line_that_names_it(mark: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$") as error:
        STRATOS.read(stratos(WRITTEN.replace(mark, "")))
    assert mark in str(error.value)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (WRITTEN.replace("Add", "I never write <|end_of_thought|> early. Add"), "2 times"),
        (WRITTEN.replace("Add the ones.", "  "), "the thought of the completion is blank"),
        (WRITTEN.replace("It is $\\boxed{85}$.", ""), "the solution of the completion is blank"),
        (WRITTEN + "\nBye.", "text behind"),
        ("<|end_of_thought|><|begin_of_thought|>a<|begin_of_solution|>b<|end_of_solution|>", "wrong place"),
        ("", "one turn of the user and one of the assistant"),
    ],
)
def test_a_completion_that_cannot_be_told_apart_is_refused(written: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        STRATOS.read(stratos(written))


@pytest.mark.parametrize("turns", [None, [], "text", [{"from": "user"}], [{"from": "user", "value": "a"}] * 2])
def test_conversations_of_another_shape_are_one_line(turns: object) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*conversations[^\n]*$"):
        STRATOS.read(stratos(conversations=turns))


def test_a_mark_within_a_text_is_refused_not_written() -> None:
    row = TracedRow(question="?", trace="then <|end_of_thought|> comes", solution="2")
    with pytest.raises(ValueError, match="stands within a text"):
        STRATOS.completion(row)


def test_tags_of_r1_and_a_prefix_round_trip() -> None:
    config = DataConfig(
        think_tag="think",
        solution_tag="answer",
        tag_format="r1",
        think_prefix="Well. ",
        think_solution_delimiter="\n",
        delimiters_padding="",
    )
    written = config.completion(TracedRow(question="1+1?", trace="Two ones.", solution="2"))
    assert written == "Well. <think>Two ones.</think>\n<answer>2</answer>"
    assert config.split(written) == Completion(prefix="Well. ", think="Two ones.", delimiter="\n", solution="2")
    assert "<think>" in str(config.student_system)


def test_the_delimiter_is_the_datas_unless_the_format_has_one() -> None:
    odd = WRITTEN.replace("<|end_of_thought|>\n\n", "<|end_of_thought|>\nSo:\n")
    assert STRATOS.completion(STRATOS.read(stratos(odd))) == odd


@pytest.mark.guards("documented column not the one read")
def test_a_missing_column_names_those_that_are_looked_for() -> None:
    with pytest.raises(ValueError, match=r"no column question \(or prompt, problem\) .*; there are: q, a;"):
        DataConfig().read({"q": "1+1?", "a": "2"})
    with pytest.raises(ValueError, match=r"no column solution \(or answer, ground_truth\)"):
        DataConfig().read({"question": "1+1?"})


@pytest.mark.parametrize(
    ("fields", "solution", "truth"),
    [
        ({"problem": "1+1?", "answer": 2}, "2", "2"),
        ({"prompt": "1+1?", "solution": "So \\boxed{2}.", "answer": "2.0"}, "So \\boxed{2}.", "2.0"),
        ({"question": "1+1?", "solution": "So \\boxed{2}.", "answer": None}, "So \\boxed{2}.", "2"),
        ({"question": "Prove it.", "solution": "First.\nSecond."}, "First.\nSecond.", None),
        ({"question": "1+1?", "solution": "  "}, None, None),
        ({"question": "1+1?", "ground_truth": "two"}, "two", "two"),
    ],
)
def test_solution_and_ground_truth(fields: dict[str, object], solution: str | None, truth: str | None) -> None:
    row = DataConfig().read(fields)
    assert (row.solution, row.ground_truth) == (solution, truth)


@pytest.mark.parametrize("question", ["", " \r\n", None, "\u200b"])
def test_a_blank_question_is_refused(question: object) -> None:
    with pytest.raises(ValueError, match="the question is blank"):
        DataConfig().read({"question": question, "solution": "2"})


def test_a_column_of_another_type_is_one_line() -> None:
    with pytest.raises(ValueError, match="column prompt holds list, no text"):
        DataConfig().read({"prompt": [{"role": "user", "content": "1+1?"}], "solution": "2"})


def test_lessons_need_no_solution_and_may_say_nothing() -> None:
    fields = {
        "problem_text": "58 + 27?",
        "student_approach": "ones first",
        "teacher_diagnosis": "sound",
        "teacher_teaching": "",
    }
    row = DATA_CONFIGS["adaptive_teaching"].read(fields)
    assert (row.approach, row.diagnosis, row.teaching, row.solution) == ("ones first", "sound", "", None)


@pytest.mark.guards("unknown format silently custom")
def test_an_unknown_id_lists_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"data\.format=stratos is not known; write one of: .*bespoke_str.*custom"):
        data_config("stratos")


def test_a_registered_format_is_known_and_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl.data_preprocessing.reasoning_traces.formats.DATA_CONFIGS", dict(DATA_CONFIGS))
    mine = DataConfig(columns=Columns(question=("q",)))
    register_data_config("mine", mine)
    assert data_config("mine") is mine
    with pytest.raises(ConfigError, match="'mine' is taken"):
        register_data_config("mine", DataConfig())


@pytest.mark.parametrize(
    "wrong",
    [{"tag_format": "xml"}, {"think_tag": "a b"}, {"think_tag": "solution"}, {"system_prompt_style": "haiku"}],
)
def test_an_impossible_format_is_one_line(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"^[^\n]+$"):
        DataConfig(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "file"), [("s1k", "s1k_reasoning_sample.jsonl"), ("medical_o1", "medical_o1_reasoning.jsonl")]
)
def test_real_rows_split_into_what_they_were_made_of(name: str, file: str, sample_data) -> None:
    config = DATA_CONFIGS[name]
    lines = sample_data(file).read_text().splitlines()
    for line in lines:
        row = config.read(json.loads(line))
        parts = config.split(config.completion(row))
        assert (parts.think, parts.solution) == (row.trace, row.solution)
    assert len(lines) >= 5


def test_the_documented_module_has_the_same_table() -> None:
    from custom_data import reasoning_datasets_info

    assert reasoning_datasets_info.DATA_CONFIGS is DATA_CONFIGS
    assert reasoning_datasets_info.register_data_config is register_data_config


@pytest.mark.parametrize(
    ("solution", "truth"),
    [
        ("He buys 48.\nSo 48 + 24 = 72.\n#### 72", "72"),
        ("We get 42. #### 42", "42"),
        ("#### First\nAdd the ones.\n#### Then\nAdd the tens.", None),
        ("Assume the contrary.\n####", None),
    ],
)
def test_a_set_of_ones_own_may_mark_answers_as_gsm8k_does(solution: str, truth: str | None) -> None:
    assert truth_in(solution, "mine") == truth
