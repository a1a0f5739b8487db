"""GSM8K and MATH on answers as people and models write them.

`answer_pairs.tsv` was written by hand too: 1 for two answers that are the same, 0 for two that are not, with the second
as the truth. The order of letters counts in words and names of three points and more, and in a list of letters.

`answer_forms.tsv` was written by hand: verifier, score (- for none), truth, output (with the sign for a new line). Its
scores are what a mathematician says, not what the code says.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.utils.reward_score.cot_monitor import get_verifier
from verl.utils.reward_score.cot_monitor._boxed import last_boxed
from verl.utils.reward_score.cot_monitor._math import same_answer
from verl.utils.reward_score.cot_monitor._math_pool import same_value
from verl.utils.reward_score.cot_monitor._math_reading import Reading, read

gsm8k = get_verifier("openai/gsm8k")
math = get_verifier("hendrycks_math")

LINES = (Path(__file__).parent / "answer_forms.tsv").read_text().splitlines()
PAIRS = [
    line.split("\t")
    for line in (Path(__file__).parent / "answer_pairs.tsv").read_text().splitlines()
    if not line.startswith("#")
]
FORMS = [line.split("\t") for line in LINES if not line.startswith("#")]


@pytest.mark.guards("numbers in prose or a lone A parsed as answers")
def test_answers_are_scored_as_a_mathematician_would() -> None:
    assert len(FORMS) >= 300
    assert {source for source, *_ in FORMS} == {"openai/gsm8k", "hendrycks_math"}
    wrong = []
    for source, expected, truth, output in FORMS:
        score = get_verifier(source).compute_score(output.replace("\N{RETURN SYMBOL}", "\n"), truth)
        if score != (None if expected == "-" else float(expected)):
            wrong.append(f"{output} against {truth}: {score}, not {expected}")
    assert not wrong, "\n".join(wrong)


def test_pairs_are_the_same_where_a_mathematician_says_so() -> None:
    assert len(PAIRS) >= 500
    wrong = []
    for expected, answer, truth in PAIRS:
        same = math.compute_score(f"so $\\boxed{{{answer}}}$", truth)
        if same != float(expected):
            wrong.append(f"{answer} against {truth}: {same}, not {expected}")
    assert not wrong, "\n".join(wrong)


def test_no_false_answer_becomes_right_when_it_is_the_truth() -> None:
    paid = [pair for pair in PAIRS if pair[0] == "0" and same_answer(pair[2], pair[1])]
    assert not paid


ENDS = "abcdxyz"


@given(
    st.sampled_from([r"\sum", r"\prod", r"\bigcup", r"\bigcap"]),
    st.sampled_from("kni"),
    st.integers(2, 9),
    st.sampled_from(ENDS),
    st.sampled_from([r"\frac{1}{%s}", "%s^2", "a_%s", "%s", r"\sin %s", "2^%s"]),
)
@settings(max_examples=10, deadline=None)
def test_no_index_of_a_big_operator_is_its_value(operator: str, index: str, low: int, end: str, body: str) -> None:
    whole = rf"{operator}_{{{index}={low}}}^{{{end}}} {body % index}"
    for other in (str(low), end, f"{index}={low}", rf"{operator}_{{{index}={low + 1}}}^{{{end}}} {body % index}"):
        assert not same_answer(whole, other), (whole, other)
        assert not same_answer(other, whole), (whole, other)
    assert same_answer(whole.replace("}^{", "}^ {"), whole)


@given(st.permutations("ABCD"), st.integers(3, 4))
@settings(max_examples=8, deadline=None)
def test_points_in_another_order_are_another_name(points: list[str], size: int) -> None:
    name, alphabetical = "".join(points[:size]), "".join(sorted(points[:size]))
    for form in ("%s", r"\text{%s}", r"\triangle %s", "$%s$"):
        assert bool(same_answer(form % name, form % alphabetical)) == (name == alphabetical), form


@given(*[st.integers(-9, 9).filter(bool)] * 4)
@settings(max_examples=8, deadline=None)
def test_a_line_is_the_same_in_every_form(a: int, b: int, c: int, factor: int) -> None:
    truth = f"y = \\frac{{{-a}}}{{{b}}}x + \\frac{{{-c}}}{{{b}}}"
    forms = [f"{a}x + {b}y + {c} = 0", f"{a}x + {b}y = {-c}", f"{factor * a}x + {factor * b}y = {-factor * c}"]
    for form in [form.replace("+ -", "- ") for form in forms]:
        assert same_answer(form, truth), (form, truth)
        assert same_answer(truth, form), (form, truth)
    assert not same_answer(f"{a}x + {b}y + {c + factor} = 0".replace("+ -", "- "), truth)
    assert not same_answer(f"{a}x + {-b}y + {c} = 0".replace("+ -", "- "), truth)


def test_gsm8k_agrees_with_every_reference_solution(sample_data: Callable[[str], Path]) -> None:
    solutions = [json.loads(line)["answer"] for line in sample_data("gsm8k_train.jsonl").open()]
    assert len(solutions) == 7473
    truths = [solution.rpartition("####")[2].strip().replace(",", "") for solution in solutions]
    for i, (solution, truth) in enumerate(zip(solutions, truths, strict=True)):
        assert gsm8k.compute_score(solution, truth) == 1.0, f"line {i + 1}"
        other = truths[i - 1] if float(truths[i - 1]) != float(truth) else "0.1"
        assert gsm8k.compute_score(solution, other) == 0.0, f"line {i + 1} against {other}"


def test_gsm8k_agrees_with_what_others_say_of_models_answers(sample_data: Callable[[str], Path]) -> None:
    """ProcessBench says of 297 models' solutions whether the final answer is right."""
    questions = [json.loads(line) for line in sample_data("gsm8k_test.jsonl").open()]
    truths = {" ".join(row["question"].split()): row["answer"].rpartition("####")[2].strip() for row in questions}
    solutions = [json.loads(line) for line in sample_data("processbench_gsm8k.jsonl").open()]
    marked, disagreed = 0, []
    for solution in solutions:
        output, truth = "\n\n".join(solution["steps"]), truths[" ".join(solution["problem"].split())]
        if gsm8k.reference_answer(output) is not None:
            marked += 1
            if gsm8k.compute_score(output, truth) != float(solution["final_answer_correct"]):
                disagreed.append(solution["id"])
    assert marked > 250
    # The boxed answers of two, called wrong there, are those of GSM8K.
    assert len(disagreed) <= 2, disagreed


