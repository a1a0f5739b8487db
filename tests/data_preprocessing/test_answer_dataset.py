"""Which tokens bear loss: those of the answer behind what is given, and the one that ends the turn."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tests.trainer.sft.small import explained
from verl.classmate.errors import ConfigError
from verl.data_preprocessing.answer_dataset import AnswerDataset
from verl.data_preprocessing.common import write_parquet
from verl.data_preprocessing.embedded_tokenizers import train_tokenizer
from verl.data_preprocessing.reasoning_traces import TracedRow, sft
from verl.teaching.explanation import STYLES
from verl.teaching.templates import Templates

FORM = STYLES["stratos"]
TEMPLATES = Templates()
LESSON = sft.advising_row(
    TracedRow(question="What is 58 + 27?", approach="ones first", diagnosis="It forgets.", teaching="Mind the carry."),
    TEMPLATES,
    teaching_limit=64,
)


@pytest.fixture(scope="module")
def tokenizer():
    row = sft.explaining_row(explained(1), FORM)
    return train_tokenizer("bpe", [turn["content"] for turn in row["messages"] + LESSON["messages"]], 400)


def dataset(tokenizer, folder: Path, rows: list[dict], **settings: object) -> AnswerDataset:
    write_parquet(rows, folder / "rows.parquet")
    config = OmegaConf.create({"pad_mode": "no_padding", "max_length": 2048, **settings})
    return AnswerDataset(str(folder / "rows.parquet"), tokenizer, config)


def learnt(tokenizer, row: dict) -> tuple[str, str]:
    """The text without loss, and that with."""
    mask = row["loss_mask"].bool()
    assert mask.sort().values.equal(mask), "loss is one piece at the end"
    return tokenizer.decode(row["input_ids"][~mask]), tokenizer.decode(row["input_ids"][mask])


def test_a_teacher_who_explains_learns_the_explanation_alone(tokenizer, tmp_path: Path) -> None:
    traced = explained(3)
    row = sft.explaining_row(traced, FORM)
    given, written = learnt(tokenizer, dataset(tokenizer, tmp_path, [row])[0])
    assert given.endswith(FORM.opening(str(traced.solution)))
    assert written == f"{FORM.rest(str(traced.trace))}<|im_end|>"


@pytest.mark.guards("SFT format unlike RL format")
def test_the_given_ids_are_those_of_the_prompt_in_rl(tokenizer, tmp_path: Path) -> None:
    from verl.teaching.chat_ids import given_turn

    traced = explained(3)
    made = dataset(tokenizer, tmp_path, [sft.explaining_row(traced, FORM)])[0]
    prompt = given_turn(tokenizer, FORM.prompt(traced.question), FORM.opening(str(traced.solution)))
    assert made["input_ids"][: len(prompt)].tolist() == prompt
    assert made["loss_mask"].sum() == len(made["input_ids"]) - len(prompt)


def test_a_teacher_who_advises_learns_both_parts(tokenizer, tmp_path: Path) -> None:
    given, written = learnt(tokenizer, dataset(tokenizer, tmp_path, [LESSON])[0])
    assert given.endswith("ones first<|im_end|>\n<|im_start|>assistant\n")
    assert written == "<thinking>It forgets.</thinking><teaching>Mind the carry.</teaching><|im_end|>"


def test_unmasked_the_solution_is_learnt_too(tokenizer, tmp_path: Path) -> None:
    traced = explained(3)
    made = dataset(tokenizer, tmp_path, [sft.explaining_row(traced, FORM)], mask_teacher_answer=False)
    given, written = learnt(tokenizer, made[0])
    assert given.endswith("<|im_start|>assistant\n")
    assert written.startswith(FORM.opening(str(traced.solution)))


def test_rows_without_the_column_learn_the_whole_answer(tokenizer, tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    given, written = learnt(tokenizer, dataset(tokenizer, tmp_path, [{"messages": turns}])[0])
    assert given.endswith("<|im_start|>assistant\n")
    assert written == "2<|im_end|>"


def test_earlier_answers_bear_no_loss(tokenizer, tmp_path: Path) -> None:
    turns = [{"role": role, "content": text} for role, text in (("user", "a"), ("assistant", "b"), ("user", "c"))]
    turns.append({"role": "assistant", "content": "d"})
    _, written = learnt(tokenizer, dataset(tokenizer, tmp_path, [{"messages": turns}])[0])
    assert written == "d<|im_end|>"


def test_long_rows_are_left_out_and_none_is_cut(tokenizer, tmp_path: Path) -> None:
    long = sft.explaining_row(TracedRow(question="?", solution="2", trace="so " * 500), FORM)
    made = dataset(tokenizer, tmp_path, [long, LESSON, long], max_length=700)
    assert (len(made), made.left_out) == (1, 2)
    with pytest.raises(ConfigError, match=r"^data\.max_length=7: all 3 rows [^\n]*$"):
        dataset(tokenizer, tmp_path, [long, LESSON, long], max_length=7)


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [{"role": "user", "content": "1+1?"}]},
        {"messages": LESSON["messages"], "loss_from": 9999},
        {"messages": LESSON["messages"], "loss_from": -1},
    ],
)
def test_a_row_without_anything_to_learn_is_refused(row: dict, tokenizer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^data: a row ends [^\n]*$"):
        dataset(tokenizer, tmp_path, [row])


def test_upstreams_loader_takes_the_rows(tokenizer, tmp_path: Path) -> None:
    """Through its own hook for datasets, and its own collator."""
    from verl.trainer.sft_trainer import create_sft_dataset
    from verl.utils.dataset.dataset_utils import SFTTensorCollator

    write_parquet([LESSON, sft.explaining_row(explained(2), FORM)], tmp_path / "rows.parquet")
    hook = {"path": "pkg://verl.data_preprocessing.answer_dataset", "name": "AnswerDataset"}
    config = OmegaConf.create({"pad_mode": "no_padding", "max_length": 2048, "custom_cls": hook})
    made = create_sft_dataset(str(tmp_path / "rows.parquet"), config, tokenizer, None)
    batch = SFTTensorCollator("no_padding")([made[0], made[1]])
    assert batch["input_ids"].offsets().diff().tolist() == [len(made[0]["input_ids"]), len(made[1]["input_ids"])]
    assert batch["loss_mask"].values().sum() == made[0]["loss_mask"].sum() + made[1]["loss_mask"].sum()
