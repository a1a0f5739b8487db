"""The analyzer: several patterns at once, none, right against wrong, and the report."""

from typing import Any

import pytest

from tests.reasoning.test_cot_rewards import Reader
from verl.reasoning.backends import Completion
from verl.reasoning.cot_analysis import ChainOfThoughtAnalyzer
from verl.reasoning.reading import read_solution
from verl.reasoning.records import as_problem

ANALYZER = ChainOfThoughtAnalyzer()
STEPS = "<think>Step 1: 3 + 4 = 7, because both are whole.\nStep 2: wait, let me check: 7 = 3 + 4.\nDone.</think>7"


def test_a_response_may_show_several_patterns_or_none() -> None:
    found = ANALYZER.analyze_cot_patterns(
        [STEPS, "It is seven, also soon.", "a = b = c = d ((((", "First a, second b."]
    )
    assert found["pattern_distribution"] == {
        "step_based": 0.25,
        "because_therefore": 0.25,
        "equation_based": 0.25,
        "enumeration": 0.25,
        "recursive": 0.25,
        "none": 0.25,
    }
    assert found["pattern_diversity"] == pytest.approx(1.0)
    assert found["behaviours"]["verification"] == found["behaviours"]["backtracking"] == found["aha_rate"] == 0.25
    assert found["num_responses"] == 4


def test_nothing_found_is_no_pattern() -> None:
    found = ANALYZER.analyze_cot_patterns(["Seven it is."])
    assert (found["dominant_pattern"], found["pattern_diversity"]) == (None, 0.0)
    assert found["pattern_distribution"]["none"] == 1.0
    empty = ANALYZER.analyze_cot_patterns([])
    assert (empty["num_responses"], empty["dominant_pattern"], empty["avg_step_length"]) == (0, None, None)


def test_numbers_by_hand_and_of_one_call_only() -> None:
    first = ANALYZER.analyze_cot_patterns([STEPS])
    assert first == ANALYZER.analyze_cot_patterns([STEPS]), "a second call does not add up"
    assert first["avg_step_length"] == pytest.approx((11 + 12) / 2)
    assert first["reflections_per_1k_tokens"] == pytest.approx(1000 * 2 / 23)
    assert first["reasoning_depth"] == 4, "step, because, wait, check"
    assert first["dominant_pattern"] == "step_based"


def test_rates_are_split_by_correctness() -> None:
    found = ANALYZER.analyze_cot_patterns([STEPS, "It is eight.", "Because."], correct=[True, False, None])
    assert found["by_correctness"]["correct"]["step_based"] == 1.0
    assert found["by_correctness"]["incorrect"]["none"] == 1.0
    known = [read_solution(STEPS, correct=True), {"full_response": "It is eight.", "correct": False}]
    assert ANALYZER.analyze_cot_patterns(known)["by_correctness"] == found["by_correctness"]
    with pytest.raises(ValueError, match="give as many"):
        ANALYZER.analyze_cot_patterns(["a"], correct=[])


def test_the_mappings_of_the_original_are_read() -> None:
    found = ANALYZER.analyze_cot_patterns([{"thinking_steps": ["Step 1: add them", "Step 2: stop here"]}])
    assert found["pattern_distribution"]["step_based"] == 1.0


def test_the_report_tells_right_from_wrong() -> None:
    class Model(Reader):
        def generate(self, prompts: Any, *, n: int = 1, sampling: Any = None) -> list[list[Completion]]:
            texts = [STEPS, "<think>hm</think>8", None]
            return [[Completion(text=t or "", error=None if t else "timeout")] for t in texts]

    problems = [as_problem({"problem": f"What is 3 + 4? {i}", "answer": "7"}) for i in range(3)]
    report = ChainOfThoughtAnalyzer(Model(), None).generate_cot_report(problems)
    lines = {" ".join(line.split()[:-1]): line.split()[-1] for line in report.splitlines() if line.strip()}
    assert "2 solutions scored; 1 responses failed" in report
    assert lines["accuracy"] == "0.500"
    assert "step_based                         0.500   1.000   0.000" in report
    assert ChainOfThoughtAnalyzer().generate_cot_report([], Reader()).count("-") > 5
    with pytest.raises(ValueError, match="there is no model"):
        ANALYZER.generate_cot_report(problems)
