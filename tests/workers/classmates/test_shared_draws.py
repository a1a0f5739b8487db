"""Answers to the question alone are drawn once per prompt: who asks, what every row is told, and what goes wrong."""

import asyncio
import dataclasses
import gc
import weakref
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.classmate.toy_tokenizers import TOKENIZERS, byte_bpe
from tests.run_config import run_config
from tests.workers.scripted_rows import CLASSMATES, KIND, Awake, Client, answer_of, line_of
from verl.classmate.outcome import Outcome
from verl.classmate.reply import Reply
from verl.classmate.row import Answer, ScoredRow
from verl.trainer.ppo.batched import ask_in_turn
from verl.workers.classmates.shared_draws import drawn_once, shared_draws
from verl.workers.row_pipeline import RowPipeline

SAMPLES = "reward_model.classmate_generation_configs.num_return_sequences=2"
TYPES = ("remove_wo_cot", "random_truncate_remove_wo_cot", "random_truncate_step_wise_utility")
ROLLOUTS = 4


class Slow(Client):
    """Answers after some rounds of the event loop, so that all rows wait at the same time; another answer each time."""

    def __init__(self, failure: Outcome | None = None) -> None:
        super().__init__(
            lambda prompt: f"{'' if prompt.endswith('</think>') else '</think>'}The answer is {len(self.requests)}."
        )
        self.failure = failure

    async def sample(self, classmate: int, prompt_ids: list[int], *, seeds: Sequence[int], **more: Any) -> list[Reply]:
        replies = await super().sample(classmate, prompt_ids, seeds=seeds, **more)
        for _ in range(5):
            await asyncio.sleep(0)
        if self.failure is not None and alone(TOKENIZERS[CLASSMATES[classmate]]().decode(prompt_ids)):
            return [Reply(outcome=self.failure, error="no") for _ in seeds]
        return replies


def alone(prompt: str) -> bool:
    """Whether a prompt holds nothing of the thought."""
    return prompt.endswith(("<think>", "<think></think>"))


def pipeline_of(models: Path, client: Client, *overrides: str) -> RowPipeline:
    return RowPipeline.build(run_config(models, CLASSMATES, SAMPLES, *overrides), byte_bpe(), client)


def of_one_prompt(**changes: Any) -> list[Answer]:
    return [answer_of(rollout=rollout, **changes) for rollout in range(ROLLOUTS)]


def made(pipeline: RowPipeline, *prompts: list[Answer]) -> list[ScoredRow]:
    """The rows of each prompt, made in a block of its own, all at the same time."""

    async def rows_of(answers: list[Answer]) -> list[ScoredRow]:
        with shared_draws():
            return list(await asyncio.gather(*(pipeline.run(answer) for answer in answers)))

    async def go() -> list[ScoredRow]:
        return [row for rows in await asyncio.gather(*(rows_of(prompt) for prompt in prompts)) for row in rows]

    return asyncio.run(go())


def baseline(row: ScoredRow) -> list[tuple[int, str | None, str]]:
    """What each classmate said to the question alone."""
    return [
        (m, item.text, item.outcome.value)
        for m, one in enumerate(row.asked)
        for item in one.continuations
        if item.view == len(one.prompts) - 1
    ]


@pytest.mark.parametrize("kind", TYPES)
def test_rows_of_a_prompt_share_answers_to_the_question_alone(models: Path, kind: str) -> None:
    client = Slow()
    rows = made(pipeline_of(models, client, f"{KIND}={kind}"), of_one_prompt())
    asked = Counter(request["classmate"] for request in client.requests if alone(request["prompt"]))
    assert asked == {0: 1, 1: 1}, "once each, not once per row"
    assert len(client.requests) > 2 + 2 * ROLLOUTS - 1
    assert all(baseline(row) == baseline(rows[0]) for row in rows)
    assert len(baseline(rows[0])) == 2 * 2, "two classmates, two samples"
    for row in rows:
        for one in line_of(row)["classmates"]:
            assert alone(one["further_prompts"][-1])
            assert all(sample["text"] for sample in one["samples"])
    assert len(client.seeds) == len(set(client.seeds))


def test_the_shared_seeds_hang_on_step_and_row_and_on_no_rollout(models: Path) -> None:
    def seeds(rollout: int = 0, **changes: Any) -> list[int]:
        client = Client(lambda _: "It is 7.")
        asyncio.run(pipeline_of(models, client, f"{KIND}=remove_wo_cot").run(answer_of(rollout=rollout, **changes)))
        return [seed for request in client.requests if alone(request["prompt"]) for seed in request["seeds"]]

    first = seeds()
    assert len(set(first)) == 4
    assert seeds(rollout=3) == first, "also where nothing is shared, a row is told the same"
    assert not set(first) & set(seeds(step=6))
    other = dataclasses.replace(answer_of().task, extra_info={"index": 4})
    assert not set(first) & set(seeds(task=other))


