"""Rows of fine-tuning: what is learnt is the answer alone, in the ids of generation."""

import copy

import pytest

from tests.classmate.template_families import FAMILIES
from tests.classmate.toy_tokenizers import byte_bpe
from tests.reasoning.sums import sums_tokenizer
from verl.reasoning.sft.chat import IGNORE, collate, encode, encode_all, pairs_of
from verl.teaching.chat_ids import given_turn


def test_only_the_answer_is_learnt() -> None:
    tokenizer = sums_tokenizer()
    row = encode(tokenizer, "What is 1 + 2?", "1 + 2 = 3.")
    assert list(row.ids[: row.given]) == given_turn(tokenizer, [{"role": "user", "content": "What is 1 + 2?"}])
    learnt = tokenizer.decode(row.ids[row.given :])
    assert learnt == "1 + 2 = 3.<|im_end|>"


@pytest.mark.guards("distillation: prompt inputs with unaligned labels")
def test_labels_stand_where_their_tokens_are() -> None:
    tokenizer = sums_tokenizer()
    rows, _ = encode_all(tokenizer, [("What is 1 + 2?", "3"), ("What is 4 + 5?", "4 + 5 = 9.")], max_length=99)
    batch = collate(rows, pad_id=tokenizer.pad_token_id)
    learnt = batch["labels"] != IGNORE
    assert (batch["labels"][learnt] == batch["input_ids"][learnt]).all()
    assert learnt.sum(1).tolist() == [row.learnt for row in rows]


@pytest.mark.guards("distillation: padding in the loss")
def test_padding_is_never_learnt() -> None:
    tokenizer = sums_tokenizer()
    rows, _ = encode_all(tokenizer, [("What is 1 + 2?", "3"), ("What is 4 + 5?", "4 + 5 = 9.")], max_length=99)
    batch = collate(rows, pad_id=tokenizer.pad_token_id)
    assert (batch["labels"][batch["attention_mask"] == 0] == IGNORE).all()


def test_long_rows_are_left_out_and_counted() -> None:
    tokenizer = sums_tokenizer()
    pairs = [("What is 1 + 2?", "3"), ("What is 1 + 2?", "3 " * 99)]
    rows, left_out = encode_all(tokenizer, pairs, max_length=60)
    assert (len(rows), left_out) == (1, 1)
    with pytest.raises(ValueError, match="all 1 rows are longer"):
        encode_all(tokenizer, pairs[1:], max_length=60)


def test_a_row_without_a_text_is_refused() -> None:
    with pytest.raises(ValueError, match="without a text"):
        pairs_of({"What is 1 + 2?": " "})
    with pytest.raises(ValueError, match="no rows"):
        pairs_of([])


def test_a_thought_that_the_template_opens_is_opened_once() -> None:
    tokenizer = copy.deepcopy(byte_bpe())
    for family in FAMILIES.values():
        tokenizer.chat_template = family.template
        row = encode(tokenizer, "What is 3 + 4?", "<think>\nAdd them.\n</think>\n\nIt is 7.")
        assert tokenizer.decode(row.ids).count("<think>") == 1, family
        assert tokenizer.decode(row.ids[row.given :]).count("Add them.\n</think>\n\nIt is 7.") == 1
