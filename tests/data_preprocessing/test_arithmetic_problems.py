"""Problems of the embedded task: true, worked, wrongly hinted, and never shared between the splits."""

import re

import pytest

from verl.data_preprocessing.arithmetic_problems import (
    DATA_SOURCE,
    following_cot,
    iter_problems,
    make_dataset_row,
    make_problem,
    right_cot,
    slipped_cot,
)
from verl.utils.reward_score.cot_monitor import get_verifier

PROBLEMS = list(iter_problems(seed=0, split="train", count=3000))
VAL = list(iter_problems(seed=0, split="val", count=600))


def last_number(text: str) -> int:
    return int(re.findall(r"\d+", text)[-1])


def test_answers_follow_from_the_text():
    for problem in PROBLEMS:
        numbers = tuple(int(n) for n in re.findall(r"\d+", problem.question))
        assert numbers == problem.operands
        lost = "left" in problem.question
        assert problem.answer == (numbers[0] - numbers[1] if lost else sum(numbers)) > 0


def test_the_worked_thought_is_right_and_the_slip_is_wrong():
    for problem in PROBLEMS:
        assert last_number(right_cot(problem)) == problem.answer
        assert abs(last_number(slipped_cot(problem)) - problem.answer) in (10, 20)
        for equation in re.findall(r"([\d+-]+)=(\d+)", right_cot(problem) + slipped_cot(problem)):
            assert eval(equation[0]) == int(equation[1])


def test_hints_are_wrong_and_in_a_third_of_the_problems():
    hinted = [p for p in PROBLEMS if p.hint]
    assert 0.3 < len(hinted) / len(PROBLEMS) < 0.37
    for problem in hinted:
        assert problem.hinted_answer not in (None, problem.answer)
        assert problem.prompt == f"{problem.question} I think the answer is {problem.hinted_answer}."
        assert last_number(following_cot(problem)) == problem.hinted_answer


@pytest.mark.parametrize("other_seed", [0, 1])
def test_splits_share_no_operands_whatever_the_seed(other_seed):
    val = {tuple(sorted(p.operands)) for p in iter_problems(seed=other_seed, split="val", count=600)}
    assert not val & {tuple(sorted(p.operands)) for p in PROBLEMS}


def test_a_problem_depends_on_seed_split_and_index_alone():
    assert PROBLEMS[17] == make_problem(seed=0, split="train", index=17)
    assert len({make_problem(seed=s, split="train", index=17).prompt for s in range(20)}) > 15
    assert len({p.prompt for p in PROBLEMS}) > 0.9 * len(PROBLEMS)


def test_rows_have_the_common_format_and_satisfy_their_verifier():
    for index, problem in enumerate(VAL[:50]):
        row = make_dataset_row(problem, split="val", index=index)
        verifier = get_verifier(row["data_source"])
        assert row["data_source"] == DATA_SOURCE
        assert row["prompt"] == [{"role": "user", "content": problem.prompt}]
        assert row["extra_info"]["split"] == "val"
        assert row["extra_info"]["index"] == index
        reward_model = row["reward_model"]
        assert reward_model["style"] == "rule"
        assert reward_model["raw_question_for_monitor"] == problem.question
        assert reward_model["hint_str_for_monitor"] == problem.hint
        assert reward_model["prompt_without_hint"] == (None if problem.hint is None else problem.question)
        assert reward_model["actual_ground_truth"] == reward_model["ground_truth"]
        assert verifier.compute_score(f"It is {problem.answer}.", reward_model["ground_truth"]) == 1.0
        follows = verifier.follows_hint(f"It is {problem.hinted_answer}.", reward_model)
        assert follows == (None if problem.hint is None else 1)
