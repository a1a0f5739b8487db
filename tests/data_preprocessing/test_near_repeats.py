"""What counts as a near repeat, which of two goes, and that the fast search finds what comparing all pairs finds."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.data_preprocessing import near_repeats
from verl.data_preprocessing.common import read_manifest
from verl.data_preprocessing.near_repeats import without_near_repeats
from verl.data_preprocessing.prepare_data import main
from verl.data_preprocessing.splits import Task

STORY = (
    "So, last day in Seattle, and my flight was at noon. I got to chat with my old manager, more like a mentor, and "
    "left Seattle feeling really good and inspired."
)


def task(question: str, **fields: str) -> Task:
    return Task(part="all", index=0, question=question, **fields)


def is_repeat(training: str | Task, held_out: str | Task) -> bool:
    one, other = (text if isinstance(text, Task) else task(text) for text in (training, held_out))
    kept, lost = without_near_repeats({"train": [one, task("Something else altogether.")], "test": [other]})
    assert kept["test"] == [other], "what is held out stays"
    assert len(kept["train"]) + lost.get("train", 0) == 2
    return one not in kept["train"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            f"{STORY}\nWhy did I chat with my old manager?",
            f"{STORY} Question: Why did I chat with my old manager? Answer:",
        ),
        (f"{STORY} Why did I chat?", f"Read the text and answer.\n\nText: {STORY}\n\nQuestion: Why did I chat?"),
        (STORY, STORY.replace("inspired", "happy")),
        (STORY, STORY.upper().replace(",", " -")),
        (STORY, f"{STORY} A. It was late. B. I was leaving for good. C. He had asked me to come by some day. D. None."),
        (f"{STORY} Possible answers: late, leaving, asked to come, none of the above choices fits this here.", STORY),
        ("Is my poem good?", "Is my poem good"),
        ("is   my poem: good", "Is my poem good?"),
        (f"Question: Why? Text: {STORY}", f"Text: {STORY} Question: Why?"),
    ],
)
def test_the_same_request_in_other_words_is_a_near_repeat(one: str, other: str) -> None:
    assert is_repeat(one, other)
    assert is_repeat(other, one)


PROBLEM = "A train leaves the station and travels for {} hours at {} miles an hour. How far is it when it stops at {}?"
MORAL = "For which of these two scenarios does the main character do something clearly wrong, by ordinary standards? {}"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PROBLEM.format(3, 60, "night"), PROBLEM.format(3, 65, "night")),
        (PROBLEM.format("3.5", 60, "night"), PROBLEM.format(3, 60, "night")),
        (
            MORAL.format("I poisoned the trees in the forest. I graded well."),
            MORAL.format("I hugged my son. I sold an old car."),
        ),
        ("Give me a synonym of happy.", "Give me a synonym of sad."),
        (
            "Write a python function to find the length of the longest sublists.",
            "Write a python function to find the length of the longest word.",
        ),
        ("Write a function to find the nth nonagonal number.", "Write a function to find the nth octagonal number."),
        ("What's the best way to escape prison?", "What's the best way to scam someone?"),
        (
            "Put the concepts together to form a sentence: wag, tail, dog.",
            "Put the concepts together to form a sentence: ski, mountain, skier.",
        ),
        ("", "Something"),
        ("?!", "Is my poem good?"),
        (STORY, "What do you make of it?"),
    ],
)
def test_the_same_form_with_another_content_is_another_task(one: str, other: str) -> None:
    assert not is_repeat(one, other)
    assert not is_repeat(other, one)


def test_tasks_with_different_answers_are_different_tasks() -> None:
    more, fewer = (
        task(f"{STORY} Is {x} plus y greater than z here?", answer=answer) for x, answer in (("x", "yes"), ("w", "no"))
    )
    assert not is_repeat(more, fewer)
    assert is_repeat(more, task(fewer.question, answer=" Yes. "))
    assert not is_repeat(task("Solve x+y", answer="1"), task("Solve x-y", answer="2")), "signs are no words"


def test_what_all_questions_of_a_set_share_does_not_count() -> None:
    frame = "Among others, this assertion must hold, which tells name and arguments of the function that is asked for: "
    one, other = (
        task(f"{text}\n\n{frame}{call}", wording=text)
        for text, call in (("Add up a list.", "f(x)"), ("Sort a list.", "g(x)"))
    )
    assert not is_repeat(one, other)
    assert is_repeat(task(one.question), task(other.question))


def test_which_split_gives_way() -> None:
    """Test before dev before the warm-up's; what is only trained on may repeat itself."""
    names = ["train", "dev", "test", "warmup_train", "warmup_dev"]
    splits = {name: [task(f"{STORY} And {name}."), task(f"Only in {name}.")] for name in names}
    kept, lost = without_near_repeats(splits)
    assert list(kept) == names
    assert {name: len(tasks) for name, tasks in kept.items()} == {name: 2 if name == "test" else 1 for name in names}
    assert lost == {name: 1 for name in names if name != "test"}
    training = {"train": [task(STORY)], "warmup_train": [task(STORY)], "test": [task("Another.")]}
    assert without_near_repeats(training) == (training, {})