NUMBERS = st.one_of(
    st.integers(-(10**9), 10**9).map(str),
    st.integers(0, 10**9).map("{:,}".format),
    st.decimals(-1000, 1000, places=3).map("{:f}".format),
    st.tuples(st.integers(-99, 99), st.integers(1, 99)).map(
        lambda f: f"{'-' * (f[0] < 0)}\\frac{{{abs(f[0])}}}{{{f[1]}}}"
    ),
    st.tuples(st.integers(1, 99), st.integers(1, 9), st.integers(1, 9)).map(
        lambda f: f"{f[0]}\\frac{{{f[1]}}}{{{f[2]}}}"
    ),
)


def compared_exactly(one: Reading, other: Reading) -> bool:
    """Whether math-verify is not asked, though it could be."""
    plain = [(reading.scale, reading.units, reading.base) == (0, None, None) for reading in (one, other)]
    return all(plain) and any(
        None not in (getattr(one, exact), getattr(other, exact)) for exact in ("decimal", "ratio")
    )


@given(NUMBERS, NUMBERS)
@settings(max_examples=100, deadline=None)
def test_what_is_compared_exactly_math_verify_compares_alike(one: str, other: str) -> None:
    for pair in ((one, other), (other, one), (one, one)):
        if compared_exactly(*map(read, pair)):
            assert same_answer(*pair) == same_value(*(read(text).value for text in pair)), pair


