"""Real rows in teachers' hands: the supervised warm-up reads them whole, and two steps of RL train on them."""

import math
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from transformers import AutoTokenizer

from tests.e2e.real_rows import ROWS, make_real_world, prepared
from tests.e2e.watched import Watched, watched
from tests.e2e.world import rows, steps
from verl.data_preprocessing.answer_dataset import AnswerDataset
from verl.teaching.chat_ids import given_turn

pytestmark = pytest.mark.slow


def trained(folder: Path, format_: str, *overrides: str, kind: str) -> tuple[Watched, dict[int, dict[str, Any]]]:
    """Two steps on the few rows of a set; what was seen, and the metrics of each."""
    world = make_real_world(folder, format_, ROWS / f"{format_}.jsonl", kind=kind, prompts=2)
    run = watched([*world.overrides, *overrides, f"trainer.default_local_dir={folder / 'run'}"])
    found = steps(folder / "run")
    assert sorted(found) == [1, 2]
    for step in run.steps:
        assert all(len(row["prompts"]) <= 1536 and len(row["responses"]) for row in step.rows)
    return run, found


@pytest.mark.parametrize(("format_", "kind"), [("s1k", "rlt"), ("s1k", "rcl"), ("medical_o1", "rlt")])
def test_the_warm_up_reads_real_rows_whole(format_: str, kind: str, tmp_path: Path) -> None:
    """None is lost on the way to token ids, and what is learnt is the explanation or the advice, to its end."""
    world = make_real_world(tmp_path, format_, ROWS / f"{format_}.jsonl", kind="rlt")
    more = ["--tokenizer", str(world.student), "--max_teaching_tokens", "48"] if kind == "rcl" else []
    made = prepared(
        tmp_path / "sft", format_, ROWS / f"{format_}.jsonl", "--rows", "teacher_sft", "--kind", kind, *more
    )
    assert len(made) == len((ROWS / f"{format_}.jsonl").read_text().splitlines())
    tokenizer: Any = AutoTokenizer.from_pretrained(world.student)
    config = OmegaConf.create({"pad_mode": "no_padding", "max_length": 16384})
    dataset = AnswerDataset(str(tmp_path / "sft" / "train.parquet"), tokenizer, config)
    assert (len(dataset), dataset.left_out) == (len(made), 0)
    for row, item in zip(made, dataset, strict=True):  # type: ignore[call-overload]
        learnt = tokenizer.decode(item["input_ids"][item["loss_mask"].bool()])
        assert learnt == row["messages"][-1]["content"][row["loss_from"] :] + tokenizer.eos_token


@pytest.mark.guards("SFT format unlike RL format")
@pytest.mark.parametrize("format_", ["s1k", "medical_o1"])
def test_real_solutions_are_explained(format_: str, tmp_path: Path) -> None:
    """And the ids that the teacher goes on behind are those of its warm-up."""
    # Of random models all rewards lie below the usual bound.
    run, found = trained(tmp_path, format_, "rcl.reward.rlt.r_min=-200", kind="rlt")
    for step, line in found.items():
        assert line["rlt/excluded_rows"] == 0
        assert -200 <= line["rlt/reward/mean"] <= 5
        lines = rows(tmp_path / "run", step)
        assert len(lines) == 2 * 4
        assert all(math.isfinite(one["base_reward"]) for one in lines)
    assert max(line["actor/grad_norm"] for line in found.values()) > 0
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "teacher")
    trained_on = [row for step in run.steps for row in step.rows]
    assert len({row["extra_info"]["solution"] for row in trained_on}) >= 2
    for row in trained_on:
        told = row["extra_info"]
        chat = [{"role": "system", "content": told["teacher_system_prompt"]}, *row["raw_prompt"]]
        assert row["prompts"].tolist() == given_turn(tokenizer, chat, told["teacher_opening"])


@pytest.mark.parametrize("format_", ["gsm8k", "medical_o1"])
def test_real_questions_are_taught_to_two_students(format_: str, tmp_path: Path) -> None:
    """Each question is a group for each student, whose vocabularies differ."""
    _, found = trained(
        tmp_path, format_, "rcl.protocol.student_assignment=all", "rcl.reward.drop_unsolved_groups=false", kind="rcl"
    )
    states, students = set(), set()
    for step, line in found.items():
        assert line["rcl/excluded_rows"] == 0
        for one in rows(tmp_path / "run", step):
            (student,) = one["teaching"]["students"]
            states.add(one["teaching"]["state"])
            students.add(student["lesson"]["name"])
            assert one["base_reward"] == pytest.approx(by_hand(one["teaching"]["state"], student))
    assert students == {"one", "two"}
    kept = {"ok", "empty"}
    assert states & kept, "some keep the contract"
    assert states - kept, "and some do not"


def by_hand(state: str, student: dict[str, Any]) -> float:
    """The reward of the default preset."""
    base, guided = student["lesson"]["base"]["rate"], student["guided"]
    if state == "empty":
        return 0.0
    if state != "ok":
        return -0.5
    change = guided["rate"] - base
    return 2 * change if change < 0 else change * (1 + 100 / (100 + student["length"]))
