"""Rows read by classmates of other families: which part is closed for them, and what their chat templates refuse."""

from pathlib import Path

import pytest

from tests.classmate.template_families import FAMILIES
from tests.classmate.toy_tokenizers import TOKENIZERS, templated
from tests.clock import Tomorrow
from tests.workers.scripted_rows import CLASSMATES, KIND, QUESTION, SEGMENTS, answer_of, line_of, run
from verl.classmate.metrics import row_numbers
from verl.classmate.row import ScoredRow

KEEP = "reward_model.classmate_cot_reward_configs.main_cot_keep_rate=0.3"
CLOSE = "reward_model.classmate_cot_reward_configs.classmate_close_marker"


def with_templates(folder: Path, *templates: str | None) -> Path:
    """The classmates' tokenizers with other chat templates; None: their own."""
    for name, template in zip(CLASSMATES, templates, strict=True):
        with templated(TOKENIZERS[name](), template or TOKENIZERS[name]().chat_template) as tokenizer:
            tokenizer.save_pretrained(folder / name)
    return folder


def outcomes(row: ScoredRow) -> list[str]:
    """Of each classmate's first sample."""
    return [one["samples"][0]["outcome"] for one in line_of(row)["classmates"]]


@pytest.mark.parametrize(
    "options",
    [
        (KEEP,),
        ("reward_model.classmate_cot_reward_configs.main_cot_keep_rate=first-2-tokens",),
        (f"{KIND}=random_truncate",),
        (f"{KIND}=random_truncate_remove_wo_cot",),
        (f"{KIND}=random_truncate_step_wise_utility", f"{SEGMENTS}=3"),
        (f"{KIND}=remove_wo_cot", KEEP),
    ],
)
@pytest.mark.parametrize("family", ["llama3_2", "gemma2", "qwen2_5", "olmo2", "qwen3_instruct_2507"])
def test_a_part_is_closed_where_the_template_has_no_thoughts(
    tmp_path: Path, family: str, options: tuple[str, ...]
) -> None:
    """It would never write the close marker behind which its answer counts; one that thinks may still finish the
    thought, which here it does not."""
    models = with_templates(tmp_path, FAMILIES[family].template, FAMILIES["qwen3"].template)
    row, client = run(models, *options, say=lambda _: "It is 7.")
    without, thinking = ([r["prompt"] for r in client.requests if r["classmate"] == m] for m in (0, 1))
    assert all(prompt.endswith("</think>") for prompt in without), "also the views that it is compared with"
    assert not any(prompt.endswith("</think>") for prompt in thinking)
    assert set(outcomes(row)) == {"ok", "no_answer"}
    assert outcomes(row)[0] == "ok"
    assert [one["thinks"] for one in line_of(row)["classmates"]] == [False, True]
    assert row.scores.classmate_valid


@pytest.mark.parametrize(("setting", "closed"), [("always", [True, True]), ("never", [False, False])])
def test_the_template_decides_nothing_where_the_user_has(tmp_path: Path, setting: str, closed: list[bool]) -> None:
    models = with_templates(tmp_path, FAMILIES["olmo2"].template, FAMILIES["qwen3"].template)
    for keep in (KEEP, "reward_model.classmate_cot_reward_configs.main_cot_keep_rate=1"):
        _, client = run(models, keep, f"{CLOSE}={setting}", say=lambda _: "It is 7.")
        assert [request["prompt"].endswith("</think>") for request in client.requests] == closed


def test_a_template_that_refuses_a_row_is_its_classmates_outcome(tmp_path: Path) -> None:
    refusing = "{% if 'three' in messages[-1].content %}{{ raise_exception('no threes') }}{% endif %}{{ messages }}"
    models = with_templates(tmp_path, refusing, None)
    row, client = run(models, say=lambda _: "It is 7.")
    assert [request["classmate"] for request in client.requests] == [1]
    assert outcomes(row) == ["template_error", "ok"]
    sample = line_of(row)["classmates"][0]["samples"][0]
    assert "refuses the roles [user] (no threes)" in sample["error"]
    assert (sample["score"], line_of(row)["classmates"][0]["prompt"]) == (None, None)
    assert row_numbers(row)["outcome_template_error"] == 1.0
    assert row.scores.classmate_score == 1.0, "of the other one"
    both, client = run(with_templates(tmp_path / "both", refusing, refusing))
    assert client.requests == []
    assert both.scores.asked
    assert (both.scores.classmate_valid, both.scores.final_reward) == (False, 1.0)


def test_without_a_system_role_the_text_is_in_the_users_turn(tmp_path: Path) -> None:
    models = with_templates(tmp_path, FAMILIES["gemma2"].template, None)
    chat = [{"role": "system", "content": "Be short."}, {"role": "user", "content": QUESTION}]
    row, client = run(models, say=lambda _: "It is 7.", answer=answer_of(messages=chat))
    first, second = (request["prompt"] for request in client.requests)
    assert first.startswith(f"<s><start_of_turn>user\nBe short.\n\n{QUESTION}<end_of_turn>")
    assert second.startswith(f"<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\n{QUESTION}<|im_end|>")
    assert outcomes(row) == ["ok", "ok"]
    assert line_of(row)["messages"] == chat, "as the data has it"
    off, _ = run(models, "reward_model.system_as_user=false", answer=answer_of(messages=chat))
    assert outcomes(off) == ["template_error", "ok"]


def test_prompts_are_those_of_the_run_s_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = with_templates(tmp_path, FAMILIES["llama3_2"].template, FAMILIES["smollm3"].template)
    day = "reward_model.chat_date=2026-01-02"
    _, client = run(models, day)
    monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", Tomorrow)
    _, later = run(models, day)
    assert later.requests == client.requests
    for needle, request in zip(("02 Jan 2026", "02 January 2026"), client.requests, strict=True):
        assert f"Today Date: {needle}" in request["prompt"]
