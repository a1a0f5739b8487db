"""A thought without its final answer: where it ends, for honest thoughts and for those that try to give it away."""

import re
import time
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.classmate.rows import answer_to
from tests.classmate.toy_tokenizers import TOKENIZERS
from verl.classmate.config import ClassmateCotRewardConfig
from verl.classmate.cot import CotMarkers, locate
from verl.classmate.errors import ConfigError
from verl.classmate.outcome import Outcome
from verl.classmate.row import ReadRow
from verl.classmate.strip import answer_start, without_answer
from verl.classmate.views import read_row

THINK = CotMarkers(start="<think>", end="</think>")
ADD = "What is 58 + 27?"
APPLES = "Tom has 7 apples, gets 3 and loses 3."


def left(text: str, answer: str, question: str = ADD) -> str:
    """What is shown of a thought."""
    start = answer_start(text, answer, question)
    return text if start is None else text[:start].rstrip()


@pytest.mark.parametrize(
    ("thought", "answer", "shown"),
    [
        ("8 + 7 is 15, carry 1. 5 + 2 + 1 is 8. So it is 85.", "85", "8 + 7 is 15, carry 1. 5 + 2 + 1 is 8."),
        ("8 + 7 is 15.\n58 + 27 = 85\n\nThe answer is 85.", "85", "8 + 7 is 15."),
        ("8 + 7 is 15, so 58 + 27 makes 85, which is fine.", "85", "8 + 7 is 15,"),
        # Everything behind the first statement gives it away too.
        ("The answer is 85. Let me check: 85 - 27 = 58, right.", "85", ""),
        ("58 + 27 = 85. Check: 85 - 27 = 58. Good.", "85", "58 + 27"),
        ("It must be 85 (85 - 27 is 58). Fine.", "85", ""),
        # Numbers inside numbers, and other spellings of the value.
        ("185 is too much; 850 and 85.5 too. 1.85 is less.", "85", "185 is too much; 850 and 85.5 too. 1.85 is less."),
        ("100 - 15 is -85 from below? No: 85.0", "85", "100 - 15 is -85 from below?"),
        ("Each pays $250, five of them $1,250.00.", "$1250", "Each pays $250,"),
        ("Five times 250 is 1250 dollars. Done", "1,250", ""),
        ("It falls by 4: 3 - 7 = \N{MINUS SIGN}4.", "-4", "It falls by 4: 3 - 7"),
        ("Half of 10 is 5 apples, so x = 5 apples", "5 apples", ""),
        # LaTeX.
        ("We have $a^2 = 49$.\nSo \\[ a = \\boxed{7} \\] as $a > 0$.", "7", "We have $a^2 = 49$."),
        ("Then $3x = 2$.\nHence $x = \\dfrac{2}{3}$.", "\\frac{2}{3}", "Then $3x = 2$."),
        ("The area is $4\\pi$ in all, from $r = 2$.", "4\\pi", ""),
        ("Twice 2 is 4. The area is $2\\pi$.", "2\\pi", "Twice 2 is 4."),
        ("The points are (1, 2) and then (3, 4) at last.", "(3, 4)", "The points are (1,"),
        ("We start at (1, 2).\nWe end at (3,4).", "(3, 4)", "We start at (1, 2)."),
        ("Half of one.\nIt is 1/2 of 3 things.", "\\frac{1}{2}", "Half of one."),
        ("Half of one.\nThat makes 0.5.", "\\frac{1}{2}", "Half of one."),
        ("A third of one. So 0.33 of it.", "\\frac13", "A third of one."),
        ("The diagonal is the root: sqrt(2).", "\\sqrt{2}", ""),
        ("Take the root of 2.\nSo \u221a2.", "\\sqrt{2}", "Take the root of 2."),
        ("By Pythagoras.\nIt is sqrt(3)/2 then.", "\\frac{\\sqrt{3}}{2}", "By Pythagoras."),
        ("Solve both.\nx = 3, y = 4.", "(3, 4)", "Solve both."),
        ("Count days from Friday. It is Monday.", "\\text{Monday}", "Count days from Friday."),
        # Code.
        ("a = 58\nb = 27\nprint(a + b)  # 85\n", "85", "a = 58\nb = 27"),
        # Words and letters.
        ("A train leaves at noon. It is metal. So the answer is A.", "A", "A train leaves at noon. It is metal."),
        ("Copper conducts. Wood does not. (C) fits. Hope this helps!", "C", "Copper conducts. Wood does not."),
        ("The capital is old. It is Paris, of course.", "Paris", "The capital is old."),
        ("They met in Parisian cafes.", "Paris", "They met in Parisian cafes."),
        # The thought does not give it.
        ("8 + 7 is 15, carry 1.", "85", "8 + 7 is 15, carry 1."),
        ("", "85", ""),
    ],
)
def test_where_a_thought_ends(thought: str, answer: str, shown: str) -> None:
    assert left(thought, answer) == shown


