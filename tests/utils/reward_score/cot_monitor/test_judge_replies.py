"""Replies of servers and of thinking models: a rating counts only where it is the judge's whole answer."""

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import Response
from transformers import AutoTokenizer

from tests.e2e.tiny import make_tiny_world
from tests.workers.servers import serving
from verl.classmate.config import from_mapping
from verl.classmate.judgement import Judgement
from verl.classmate.reply import Reply
from verl.classmate.scoring import Outcome
from verl.utils.model_servers import openai_http
from verl.utils.reward_score.cot_monitor import BaseVerifier, get_verifier
from verl.utils.reward_score.cot_monitor._judged import judge_prompt
from verl.utils.reward_score.cot_monitor.judges import make_judge
from verl.utils.reward_score.cot_monitor.judges.base import CallSettings, JudgeAnswer, PromptJudge, read
from verl.utils.reward_score.cot_monitor.judges.cache import AnswerCache
from verl.utils.reward_score.cot_monitor.judges.pool import PoolBackend, chat_ids
from verl.utils.reward_score.cot_monitor.judges.scoring import ScoringJudge
from verl.workers.classmates import remote as classmate_remote

VERIFIER = get_verifier("sycophancy")
GOOD = "RATING: 7\nEXPLANATION: it flatters."
SETTINGS = CallSettings(timeout_s=20, max_retries=1, max_concurrency=4, requests_per_minute=None)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_http, "RETRY_DELAY_S", 0.01)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def completion(*, finish_reason: Any = "stop", choice: Any = None, **reply: Any) -> dict[str, Any]:
    """A chat completion with a good rating, and with whatever else a test puts into it."""
    message = {"role": "assistant", "content": GOOD} | dict(reply.pop("message", {}))
    choices = [{"index": 0, "message": message, "finish_reason": finish_reason, **(choice or {})}]
    return {"choices": choices, "usage": {"prompt_tokens": 100, "completion_tokens": 9}} | reply


def asked(*replies: str | bytes | dict[str, Any], cache: Path | None = None) -> list[Judgement]:
    """What a judge behind a real server makes of these replies of status 200; each is sent until it is taken."""
    app = FastAPI()
    current: list[str | bytes] = []

    @app.post("/v1/chat/completions")
    async def answer() -> Response:
        return Response(current[-1], 200, media_type="application/json")

    keys = {"backend_type": "openai", "model_name": "judge", "timeout": 20.0, "max_retries": 1}
    keys["cache_path"] = None if cache is None else str(cache)
    judgements = []
    with serving(app, name="judge") as server:
        keys["base_url"] = f"{server.url}/v1"
        config = from_mapping({f"llm_judge_{key}": one for key, one in keys.items()}, require_classmates=False)
        judge = make_judge(config.judges[0], config)

        async def run() -> None:
            for number, reply in enumerate(replies):
                current.append(json.dumps(reply) if isinstance(reply, dict) else reply)
                judgements.append(await judge.score(VERIFIER, "Is my poem good?", f"Text {number}."))
            await judge.close()

        asyncio.run(run())
    return judgements


NOT_WHOLE = {
    "content_filter": completion(finish_reason="content_filter"),
    "error": completion(finish_reason="error"),
    "abort": completion(finish_reason="abort"),
    "tool_calls": completion(finish_reason="tool_calls"),
    "function_call": completion(finish_reason="function_call"),
    "SAFETY": completion(finish_reason="SAFETY"),
    "a word that nobody knows": completion(finish_reason="model_context_window_exceeded"),
    "no word at all": completion(finish_reason={"type": "stop"}),
    "length": completion(finish_reason="length"),
    "model_length": completion(finish_reason="model_length"),
    "a cut rating": completion(finish_reason="length", message={"content": "RATING: 1"}),
    "a refusal": completion(message={"refusal": "I cannot rate this."}),
    "a call beside the text": completion(message={"tool_calls": [{"id": "x", "type": "function"}]}),
    "null": completion(message={"content": None}),
    "null, with the rating in the thought": completion(message={"content": None, "reasoning_content": GOOD}),
    "empty": completion(message={"content": ""}),
    "a number": completion(message={"content": 7}),
    "a filter's report": completion(
        choice={"content_filter_results": {"hate": {"filtered": True, "severity": "high"}}}
    ),
    "one filter of several": completion(
        choice={"content_filter_results": {"hate": {"filtered": False}, "violence": {"filtered": True}}}
    ),
    "a part that refuses": completion(
        message={"content": [{"type": "text", "text": GOOD}, {"type": "refusal", "refusal": "I cannot"}]}
    ),
    "no part": completion(message={"content": []}),
}


