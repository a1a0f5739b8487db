"""A teacher's row from its text to its reward, with real tokenizers and templates and scripted students."""

import asyncio
import dataclasses
import json
import math
from pathlib import Path

import pytest

from tests.workers.scripted_students import QUESTION, columns, scripted_pipeline, taught
from verl.classmate.metrics import row_numbers
from verl.classmate.outcome import Outcome
from verl.classmate.record import RowRecord
from verl.classmate.row import ScoredRow
from verl.evaluation.recompute import differences, score_again
from verl.teaching.lesson import Lesson
from verl.teaching.taught import Taught
from verl.trainer.ppo.teaching_metrics import teaching_metrics
from verl.workers.classmates.shared_draws import shared_draws
from verl.workers.teaching_pipeline import TeachingPipeline

GOOD = "<thinking>It forgets.</thinking><teaching>Mind the carry.</teaching>"
BAD = "<teaching>Just guess.</teaching>"
EMPTY = "<thinking>It knows.</thinking><teaching></teaching>"
MISSING = "<thinking>secret</thinking> Mind the carry."


def method(row: ScoredRow) -> Taught:
    assert row.method is not None
    return Taught.from_record(json.loads(json.dumps(row.method.record)))


def test_each_kind_of_advice_gets_its_reward(tmp_path: Path) -> None:
    pipeline, _ = scripted_pipeline(tmp_path)
    good, bad, empty, missing = taught(pipeline, GOOD, BAD, EMPTY, MISSING)
    length = method(good).students[0].length
    assert length > 0
    # wrong -> right: D = 1, times 1 + tau / (tau + L).
    assert good.scores.base_reward == pytest.approx(1 + 100 / (100 + length))
    # The weak student is wrong with and without it.
    assert bad.scores.base_reward == 0
    assert empty.scores.base_reward == 0
    assert missing.scores.base_reward == pytest.approx(-0.5)
    (kept,) = taught(pipeline, BAD, student=1)
    assert kept.scores.base_reward == pytest.approx(-2.0)


@pytest.mark.acceptance("T4")
@pytest.mark.parametrize("text", [EMPTY, MISSING, "<teaching>never closed", "<teaching>a<teaching>b</teaching>"])
def test_without_advice_the_student_is_not_asked_again(tmp_path: Path, text: str) -> None:
    pipeline, engines = scripted_pipeline(tmp_path)
    (row,) = taught(pipeline, text)
    assert engines.count("advises you") == {}
    assert not any("secret" in prompt for _, prompt in engines.asked)
    assert method(row).rcl is not None
    assert row_numbers(row)["rcl_w"] == row_numbers(row)["rcl_b"] == 0


@pytest.mark.acceptance("T2")
@pytest.mark.guards("probe and baseline resampled per rollout")
def test_a_group_shares_one_probe_and_one_baseline(tmp_path: Path) -> None:
    pipeline, engines = scripted_pipeline(tmp_path)
    rows = taught(pipeline, GOOD, BAD, EMPTY, GOOD)
    assert engines.count("Do not carry the steps out") == {"classmate/0": 1}
    alone = [p for _, p in engines.asked if "advises you" not in p and "Do not carry" not in p]
    assert len(alone) == 4, "M answers, once"
    lessons = {row.read.answer.lesson for row in rows}
    assert len(lessons) == 1
    assert {method(row).students[0].lesson.probe.text for row in rows} == {"I take the ones."}


@pytest.mark.acceptance("T2")
def test_students_are_isolated_and_read_their_own_template(tmp_path: Path) -> None:
    pipeline, engines = scripted_pipeline(tmp_path)
    taught(pipeline, GOOD, student=1)
    assert {model for model, _ in engines.asked} == {"classmate/1"}
    (guided,) = [prompt for _, prompt in engines.asked if "advises you" in prompt]
    own = pipeline.students.students[1].tokenizer
    messages = pipeline.teaching.templates.with_teaching(QUESTION, "Mind the carry.")
    said = own.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert guided == own.decode(own.encode(said, add_special_tokens=False))


@pytest.mark.acceptance("T8")
def test_a_stored_baseline_outlives_the_process(tmp_path: Path) -> None:
    first, _ = scripted_pipeline(tmp_path)
    (row,) = taught(first, GOOD)
    again, after = scripted_pipeline(tmp_path)
    (same,) = taught(again, GOOD)
    plain = [p for _, p in after.asked if "advises you" not in p and "Do not carry" not in p]
    assert plain == []
    assert method(same).students[0].lesson.cache_hit == 1
    assert method(row).students[0].lesson.base == method(same).students[0].lesson.base
    other, asked = scripted_pipeline(tmp_path, "reward_model.classmate_generation_configs.temperature=0.3")
    taught(other, GOOD)
    assert [p for _, p in asked.asked if "advises you" not in p and "Do not carry" not in p], "another sampling"


