"""Ids of a chat whose last turn is given up to a point: what is given is what a model is asked, whatever follows."""

import pytest

from verl.data_preprocessing.embedded_tokenizers import train_tokenizer
from verl.teaching.chat_ids import given_turn, turn_end, written_turn

QUESTION = [{"role": "system", "content": "Explain."}, {"role": "user", "content": "What is 58 + 27?"}]
THINKS = (
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.role == 'assistant' and loop.last %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
    "{{- message.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
"""As Qwen3: a thought, even if empty, stands before a last answer, and in no prompt."""


@pytest.fixture(scope="module")
def tokenizer():
    texts = ["<answer>\n\nAdd the ones, add the ones.</answer>\n\n58 + 27", "aaaaaaaa bbbbbb \n\n\n\n"] * 20
    return train_tokenizer("bpe", texts, 380)


@pytest.mark.parametrize("written", ["Add", "a", "\n\nAdd", " Add", "</answer>"])
def test_what_is_given_does_not_depend_on_what_follows(tokenizer, written: str) -> None:
    given = "<answer>a\n\n"
    turn = written_turn(tokenizer, QUESTION, given=given, written=written)
    assert turn.given == given_turn(tokenizer, QUESTION, given)
    text = tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, tokenize=False)
    assert tokenizer.decode(turn.given) == text + given
    assert tokenizer.decode(turn.written) == f"{written}<|im_end|>"


def test_the_border_is_kept_where_the_tokenizer_would_join_it(tokenizer) -> None:
    joined = tokenizer("aaaa", add_special_tokens=False)["input_ids"]
    turn = written_turn(tokenizer, QUESTION, given="aa", written="aa")
    assert turn.given[-len(joined) :] + turn.written[:-1] != joined
    assert tokenizer.decode(turn.written) == "aa<|im_end|>"


def test_a_prompt_has_the_ids_of_the_chat_template(tokenizer) -> None:
    ids = tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, tokenize=True, return_dict=True)[
        "input_ids"
    ]
    assert given_turn(tokenizer, QUESTION) == list(ids)


def test_arguments_of_the_template_count(tokenizer) -> None:
    thoughtless = given_turn(tokenizer, QUESTION, enable_thinking=False)
    assert tokenizer.decode(thoughtless).endswith("<think>\n\n</think>\n\n")
    assert thoughtless != given_turn(tokenizer, QUESTION)


def test_a_thought_that_only_answers_have_is_not_learnt(tokenizer) -> None:
    from copy import deepcopy

    other = deepcopy(tokenizer)
    other.chat_template = THINKS
    turn = written_turn(other, QUESTION, written="85")
    assert other.decode(turn.given).endswith("<|im_start|>assistant\n")
    assert other.decode(turn.written) == "85<|im_end|>"


@pytest.mark.parametrize(
    ("tail", "end"), [("<|im_end|>\n", "<|im_end|>"), ("\n", "<|im_end|>"), ("<|endoftext|>", "<|endoftext|>")]
)
def test_a_turn_ends_with_the_templates_mark(tokenizer, tail: str, end: str) -> None:
    from copy import deepcopy

    other = deepcopy(tokenizer)
    other.chat_template = (
        "{% for m in messages %}{{ m.role + ': ' + m.content + '" + repr(tail)[1:-1] + "' }}{% endfor %}"
    )
    assert other.decode(turn_end(other)) == end


def test_a_template_without_answers_is_refused(tokenizer) -> None:
    from copy import deepcopy

    other = deepcopy(tokenizer)
    other.chat_template = "{{ messages[0].content }}"
    with pytest.raises(ValueError, match="does not write an assistant's turn"):
        turn_end(other)