def test_a_rating_counts_only_where_the_judge_ended_its_answer() -> None:
    judgements = dict(zip(NOT_WHOLE, asked(*NOT_WHOLE.values()), strict=True))
    for name, judgement in judgements.items():
        assert (judgement.score, judgement.outcome, judgement.requests) == (None, Outcome.judge_error, 1), name
        assert judgement.prompt_tokens == 100, "what it cost is counted"
    kinds = {name: judgement.failure for name, judgement in judgements.items()}
    assert {name for name, kind in kinds.items() if kind == "cut"} == {"length", "model_length", "a cut rating"}
    nulls = {"null", "null, with the rating in the thought"}
    assert {name for name, kind in kinds.items() if kind == "invalid"} == nulls | {"empty", "a number", "no part"}
    assert kinds["content_filter"] == kinds["a refusal"] == kinds["a filter's report"] == "stopped"
    assert kinds["one filter of several"] == kinds["a part that refuses"] == "stopped"
    assert "content_filter" in str(judgements["content_filter"].error)


def test_whole_answers_count() -> None:
    whole = [
        *(completion(finish_reason=reason) for reason in ("stop", "eos_token", "end_turn", "", None)),
        completion(
            message={"refusal": None, "tool_calls": [], "function_call": None, "reasoning_content": "RATING: 1"}
        ),
        completion(error=None, choice={"error": None}),
        completion(usage=None),
        completion(choice={"content_filter_results": {"hate": {"filtered": False, "severity": "safe"}}}),
        completion(choice={"content_filter_results": {}}),
        completion(message={"content": [{"type": "text", "text": GOOD}]}),
        completion(message={"content": [{"type": "text", "text": GOOD[:9]}, {"type": "text", "text": GOOD[9:]}]}),
    ]
    assert [judgement.score for judgement in asked(*whole)] == [7.0] * len(whole)


BROKEN = {
    "error beside a rating": completion(error={"message": "upstream went away", "code": 502}),
    "error in the choice": completion(choice={"error": {"message": "upstream went away"}}),
    "error alone": {"error": {"message": "upstream went away"}},
    "error in words": {"error": "upstream went away"},
    "no message": {"choices": [{"finish_reason": "stop"}]},
    "a list": [GOOD],
    "a number": "7",
    "null": "null",
    "choice is text": {"choices": [GOOD]},
    "choices is an object": {"choices": {"message": {"content": GOOD}}},
    "parts are numbers": completion(message={"content": [7]}),
    "parts of numbers": completion(message={"content": [{"type": "text", "text": 7}]}),
    "message is text": {"choices": [{"message": GOOD, "finish_reason": "stop"}]},
    "1e999 tokens": json.dumps(completion()).replace("100", "1e999"),
    "NaN tokens": json.dumps(completion()).replace("100", "NaN"),
    "tokens of 5,000 digits": json.dumps(completion()).replace("100", "1" * 5000),
    "deep": "[" * 100_000,
    "deep and whole": json.dumps(completion()).replace(
        '"usage"', '"extra": ' + "[" * 50_000 + "]" * 50_000 + ', "usage"'
    ),
    "no text": b"\xff\xfe\x00",
    "nothing": "",
}


def test_a_reply_that_cannot_be_read_is_a_failure_and_never_an_exception() -> None:
    replies = [json.dumps(reply) if isinstance(reply, list) else reply for reply in BROKEN.values()]
    for name, judgement in zip(BROKEN, asked(*replies), strict=True):
        found = (judgement.score, judgement.outcome, judgement.failure, judgement.requests)
        assert found == (None, Outcome.engine_error, "server_error", 2), name
        if name.startswith("error"):
            assert "upstream went away" in str(judgement.error)


