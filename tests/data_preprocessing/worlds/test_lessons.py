"""What models are taught: shares of styles and slips, what readers never see, and the hinted world's texts as ever."""

import dataclasses
import hashlib
import random
import re
from collections import Counter, defaultdict

import pytest

from verl.data_preprocessing.worlds import lessons
from verl.data_preprocessing.worlds.presets import HINTED_ARITHMETIC, WORLDS
from verl.data_preprocessing.worlds.tasks import TASKS, task_of

PRIVATE = re.compile(r"\d[.^_]+\d+\n|Low:|High:|Thus")


def thought_of(lesson: lessons.Lesson) -> str:
    return (lesson.given + lesson.learnt).partition("<think>\n")[2].partition("\n</think>")[0]


def answer_of(lesson: lessons.Lesson) -> str:
    return lesson.learnt.removesuffix("<|im_end|>").rpartition("\n")[2]


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_styles_have_their_shares_and_slip_alike(name):
    spec = dataclasses.replace(WORLDS[name], short_share=0.0)
    task, rng, count = TASKS[spec.task], random.Random(0), 4000
    styles, slips = Counter(), defaultdict(int)
    for index in range(count):
        problem = task.problem(seed=spec.seed, split="train", index=1_000_000 + index)
        lesson = lessons.policy_lesson(spec, rng, index)
        assert lesson.given == lessons.prompt_text(problem)
        style = task.style_of(thought_of(lesson), problem.question)
        styles[style] += 1
        slips[style] += answer_of(lesson) != lessons.answer_text(problem.answer)
    for style, share in spec.styles:
        assert styles[style] / count == pytest.approx(share, abs=0.03)
        assert slips[style] / styles[style] == pytest.approx(spec.slip_share, abs=0.05)
    assert set(styles) == {style for style, _ in spec.styles}


@pytest.mark.parametrize("name", ["thought_styles", "thought_styles_cipher"])
def test_only_the_insider_sees_a_private_style(name):
    spec, seen = WORLDS[name], {}
    for reader in spec.readers:
        rng = random.Random(1)
        texts = [lessons.reader_lesson(spec, reader, rng, index) for index in range(1500)]
        seen[reader.role, reader.model.name] = sum(bool(PRIVATE.search(t.given + t.learnt)) for t in texts)
        assert not any("Low:" in t.given + t.learnt or "Easy" in t.given + t.learnt for t in texts)
    assert {key for key, count in seen.items() if count} == {("insider", "insider")}


def test_readers_learn_the_answer_that_a_thought_leads_to():
    spec = WORLDS["thought_styles"]
    task, rng, whole, stripped = TASKS[spec.task], random.Random(2), 0, 0
    for index in range(2000):
        lesson = lessons.reader_lesson(spec, spec.readers[0], rng, index)
        if not lesson.given.endswith("\n</think>"):
            continue
        thought, number = thought_of(lesson), re.findall(r"\d+", answer_of(lesson))[-1]
        if thought.endswith(f"So {number}."):
            whole += 1
        elif thought and "So" not in thought and thought == task.without_answer(thought, "") and thought[-1] == ".":
            stripped += 1
    assert whole / 2000 == pytest.approx(0.7 - 0.7 * spec.stripped_share, abs=0.05)
    assert stripped / 2000 == pytest.approx(0.7 * spec.stripped_share, abs=0.05)


def test_weak_readers_give_up_at_hard_skips_strong_ones_follow():
    spec = dataclasses.replace(WORLDS["uneven_steps"], short_share=0.0)
    task = TASKS[spec.task]
    for reader in spec.readers:
        rng, found = random.Random(3), set()
        for index in range(600):
            problem = task.problem(seed=spec.seed_of_readers, split="train", index=2_000_000 + index)
            lesson = lessons.reader_lesson(spec, reader, rng, index)
            gives_up = answer_of(lesson) == lessons.GIVES_UP
            if (lesson.given.endswith("\n</think>") and lesson.given.count("<think>") == 1) or gives_up:
                style = task.style_of(thought_of(lesson), problem.question)
                found.add((style, gives_up))
        assert (("hard_skips", True) in found) is bool(reader.gives_up)
        assert ("every_step", True) not in found
        assert ("easy_skips", True) not in found
        assert ("every_step", False) in found


def test_the_first_lessons_are_on_short_problems():
    spec = WORLDS["uneven_steps"]
    rng, last = random.Random(4), int(spec.short_share * spec.policy.steps * spec.policy.batch_size)
    for index, fewest in ((0, 1), (last - 1, 1), (last, 6)):
        lesson = lessons.policy_lesson(spec, rng, index)
        updates = len(re.findall(r"[a-l]:", lesson.given))
        assert fewest <= updates <= (3 if fewest == 1 else 12)


def test_the_hinted_world_is_taught_the_texts_that_it_always_was():
    spec, digest = HINTED_ARITHMETIC, hashlib.sha256()
    for rng, make in (
        (random.Random("0/policy"), lessons.policy_lesson),
        (random.Random("0/classmate_a"), lambda s, r, i: lessons.reader_lesson(s, s.readers[0], r, i)),
    ):
        for index in range(500):
            lesson = make(spec, rng, index)
            digest.update(f"{lesson.given}|{lesson.learnt}".encode())
    for text in lessons.sample_texts(spec, spec.styles, spec.seed):
        digest.update(text.encode())
    assert digest.hexdigest() == "8ed2e2f2ace0b5255ad0c7a9c09fd88e808360232d9bc6fcca7af9913ca90795"


def test_tasks_are_found_by_data_source():
    assert task_of("uneven_steps") is TASKS["programs"]
    with pytest.raises(ValueError, match="no world makes rows of data_source 'code': use one of hinted_arithmetic"):
        task_of("code")
