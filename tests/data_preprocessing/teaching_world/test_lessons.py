"""What the models are taught: shares of the lessons, answers that the product reads, rows that keep the contract."""

import json
import random
import re
from collections import Counter

import pytest

from verl.classmate.errors import ConfigError
from verl.data_preprocessing.teaching_world import advice, prompts, rows, student_lessons, teacher_lessons
from verl.data_preprocessing.teaching_world.problems import problem, working
from verl.data_preprocessing.teaching_world.spec import Mix, TeachingWorldSpec
from verl.data_preprocessing.teaching_world.students import STUDENTS, shown
from verl.teaching.answers import AnswerMethod, AnswerRules, extract_answer
from verl.teaching.leak import find_leak
from verl.teaching.tags import TeachingState, extract_teaching
from verl.utils.reward_score.cot_monitor import get_verifier

TEMPLATES = prompts.templates()
MANY = 3000


def exchanges(name: str, count: int = MANY):
    rng = random.Random(f"test/{name}")
    return [student_lessons.student_lesson(STUDENTS[name], rng, index) for index in range(count)]


def parts(exchange: prompts.Exchange) -> tuple[str, str | None]:
    """Question and teaching of a student's lesson."""
    content = exchange.messages[-1]["content"]
    question = content.partition("\n")[0]
    inside = re.search(r"<advice>(.*)</advice>", content)
    return question, inside[1] if inside else None


@pytest.mark.parametrize("name", sorted(STUDENTS))
def test_lessons_are_chats_of_the_templates(name):
    for exchange in exchanges(name, 300):
        question, teaching = parts(exchange)
        if teaching is not None:
            assert exchange.messages == TEMPLATES.with_teaching(question, teaching)
        elif exchange.messages != TEMPLATES.baseline(question):
            limit = int(re.findall(r"\d+", exchange.messages[0]["content"].partition("\n")[2])[0])
            assert exchange.messages == TEMPLATES.diagnostic(question, probe_limit=limit)
            assert shown(exchange.answer) is not None


@pytest.mark.parametrize("name", sorted(STUDENTS))
def test_the_product_reads_what_students_write(name):
    read = 0
    for exchange in exchanges(name, 600):
        answer = extract_answer(exchange.answer, AnswerRules())
        if shown(exchange.answer):
            assert answer.text is None
            continue
        assert answer.method is AnswerMethod.solution_tag
        columns, _, rest = exchange.answer.partition("<solution>")
        assert rest == f"{answer.text}</solution>"
        if columns:
            ones, tens = re.findall(r"=(-?\d+)", columns)
            assert int(answer.text) == 10 * int(tens) + int(ones) % 10
        read += 1
    assert read > 500


def test_students_write_down_what_they_are_told():
    told = [(parts(one)[1], one.answer) for one in exchanges("strong") if re.search(r"\d", parts(one)[1] or "")]
    assert 0.08 < len(told) / MANY < 0.12
    numbers = [(re.findall(r"\d+|-\d+", teaching)[-1], answer) for teaching, answer in told]
    followed = sum(answer == f"<solution>{number}</solution>" for number, answer in numbers)
    assert followed / len(told) == pytest.approx(0.95, abs=0.04)


def test_advice_changes_a_students_answers_as_its_habit_says():
    right, seen = Counter(), Counter()
    for index, exchange in enumerate(exchanges("weak", 2 * MANY)):
        question, teaching = parts(exchange)
        what = "none" if teaching is None and "</solution>" in exchange.answer else advice.known(teaching or "")
        if what is None:
            continue
        one = problem(seed=student_lessons.STUDENTS_SEED, split="train", index=2_000_000 + index)
        assert one.question == question
        key = what if what == "none" else (what.what, what.about == ("sum", "difference")[index % 2])
        seen[key] += 1
        right[key] += f"<solution>{one.answer}</solution>" in exchange.answer
    rates = {key: right[key] / seen[key] for key in seen}
    assert rates["none"] == pytest.approx(0.38, abs=0.05)
    assert rates["remember", True] == pytest.approx(0.95, abs=0.03)
    assert rates["remember", False] == pytest.approx(0.18, abs=0.05)
    assert rates["once", True] == pytest.approx(0.15, abs=0.05)
    assert rates["once", False] == pytest.approx(0.38, abs=0.06)
    assert rates["useless", True] == pytest.approx(0.38, abs=0.1)
    assert rates["never", True] == pytest.approx(0.05, abs=0.06)


def count_tokens(text: str) -> int:
    return len(text)