def test_an_answer_that_no_file_takes_is_still_an_answer(tmp_path: Path) -> None:
    half = completion(message={"content": GOOD + " \ud83d"})
    (judgement,) = asked(half, cache=tmp_path)
    assert judgement.score == 7.0
    json.dumps(judgement.record(), ensure_ascii=False).encode()


def test_a_cache_from_before_gives_no_score_that_would_not_count_now(tmp_path: Path) -> None:
    """Answers of earlier versions, and files that somebody wrote into."""
    good = JudgeAnswer(text=GOOD, finish_reason="stop", prompt_tokens=1, completion_tokens=1)
    cache = AnswerCache(tmp_path)
    key = cache.key(prompt="x")
    cache.put(key, good)
    assert cache.get(key) == good
    (file,) = tmp_path.rglob("*.json")
    for damage in (
        "[" * 100_000,
        json.dumps(vars(good) | {"text": 7}),
        json.dumps(vars(good) | {"prompt_tokens": "1"}),
    ):
        file.write_text(damage)
        assert cache.get(key) is None
    assert (
        read(
            VERIFIER,
            JudgeAnswer(text=GOOD, finish_reason="content_filter", prompt_tokens=1, completion_tokens=1),
            cached=True,
        ).score
        is None
    )


def test_errors_that_are_deep_are_told_as_they_are() -> None:
    assert openai_http.error_message(b"[" * 5000, key=None).startswith("[[[")
    with pytest.raises(ValueError, match="no completion"):
        classmate_remote._reply(b"[" * 100_000, most=8)
    assert openai_http.retry_after("Mon, 01 Jan 2020 00:00:00 +99999999999999") == 0.0


class Odd(BaseVerifier):
    """A user's verifier whose parser is not as careful as ours."""

    reward_description = "a number"

    def __init__(self, parsed: Any) -> None:
        self.parsed = parsed

    def format_llm_judge_prompt(self, question: str, output: str) -> str:
        return output

    def parse_llm_judge_output(self, text: str) -> tuple[float | None, str]:
        if isinstance(self.parsed, Exception):
            raise self.parsed
        return self.parsed, ""


class Says:
    """A back end with one answer, or one exception."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.identity: dict[str, Any] = {}

    async def ask(self, prompt: str, pattern: str | None) -> JudgeAnswer:
        if isinstance(self.answer, Exception):
            raise self.answer
        return JudgeAnswer(text=self.answer, finish_reason="stop", prompt_tokens=1, completion_tokens=1)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("parsed", [float("inf"), float("nan"), "7", RecursionError("deep"), KeyError("x")], ids=str)
def test_what_a_users_parser_makes_of_an_answer_is_a_finite_number_or_a_failure(parsed: Any) -> None:
    judge = PromptJudge(Says("x"), SETTINGS, cache=None)
    judgement = asyncio.run(judge.score(Odd(parsed), "a", "b"))
    assert (judgement.score, judgement.outcome) == (None, Outcome.judge_error)


def test_a_back_end_that_raises_what_nobody_thought_of_is_a_failure(tmp_path: Path) -> None:
    for cache in (None, AnswerCache(tmp_path)):
        judge = PromptJudge(Says(IndexError("list index out of range")), SETTINGS, cache=cache)

        async def twice(judge: PromptJudge = judge) -> list[Judgement]:
            return list(await asyncio.gather(*(judge.score(VERIFIER, "a", "b") for _ in range(2))))

        for judgement in asyncio.run(twice()):
            assert (judgement.score, judgement.outcome) == (None, Outcome.judge_error)
            assert "list index out of range" in str(judgement.error)


# Thoughts of judges.

THOUGHTS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<Reflection>": "</Reflection>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "\u25c1think\u25b7": "\u25c1/think\u25b7",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|channel>thought\n": "<channel|>",
    "<|channel|>analysis<|message|>": "<|end|><|start|>assistant<|channel|>final<|message|>",
    "<|inner_prefix|>": "<|inner_suffix|>",
}
"""How models begin and end their thoughts."""


@pytest.mark.parametrize("start", THOUGHTS, ids=lambda start: start.strip())
def test_a_rating_within_a_thought_is_none(start: str) -> None:
    def score(text: str) -> float | None:
        return read(VERIFIER, JudgeAnswer(text=text, finish_reason="stop", prompt_tokens=1, completion_tokens=1)).score

    end = THOUGHTS[start]
    thought = "It flatters.\nRATING: 3\nEXPLANATION: perhaps."
    assert score(f"{start}{thought}{end}\n\n{GOOD}") == 7
    assert score(f"{thought}{end}\n\n{GOOD}") == 7, "a template may have opened it"
    for unclosed in (
        f"{start}{thought}",
        f"{start}\n{thought}",
        f"{start}x{end}\n{start}\n{thought}",
        f"Well.\n{start}\n{thought}",
        f"{start}\n{thought}{end}",
    ):
        assert score(unclosed) is None, unclosed


def test_an_answer_that_begins_with_a_mark_nobody_knows_is_no_score() -> None:
    for mark in ("<unused94>thought", "<plan>", "<|im_thinking|>", "[PLAN]", "<\uff5cplan\uff5c>"):
        answer = JudgeAnswer(text=f"{mark}\n{GOOD}", finish_reason="stop", prompt_tokens=1, completion_tokens=1)
        assert read(VERIFIER, answer).score is None, mark
    for said in (GOOD, f"\n{GOOD}", f"Here is my rating.\n\n{GOOD}", f"{GOOD} It uses <b>bold</b> type and List<int>."):
        answer = JudgeAnswer(text=said, finish_reason="stop", prompt_tokens=1, completion_tokens=1)
        assert read(VERIFIER, answer).score == 7, said


# Engines of the run, whose tokenizer is known.


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One with marks of its own: of turns, of thoughts, and one of a form that nobody else has."""
    made = AutoTokenizer.from_pretrained(make_tiny_world(tmp_path_factory.mktemp("tiny")).model)
    letters = [chr(code) for code in range(32, 127)] + ["\n"]
    made.add_tokens([one for one in letters if one not in made.get_vocab()])
    made.add_special_tokens({"additional_special_tokens": ["[THINK]", "[/THINK]", "%%end of turn%%", "<b>"]})
    return made


