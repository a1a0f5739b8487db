"""Scoring: failures are counted and left out; what verl is handed; the default reward of mathematics."""

import asyncio
import inspect
import json
import math
import pickle
from typing import Any

import pytest

from tests.workers.reward_manager.test_classmate_cot import answers, manager, scored_row
from verl.classmate.outcome import Outcome
from verl.classmate.reward_scale import RewardScale, function_attributes
from verl.reasoning.reading import is_well_formed, read_solution
from verl.reasoning.records import Problem, Solution, as_problem
from verl.reasoning.rewards import RewardContext, RewardResult
from verl.reasoning.scoring import math_reward, score_all, score_solutions, to_verl_compute_score

PROBLEMS = [as_problem({"problem": f"What is {n} + 4?", "answer": str(n + 4), "id": f"p{n}"}) for n in range(3)]


def solutions(*texts: str, of: Problem = PROBLEMS[0]) -> list[Solution]:
    return [read_solution(text, problem_id=of.id) for text in texts]


def picky(problem: str, solution: str) -> float | None:
    if "error" in solution:
        raise ValueError("what is that")
    return None if "none" in solution else len(solution) / 10


@pytest.mark.guards("failed reward scored 0")
def test_failures_are_counted_and_left_out() -> None:
    given = solutions("abc", "error", "none", "error", "abcde")
    scored = score_solutions(picky, PROBLEMS[0], given)
    assert [one.score for one in scored.solutions] == [0.3, None, None, None, 0.5]
    assert scored.reasons == {"ValueError: what is that": 2, "reward_fn returned None": 1}
    assert scored.failed == 3
    assert scored.line == ("2 solutions scored, 3 left out (2x ValueError: what is that, 1x reward_fn returned None)")
    assert scored.solutions[1].meta == {"reward_note": "ValueError: what is that"}
    assert [one.score for one in given] == [None] * 5, "what was given stays as it is"
    again = score_solutions(lambda problem, solution: 1.0, PROBLEMS[0], scored.solutions)
    assert {one.score for one in again.solutions} == {1.0}
    assert not again.solutions[1].meta


def test_each_solution_is_scored_with_its_problem_and_group() -> None:
    given = [Solution(problem_id=one.id, text=str(i)) for i, one in enumerate(PROBLEMS + PROBLEMS)]
    seen: dict[str, tuple[str | None, list[str]]] = {}

    def reward(problem: Problem, solution: Solution, ctx: RewardContext) -> float:
        seen[solution.text] = (problem.answer, [one.text for one in ctx.group])
        return ctx.step / 10

    scored = score_solutions(reward, PROBLEMS, given, RewardContext(step=3))
    assert seen == {str(i): (str(i % 3 + 4), [str(i % 3), str(i % 3 + 3)]) for i in range(6)}
    assert {one.score for one in scored.solutions} == {0.3}
    with pytest.raises(ValueError, match="'p2'"):
        score_solutions(reward, PROBLEMS[:2], given)
    with pytest.raises(ValueError, match="'p1'"):
        score_solutions(reward, PROBLEMS[0], given)
    assert score_solutions(reward, PROBLEMS, []).line == "0 solutions scored"


def test_it_works_from_within_a_loop_too() -> None:
    async def inside() -> Any:
        return score_solutions(picky, PROBLEMS[0], solutions("abc")), await score_all(
            picky, PROBLEMS[0], solutions("abc")
        )

    one, other = asyncio.run(inside())
    assert one.solutions == other.solutions


def ask(function: Any, text: str, **told: Any) -> dict[str, Any]:
    given = {"data_source": "openai/gsm8k", "ground_truth": "7", "extra_info": {"problem": "3 + 4?", "id": "a"}, **told}
    return asyncio.run(function(solution_str=text, **given))


def test_what_verl_gets_has_the_same_keys_for_every_row() -> None:
    function = to_verl_compute_score(picky)
    rows = [ask(function, text) for text in ("abc", "error", "none")]
    assert len({tuple(row) for row in rows}) == 1
    assert [row["score"] for row in rows] == [0.3, None, None]
    assert [row["valid"] for row in rows] == [1.0, 0.0, 0.0]
    assert math.isnan(rows[0]["correct"])
    assert all(isinstance(value, float | int | str | None) for row in rows for value in row.values())
    assert inspect.iscoroutinefunction(function), "upstream's managers look for that"
    assert ask(pickle.loads(pickle.dumps(function)), "abc") == pytest.approx(rows[0], nan_ok=True)