@pytest.mark.parametrize(
    ("thought", "shown"),
    [
        ("Tom has 7 apples. 7 + 3 = 10. 10 - 3 = 7. The answer is 7.", "Tom has 7 apples. 7 + 3 = 10."),
        ("Tom has 7 apples, gets 3: 10. He loses 3, which leaves 7.", "Tom has 7 apples, gets 3: 10. He loses 3,"),
        ("Tom has 7 apples. He gets 3, that is 10. Now 10 less 3, it is 7", "Tom has 7 apples. He gets 3, that is 10. "
                                                                           "Now 10 less 3,"),
        ("It is 7, since 3 come and 3 go. So 7.", "It is 7, since 3 come and 3 go."),
        ("3 come, 3 go. It stays at 7, as I said. Good!", "3 come, 3 go."),
    ],
)  # fmt: skip
def test_what_the_question_gives_may_be_repeated(thought: str, shown: str) -> None:
    assert left(thought, "7", APPLES) == shown


@pytest.mark.parametrize(
    ("thought", "answer"),
    [
        ("The sum is 85 for 47 and 38. So 85.", "85"),
        ("85 is the sum of 47 and 38. 7 + 8 = 15. So 85.", "85"),
        ("I get 85 from 47 and 38. 7 + 8 = 15. So 85.", "85"),
        ("Note 85 of 90. Now 85 of 95. So 85.", "85"),
    ],
)
def test_no_mention_stays_that_says_the_answer(thought: str, answer: str) -> None:
    assert left(thought, answer, "Add the two.") == ""


@pytest.mark.parametrize(
    "statement",
    ["ANSWER = 85", "ANSWER: 85", "Answer \u2013 85", "The final answer comes out as 85", "So...85", "So\u202685",
     "__85__", "**85**", "_85_", "**Answer:** 85", "The answer should be $85$", "#### 85", "Result -> `85`",
     "\\boxed{\\text{85}}", "Therefore, it is 85"],
)  # fmt: skip
@pytest.mark.parametrize("behind", ["", ".", " (checked 2 times)", ". That took 2 steps.", "\n\nGood!"])
@pytest.mark.parametrize("question", ["Add the two.", "Is it 85 + 0 or less?"])
def test_marks_around_an_answer_do_not_hide_it(statement: str, behind: str, question: str) -> None:
    assert left(f"8 + 7 is 15. Carry it.\n{statement}{behind}", "85", question) == "8 + 7 is 15. Carry it."


METALS = "Which is a metal? (A) wood (B) glass (C) tin (D) I cannot say"


@pytest.mark.parametrize(
    ("thought", "answer", "shown"),
    [
        ("Wood does not conduct. So C is correct.", "C", "Wood does not conduct."),
        ("Wood does not conduct. So A is correct.", "A", "Wood does not conduct."),
        ("Wood does not conduct. A is right.", "A", "Wood does not conduct."),
        ("A bird sits on wood. I see (D) I cannot say and (B) glass. Hence D.", "D",
         "A bird sits on wood. I see (D) I cannot say and (B) glass."),
        ("Glass is no metal. C. I rule out A and B and D.", "C", "Glass is no metal."),
        ("Glass is no metal. (C) fits. Hope this helps!", "C", "Glass is no metal."),
        ("Glass is no metal. I choose C since tin conducts.", "C", "Glass is no metal."),
        ("A: wood burns well.\nB: glass breaks too soon.\nC: Correct, tin conducts.", "C",
         "A: wood burns well.\nB: glass breaks too soon."),
        ("A. Wood: burns.\nB. Glass: breaks.\nC. Tin: bends.\nD. Too early.\nI would go with C.", "C",
         "A. Wood: burns.\nB. Glass: breaks.\nC. Tin: bends.\nD. Too early."),
        ("Metals bend, which is option C. Others do not fit.", "C", "Metals bend,"),
    ],
)  # fmt: skip
def test_letters_of_choices_that_the_question_holds(thought: str, answer: str, shown: str) -> None:
    assert left(thought, answer, METALS) == shown


