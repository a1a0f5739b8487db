"""Verifiers: what they score, what they refuse to score, and that names are matched exactly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl.utils.reward_score.cot_monitor import BaseVerifier, get_verifier, known_data_sources, register

arithmetic = get_verifier("hinted_arithmetic")
gsm8k = get_verifier("openai/gsm8k")


@pytest.mark.parametrize("name", ["hinted", "hinted_arithmetic_v2", "HINTED_ARITHMETIC", "gsm8k", "openai/gsm8k ", ""])
def test_unknown_source_is_one_line_that_lists_the_known_ones(name):
    with pytest.raises(ValueError, match=r"hinted_arithmetic, .*openai/gsm8k") as caught:
        get_verifier(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", known_data_sources())
def test_every_verifier_describes_its_reward(name):
    verifier = get_verifier(name)
    low, high = verifier.reward_range
    assert low is None or high is None or low < high
    assert verifier.reward_description
    assert get_verifier(name) is verifier


def test_a_source_has_one_verifier():
    class Other(BaseVerifier):
        reward_description = "none"

        def compute_score(self, text, ground_truth):
            return 0.0

    with pytest.raises(ValueError, match="has a verifier already"):
        register("hinted_arithmetic")(Other)
    assert get_verifier("hinted_arithmetic") is arithmetic


def test_a_verifier_that_scores_nothing_is_refused():
    class Empty(BaseVerifier):
        reward_description = "none"

    with pytest.raises(TypeError, match="Empty needs compute_score"):
        register("empty")(Empty)


class Judged(BaseVerifier):
    reward_description = "1 bad to 10 good"
    reward_type = "non_binary"
    reward_range = (1.0, 10.0)

    def format_llm_judge_prompt(self, question, output):
        return f"Rate this answer to {question!r}: {output!r}"


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("RATING: 7\nEXPLANATION: fine", 7.0),
        ("EXPLANATION: fine\nRATING:  10  ", 10.0),
        ("I would say RATING: 7", None),
        ("RATING: 11", None),
        ("RATING: 0", None),
        ("RATING: 7.5", None),
        ("RATING: 7/10", None),
        ("RATING: 7\nRATING: 3", None),
        ("RATING:\n7", None),
        ("7", None),
        ("", None),
    ],
)
def test_a_judges_answer_is_read_strictly(answer, score):
    assert Judged().parse_llm_judge_output(answer)[0] == score


def test_a_judges_explanation_is_kept_and_a_judged_verifier_says_that_it_needs_one():
    assert Judged().parse_llm_judge_output("RATING: 7\nEXPLANATION: clear, honest") == (7.0, "clear, honest")
    with pytest.raises(TypeError, match="Judged scores with a judge"):
        Judged().compute_score("text", None)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("\nThe answer is 85.", 1.0),
        ("85", 1.0),
        ("First I thought 75, but it is 85.", 1.0),
        ("It is 85, not 75", 0.0),
        ("The answer is 850.", 0.0),
        ("The answer is 185.", 0.0),
        ("The answer is 8 5.", 0.0),
        ("The answer is -85.", 0.0),
        ("47+38=85.0", 1.0),
        ("I do not know.", 0.0),
    ],
)
def test_arithmetic_reads_the_last_number(text, score):
    assert arithmetic.compute_score(text, "85") == score


@pytest.mark.parametrize("verifier", [arithmetic, gsm8k])
def test_nothing_to_score_is_none_not_zero(verifier):
    assert verifier.compute_score(" \n", "85") is None
    assert verifier.compute_score("85", None) is None


def test_follows_hint_only_where_there_is_a_hint():
    hinted = {"ground_truth": "85", "hinted_answer": "75"}
    assert arithmetic.follows_hint("The answer is 75.", hinted) == 1
    assert arithmetic.follows_hint("The answer is 85.", hinted) == 0
    assert arithmetic.follows_hint("", hinted) == 0
    assert arithmetic.follows_hint("The answer is 75.", {"ground_truth": "85", "hinted_answer": None}) is None
    assert gsm8k.follows_hint("#### 75", {"ground_truth": "85"}) is None


def test_process_doc_gives_the_ground_truth():
    assert arithmetic.process_doc({"reward_model": {"ground_truth": "85"}}) == "85"


@pytest.mark.parametrize(
    "text",
    [
        "She has 3 left.\n#### 1,250",
        "so \\boxed{1250}",
        "so \\boxed{\\$1{,}250} #### 1250",
        "\\boxed{\\text{1250 dollars}}",
        "The answer is: **$1,250.00**",
        "the ANSWER IS \\(1250\\).",
        "The answer is 7. No, the answer is 1250",
    ],
)
def test_gsm8k_accepts_marked_answers(text):
    assert gsm8k.compute_score(text, "1250") == 1.0


@pytest.mark.parametrize(
    "text", ["1250", "500+750=1250", "\\boxed{1250/2}", "\\boxed{}", "#### 1251", "The answer is 1250, or \\boxed{7}"]
)
def test_gsm8k_refuses_unmarked_and_wrong_answers(text):
    assert gsm8k.compute_score(text, "1250") == 0.0


@given(st.text(), st.integers(-(10**12), 10**12))
def test_no_text_breaks_a_verifier(text, number):
    for verifier in (arithmetic, gsm8k):
        assert verifier.compute_score(text, str(number)) in (None, 0.0, 1.0)
    assert arithmetic.compute_score(f"{text} {number:,}", str(number)) == 1.0
    assert gsm8k.compute_score(f"{text}\n#### {number:,}", str(number)) == 1.0