def test_math_verify_agrees_on_forms_that_are_compared_exactly() -> None:
    compared = 0
    for source, expected, truth, output in FORMS:
        one, other = read(get_verifier(source).reference_answer(output) or ""), read(truth)
        if compared_exactly(one, other):
            compared += 1
            assert same_value(one.value, other.value) == (expected == "1"), output
    assert compared > 80


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{a}\boxed{b}", "b"),
        (r"\boxed{a}, \boxed{b}", "a, b"),
        (r"\boxed{a} and \boxed{b", "a"),
        (r"\boxed{", None),
        ("no box", None),
    ],
)
def test_the_last_whole_box_counts(text: str, box: str | None) -> None:
    assert last_boxed(text) == box


def test_hostile_texts_are_read_in_one_pass() -> None:
    """None of these ends if braces, commands or words are tried again and again."""
    for text in (
        "\\boxed{" * 20_000,
        "\\boxed{" * 20_000 + "}" * 20_000,
        "\\boxed{" + "\\abcdefgh" * 100 + "!}",
        "\\boxed{" + "word " * 199 + "!}",
        "\\boxed{" + "9" * 20_000 + "}",
        "The answer is " * 20_000,
        "####" * 20_000,
        "answer: " + " " * 20_000 + "x",
    ):
        assert gsm8k.compute_score(text, "7") in (0.0, None)
        assert math.compute_score(text, "7") in (0.0, None)


@given(st.text(alphabet=st.sampled_from("\\{}boxed frac12,.%$ans#wer is=()[]-+^_text"), max_size=80))
@settings(max_examples=100, deadline=None)
def test_no_text_breaks_a_verifier(text: str) -> None:
    for verifier in (gsm8k, math):
        assert verifier.compute_score(text, "\\frac{1}{2}") in (None, 0.0, 1.0)
        answer = verifier.reference_answer(text)
        assert answer is None or verifier.compute_score(f"\\boxed{{{answer}}}" if answer else text, answer) in (
            None,
            0.0,
            1.0,
        )


@given(st.integers(-(10**9), 10**9))
@settings(max_examples=50, deadline=None)
def test_every_way_to_write_an_integer(number: int) -> None:
    for form in (
        f"\\boxed{{{number:,}}}",
        f"#### {number}",
        f"The answer is ${number:,}.00.",
        f"\\boxed{{x = {number}}}",
    ):
        assert gsm8k.compute_score(form, str(number)) == 1.0, form
        assert gsm8k.compute_score(form, str(number + 1)) == 0.0, form