class Engine:
    """Stands where the run's client stands."""

    def __init__(self, tokenizer: Any, text: str) -> None:
        self.prompts: list[list[int]] = []
        self._reply = Reply(outcome=Outcome.ok, token_ids=tuple(tokenizer(text)["input_ids"]), finish_reason="stop")

    async def complete(self, index: int, ids: list[int], params: Any) -> Reply:
        self.prompts.append(ids)
        return self._reply

    async def score_tokens(self, index: int, ids: list[int]) -> float:
        self.prompts.append(ids)
        return float("inf")


def judged(tokenizer: Any, text: str) -> Judgement:
    backend = PoolBackend(
        Engine(tokenizer, text),
        name="judge",
        tokenizer=tokenizer,
        model="m",
        temperature=0,
        max_tokens=64,
        max_context=8192,
    )
    return asyncio.run(PromptJudge(backend, SETTINGS, cache=None).score(VERIFIER, "a", "b"))


def test_an_engines_thought_is_seen_where_its_marks_are_special_tokens(tokenizer: Any) -> None:
    assert judged(tokenizer, f"[THINK]RATING: 3[/THINK]{GOOD}{tokenizer.eos_token}").score == 7
    assert judged(tokenizer, f"[THINK]\n{GOOD}{tokenizer.eos_token}").score is None


def test_a_thought_that_the_template_opened_must_be_closed(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "chat_template", "{{ messages[0].content }}\n[THINK]\n")
    assert judged(tokenizer, f"{GOOD}{tokenizer.eos_token}").score is None
    assert judged(tokenizer, f"so so[/THINK]{GOOD}").score == 7
    monkeypatch.setattr(tokenizer, "chat_template", "{{ messages[0].content }}\n[THINK]\n\n[/THINK]\n")
    assert judged(tokenizer, GOOD).score == 7


def test_no_text_can_write_a_special_token_of_its_judge(tokenizer: Any) -> None:
    special = set(tokenizer.all_special_ids)

    def count(content: str) -> int:
        chat = [{"role": "user", "content": content}, {"role": "assistant", "content": content}]
        return sum(token in special for token in chat_ids(tokenizer, chat, add_generation_prompt=True)[0])

    plain = count("so what")
    for mark in tokenizer.all_special_tokens:
        for text in (mark, f"so {mark} what", mark * 3, mark[:-1] + mark + mark[-1:]):
            assert count(text) == plain, text


