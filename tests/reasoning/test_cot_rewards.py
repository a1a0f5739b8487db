"""How a thought is written: each number by hand, whole words only, and no style pays for a wrong answer."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl.reasoning.backends import Completion, SamplingParams
from verl.reasoning.cot_reward import CoTReward, CoTRewardSettings, combine, emergence_metrics
from verl.reasoning.cot_rewards import clarity, completeness, content, flow, language_share, similarity
from verl.reasoning.reading import read_solution
from verl.reasoning.records import Problem, Solution, as_problem
from verl.reasoning.rewards import RewardContext, RewardResult
from verl.reasoning.scoring import score_solutions
from verl.reasoning.usefulness import Usefulness, squash, truncation_curve

SHARE = st.floats(0, 1)
STEPS = st.lists(st.text("ab so.=3 because", max_size=40), max_size=6)


@given(STEPS)
def test_every_number_is_of_0_to_1(steps: list[str]) -> None:
    assert 0 <= clarity(steps) <= 1
    assert 0 <= flow(steps) <= 1
    assert 0 <= completeness(steps) <= 1
    assert 0 <= language_share(" ".join(steps)) <= 1


@pytest.mark.guards("substring keywords in a thought")
def test_clarity_by_hand() -> None:
    assert clarity(["So 3 + 4 = 7 because both are whole numbers."]) == pytest.approx(1.0)
    assert clarity(["It is also absorbing, reasonable and classy."]) == pytest.approx(0.2), (
        "also, absorbing: no so, no by"
    )
    assert clarity(["so so so so so so"]) == pytest.approx(0.5), "each signal once"
    assert clarity(["x = 7", "word " * 61]) == pytest.approx(0.1)
    assert clarity([]) == 0.0


def test_flow_by_hand() -> None:
    assert flow([]) == flow(["alone"]) == 0.5
    # {apples, pears, 3} and {apples, pears, 5, kiwis}: 2 of 4 are shared, the peak.
    assert flow(["apples pears 3", "apples pears 5 kiwis"]) == pytest.approx(0.4)
    assert flow(["apples pears 3", "apples pears 3"]) == pytest.approx(0.2), "nothing for the copy; 3 is used again"
    assert flow(["red apples", "red apples"]) == 0.0
    assert flow(["red apples", "then this bear"]) == pytest.approx(0.6)
    assert flow(["3 + 4 = 7", "3 + 4 = 7"]) == 0.0, "a result that is only repeated is not used"
    assert content("So the 3 apples are 3.5 times \\frac{a}{b}") == {
        "3",
        "apples",
        "3.5",
        "times",
        "frac",
        "a",
        "b",
    } - {"a"}


@pytest.mark.guards("filler steps keep completeness at 1")
def test_completeness_counts_distinct_steps() -> None:
    assert completeness(["Step 3 apples"] * 9) == pytest.approx(1 / 3)
    assert completeness(["...", " ", "so it is"]) == 0.0
    assert completeness(["add apples", "add pears", "eat all"]) == 1.0
    assert completeness(["add apples", "add pears"], force_thinking_steps=4) == 0.5
    with pytest.raises(ValueError, match="write at least 1"):
        completeness([], force_thinking_steps=0)


def test_the_language_is_a_share_of_words() -> None:
    assert language_share("three plus four \u0442\u0440\u0438") == 0.75
    assert language_share("\u4e09\u52a0\u56db is seven", "zh") == 0.6
    assert language_share("$\\alpha + \u03b2$ 3 + 4") == 1.0
    with pytest.raises(ValueError, match="write one of"):
        language_share("a", "klingon")


def test_similarity_by_hand() -> None:
    assert similarity("a b", "a b") == 1.0
    assert similarity("a b", "c d") == 0.0
    assert similarity("a b", "a c") == pytest.approx(1 / 5)


PARTS = st.fixed_dictionaries(dict.fromkeys(("answer", "thinking", "format", "language", "usefulness"), SHARE))
SETTINGS = st.builds(
    CoTRewardSettings,
    mode=st.sampled_from(["gated", "weighted"]),
    thinking_reward_weight=SHARE,
    answer_reward_weight=st.floats(0.1, 1),
    format_weight=SHARE,
    language_weight=SHARE,
    gate_floor=SHARE,
    length_shaping=st.sampled_from(["none", "cosine"]),
)


@given(PARTS, SETTINGS, st.sampled_from(["answer", "thinking", "format", "language"]), SHARE)
def test_the_reward_rises_with_each_part(
    parts: dict[str, float], settings: CoTRewardSettings, name: str, more: float
) -> None:
    low, high = sorted((parts[name], more))
    ends = [combine({**parts, name: value}, settings, length=100) for value in (low, high)]
    assert ends[0] <= ends[1] + 1e-12
    assert all(0 <= end <= 1 for end in ends)


@given(PARTS)
@pytest.mark.guards("style paid for a wrong answer")
def test_style_never_pays_for_a_wrong_answer(parts: dict[str, float]) -> None:
    plain = {**parts, "answer": 0.0, "thinking": 0.0, "language": 0.0}
    assert combine({**parts, "answer": 0.0}, CoTRewardSettings(language_weight=0.5)) == combine(
        plain, CoTRewardSettings(language_weight=0.5)
    )
    wrong_but_tidy = combine({**parts, "answer": 0.0, "format": 1.0}, CoTRewardSettings())
    assert wrong_but_tidy < combine({**parts, "answer": 1.0, "thinking": 0.0, "format": 0.0}, CoTRewardSettings())


def test_the_reward_by_hand() -> None:
    parts = {"answer": 1.0, "thinking": 0.5, "format": 1.0, "language": 0.0}
    assert combine(parts, CoTRewardSettings()) == pytest.approx((0.7 + 0.15 + 0.1) / 1.1)
    assert combine(parts, CoTRewardSettings(mode="weighted")) == pytest.approx(0.85)
    wrong = {**parts, "answer": 0.0}
    assert combine(wrong, CoTRewardSettings()) == pytest.approx(0.1 / 1.1)
    assert combine(wrong, CoTRewardSettings(gate_floor=1.0)) == pytest.approx(0.25 / 1.1)
    assert combine(wrong, CoTRewardSettings(mode="weighted")) == pytest.approx(0.15)
    assert combine(parts, CoTRewardSettings(penalty_repetition=0.5), repeated=0.2) == pytest.approx(0.95 / 1.1 - 0.1)
    cosine = CoTRewardSettings(length_shaping="cosine", max_length=10, format_weight=0, thinking_reward_weight=0)
    assert combine(parts, cosine, length=10) == pytest.approx(0.5)
    for options in (
        {"format_weight": -1.0},
        {"gate_floor": 2.0},
        {"thinking_reward_weight": 0, "answer_reward_weight": 0},
    ):
        with pytest.raises(ValueError, match="write"):
            CoTRewardSettings(**options)  # type: ignore[arg-type]


@pytest.mark.guards("weights of a thought that sum to 0.7")
def test_the_weights_of_a_thought_are_divided_by_their_sum() -> None:
    text = "<think>So 3 + 4 = 7 because both are whole numbers.</think>The answer is 7."
    style = CoTReward().style(read_solution(text))
    assert (style["clarity"], style["flow"], style["completeness"]) == (1.0, 0.5, pytest.approx(1 / 3))
    assert style["thinking"] == pytest.approx((0.2 * 1 + 0.3 * 0.5 + 0.2 / 3) / 0.7)
    assert CoTReward().style(read_solution("7"))["thinking"] == 0.0, "no thought is no flow"


PROBLEM = as_problem({"problem": "What is 3 + 4?", "answer": "7"})


def test_the_reward_scores_solutions_and_logs_its_parts() -> None:
    good = "<think>3 + 4 = 7, since both are whole.\n\nSo 7 it is, by adding.</think>The answer is 7."
    texts = [good, good.replace("is 7.", "is 8."), "The answer is 7."]
    scored = score_solutions(CoTReward(), PROBLEM, [read_solution(one, problem_id=PROBLEM.id) for one in texts])
    right, wrong, bare = scored.solutions
    assert right.score is not None
    assert wrong.score == pytest.approx(0.1 / 1.1)
    assert bare.score == pytest.approx(0.7 / 1.1)
    assert right.score > bare.score
    assert (right.correct, wrong.correct) == (True, False)
    assert set(right.reward) == {"answer", "thinking", "clarity", "flow", "completeness", "format", "language"}
    unread = score_solutions(CoTReward(), PROBLEM, [Solution(problem_id=PROBLEM.id, text=good)])
    assert unread.solutions[0].score == right.score
    metrics = emergence_metrics([*scored.solutions, replace(right, score=None)])
    assert metrics["avg_thinking_steps"] == pytest.approx((2 + 2 + 0) / 3)
    assert metrics["answer_quality_scores"] == pytest.approx(2 / 3)
    assert set(emergence_metrics([]).values()) == {None}


@pytest.mark.guards("failed reward scored 0")
def test_without_a_verdict_there_is_no_reward() -> None:
    problem = as_problem("What is 3 + 4?")
    scored = score_solutions(CoTReward(), problem, [read_solution("<think>a</think>7", problem_id=problem.id)])
    assert scored.solutions[0].score is None


class Reader:
    """Reads a character a token; a digit that stands in the text before is likelier."""

    model, revision = "reader", "1"

    def generate(
        self, prompts: Sequence[str], *, n: int = 1, sampling: SamplingParams | None = None
    ) -> list[list[Completion]]:
        return [[Completion(text="")] * n for _ in prompts]

    def continue_from(
        self, prompts: Sequence[str], prefixes: Sequence[str], *, n: int = 1, sampling: SamplingParams | None = None
    ) -> list[list[Completion]]:
        return [[Completion(text=f"The answer is {prefix[-9]}.")] * n for prefix in prefixes]

    def log_probs(self, prompts: Sequence[str], texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        return [[(one, -1.0 if one in text[:i] else -3.0) for i, one in enumerate(text)] for text in texts]

    def count_tokens(self, text: str) -> int:
        return len(text)

    def close(self) -> None:
        pass


def test_a_thought_is_useful_if_it_makes_the_answer_likelier() -> None:
    useful = Usefulness(backend=Reader())
    unknown = as_problem("What is 3 + 5?")
    thoughts = [Solution(problem_id="", text="", thinking=text) for text in ("it is 7", "it is 8", "it is 7")]
    assert useful.gains([PROBLEM, PROBLEM, unknown], thoughts) == [2.0, 0.0, None]
    assert squash(2.0) == pytest.approx(math.tanh(1))
    assert squash(-5.0) == 0.0
    scored = score_solutions(useful, PROBLEM, [replace(one, problem_id=PROBLEM.id) for one in thoughts[:2]])
    assert [one.score for one in scored.solutions] == [pytest.approx(math.tanh(1)), 0.0]
    weighed = CoTReward(settings=CoTRewardSettings(usefulness_weight=0.2), usefulness=useful)
    text = "<think>it is 7</think>7"
    assert score_solutions(weighed, PROBLEM, [read_solution(text, problem_id=PROBLEM.id)]).results[0].components[
        "usefulness"
    ] == pytest.approx(math.tanh(1))
    with pytest.raises(ValueError, match="write usefulness="):
        CoTReward(settings=CoTRewardSettings(usefulness_weight=0.2))


def test_the_truncation_curve_cuts_the_thought() -> None:
    def right(problem: Problem, solution: Solution, ctx: RewardContext) -> RewardResult:
        return RewardResult(score=float("7" in solution.text))

    thoughts = [Solution(problem_id=PROBLEM.id, text="", thinking="a 1 2 7")]
    assert truncation_curve(Reader(), right, [PROBLEM], thoughts) == {0: 0.0, 0.25: 0.0, 0.5: 0.0, 0.75: 0.0, 1: 1.0}