@pytest.mark.parametrize(
    ("thought", "answer", "shown"),
    [
        ("14-9=5", "5", "14-9"),
        ("14 - 9 = 5.", "5", "14 - 9"),
        ("14 minus 9 is 5", "5", "14 minus 9"),
        ("14 - 9 = \\boxed{5}", "5", "14 - 9"),
        ("Let me see. 48/2=24 and 48+24=72.", "72", "Let me see. 48/2=24 and 48+24"),
        ("a=6 b=7 c=5 f=1", "1", "a=6 b=7 c=5"),
        # Something of the answer would stay, or no working.
        ("5 + 9 - 9 = 5", "5", ""),
        ("So it is 5.", "5", ""),
        ("5 = 14 - 9", "5", ""),
        # What stands before the clause is working.
        ("14 is 9 and 5 more than 0. 14 - 9 = 5", "5", ""),
        ("There are 14, 9 go. 14 - 9 = 5", "5", "There are 14, 9 go."),
    ],
)
def test_working_in_the_clause_of_the_answer_stays(thought: str, answer: str, shown: str) -> None:
    assert left(thought, answer, "Add the two.") == shown


def test_labels_of_steps_are_no_answers() -> None:
    steps = "1. Add 3 and 4 to get 7.\n2. Take 5 off.\n"
    assert left(f"{steps}3. That leaves 2.", "2") == steps.rstrip()
    assert left("Step 1: 3 + 4 = 7\nStep 2: 7 - 5 = 2", "2") == "Step 1: 3 + 4 = 7"
    assert left("Take 5 off.\n2. That is it.", "2") == "Take 5 off."


def test_a_wrong_answer_is_stripped_too() -> None:
    assert left("58 + 27 is 85. No, 58 + 27 is 75.", "75") == "58 + 27 is 85. No,"


def show(text: str, name: str = "byte_bpe", answer: str | None = "85", **options) -> ReadRow:
    tokenizer = TOKENIZERS[name]()
    ids = tokenizer.encode(text, add_special_tokens=False)
    span = locate(ids, tokenizer, THINK)
    config = ClassmateCotRewardConfig(strip_answer=True, **options)
    return read_row(answer_to(response_ids=ids), span, tokenizer, config, seed=7, final_answer=answer)


RESPONSE = "<think>8 + 7 is 15. 5 + 2 + 1 is 8. So 58 + 27 = 85.</think>\n\nThe answer is 85."


def test_classmates_are_shown_what_is_left_as_a_part() -> None:
    row = show(RESPONSE)
    assert row.thoughts == ("8 + 7 is 15. 5 + 2 + 1 is 8.",)
    assert not row.close, "a part of a thought"
    assert 0.3 < row.keep_rate < 0.8
    tokenizer = TOKENIZERS["byte_bpe"]()
    ids = np.array(tokenizer.encode(RESPONSE, add_special_tokens=False))
    assert tokenizer.decode(ids[row.mask == 1]) == row.kept_text
    assert show(RESPONSE, classmate_reward_type="remove_wo_cot").thoughts == (row.kept_text, "")
    whole = show(RESPONSE, answer=None)
    assert (whole.close, whole.keep_rate, whole.kept_text[-4:]) == (True, 1.0, " 85.")


def test_keep_rates_and_cuts_count_what_is_left() -> None:
    half = show(RESPONSE, main_cot_keep_rate=0.5, keep_unit="words")
    assert half.kept_text == "8 + 7 is 15. 5"
    last = show(RESPONSE, main_cot_keep_rate="last-2-words")
    assert (last.kept_text, last.close) == ("is 8.", False)
    for kind in ("random_truncate", "random_truncate_step_wise_utility"):
        assert not any("85" in (thought or "") for thought in show(RESPONSE, classmate_reward_type=kind).thoughts)


def test_a_thought_of_which_nothing_is_left_is_empty() -> None:
    row = show("<think>\nSo it is 85.</think>85")
    assert (row.outcome, row.thoughts, row.keep_rate) == (Outcome.empty_cot, (), 0.0)
    assert row.mask.sum() == len(row.answer.response_ids) - len("85"), "the CoT with its markers answers for it"


def test_the_whole_response_cannot_be_stripped() -> None:
    with pytest.raises(ConfigError, match=r"strip_answer: with classmate_reward_type=help_other_questions .* False$"):
        ClassmateCotRewardConfig(strip_answer=True, classmate_reward_type="help_other_questions")


ANY_ANSWER = ["85", "-5", "0.5", "\\frac{1}{2}", "1/3", "(3, 4)", "\\sqrt{2}", "B", "A", "no", "Paris", "10^2"]
FRAGMENTS = ["1. ", "2) ", "So", " is ", "=", " = ", "answer", "The answer is ", ".", ", ", "\n", "  ", "-", "(", ")",
             "$", "**", "_", "15", "5", "3", "4", "x", "a=85 ", "7+8=15", "sqrt(2)", "option ", "Thus,", "wood", "1/2",
             "...", " and ", "\uff18\uff15", "\u2026"]  # fmt: skip
fragments = st.sampled_from([*ANY_ANSWER, *FRAGMENTS])


