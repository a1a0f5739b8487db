"""The one extraction of answers, and what counts as the true one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.teaching.linear import assert_linear
from verl.classmate.errors import ConfigError
from verl.teaching import answers
from verl.teaching.answers import AnswerMethod, AnswerRules, extract_answer, same_as_truth
from verl.teaching.tags import TeachingTags

RULES = AnswerRules.of("openai/gsm8k", TeachingTags())
PLAIN = AnswerRules()
NUMBERED = AnswerRules(allow_last_number=True)


@pytest.mark.acceptance("T7")
@pytest.mark.parametrize(
    ("text", "answer", "method"),
    [
        # Solution tags.
        ("<solution>85</solution>", "85", "solution_tag"),
        ("It is <solution>\n 85 \n</solution>.", "85", "solution_tag"),
        ("<solution>84</solution> No: <solution>85</solution>", "85", "solution_tag"),
        ("<solution>85</solution> and <solution>8", "85", "solution_tag"),
        ("Between <solution> and so on: <solution>85</solution>", "85", "solution_tag"),
        ("<solution>85</solution> \\boxed{84} #### 83", "85", "solution_tag"),
        ("<solution>So it is \\boxed{\\frac{1}{2}}.</solution>", "\\frac{1}{2}", "solution_tag"),
        ("<solution>58 + 27 = 85\n#### 85</solution>", "85", "solution_tag"),
        ("<solution>Paris</solution>", "Paris", "solution_tag"),
        ("<solution> </solution> \\boxed{85}", "85", "boxed"),
        # Boxes, with balanced braces.
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}", "boxed"),
        ("\\boxed{\\frac{a^{2}}{\\sqrt{b}}} and so on }", "\\frac{a^{2}}{\\sqrt{b}}", "boxed"),
        ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}", "boxed"),
        ("first \\boxed{1}, at last \\boxed{2}", "2", "boxed"),
        ("\\boxed{1} then \\boxed{\\frac{1}{2", "1", "boxed"),
        ("\\boxed{50\\%}", "50\\%", "boxed"),
        ("\\boxed{1{,}000}", "1{,}000", "boxed"),
        ("\\boxed{} #### 3", "3", "marker"),
        ("\\boxed{85} #### 84", "85", "boxed"),
        # The data set's marker.
        ("58 + 27 = 85\n#### 85", "85", "marker"),
        ("#### 84\nNo.\n#### 1,085 \n", "1,085", "marker"),
        ("#### 85\n####\n", "85", "marker"),
        ("#### 84 #### 85", "85", "marker"),
        # None.
        ("The answer is 85.", None, "none"),
        ("85", None, "none"),
        ("", None, "none"),
        ("<solution>85", None, "none"),
        ("85</solution>", None, "none"),
        ("<SOLUTION>85</SOLUTION>", None, "none"),
        ("</solution>85<solution>", None, "none"),
        ("\\boxed{85", None, "none"),
        ("####", None, "none"),
    ],
)
def test_what_is_found(text: str, answer: str | None, method: str) -> None:
    found = extract_answer(text, RULES)
    assert (found.text, found.method) == (answer, method)


def test_a_marker_is_the_data_sets_own() -> None:
    assert extract_answer("#### 85", PLAIN).text is None
    assert AnswerRules.of("openai/gsm8k_other", TeachingTags()).marker is None, "names are not matched in part"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("58 + 27 = 85.", "85"),
        ("about $1,250.50 in all", "1,250.50"),
        ("that is 1/2", "1/2"),
        ("a share of 50%.", "50%"),
        ("it falls to -4", "-4"),
        ("no number", None),
        ("gsm8k", None),
    ],
)
def test_a_last_number_only_if_allowed(text: str, answer: str | None) -> None:
    assert extract_answer(text, RULES).text is None
    found = extract_answer(text, NUMBERED)
    assert (found.text, found.method) == (answer, "last_number" if answer else "none")
    assert extract_answer(f"<solution>7</solution> {text}", NUMBERED).text == "7"


@pytest.mark.parametrize(
    ("text", "truncated"),
    [
        ("<solution>85</solution>", False),
        ("The answer is 85", False),
        ("<solution>8", True),
        ("<solution>84</solution> or <solution>8", True),
        ("\\boxed{8", True),
        ("\\boxed{\\frac{1}{2}", True),
        ("\\boxed{84} and \\boxed{8", True),
        ("\\boxed{8} and {", False),
        ("", False),
    ],
)
def test_what_was_cut_off(text: str, truncated: bool) -> None:
    assert extract_answer(text, RULES).truncated is truncated
    assert extract_answer(text, RULES, stopped_at_budget=True).truncated


@pytest.mark.acceptance("T7")
@pytest.mark.guards("box cut at the first brace")
def test_a_box_ends_at_its_own_brace() -> None:
    """`\\boxed{\\frac{1}{2}}` is a half and not `\\frac{1`."""
    for depth in range(1, 30):
        inner = "\\frac{1}{" * depth + "2" + "}" * depth
        assert extract_answer(f"so \\boxed{{{inner}}} }} {{", PLAIN).text == inner


@pytest.mark.guards("a pattern copied from one test item")
@settings(deadline=None)
@given(content=st.text(alphabet="abc XYZ019.,-+*/=()[]^_:;!?é\n", min_size=1).filter(str.strip))
def test_answers_of_any_form_are_found(content: str) -> None:
    """No mark expects a number, a unit or a form of words."""
    assert extract_answer(f"x <solution>{content}</solution> y", PLAIN).text == content.strip()
    line = " ".join(content.split())
    assert extract_answer(f"x\n#### {line}\ny", RULES).text == line
    assert extract_answer(f"x \\boxed{{{content}}} y", PLAIN).text == content.strip()


@settings(deadline=None)
@given(text=st.text(), before=st.text())
def test_whatever_comes_before_changes_no_marked_answer(text: str, before: str) -> None:
    found = extract_answer(f"{before}<solution>7</solution>", PLAIN)
    assert (found.text, found.method) == ("7", AnswerMethod.solution_tag)
    anything = extract_answer(text, NUMBERED)
    assert anything.text is None or (anything.text.strip() == anything.text != "")


@pytest.mark.acceptance("T7")
@pytest.mark.guards("thousands, fractions and percent not normalised")
@pytest.mark.parametrize(
    ("answer", "truth"),
    [
        ("1,000", "1000"),
        ("1000", "1,000"),
        ("1{,}000", "1000"),
        ("$1,250.50", "1250.5"),
        ("1/2", "0.5"),
        ("\\frac{1}{2}", "1/2"),
        ("\\dfrac12", "0.5"),
        ("2/4", "1/2"),
        ("50%", "0.5"),
        ("50\\%", "1/2"),
        ("$50\\%$", "0.5"),
        ("\\(50\\%\\)", "1/2"),
        ("50 percent", "0.5"),
        ("-50%", "-0.5"),
        ("200%", "2"),
        ("0.5%", "0.005"),
        ("50%", "50"),
        ("0.5", "50%"),
        ("12.5%", "0.125"),
        ("1.50", "1.5"),
        ("The answer is 85", "85"),
        ("x = 85", "85"),
        ("85 apples", "85"),
        ("Paris", "paris"),
        ("(B)", "B"),
        ("x+1", "1+x"),
    ],
)
def test_the_same_answer_in_other_words(answer: str, truth: str) -> None:
    assert same_as_truth(answer, truth) is True


@pytest.mark.guards("answers rounded to two decimals")
@pytest.mark.parametrize(
    ("answer", "truth"),
    [
        ("0.001", "0.004"),
        ("0.333", "1/3"),
        ("0.33", "0.333"),
        ("3.14", "3.14159"),
        ("2.004", "2"),
        ("33.3%", "1/3"),
        ("0.5%", "0.5"),
        ("50%", "5"),
    ],
)
def test_nothing_is_rounded(answer: str, truth: str) -> None:
    """With two decimals most of these would be right; and a percentage is no other number."""
    assert same_as_truth(answer, truth) is False


@pytest.mark.guards("substring match, which an empty answer passes")
def test_a_part_of_the_truth_is_not_the_truth() -> None:
    """Nor is a text that the truth is a part of; and no answer is always wrong."""
    for answer in (None, "", " \n", "8", "185", "85.5", "850", "84, 85", "5"):
        assert same_as_truth(answer, "85") is False
    for answer in ("", "Par", "Paris or Rome", "a"):
        assert same_as_truth(answer, "Paris") is False


@settings(deadline=None, max_examples=200)
@given(number=st.integers(-(10**9), 10**9), cents=st.integers(0, 999))
def test_a_number_is_itself_alone(number: int, cents: int) -> None:
    written = f"{number}.{cents:03}"
    assert same_as_truth(f"{number:,}.{cents:03}", written) is True
    assert same_as_truth(f"{number}.{(cents + 1) % 1000:03}", written) is False


def test_a_checker_that_cannot_tell_is_no_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "same_answer", lambda answer, truth: None)
    assert same_as_truth("2(x+1)", "3(x+1)") is None
    assert same_as_truth("2 \\cdot (x + 1)", "2(x+1)") is True, "letter by letter"
    assert same_as_truth("", "2(x+1)") is False


def test_a_blank_truth_is_refused() -> None:
    for blank in ("", " "):
        with pytest.raises(ConfigError, match="a ground truth is blank; take the rows without one out of the data"):
            same_as_truth("85", blank)


@pytest.mark.parametrize(
    "unit",
    [" ", "\n", "9", "1,", "1/", "%", "#", "####", "#### ", "{", "}", "\\", "\\boxed{", "\\boxed{1}", "<solution>",
     "</solution>", "<solution> </solution>", "a ", "-"],
)  # fmt: skip
def test_times_are_linear(unit: str) -> None:
    rules = AnswerRules(marker="####", allow_last_number=True)
    assert_linear(lambda text: extract_answer(text, rules), unit)
    assert_linear(lambda text: same_as_truth(text, "85"), unit)


def test_fifty_thousand_blanks_are_no_answer() -> None:
    blanks = " " * 50_000
    for text in (blanks, f"<solution>{blanks}</solution>", f"\\boxed{{{blanks}}}", f"####{blanks}"):
        assert extract_answer(text, RULES).text is None
    assert extract_answer(f"<solution>{blanks}85{blanks}</solution>", RULES).text == "85"