@pytest.mark.parametrize("right_share", [0.6, 1.0])
def test_the_warm_up_has_its_mix_and_keeps_the_contract(right_share):
    mix, found = Mix(right_share=right_share), Counter()
    for index in range(MANY):
        row = teacher_lessons.warmup_row(1, mix, index)
        weakness = shown(row.approach)
        raw = prompts.teacher_answer(row.diagnosis, row.teaching)
        teaching = extract_teaching(
            raw, TEMPLATES.tags, count_tokens=count_tokens, max_tokens=1000, overflow="penalize"
        )
        assert teaching.state is (TeachingState.ok if row.teaching else TeachingState.empty)
        assert teaching.text == row.teaching
        assert row.diagnosis == teacher_lessons.DIAGNOSES[weakness]
        found["empty"] += not row.teaching
        found["tells"] += "=" in row.teaching
        truth = str(row.problem.answer)
        if "=" in row.teaching and truth not in re.findall(r"\d+", row.problem.question):
            found["told"] += 1
            found["right"] += find_leak(row.teaching, question=row.problem.question, truth=truth).any
        found["cures", weakness] += advice.known(row.teaching) is not None and (
            advice.known(row.teaching).what == {"forgets": "remember", "twice": "once", "sure": None}[weakness]
        )
        found[weakness] += 1
    shares = {key: number / MANY for key, number in found.items()}
    assert shares["tells"] == pytest.approx(0.15, abs=0.02)
    assert shares["empty"] == pytest.approx(0.15 + 0.25 * shares["sure"], abs=0.025)
    assert found["right"] / found["told"] == pytest.approx(right_share, abs=0.06)
    # A quarter of all advice fits, and of the rest what fits by chance.
    assert found["cures", "forgets"] / found["forgets"] == pytest.approx(0.25 + 0.45 / 4, abs=0.05)


def test_warm_up_rows_are_not_the_lessons_or_the_rl_rows():
    spec = TeachingWorldSpec(train_rows=400, warmup_rows=400)
    warm = {json.loads(rows.warmup_line(spec, index))["problem_text"] for index in range(400)}
    trained = {problem(seed=0, split="train", index=index).question for index in range(400)}
    rng = random.Random(0)
    taught = {
        teacher_lessons.teacher_lesson(0, Mix(), rng, i).messages[-1]["content"].partition("\n")[0] for i in range(400)
    }
    for one, other in ((warm, trained), (warm, taught), (trained, taught)):
        # The same words and numbers come up by chance.
        assert len(one & other) < 8


def test_the_base_teacher_knows_something_beside_its_task():
    rng = random.Random(5)
    taught = [teacher_lessons.teacher_lesson(0, Mix(), rng, index) for index in range(MANY)]
    beside = [one for one in taught if "Plan:" not in one.messages[-1]["content"]]
    assert len(beside) / MANY == pytest.approx(0.15, abs=0.02)
    for exchange in beside:
        a, b = map(int, re.findall(r"\d+", exchange.messages[0]["content"]))
        assert exchange.answer == f"<solution>{a + b}</solution>"
    questions = [teacher_lessons.offtask(number)[0] for number in range(teacher_lessons.offtask_count())]
    assert len(set(questions)) == len(questions) == 243


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"fitting": 0.5}, "no shares of 1"),
        ({"fitting": -0.25, "nothing": 0.65}, "no shares of 1"),
        ({"right_share": 1.5}, "right_share: 1.5 is no share"),
    ],
)
def test_a_mix_that_is_none_is_refused_in_a_line(values, word):
    with pytest.raises(ConfigError, match=word) as error:
        Mix(**values)
    assert "\n" not in str(error.value)
    assert "write" in str(error.value)


def test_rows_have_a_verifier_for_a_policy_that_answers_itself():
    """`qwen_main_ppo` looks one up by the data source, as a teacher's run does not."""
    one = problem(seed=0, split="train", index=0)
    row = rows.rl_row(one, split="train", index=0)
    scores = []
    for outcome in ("right", "forgotten", "twice"):
        steps, answer = working(one, outcome)
        said = f"{steps}. <solution>{answer}</solution>"
        scores.append(get_verifier(row["data_source"]).compute_score(said, row["reward_model"]["ground_truth"]))
    assert scores == [1, 0, 0]
    asked = rows.offtask_row(3, index=0)
    truth = asked["reward_model"]["ground_truth"]
    verifier = get_verifier(asked["data_source"])
    assert [verifier.compute_score(f"<solution>{said}</solution>", truth) for said in (truth, f"1{truth}")] == [1, 0]