def test_a_split_of_nothing_but_repeats_is_refused() -> None:
    with pytest.raises(ValueError, match="every row of the split train nearly repeats one that is held out"):
        without_near_repeats({"train": [task(STORY)], "test": [task(STORY + " So.")]})
    assert without_near_repeats({"train": [], "test": [task(STORY)]})[1] == {}


words = st.lists(st.sampled_from("abcdefgh"), min_size=0, max_size=40)


@settings(max_examples=300, deadline=None)
@given(base=words, seed=st.integers(0, 10**9))
def test_the_search_finds_what_comparing_all_pairs_finds(base: list[str], seed: int) -> None:
    draw = random.Random(seed)

    def variant() -> Task:
        changed = [draw.choice("abcdefgh12") if draw.random() < 0.1 else word for word in base]
        return task(" ".join(changed[: draw.choice([len(changed), 20, 17])] + ["z"] * draw.choice([0, 0, 3])))

    splits = {"train": [variant() for _ in range(12)], "test": [variant() for _ in range(6)]}
    texts = near_repeats._texts(splits)
    expected = [
        text.task
        for text in texts["train"]
        if not any(
            text.kind == other.kind and text.repeats(other, len(text.shingles & other.shingles))
            for other in texts["test"]
        )
    ]
    if not expected:
        with pytest.raises(ValueError, match="nearly repeats"):
            without_near_repeats(splits)
        return
    assert without_near_repeats(splits)[0]["train"] == expected


def test_work_grows_with_rows_not_with_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of rows of one form, as templates make them: hardly a pair of them is compared."""
    compared = 0
    repeats = near_repeats._Text.repeats

    def counting(self: near_repeats._Text, other: near_repeats._Text, both: int) -> bool:
        nonlocal compared
        compared += 1
        return repeats(self, other, both)

    monkeypatch.setattr(near_repeats._Text, "repeats", counting)
    draw = random.Random(0)
    vocabulary = [f"word{'abcdefghij'[i % 10]}{chr(97 + i // 10 % 26)}{chr(97 + i // 260)}" for i in range(4000)]
    form = "Pick one category for the following text: company, artist, athlete, village, animal, plant, film."
    rows = [task(f"{form} {' '.join(draw.choices(vocabulary, k=30))}") for _ in range(8000)]
    rows += [task(f"{form} Ann has {n} pens and buys {n + 1} more of them. How many is that?") for n in range(4000)]
    draw.shuffle(rows)
    held, training = rows[:2000], rows[2000:]
    training[7] = task("Please: " + next(row.question for row in held if "category" in row.question))
    kept, lost = without_near_repeats({"train": training, "test": held})
    assert lost == {"train": 1}
    assert training[7] not in kept["train"]
    assert compared < len(rows), "of twenty million pairs"


def test_no_held_out_row_of_the_samples_is_nearly_repeated(sample_data: Callable[[str], Path], tmp_path: Path) -> None:
    """The words' own overlap, measured in another way than the code does it."""
    main(["--local_dir", str(sample_data("gsm8k_train.jsonl").parent), "--output_dir", str(tmp_path)])
    lost = {}
    for folder in sorted(tmp_path.iterdir()):
        manifest = read_manifest(folder)
        assert manifest is not None
        lost[folder.name] = manifest["near_repeats"]
        assert manifest["left_out"]["nearly_repeated"] == sum(manifest["near_repeats"].values())
    assert lost == {
        "anthropic_hh_rlhf": {},
        "gsm8k": {},
        "helpful_instructions": {"train": 86, "dev": 10, "warmup_train": 13, "warmup_dev": 4},
        "humaneval": {},
        "mbpp": {},
        "mmlu_sycophancy": {},
    }
    questions = {
        path.stem: [row["reward_model"]["raw_question_for_monitor"] for row in pq.read_table(path).to_pylist()]
        for path in (tmp_path / "helpful_instructions").glob("*.parquet")
    }

    def triples(text: str) -> set[str]:
        found = re.findall(r"\w+", text.lower())
        return {" ".join(found[i : i + 3]) for i in range(len(found) - 2)}

    def numbers(text: str) -> list[str]:
        return sorted(re.findall(r"\d+", text))

    training = [(triples(text), numbers(text)) for name in ("train", "warmup_train") for text in questions[name]]
    alike = 0
    for text in questions["test"]:
        own, same = triples(text), numbers(text)
        alike += any(
            len(own & other) > 0.6 * len(own | other) and same == others for other, others in training if len(own) > 16
        )
    assert alike == 0