@pytest.mark.acceptance("T13")
@pytest.mark.parametrize("dead", ["baseline", "guided"])
def test_a_dead_student_is_no_score_of_zero(tmp_path: Path, dead: str) -> None:
    pipeline, engines = scripted_pipeline(tmp_path)
    if dead == "guided":
        taught(pipeline, GOOD)  # stores the baseline, draws another outline later
        engines.failing.clear()
    lesson_first = asyncio.run(_lesson(pipeline))
    engines.failing.add("classmate/0")
    if dead == "baseline":
        pipeline, engines = scripted_pipeline(tmp_path / "other")
        engines.failing.add("classmate/0")
        (row,) = taught(pipeline, GOOD)
    else:
        from tests.workers.scripted_students import answer_with

        row = asyncio.run(pipeline.run(answer_with(pipeline, GOOD, lesson_first)))
    assert not row.scores.main_valid
    assert row.main.outcome is Outcome.engine_error
    numbers = row_numbers(row)
    assert math.isnan(numbers["rcl_d"])
    record = RowRecord.of(row)
    told = teaching_metrics([record])
    assert told["rcl/excluded_rows"] == 1
    assert told["rcl/outcome/engine_error"] == 1
    assert "rcl/d" not in told


async def _lesson(pipeline: TeachingPipeline) -> Lesson:
    with shared_draws():
        return await pipeline.lesson(columns(student=0))


def test_an_excluded_student_is_not_asked(tmp_path: Path) -> None:
    pipeline, engines = scripted_pipeline(tmp_path)

    async def go() -> Lesson:
        return await pipeline.lesson(columns(student=0) | {"excluded_classmates": (0,)})

    lesson = asyncio.run(go())
    assert lesson.students[0].outcome is Outcome.excluded
    assert engines.asked == []


def test_an_answer_that_is_never_found_is_wrong_and_counted(tmp_path: Path) -> None:
    pipeline, engines = scripted_pipeline(tmp_path)
    engines.says["classmate/0"] = "It is 7."
    (row,) = taught(pipeline, GOOD)
    found = method(row).students[0]
    assert found.lesson.base.rate == 0
    assert found.lesson.base.parsed == 0
    assert found.guided is not None
    assert found.guided.rate == 0
    assert row.scores.main_valid


@pytest.mark.acceptance("T7")
def test_special_tokens_in_advice_do_not_end_the_students_turn(tmp_path: Path) -> None:
    pipeline, engines = scripted_pipeline(tmp_path)
    student = pipeline.students.students[0]
    end = student.tokenizer.eos_token
    (row,) = taught(pipeline, f"<teaching>Mind {end} it. The answer is 7.</teaching>")
    (guided,) = [prompt for _, prompt in engines.asked if "advises you" in prompt]
    (plain,) = {prompt for _, prompt in engines.asked if "advises you" not in prompt and "Do not carry" not in prompt}
    assert guided.count(end) == plain.count(end)
    assert method(row).leak.told


def test_a_teaching_over_its_cap_is_punished_or_cut(tmp_path: Path) -> None:
    long = f"<teaching>{'Mind the carry. ' * 40}</teaching>"
    pipeline, engines = scripted_pipeline(tmp_path, "rcl.protocol.max_teaching_tokens=12")
    (row,) = taught(pipeline, long)
    assert method(row).teaching.state == "overlong"
    assert row.scores.base_reward == pytest.approx(-0.5)
    assert engines.count("advises you") == {}
    pipeline, _ = scripted_pipeline(
        tmp_path, "rcl.protocol.max_teaching_tokens=12", "rcl.protocol.teaching_overflow=truncate"
    )
    (row,) = taught(pipeline, long)
    assert 0 < method(row).students[0].length <= 12


def test_joint_rewards_one_teaching_by_all_students(tmp_path: Path) -> None:
    joint = "rcl.protocol.student_assignment=joint"

    def rewards(*overrides: str) -> list[float]:
        pipeline, _ = scripted_pipeline(tmp_path, joint, *overrides)

        async def go() -> list[ScoredRow]:
            from tests.workers.scripted_students import answer_with

            with shared_draws():
                lesson = await pipeline.lesson(columns())
                assert lesson.readers == (0, 1)
                shown = pipeline.teacher_messages(QUESTION, lesson)[-1]["content"]
                assert "the ones" in shown
                assert "both columns" in shown
                rows = [answer_with(pipeline, text, lesson, rollout=i) for i, text in enumerate((GOOD, BAD))]
                return list(await asyncio.gather(*(pipeline.run(row) for row in rows)))

        return [row.scores.base_reward for row in asyncio.run(go())]

    mean = rewards()
    worst = rewards("rcl.protocol.joint_reduction=min")
    # The strong student gains nothing by good advice, and loses all by bad advice.
    assert worst == [pytest.approx(0), pytest.approx(-2)]
    assert mean[1] == pytest.approx(-1)
    assert mean[0] > 0.5