def test_a_reward_model_is_shown_no_marks_and_its_infinity_is_no_score(tokenizer: Any) -> None:
    engine = Engine(tokenizer, "x")
    judge = ScoringJudge(engine, name="judge", tokenizer=tokenizer, max_context=8192, settings=SETTINGS)
    judgement = asyncio.run(judge.score(get_verifier("general_reward"), "q", "bad</think>good<|im_end|>[THINK]"))
    assert (judgement.score, judgement.outcome) == (None, Outcome.engine_error)
    shown = tokenizer.decode(engine.prompts[0])
    assert "bad< /think>good< |im_end|>[ THINK]" in shown


# Marks of templates in texts that are judged.

MARKS = re.findall(
    r"\S+",
    "<\uff5cUser\uff5c> <\uff5cAssistant\uff5c> <\uff5cend\u2581of\u2581sentence\uff5c> <seed:eos> "
    "<seed:bos> <turn|> <|turn> <|turn>user [INST] [/INST] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] "
    "[AVAILABLE_TOOLS] [TOOL_CALLS] [THINK] [gMASK] [control_8] <start_of_turn> <end_of_turn> "
    "<|im_start|> <|im_end|> <|im_sep|> <|header_start|> <|start_header_id|> <|eot_id|> <|eot|> "
    "<|begin_of_text|> <s> </s> <bos> <eos> <pad> <unk> <<SYS>> <</SYS>> <|endoftext|> "
    "<|END_OF_TURN_TOKEN|> <|end|> <|start|> <|channel|> <|user|> [|endofturn|] [|assistant|] <sop> "
    "<eop> <eoh> <reserved_106> <unused7> <extra_id_0> <0x0A> <end_of_utterance> <tool_call> "
    "</tool_call> <think> </think> ]~b] ]~!b[ [e~[ \u25c1think\u25b7 <|plamo:op|> <fim_prefix> "
    "<SPECIAL_12> <mask:0> <|reserved_special_token_5|> <|> <_start> <human> <bot> ",
)
"""Of about thirty families of models."""


@pytest.mark.parametrize("mark", MARKS)
def test_marks_of_every_family_are_spelt_differently(mark: str) -> None:
    for prompt in (judge_prompt("sycophancy", f"a{mark}b", "x"), judge_prompt("sycophancy", "x", f"{mark}\n{mark}")):
        assert mark not in prompt
        assert f"{mark[0]} {mark[1:]}" in prompt


def test_text_that_is_no_mark_is_shown_as_it_is() -> None:
    for text in (
        "if a < b and b > c: x | y || z, a<3, p <- q, 1 <= 2 >> 1, <3, :-|",
        "<b>bold</b> <br> <h2>Title</h2> <a href='x'>y</a> <div class='z'> <!-- no --> <p>",
        "[1] [x] [ ] [link](http://a) a[i] xs[0][1] [ok] [A] [...] [[wiki]]",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "$\\langle x | y \\rangle$ and \u27e8x|y\u27e9, $[0, 1)$, $]a, b[$",
    ):
        assert text in judge_prompt("sycophancy", "a", text), text


def test_a_text_of_broken_characters_can_be_judged() -> None:
    assert "It is ?" in judge_prompt("sycophancy", "a\udcff", "It is \ud83d")


@pytest.mark.parametrize("piece", ["<", "<a", "[A_", "</think", "\u25c1", "<|channel|>", "RATING:", "<a_", "[[", "]~"])
def test_a_megabyte_of_beginnings_takes_no_longer_than_a_megabyte_of_text(piece: str) -> None:
    text = piece * (10**6 // len(piece))
    began = time.process_time()
    prompt = judge_prompt("sycophancy", "a", text)
    answer = JudgeAnswer(text=text, finish_reason="stop", prompt_tokens=1, completion_tokens=1)
    assert read(VERIFIER, answer).score is None
    assert len(prompt) >= 10**6 - len(piece)
    assert time.process_time() - began < 30, "quadratic time would be hours"
