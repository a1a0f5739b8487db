"""A row's judge: every view is asked with seeds of its own, and what comes back becomes reward, numbers and record."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.classmate.template_families import FAMILIES
from tests.classmate.test_templates import Tomorrow
from tests.classmate.toy_tokenizers import TOKENIZERS, byte_bpe, templated
from tests.run_config import run_config, save_tokenizers
from verl.classmate import prompts
from verl.classmate.reply import Reply
from verl.classmate.scoring import Outcome
from verl.classmate.views import Partner
from verl.utils.reward_score.cot_monitor import get_verifier, known_data_sources
from verl.workers.reward_manager.classmate_cot import RowTask, Verdict
from verl.workers.row_judge import Answer, JudgedRow, RowJudge, answer_cue

CLASSMATES = ("text_bpe", "byte_bpe")
QUESTION = "Tom has three apples and gets four."
THOUGHT = "\nTom has 3 apples and gets 4, so 3 + 4 = 7."
RESPONSE = f"<think>{THOUGHT}</think>\n\nThe answer is 7."
KIND = "reward_model.classmate_cot_reward_configs.classmate_reward_type"
SEGMENTS = "reward_model.classmate_cot_reward_configs.step_wise_segments"
MODE = "reward_model.classmate_cot_reward_configs.classmate_continue_mode"
PARTNER = Partner(
    question="And five pears and five plums?",
    data_source="hinted_arithmetic",
    reward_model={"ground_truth": "10"},
    extra_info={"index": 9},
)

Say = Callable[[str], str | Outcome]
"""What a classmate answers to a prompt."""


class Client:
    """Classmates that answer what a function says."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.requests: list[dict[str, Any]] = []

    async def sample(self, classmate: int, prompt_ids: list[int], *, seeds: Sequence[int], **more: Any) -> list[Reply]:
        tokenizer = TOKENIZERS[CLASSMATES[classmate]]()
        prompt = tokenizer.decode(prompt_ids)
        self.requests.append({"classmate": classmate, "prompt": prompt, "seeds": list(seeds), **more})
        said = self.say(prompt)
        if isinstance(said, Outcome):
            return [Reply(outcome=said) for _ in seeds]
        ids = tuple(tokenizer.encode(said, add_special_tokens=False))
        return [Reply(outcome=Outcome.ok, token_ids=ids, finish_reason="stop") for _ in seeds]

    @property
    def seeds(self) -> list[int]:
        """Of all requests so far."""
        return [seed for request in self.requests for seed in request["seeds"]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the classmates' tokenizers."""
    return save_tokenizers(tmp_path_factory.mktemp("tokenizers"), CLASSMATES)


def answer_of(text: str = RESPONSE, **changes: Any) -> Answer:
    task = RowTask(
        data_source="hinted_arithmetic", reward_model={"ground_truth": "7"}, extra_info={"index": 3, "split": "train"}
    )
    arguments: dict[str, Any] = {
        "messages": [{"role": "user", "content": QUESTION}],
        "prompt_ids": [5, 6],
        "response_ids": byte_bpe().encode(text, add_special_tokens=False),
        "task": task,
        "uid": "0-5-key",
        "step": 5,
        "rollout": 2,
        "validate": False,
    }
    return Answer(**arguments | changes)


def judge(
    models: Path, *overrides: str, say: Say = lambda _: "The answer is 7.", answer: Answer | None = None
) -> tuple[JudgedRow, Client]:
    client = Client(say)
    row_judge = RowJudge.build(run_config(models, CLASSMATES, *overrides), byte_bpe(), client)
    return asyncio.run(row_judge.judge(answer or answer_of())), client


def knows_whole_thought(prompt: str) -> str:
    """Right if and only if the end of the thought is in the prompt."""
    return "It is 7." if "= 7." in prompt else "It is 3."


def test_the_question_alone_is_asked_too_and_subtracted(models: Path) -> None:
    row, client = judge(models, f"{KIND}=remove_wo_cot", say=knows_whole_thought)
    assert [request["classmate"] for request in client.requests] == [0, 0, 1, 1]
    with_thought, alone = client.requests[0]["prompt"], client.requests[1]["prompt"]
    assert alone == with_thought.replace(THOUGHT, "")
    assert (row.scores.classmate_score, row.record["final_reward"]) == (1.0, 2.0)
    assert row.info["classmate_alone_score"] == 0.0
    (recorded, _) = row.record["classmates"]
    assert (recorded["prompt"], recorded["further_prompts"]) == (with_thought, [alone])
    assert [(sample["view"], sample["score"]) for sample in recorded["samples"]] == [(0, 1.0), (1, 0.0)]
    knowing, _ = judge(models, f"{KIND}=remove_wo_cot")
    assert knowing.scores.classmate_score == 0.0, "a thought that tells them nothing new earns nothing"


def test_every_request_of_a_row_has_a_seed_of_its_own(models: Path) -> None:
    options = (f"{KIND}=random_truncate_step_wise_utility", f"{SEGMENTS}=3",
               "reward_model.classmate_generation_configs.num_return_sequences=2")  # fmt: skip
    _, client = judge(models, *options)
    assert len(client.seeds) >= 2 * 3 * 2, "two classmates, three views or more, two samples"
    assert len(set(client.seeds)) == len(client.seeds)
    _, other = judge(models, *options, answer=answer_of(step=6))
    assert not set(client.seeds) & set(other.seeds)
    _, other = judge(models, *options, answer=answer_of(rollout=3))
    alone = {
        seed
        for request in client.requests
        if request["prompt"].endswith(("<think>", "<think></think>"))
        for seed in request["seeds"]
    }
    assert set(client.seeds) & set(other.seeds) == alone, "what the rows of a prompt share: the question alone"
    _, again = judge(models, *options)
    assert again.requests == client.requests


@pytest.mark.parametrize(("clue", "rewards"), [("3 apples", [1.0, 0.0]), ("gets 4", [0.0, 1.0]), ("= 7", [0.0, 0.0])])
def test_step_wise_utility_credits_the_segment_that_helped(models: Path, clue: str, rewards: list[float]) -> None:
    """In validation prefixes of 0.37 and 0.63 of the words are shown: up to `3 apples`, up to `so`."""
    row, _ = judge(
        models,
        f"{KIND}=random_truncate_step_wise_utility",
        "reward_model.classmate_cot_reward_configs.keep_unit=words",
        say=lambda prompt: "</think>It is 7." if clue in prompt else "</think>It is 3.",
        answer=answer_of(validate=True),
    )
    assert row.scores.segment_rewards_K.tolist() == rewards == row.record["segment_rewards"]
    assert row.scores.classmate_reward == sum(rewards)
    ids = np.array(answer_of().response_ids)
    texts = [byte_bpe().decode(ids[row.segments == number]).strip() for number in (1, 2)]
    assert texts == ["Tom has 3 apples", "and gets 4, so"]


def test_a_prompt_that_does_not_fit_asks_nobody_anything(models: Path) -> None:
    """Not the question alone either, with which there would be nothing to compare."""
    fits = len(TOKENIZERS["text_bpe"]().encode(QUESTION)) + 24
    row, client = judge(
        models, f"{KIND}=remove_wo_cot", f"reward_model.classmate_generation_configs.max_model_len={fits}"
    )
    assert client.requests == []
    assert {sample["outcome"] for one in row.record["classmates"] for sample in one["samples"]} == {"too_long"}
    assert not row.scores.asked
    assert not row.mask.any()


def test_immediate_answer_is_begun_for_the_classmate_and_short(models: Path) -> None:
    row, client = judge(models, f"{MODE}=immediate_answer", say=lambda _: " 7.")
    assert all(request["prompt"].endswith("</think>\n\nThe answer is") for request in client.requests)
    assert {request["max_new_tokens"] for request in client.requests} == {32}
    assert [one["samples"][0]["text"] for one in row.record["classmates"]] == ["The answer is 7."] * 2
    assert row.scores.classmate_score == 1.0
    silent, _ = judge(models, f"{MODE}=immediate_answer", say=lambda _: " ")
    assert not silent.scores.classmate_valid, "the cue alone is no answer"
    bare, client = judge(models, f"{MODE}=immediate_answer",
                         "reward_model.classmate_cot_reward_configs.immediate_answer_cue=''")  # fmt: skip
    assert {request["max_new_tokens"] for request in client.requests} == {32}
    assert bare.scores.classmate_score == 1.0


def test_helping_with_another_question_is_scored_by_that_questions_truth(models: Path) -> None:
    row, client = judge(
        models, f"{KIND}=help_other_questions", say=lambda _: "It is 10.", answer=answer_of(partner=PARTNER)
    )
    for request in client.requests:
        assert RESPONSE in request["prompt"]
        assert request["prompt"].index(RESPONSE) < request["prompt"].index(PARTNER.question)
    assert (row.scores.base_reward, row.scores.classmate_score) == (1.0, 1.0)
    assert row.mask.all()
    assert row.record["partner"] == vars(PARTNER)
    wrong, _ = judge(models, f"{KIND}=help_other_questions", answer=answer_of(partner=PARTNER))
    assert wrong.scores.classmate_score == 0.0, "7 is the answer of the row itself"
    alone, client = judge(models, f"{KIND}=help_other_questions")
    assert client.requests == []
    assert {s["outcome"] for c in alone.record["classmates"] for s in c["samples"]} == {"no_partner"}
    assert (alone.scores.classmate_valid, alone.scores.final_reward) == (False, 1.0)


def test_the_similar_question_comes_with_the_row(models: Path) -> None:
    task = RowTask(
        data_source="hinted_arithmetic",
        reward_model={"ground_truth": "7", "paired_similar_q": "One and one?", "paired_similar_q_gt": "2"},
        extra_info={"index": 3},
    )
    row, client = judge(models, f"{KIND}=help_other_similar_questions", say=lambda _: "2", answer=answer_of(task=task))
    assert all("One and one?" in request["prompt"] for request in client.requests)
    assert row.scores.classmate_score == 1.0
    alone, _ = judge(models, f"{KIND}=help_other_similar_questions")
    assert {s["outcome"] for c in alone.record["classmates"] for s in c["samples"]} == {"no_partner"}


def test_consistency_is_agreement_with_the_answer_that_the_policy_gave(models: Path) -> None:
    wrong = answer_of(f"<think>{THOUGHT}</think>\n\nThe answer is 8.")
    option = "reward_model.classmate_cot_reward_configs.add_consistency_reward=True"
    row, _ = judge(models, option, say=lambda _: "It is 8.", answer=wrong)
    assert (row.scores.classmate_score, row.scores.consistency_reward) == (0.0, 1.0)
    assert row.record["classmates"][0]["samples"][0]["consistency"] == 1.0
    assert row.scores.final_reward == 1.0
    silent, _ = judge(models, option, answer=answer_of(f"<think>{THOUGHT}</think>\n\nI cannot say."))
    assert not silent.scores.consistency_valid, "there is nothing to agree with"


def test_what_was_scored_before_is_not_scored_again(models: Path) -> None:
    """A judge that costs money is asked once, also by whoever judges a row again."""
    calls = []

    def compute_score(solution_str: str, **_: Any) -> float:
        calls.append(solution_str)
        return 0.25

    row_judge = RowJudge.build(run_config(models, CLASSMATES), byte_bpe(), Client(lambda _: "It is 7."))
    row_judge.manager.compute_score = compute_score

    async def twice() -> tuple[JudgedRow, JudgedRow]:
        row = row_judge.read(answer_of())
        asked = [await row_judge.ask(row, m) for m in row_judge.asks(row)]
        first = await row_judge.score(row, asked)
        assert len(calls) == 3
        known = [
            type(one)(
                prompts=one.prompts,
                continuations=tuple(item for item in first.continuations if item.classmate == m),
            )
            for m, one in enumerate(asked)
        ]
        return first, await row_judge.score(row, known, main=Verdict(score=0.25))

    first, second = asyncio.run(twice())
    assert len(calls) == 3
    assert first.record == second.record


def test_the_record_holds_all_that_judging_again_needs(models: Path) -> None:
    answer = answer_of(partner=PARTNER)
    row, _ = judge(models, f"{KIND}=help_other_questions", answer=answer)
    record = json.loads(json.dumps(row.record))
    assert record == row.record, "plain JSON"
    assert record["messages"] == answer.messages
    assert (record["response_ids"], record["prompt_end_ids"]) == (answer.response_ids, answer.prompt_ids)
    assert (record["reward_model"], record["extra_info"]) == (answer.task.reward_model, answer.task.extra_info)
    assert Partner(**record["partner"]) == PARTNER


def test_classmates_that_open_a_thought_of_their_own_are_read_behind_it(models: Path) -> None:
    row, _ = judge(
        models,
        f"{KIND}=help_other_questions",
        say=lambda _: "<think>5 + 5 = 11</think>It is 10.",
        answer=answer_of(partner=PARTNER),
    )
    assert [one["samples"][0]["text"] for one in row.record["classmates"]] == ["It is 10."] * 2
    endless, _ = judge(
        models, f"{KIND}=help_other_questions", say=lambda _: "<think>10", answer=answer_of(partner=PARTNER)
    )
    assert {s["outcome"] for c in endless.record["classmates"] for s in c["samples"]} == {"no_answer"}


def test_the_judge_of_a_prefix_hears_only_what_follows_the_thought(models: Path) -> None:
    keep = "reward_model.classmate_cot_reward_configs.main_cot_keep_rate=0.3"
    row, client = judge(models, keep, say=lambda _: " and so 7</think>It is 9.")
    assert not any(request["prompt"].endswith("</think>") for request in client.requests)
    assert [one["samples"][0]["text"] for one in row.record["classmates"]] == ["It is 9."] * 2
    assert 0 < row.record["handed_over_tokens"] < 0.4 * row.record["response_tokens"]


KEEP = "reward_model.classmate_cot_reward_configs.main_cot_keep_rate=0.3"
CLOSE = "reward_model.classmate_cot_reward_configs.classmate_close_marker"


def with_templates(folder: Path, *templates: str | None) -> Path:
    """The classmates' tokenizers with other chat templates; None: their own."""
    for name, template in zip(CLASSMATES, templates, strict=True):
        with templated(TOKENIZERS[name](), template or TOKENIZERS[name]().chat_template) as tokenizer:
            tokenizer.save_pretrained(folder / name)
    return folder


def outcomes(row: JudgedRow) -> list[str]:
    """Of each classmate's first sample."""
    return [one["samples"][0]["outcome"] for one in row.record["classmates"]]


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
def test_a_part_is_closed_for_a_classmate_whose_template_has_no_thoughts(
    tmp_path: Path, family: str, options: tuple[str, ...]
) -> None:
    """It would never write the close marker behind which its answer counts; one that thinks may still finish the
    thought, which here it does not."""
    models = with_templates(tmp_path, FAMILIES[family].template, FAMILIES["qwen3"].template)
    row, client = judge(models, *options, say=lambda _: "It is 7.")
    without, thinking = ([r["prompt"] for r in client.requests if r["classmate"] == m] for m in (0, 1))
    assert all(prompt.endswith("</think>") for prompt in without), "also the views that it is compared with"
    assert not any(prompt.endswith("</think>") for prompt in thinking)
    assert set(outcomes(row)) == {"ok", "no_answer"}
    assert outcomes(row)[0] == "ok"
    assert [one["thinks"] for one in row.record["classmates"]] == [False, True]
    assert row.scores.classmate_valid


@pytest.mark.parametrize(("setting", "closed"), [("always", [True, True]), ("never", [False, False])])
def test_the_template_decides_nothing_where_the_user_has(tmp_path: Path, setting: str, closed: list[bool]) -> None:
    models = with_templates(tmp_path, FAMILIES["olmo2"].template, FAMILIES["qwen3"].template)
    for keep in (KEEP, "reward_model.classmate_cot_reward_configs.main_cot_keep_rate=1"):
        _, client = judge(models, keep, f"{CLOSE}={setting}", say=lambda _: "It is 7.")
        assert [request["prompt"].endswith("</think>") for request in client.requests] == closed


def test_a_template_that_refuses_a_row_is_an_outcome_of_that_classmate(tmp_path: Path) -> None:
    refusing = "{% if 'three' in messages[-1].content %}{{ raise_exception('no threes') }}{% endif %}{{ messages }}"
    models = with_templates(tmp_path, refusing, None)
    row, client = judge(models, say=lambda _: "It is 7.")
    assert [request["classmate"] for request in client.requests] == [1]
    assert outcomes(row) == ["template_error", "ok"]
    sample = row.record["classmates"][0]["samples"][0]
    assert "refuses the roles [user] (no threes)" in sample["error"]
    assert (sample["score"], row.record["classmates"][0]["prompt"]) == (None, None)
    assert row.info["outcome_template_error"] == 1.0
    assert row.scores.classmate_score == 1.0, "of the other one"
    both, client = judge(with_templates(tmp_path / "both", refusing, refusing))
    assert client.requests == []
    assert both.scores.asked
    assert (both.scores.classmate_valid, both.scores.final_reward) == (False, 1.0)


def test_a_classmate_without_a_system_role_gets_the_text_in_the_user_s_turn(tmp_path: Path) -> None:
    models = with_templates(tmp_path, FAMILIES["gemma2"].template, None)
    chat = [{"role": "system", "content": "Be short."}, {"role": "user", "content": QUESTION}]
    row, client = judge(models, say=lambda _: "It is 7.", answer=answer_of(messages=chat))
    first, second = (request["prompt"] for request in client.requests)
    assert first.startswith(f"<s><start_of_turn>user\nBe short.\n\n{QUESTION}<end_of_turn>")
    assert second.startswith(f"<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\n{QUESTION}<|im_end|>")
    assert outcomes(row) == ["ok", "ok"]
    assert row.record["messages"] == chat, "as the data has it"
    off, _ = judge(models, "reward_model.system_as_user=false", answer=answer_of(messages=chat))
    assert outcomes(off) == ["template_error", "ok"]


def test_prompts_are_those_of_the_run_s_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = with_templates(tmp_path, FAMILIES["llama3_2"].template, FAMILIES["smollm3"].template)
    day = "reward_model.chat_date=2026-01-02"
    _, client = judge(models, day)
    monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", Tomorrow)
    _, later = judge(models, day)
    assert later.requests == client.requests
    for needle, request in zip(("02 Jan 2026", "02 January 2026"), client.requests, strict=True):
        assert f"Today Date: {needle}" in request["prompt"]


MATH = RowTask(data_source="hendrycks_math", reward_model={"ground_truth": "\\frac{1}{2}"}, extra_info={"index": 3})


@pytest.mark.parametrize(
    ("said", "scored"),
    [
        (" \\frac{1}{2}}$. Done.", "The answer is \\boxed{\\frac{1}{2}}$. Done."),
        ("\\frac12", "The answer is \\boxed{\\frac12}"),
        ("\\dfrac{1}{2}$.", "The answer is \\boxed{\\dfrac{1}{2}}"),
        ("0.5.\n\nBecause {so}", "The answer is \\boxed{0.5}\n\nBecause {so}"),
    ],
)
def test_the_answer_is_begun_as_the_verifier_of_the_row_reads_it(models: Path, said: str, scored: str) -> None:
    row, client = judge(models, f"{MODE}=immediate_answer", say=lambda _: said, answer=answer_of(task=MATH))
    assert all(request["prompt"].endswith("</think>\n\nThe answer is \\boxed{") for request in client.requests)
    assert [one["samples"][0]["text"] for one in row.record["classmates"]] == [scored] * 2
    assert row.scores.classmate_score == 1.0


def test_a_cue_of_the_user_s_stands_for_all_data(models: Path) -> None:
    cue = "reward_model.classmate_cot_reward_configs.immediate_answer_cue='So:'"
    for task in (MATH, answer_of().task):
        _, client = judge(models, f"{MODE}=immediate_answer", cue, say=lambda _: "7", answer=answer_of(task=task))
        assert all(request["prompt"].endswith("</think>So:") for request in client.requests)


def test_the_cue_is_that_of_the_question_which_is_answered(models: Path) -> None:
    partner = Partner(question="Half?", data_source="hendrycks_math", reward_model=MATH.reward_model)
    row, client = judge(models, f"{KIND}=help_other_questions", f"{MODE}=immediate_answer", say=lambda _: "1/2",
                        answer=answer_of(partner=partner))  # fmt: skip
    assert all(request["prompt"].endswith("\\boxed{") for request in client.requests)
    assert row.scores.classmate_score == 1.0


@pytest.mark.parametrize(
    ("source", "said", "truth"),
    [
        ("openai/gsm8k", " 72.", "72"),
        ("openai/gsm8k", "$72 dollars", "72"),
        ("hendrycks_math", "72}$", "72"),
        ("hinted_arithmetic", " 72", "72"),
        ("multiple_choice", " (C).", "C"),
        ("multiple_choice", "C", "C"),
    ],
)
def test_every_verifier_reads_what_its_cue_begins(source: str, said: str, truth: str) -> None:
    text = prompts.begun(answer_cue(source), said.strip())
    assert get_verifier(source).compute_score(text, truth) == 1.0, text


@pytest.mark.parametrize("source", known_data_sources())
def test_where_there_is_no_single_answer_none_is_begun(source: str) -> None:
    verifier = get_verifier(source)
    assert bool(answer_cue(source)) == (verifier.compares_answers or source == "code")
    assert answer_cue("somebody's own data") == "\n\nThe answer is"