@pytest.mark.guards("failed reward scored 0")
def test_a_reward_that_fails_is_not_judged_in_training() -> None:
    of = manager(to_verl_compute_score(picky))
    right = scored_row("<think>\n3 + 4</think>\n\nseven", answers("7", "none"), of)
    assert right.scores.main_valid
    assert right.scores.base_reward == pytest.approx(0.7), "0.1 a character of the output, its blank lines too"
    assert right.scores.outcomes == (Outcome.ok, Outcome.judge_error)
    failed = scored_row("<think>\n3 + 4</think>\n\nerror", answers("7", "8"), of)
    assert (failed.main.outcome, failed.scores.main_valid) == (Outcome.judge_error, False)
    assert failed.main.error == "the score is None, not a finite number: ValueError: what is that"


def test_verl_reads_the_range_that_a_function_states() -> None:
    def signed(problem: str, solution: str) -> float:
        return -1.0

    assert RewardScale.of_function(to_verl_compute_score(signed), None).lowest == 0.0
    signed.reward_range = (-1.0, 1.0)  # type: ignore[attr-defined]
    assert function_attributes(to_verl_compute_score(signed)) == {"reward_range": (-1.0, 1.0)}


def test_verl_tells_problem_id_level_and_step() -> None:
    seen: list[Any] = []

    def reward(problem: Problem, solution: Solution, ctx: RewardContext) -> RewardResult:
        seen.append(
            (problem.problem, problem.id, problem.level, problem.answer, problem.source, ctx.step, solution.text)
        )
        return RewardResult(score=1.0, components={"style": 0.5}, final_answer="7", correct=True)

    told = {"problem": "3 + 4?", "id": "a", "level": 2, "step": 5, "total_steps": 9}
    row = ask(to_verl_compute_score(reward), "It is 7", extra_info=told)
    assert seen == [("3 + 4?", "a", 2, "7", "openai/gsm8k", 5, "It is 7")]
    assert (row["correct"], json.loads(row["components"]), row["final_answer"]) == (1.0, {"style": 0.5}, "7")


def test_the_reward_of_mathematics_reads_the_answer_part() -> None:
    given = solutions(
        "<think>no, 5</think>The answer is 4.",
        "<think>The answer is 4.</think>It is \\boxed{5}",
        "<think>The answer is 4.",
        "",
        "I do not know.",
    )
    scored = score_solutions(math_reward(), PROBLEMS[0], given)
    assert [one.score for one in scored.solutions] == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert [one.correct for one in scored.solutions] == [True, False, False, False, False]
    assert scored.solutions[1].final_answer == "5"
    assert score_solutions(math_reward(), as_problem("3 + 4?"), [Solution(problem_id="x", text="7")][:0]).failed == 0


@pytest.mark.guards("no gold answers")
def test_without_a_gold_answer_there_is_no_score() -> None:
    problem = as_problem("What is 3 + 4?")
    scored = score_solutions(math_reward(), problem, solutions("The answer is 7.", of=problem))
    assert scored.solutions[0].score is None
    assert "no gold answer" in next(iter(scored.reasons))


def test_a_text_is_read_in_parts() -> None:
    read = read_solution("<think>3 + 4 = 7.\n\n7 * 2 = 14.</think>\n<answer>14</answer>", problem_id="a", seed=3)
    assert (read.thinking, read.answer_text, read.seed) == ("3 + 4 = 7.\n\n7 * 2 = 14.", "14", 3)
    assert [step.text for step in read.steps] == ["3 + 4 = 7.\n\n", "7 * 2 = 14."]
    assert read_solution("so it is</think> 7").thinking == "so it is", "the prompt opened the thought"
    assert read_solution("7", opened=True).answer_text == ""
    assert read_solution("It is 7").answer_text == "It is 7"


@pytest.mark.parametrize(
    ("text", "opened", "good"),
    [
        ("<think>a</think>7", False, True),
        ("<think>a</think><answer>7</answer>", False, True),
        ("a</think>7", True, True),
        ("a</think>7", False, False),
        ("<think>a</think>", False, False),
        ("<think> </think>7", False, False),
        ("<think>a</think><answer></answer>", False, False),
        ("<think>a</think><answer>7", False, False),
        ("<think>a<think>b</think>7", False, False),
        ("<think>a</think>7</think>", False, False),
        ("hello <think>a</think>7", False, False),
        ("<think>a", False, False),
        ("7", False, False),
    ],
)
def test_the_format_is_one_closed_thought_and_an_answer(text: str, opened: bool, good: bool) -> None:
    assert is_well_formed(text, opened=opened) == good