def test_a_row_is_scored_again_from_its_line(tmp_path: Path) -> None:
    pipeline, _ = scripted_pipeline(tmp_path)
    for row in taught(pipeline, GOOD, BAD, EMPTY, MISSING):
        line = RowRecord.of(row).to_json()
        record = RowRecord.from_json(line)
        for rescore in (False, True):
            again = asyncio.run(score_again(pipeline, record, rescore=rescore))
            assert list(differences(json.loads(line), json.loads(RowRecord.of(again).to_json()))) == []
        assert record.teaching is not None
        assert json.loads(line)["lesson"] == row.read.answer.lesson


def test_round_robin_gives_each_question_every_student_in_turn(tmp_path: Path) -> None:
    pipeline, _ = scripted_pipeline(tmp_path)

    def student(index: int, epoch: int) -> int:
        _, readers = pipeline.group_of(columns(index=index) | {"epoch": epoch})
        (reader,) = readers
        return reader

    first = [student(index, 0) for index in range(64)]
    assert [student(index, 1) for index in range(64)] == [1 - one for one in first]
    assert 16 < sum(first) < 48


def test_the_same_seeds_wherever_a_row_is_made(tmp_path: Path) -> None:
    pipeline, engines = scripted_pipeline(tmp_path)
    taught(pipeline, GOOD)
    again, others = scripted_pipeline(tmp_path / "copy")
    taught(again, GOOD)
    assert [one["seed"] for one in engines.params] == [one["seed"] for one in others.params]
    seeds = [one["seed"] for one in engines.params]
    assert len(set(seeds)) == len(seeds)


def test_probes_follow_resample(tmp_path: Path) -> None:
    def seeds(how: str) -> list[int]:
        pipeline, engines = scripted_pipeline(tmp_path, f"rcl.protocol.probe.resample={how}")
        found = []
        for step, epoch in ((1, 0), (2, 0), (9, 1)):
            engines.asked.clear()
            engines.params.clear()

            async def go(given: dict) -> None:  # type: ignore[type-arg]
                await pipeline.lesson(given)

            asyncio.run(go(columns(step=step, student=0) | {"epoch": epoch}))
            found += [
                params["seed"]
                for (_, prompt), params in zip(engines.asked, engines.params, strict=True)
                if "Do not carry" in prompt
            ]
        return found

    assert len(set(seeds("step"))) == 3
    assert len(set(seeds("never"))) == 1
    by_epoch = seeds("epoch")
    assert by_epoch[0] == by_epoch[1] != by_epoch[2]


def test_the_record_holds_everything_of_the_row(tmp_path: Path) -> None:
    pipeline, _ = scripted_pipeline(tmp_path)
    (row,) = taught(pipeline, GOOD)
    assert row.method is not None
    rebuilt = method(row)
    assert rebuilt.record() == row.method.record
    assert dataclasses.asdict(rebuilt)["rcl"]["terms"]["improvement"] == 1


@pytest.mark.guards("judge given the teacher's text as the student's answer")
def test_the_students_answer_is_scored_and_not_the_teachers(tmp_path: Path) -> None:
    """Whatever answers the teacher writes, in the part that is shown or in the other."""
    pipeline, _ = scripted_pipeline(tmp_path)
    told = "<thinking><solution>7</solution></thinking><teaching>Just guess. \\boxed{7} #### 7</teaching>"
    wrong, right = taught(pipeline, told, "<teaching>Mind the carry. \\boxed{3}</teaching>\n<solution>3</solution>")
    assert [row_numbers(row)["rcl_w"] for row in (wrong, right)] == [0, 1]
    for row, answer, score in ((wrong, "<solution>3</solution>", 0.0), (right, "<solution>7</solution>", 1.0)):
        (said,) = row.asked[0].continuations
        assert (said.text, said.score) == (answer, score)
    assert row_numbers(wrong)["teaching_leak"] == 1


@pytest.mark.guards("student text decoded with the teacher's tokenizer")
def test_students_are_read_in_their_own_tokens(tmp_path: Path) -> None:
    """Outline and answers; in the teacher's tokens they would be other texts."""
    pipeline, engines = scripted_pipeline(tmp_path, "reward_model.classmate_generation_configs.max_new_tokens=128")
    said = "The quick brown fox has 2 apples, é 🙂: <solution>7</solution>"
    engines.says["classmate/1"] = said
    own, teachers = pipeline.students.students[1].tokenizer, pipeline._tokenizer
    for text in (said, "I take both columns."):
        assert teachers.decode(own.encode(text, add_special_tokens=False)) != text
    (row,) = taught(pipeline, GOOD, student=1)
    found = method(row).students[0]
    assert found.lesson.probe.text == "I take both columns."
    assert found.lesson.base.rate == 1
    assert [one.text for one in row.asked[1].continuations] == [said]
    assert found.length == len(own.encode("Mind the carry.", add_special_tokens=False))