def test_other_prompts_and_blocks_ask_for_themselves(models: Path) -> None:
    client = Slow()
    other = dataclasses.replace(answer_of().task, extra_info={"index": 4})
    pipeline = pipeline_of(models, client, f"{KIND}=remove_wo_cot")
    made(pipeline, of_one_prompt(), of_one_prompt(task=other))
    asked = [request for request in client.requests if alone(request["prompt"])]
    assert len(asked) == 2 * 2
    assert len({seed for request in asked for seed in request["seeds"]}) == 2 * 2 * 2
    made(pipeline, of_one_prompt())
    assert sum(alone(request["prompt"]) for request in client.requests) == 3 * 2, "nothing is kept behind a prompt"


def test_a_thought_that_stays_open_is_compared_with_an_open_one(models: Path) -> None:
    """A short thought is handed over whole and closed, a longer one is cut and open: two questions, a draw of each."""
    client = Slow()
    keep = "reward_model.classmate_cot_reward_configs.main_cot_keep_rate=first-8-tokens"
    short = answer_of("<think>7</think>\n\nThe answer is 7.", rollout=7)
    rows = made(pipeline_of(models, client, f"{KIND}=remove_wo_cot", keep), [*of_one_prompt(), short])
    asked = [request for request in client.requests if alone(request["prompt"])]
    assert Counter((r["classmate"], r["prompt"].endswith("</think>")) for r in asked) == {
        (m, closed): 1 for m in (0, 1) for closed in (True, False)
    }
    assert len({seed for request in asked for seed in request["seeds"]}) == 8
    assert all(line_of(row)["classmates"][0]["further_prompts"] for row in rows)


@pytest.mark.parametrize("failure", [Outcome.timeout, Outcome.engine_error])
def test_a_draw_that_fails_is_data_for_all_rows(models: Path, failure: Outcome) -> None:
    client = Slow(failure)
    rows = made(pipeline_of(models, client, f"{KIND}=remove_wo_cot"), of_one_prompt())
    assert sum(alone(request["prompt"]) for request in client.requests) == 2
    for row in rows:
        assert {outcome for _, _, outcome in baseline(row)} == {failure.value}
        assert not row.scores.classmate_valid
        errors = [s["error"] for one in line_of(row)["classmates"] for s in one["samples"] if s["view"] == 1]
        assert errors == ["no"] * 4


def test_a_row_that_is_cancelled_leaves_the_draw_to_the_others(models: Path) -> None:
    """Also the one that began it."""
    client = Slow()
    pipeline = pipeline_of(models, client, f"{KIND}=remove_wo_cot")

    async def go() -> list[Any]:
        with shared_draws():
            tasks = [asyncio.ensure_future(pipeline.run(answer)) for answer in of_one_prompt()]
            while not any(alone(request["prompt"]) for request in client.requests):
                await asyncio.sleep(0)
            tasks[0].cancel()
            return await asyncio.gather(*tasks, return_exceptions=True)

    first, *others = asyncio.run(go())
    assert isinstance(first, asyncio.CancelledError)
    assert all(row.scores.classmate_valid for row in others)
    assert sum(alone(request["prompt"]) for request in client.requests) == 2


def test_what_nobody_waits_for_ends_with_its_block() -> None:
    state = SimpleNamespace(ended=None)

    class Answer:
        pass

    async def for_ever() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            state.ended = True
            raise

    async def go() -> weakref.ref:
        with shared_draws():
            waiting = asyncio.ensure_future(drawn_once("key", for_ever))
            answers = [await drawn_once("other", _once(Answer)) for _ in range(3)]
            assert answers[0] is answers[1] is answers[2]
            reference = weakref.ref(answers[0])
            del answers
            lives_on = asyncio.ensure_future(asyncio.sleep(60))
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert state.ended is None
        for _ in range(3):
            await asyncio.sleep(0)
        gc.collect()
        assert not lives_on.done()
        lives_on.cancel()
        return reference

    reference = asyncio.run(go())
    assert state.ended is True
    assert reference() is None, "no answer is kept behind the block"


def _once(kind: type) -> Any:
    async def make() -> Any:
        await asyncio.sleep(0)
        return kind()

    return make


def test_the_schedule_batched_shares_them_too(models: Path) -> None:
    """All rows of the step are asked at once there, of two prompts: twice for each classmate."""
    client = Slow()
    pipeline = pipeline_of(models, client, f"{KIND}=remove_wo_cot")
    classmates: Any = Awake()
    other = dataclasses.replace(answer_of().task, extra_info={"index": 4})
    rows = [pipeline.read(answer) for answer in [*of_one_prompt(), *of_one_prompt(task=other)]]
    needed = [True] * len(rows)
    asked = asyncio.run(ask_in_turn(pipeline, classmates, rows, [{} for _ in rows], frozenset(), needed=needed))
    assert sum(alone(request["prompt"]) for request in client.requests) == 2 * 2
    told = [[item.text for item in one.continuations if item.view == 1] for row in asked for one in row]
    assert told[0::2] == [told[0]] * 4 + [told[8]] * 4
    streamed = Client(lambda _: "It is 7.")
    made(pipeline_of(models, streamed, f"{KIND}=remove_wo_cot"), of_one_prompt(), of_one_prompt(task=other))
    assert sorted(streamed.seeds) == sorted(client.seeds), "both schedules draw the same samples"