@given(
    parts=st.lists(fragments, max_size=14),
    blank=st.sampled_from(["", " "]),
    answer=st.sampled_from(ANY_ANSWER) | st.text(max_size=6),
    question=st.sampled_from(["Add the two.", "(A) 85 (B) 0.5, no or Paris", "1/3 - 5 or 1/2 in (3, 4)"]),
)
@settings(max_examples=600, deadline=None)
def test_what_is_left_states_nothing_more(parts: list[str], blank: str, answer: str, question: str) -> None:
    thought = blank.join(parts)
    start = answer_start(thought, answer, question)
    assert start is None or 0 <= start <= len(thought)
    shown = left(thought, answer, question)
    assert thought.startswith(shown)
    again = answer_start(shown, answer, question)
    assert again is None, (thought, shown)


@given(before=st.lists(fragments, max_size=6).map(" ".join), behind=st.lists(fragments, max_size=6).map(" ".join))
@settings(max_examples=200, deadline=None)
@pytest.mark.parametrize("question", ["Add the two.", "Is it 85 or 80?"])
def test_what_is_called_the_answer_never_stays(before: str, behind: str, question: str) -> None:
    said = f"{before}\nThe answer is 85{behind and ' '}{behind}"
    assert "answer is 85" not in left(said, "85", question)


LONG = 50_000
LONG_PARTS = [" ", "\n", "8", "85 ", "1,", "1,111", "-", ".", "{", "so ", "answer is ", "x= ", "a=1 ", "\\frac", "1/",
              "sqrt( ", "B. ", "1. \n", "**", "_", "x = 3 ,"]  # fmt: skip
NO_ANSWERS = ["", " ", ".", "$", "\\boxed{}", "()", "\\", "[", "*", "-", "NaN", "1" * 5000, "x" * LONG, "( " * 999,
              "{" * LONG, "\\frac{1}{0}", "1/0", "\u00bd", "\u221e", "9^99", "0^0", "1e99", "\u0668\u0665"]  # fmt: skip


@pytest.mark.parametrize("answer", ["85", "\\frac{1}{3}", "\\sqrt{2}", "(3, 4)", "B", "no a"])
@pytest.mark.parametrize("question", ["Add the two.", "85, 1/3, sqrt(2), (3, 4), B, no a"])
def test_time_is_linear(answer: str, question: str) -> None:
    for part in (*LONG_PARTS, "a" + " " * LONG):
        thought = part * (LONG // len(part) + 1)
        began = time.process_time()
        answer_start(f"{thought}\nSo {answer}.", answer, question)
        # A square of this length takes minutes.
        assert time.process_time() - began < 10, part[:9]


@pytest.mark.parametrize("answer", NO_ANSWERS, ids=lambda answer: repr(answer[:9]))
def test_no_answer_is_an_error(answer: str) -> None:
    for thought in ("So 85.", f"Add. So {answer}.", answer, f"x {answer} y {answer}"):
        assert thought.startswith(left(thought, answer))


steps = st.sampled_from(["58 + 27 = 85", "8 + 7 is 15", "so 85", "85 - 27 = 58", "the answer is $85$", "It is 8.5e1",
                         "\\boxed{85}", "185", "85.0", "carry 1", "你好 85", "Good", "5 + 3 = 8", "é"])  # fmt: skip
ends = st.sampled_from([". ", ", ", "\n", "; ", "!\n\n"])
thoughts = st.lists(st.tuples(steps, ends), min_size=1, max_size=8).map(lambda parts: "".join(a + b for a, b in parts))


@pytest.mark.parametrize("name", ["byte_bpe", "text_bpe", "merging_bpe"])
@given(thought=thoughts)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_clause_that_is_left_ends_in_the_answer(name: str, thought: str) -> None:
    tokenizer, text = TOKENIZERS[name](), f"<think>{thought}</think>\n\n85"
    ids = tokenizer.encode(text, add_special_tokens=False)
    span = locate(ids, tokenizer, THINK)
    stripped = without_answer(span, ids, tokenizer, answer="85", question=ADD)
    assert span.cot is not None
    assert stripped.cot is not None
    assert span.cot.startswith(stripped.cot)
    for clause in re.split(r"\n|[.,;!?](?=\s|\Z)", stripped.cot):
        numbers = re.findall(r"(?<![0-9.])[0-9]+(?:\.[0-9]+)?", clause)
        assert not numbers or Decimal(numbers[-1]) != 85, clause
        assert "= 85" not in clause
    assert left(stripped.cot, "85") == stripped.cot
    # Every token that holds a character of what is left, and no other; elsewhere tokens merge with a marker.
    assert span.start <= stripped.end <= span.end
    if stripped.cot and stripped is not span and name == "byte_bpe":
        kept = [tokenizer.decode(ids[span.start : end]) for end in (stripped.end - 1, stripped.end)]
        assert [stripped.cot in one for one in kept] == [False, True]