IN_WORDS = [
    "The answer is **{n}** apples.",
    "The answer is **{n} apples**.",
    "The answer is *{n}* apples.",
    "The answer is `{n}`.",
    "The answer is **${n}**.",
    "The answer is **\\${n}** per day.",
    "The answer is {n}%.",
    "The answer is **{n}%**.",
    "The answer is therefore **{n}**.",
    "The answer is, therefore, {n}.",
    "The answer, therefore, is {n} dollars.",
    "The answer would be {n}.",
    "The answer would be **{n}** apples.",
    "The answer must be {n}.",
    "The answer should be **{n}**",
    "The answer to this question is {n}.",
    "The answer to the problem is **{n}** apples.",
    "The answer was {n}.",
    "The answer comes to {n}.",
    "The answer is:\n\n**{n}**",
    "The answer is\n\\[ {n} \\]",
    "The answer is\n$$\n{n}\n$$",
    "The answer is \\({n}\\) apples.",
    "The answer is {n} apples in 3 boxes.",
    "The answer is **{n}** apples in 3 boxes.",
    "The answer is {n} apples for each of the 4 children.",
    "The answer is ${n} for 6 days of work.",
    "The answer is {n} apples, of which 4 are red.",
    "The answer is {n}, not 12345.",
    "The answer is {n}. The 3 boxes hold them all.",
    "The answer is not 12345. The answer is {n}.",
    "The answer is {n}. The answer is not 12345.",
    "**Answer:** **{n}** dollars",
    "**Answer:** {n}",
    "**Answer: {n} dollars**",
    "**Answer**: **{n}**",
    "Answer: **{n}**",
    "Answer: ${n}",
    "Answer: \\${n}",
    "Answer = {n}",
    "ANSWER: {n} apples",
    "Final answer: **{n}** apples.",
    "Final Answer: The final answer is **{n}**. I hope it is correct.",
    "### Answer\n{n}",
    "### Answer\n\n**{n}** apples",
    "### Answer:\n{n} apples",
    "## Final Answer\n\nJanet has {n} apples.",
    "#### Answer\n{n}",
    "#### Answer: {n}",
    "#### **{n}**",
    "#### {n} apples in 3 boxes",
    "**Answer**\n{n}",
    "**Final Answer**\n\n\\[\n{n}\n\\]",
    "> **Answer:** {n}",
    "3 * 4 = 12, and therefore **{n}**",
    "3 * 4 = 12, therefore **{n}** apples.",
    "3 * 4 = **{n}**",
    "3 * 4 = **{n} apples**",
    "3 * 4 = **${n}**.",
    "**{n}**",
    "**{n} apples**",
    "**{n}** apples",
    "So she has **{n}** apples.",
    "So, Janet makes **${n}** every day.",
    "It would be **{n}**.",
    "First 3 * 4 = **12345**.\n\nSo she has **{n}** apples.",
    "So she has **{n}** apples.\n\nI hope that helps!",
]

NOT_ANSWERS = [
    "The answer is not {n}.",
    "The answer isn't {n}.",
    "The answer is not **{n}**.",
    "The answer cannot be {n}.",
    "The answer is 12345 apples in {n} boxes.",
    "The answer is **12345** apples in {n} boxes.",
    "The answer is $12345 for {n} days.",
    "The answer is 12345, not {n}.",
    "The answer is 12345. She has {n} left.",
    "The answer is 12345. Check: 3 * 4 = **{n}**",
    "The answer is {n} or 12345.",
    "The answer is between {n} and 12345.",
    "The answer is {n} hours and 30 minutes.",
    "### Answer\n12345 apples in {n} boxes",
    "#### 12345 apples in {n} boxes",
    "Question {n}: what is the answer?",
    "So she has {n} apples.",
    "therefore {n}",
    "3 * 4 = {n}",
    "**{n}**\n\nSo she has 12345 apples.",
    "**Step {n}**",
    "**{n}. Count the apples**",
    "**{n} boxes:** count the apples",
    "**{n} boxes**: count the apples",
    "\\boxed{12345} is right, since she has **{n}** boxes.",
    "Answering {n} questions takes time.",
]


@pytest.mark.parametrize("number", ["10", "1,250", "10.00", "-7", "0.5", "1250000", "3"])
def test_gsm8k_answers_in_words_and_markup(number: str) -> None:
    value = number.replace(",", "")
    # Of a number below 1 the percent sign makes another.
    for form in IN_WORDS if abs(float(value)) >= 1 else [form for form in IN_WORDS if "%" not in form]:
        text = form.replace("{n}", number)
        assert gsm8k.compute_score(text, value) == 1.0, text
        assert gsm8k.compute_score(text, "77") == 0.0, text
    for form in NOT_ANSWERS:
        assert gsm8k.compute_score(form.replace("{n}", number), value) == 0.0, form


def test_classmates_can_be_held_against_the_main_answer() -> None:
    """The consistency reward's truth is what the policy answered, in whatever form."""
    for verifier, output in ((gsm8k, "The answer is \\frac{5}{2} hours."), (math, "so \\boxed{2\\frac{1}{2}}")):
        answer = verifier.reference_answer(output)
        assert verifier.compute_score("\\boxed{2.5}", answer) == 1.0
        assert verifier.compute_score("\\boxed{3}", answer) == 0.0
        assert verifier.reference_answer("I do not know") is None
