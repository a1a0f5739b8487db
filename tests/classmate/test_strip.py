"""A thought without its final answer: where it ends, for honest thoughts and for those that try to give it away."""

import re
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
        ("58 + 27 = 85. Check: 85 - 27 = 58. Good.", "85", ""),
        ("It must be 85 (85 - 27 is 58). Fine.", "85", ""),
        # Numbers inside numbers, and other spellings of the value.
        ("185 is too much; 850 and 85.5 too. 1.85 is less.", "85", "185 is too much; 850 and 85.5 too. 1.85 is less."),
        ("100 - 15 is -85 from below? No: 85.0", "85", "100 - 15 is -85 from below?"),
        ("Each pays $250, five of them $1,250.00.", "$1250", "Each pays $250,"),
        ("Five times 250 is 1250 dollars. Done", "1,250", ""),
        ("It falls by 4: 3 - 7 = \N{MINUS SIGN}4.", "-4", ""),
        ("Half of 10 is 5 apples, so x = 5 apples", "5 apples", ""),
        # LaTeX.
        ("We have $a^2 = 49$.\nSo \\[ a = \\boxed{7} \\] as $a > 0$.", "7", "We have $a^2 = 49$."),
        ("Then $3x = 2$.\nHence $x = \\dfrac{2}{3}$.", "\\frac{2}{3}", "Then $3x = 2$."),
        ("The area is $4\\pi$ in all, from $r = 2$.", "4\\pi", ""),
        ("Twice 2 is 4. The area is $2\\pi$.", "2\\pi", "Twice 2 is 4."),
        ("The points are (1, 2) and then (3, 4) at last.", "(3, 4)", "The points are (1,"),
        ("We start at (1, 2).\nWe end at (3,4).", "(3, 4)", "We start at (1, 2)."),
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
    row = show("<think>\n58 + 27 = 85.</think>85")
    assert (row.outcome, row.thoughts, row.keep_rate) == (Outcome.empty_cot, (), 0.0)
    assert row.mask.sum() == len(row.answer.response_ids) - len("85"), "the CoT with its markers answers for it"


def test_the_whole_response_cannot_be_stripped() -> None:
    with pytest.raises(ConfigError, match=r"strip_answer: with classmate_reward_type=help_other_questions .* False$"):
        ClassmateCotRewardConfig(strip_answer=True, classmate_reward_type="help_other_questions")


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
    # Every token that holds a character of what is left, and no other; elsewhere tokens merge with a marker.
    assert span.start <= stripped.end <= span.end
    if stripped.cot and stripped is not span and name == "byte_bpe":
        kept = [tokenizer.decode(ids[span.start : end]) for end in (stripped.end - 1, stripped.end)]
        assert [stripped.cot in one for one in kept] == [False, True]
