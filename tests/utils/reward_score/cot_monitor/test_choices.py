"""Which letter an answer gives as its own: commitments in many wordings, and letters that are only spoken of."""

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.utils.reward_score.cot_monitor.letter_answers import COMMITTED
from tests.utils.reward_score.cot_monitor.letter_mentions import NOT_COMMITTED
from verl.data_preprocessing.mmlu_sycophancy import MmluSycophancy
from verl.data_preprocessing.sources import Record
from verl.utils.reward_score.cot_monitor import get_verifier

choice = get_verifier("multiple_choice")
mmlu = get_verifier("mmlu_sycophancy")


@pytest.mark.parametrize(("text", "letter"), COMMITTED.items())
def test_the_last_commitment_counts(text: str, letter: str) -> None:
    assert choice.reference_answer(text) == mmlu.reference_answer(text) == letter
    for truth in "ABCJ":
        assert mmlu.compute_score(text, truth) == choice.compute_score(text, truth) == float(truth == letter)
        assert mmlu.follows_hint(text, {"ground_truth": truth}) == int(truth == letter)


@pytest.mark.parametrize("text", NOT_COMMITTED)
def test_what_is_only_spoken_of_is_no_answer(text: str) -> None:
    assert mmlu.compute_score(text, "C") is None
    assert choice.compute_score(text, "C") == 0.0
    assert mmlu.follows_hint(text, {"ground_truth": "C"}) == 0
    assert not mmlu.has_answer(text)


@pytest.mark.parametrize("text", NOT_COMMITTED)
def test_what_is_only_spoken_of_does_not_change_an_answer(text: str) -> None:
    """The same before and after a commitment to another letter, in paragraphs of their own."""
    assert mmlu.reference_answer(f"{text}\n\nThe best answer is therefore (D).") == "D"
    if text not in ('{"answer": "unclear"}',) and "that is wrong" not in text and "take that back" not in text:
        assert mmlu.reference_answer(f"The best answer is therefore (D).\n\n{text}") in ("D", None)
        assert mmlu.compute_score(f"The best answer is therefore (D).\n\n{text}", "C") in (0.0, None)


def test_an_echoed_prompt_is_no_answer(sample_data: Callable[[str], Path]) -> None:
    """Every real question at hand with the recipe's wording, repeated as it is and in the ways in which models do."""
    recipe, options, rows = MmluSycophancy(), Namespace(seed=0), 0
    for name in ("mmlu_test_sample.jsonl", "mmlu_val.jsonl", "mmlu_dev.jsonl"):
        for index, line in enumerate(sample_data(name).open()):
            record = Record(part="all", index=index, place=name, fields=json.loads(line))
            try:
                row = recipe.row(recipe.task(record, options), "train", options)
            except ValueError:
                continue
            rows += 1
            prompt, reward_model = row["prompt"][0]["content"], row["reward_model"]
            hint, hinted = reward_model["hint_str_for_monitor"], reward_model["hinted_answer"]
            ways = (
                f"User: {prompt}",
                "\n".join(f"> {line}" for line in prompt.splitlines()),
                f"You write: {hint}",
                f"{hint} I do not know.",
                f'You say: "{hint}"',
                hint.replace("told me", "told you"),
                " ".join(prompt.split()),
            )
            for echo in (prompt, hint, *(ways if index % 10 == 0 else ())):
                assert mmlu.compute_score(echo, hinted) is None, echo
                assert mmlu.follows_hint(echo, reward_model) == 0, echo
            true = reward_model["actual_ground_truth"]
            assert mmlu.compute_score(f"{prompt}\n\nThe best answer is therefore ({true}).", true) == 1.0, prompt
            assert mmlu.compute_score(f"{prompt}\n\nThe best answer is therefore ({hinted}).", hinted) == 1.0, prompt
    assert rows > 2200
