"""Readers that are asked in validation only, on a row's way: no request in training, and failures that stay theirs."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.classmate.toy_tokenizers import byte_bpe
from tests.run_config import run_config, save_tokenizers
from tests.workers.scripted_rows import CLASSMATES, KIND, Client, Say, answer_of, line_of
from verl.classmate.config import from_mapping, this_run
from verl.classmate.metrics import row_numbers
from verl.classmate.outcome import Outcome
from verl.classmate.record import RowRecord
from verl.classmate.reply import Reply
from verl.classmate.row import ScoredRow
from verl.evaluation.recompute import differences, score_again
from verl.trainer.ppo.batched import RewardsComeLater, score_batch
from verl.trainer.ppo.passes import Passes
from verl.workers.classmates.client import ClassmateClient
from verl.workers.row_pipeline import RowPipeline

BASELINE = "trainer.v1.trainer_mode=baseline"


@pytest.fixture(scope="module")
def folder(models: Path) -> Path:
    return save_tokenizers(models, ["unigram"])


def pipeline_of(
    folder: Path, *overrides: str, say: Say = lambda _: "The answer is 7.", classmates: Sequence[str] = CLASSMATES
) -> tuple[RowPipeline, Client]:
    unseen = f"reward_model.evaluation_classmates=[{{model: {folder / 'unigram'}}}]"
    client = Client(say, [*classmates, "unigram"])
    return RowPipeline.build(run_config(folder, classmates, unseen, *overrides), byte_bpe(), client), client


def run(folder: Path, *overrides: str, validate: bool, **more: Any) -> tuple[ScoredRow, Client]:
    pipeline, client = pipeline_of(folder, *overrides, **more)
    answer = answer_of(validate=validate, uid=None if validate else "0-5-key")
    return asyncio.run(pipeline.run(answer)), client


def test_they_are_asked_in_validation_and_never_in_training(folder: Path) -> None:
    row, client = run(folder, validate=False)
    assert [request["classmate"] for request in client.requests] == [0, 1]
    assert (row.unseen, row.unseen_scores, "unseen" in line_of(row)) == ((), None, False)
    row, client = run(folder, validate=True)
    assert [request["classmate"] for request in client.requests] == [0, 1, 2]
    (said,) = line_of(row)["unseen"]
    assert said["model"] == str(folder / "unigram")
    assert [(sample["outcome"], sample["score"]) for sample in said["samples"]] == [("ok", 1.0)]
    prompts = [request["prompt"] for request in client.requests]
    assert all("3 + 4 = 7" in prompt for prompt in prompts), "the view of the classmates, in tokens of its own"
    assert len(set(client.seeds)) == 3


@pytest.mark.parametrize("kind", ["vanilla_reward", "remove_wo_cot", "random_truncate_step_wise_utility"])
def test_the_classmates_part_of_a_row_is_as_without_them(folder: Path, kind: str) -> None:
    row, client = run(folder, f"{KIND}={kind}", validate=True)
    config = run_config(folder, CLASSMATES, f"{KIND}={kind}")
    alone = RowPipeline.build(config, byte_bpe(), Client(client.say))
    without = asyncio.run(alone.run(answer_of(validate=True, uid=None)))
    line = line_of(row)
    (said,) = line.pop("unseen")
    assert line == line_of(without)
    assert len(said["samples"]) == len(line["classmates"][0]["samples"]), "the same views"
    of_classmates = {name: value for name, value in row_numbers(row).items() if not name.startswith("unseen_")}
    assert str(of_classmates) == str(row_numbers(without)), "as text: NaN is NaN there"


@pytest.mark.parametrize("classmates", [CLASSMATES, ()])
def test_a_baselines_validation_asks_them_too(folder: Path, classmates: Sequence[str]) -> None:
    trained, client = run(folder, BASELINE, validate=False, classmates=classmates)
    assert (client.requests, trained.asked, trained.unseen) == ([], (), ())
    row, client = run(folder, BASELINE, validate=True, classmates=classmates)
    assert [request["classmate"] for request in client.requests] == list(range(len(classmates) + 1))
    assert row_numbers(row)["unseen_0_score"] == 1.0
    seeds = [request["seeds"] for request in client.requests if request["classmate"] == len(classmates)]
    with_classmates = run(folder, validate=True)[1].requests[-1]["seeds"]
    assert seeds == [with_classmates], "draws do not depend on who else reads"


@pytest.mark.parametrize("outcome", [Outcome.engine_error, Outcome.timeout])
def test_what_fails_in_them_is_theirs_alone(folder: Path, outcome: Outcome) -> None:
    pipeline, client = pipeline_of(folder)
    sample = client.sample

    async def fails(classmate: int, *given: Any, **more: Any) -> list[Reply]:
        return [Reply(outcome=outcome)] if classmate == 2 else await sample(classmate, *given, **more)

    client.sample = fails  # type: ignore[method-assign]
    row = asyncio.run(pipeline.run(answer_of(validate=True, uid=None)))
    numbers = row_numbers(row)
    assert (numbers["unseen_0_valid"], row.scores.classmate_score, row.scores.classmate_valid) == (0.0, 1.0, True)
    assert numbers[f"outcome_{outcome.value}"] == 0.0, "outcomes of classmates"


def test_they_take_turns_with_either_schedule(folder: Path) -> None:
    pipeline, _ = pipeline_of(folder)
    awake: list[str] = []

    class Group:
        def awake(self, name: str) -> Any:
            awake.append(name)
            return self

        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *error: Any) -> None: ...

    answers = [answer_of(validate=True, uid=None), answer_of(validate=True, uid=None, rollout=3)]
    rows = [pipeline.read(answer) for answer in answers]
    early = [{m: asyncio.run(pipeline.ask(row, m)) for m in range(2)} for row in rows]
    group: Any = Group()
    scored = asyncio.run(score_batch(pipeline, pipeline.reward, group, answers, early, frozenset()))
    assert awake == ["unseen/0"]
    assert [line_of(row) for row in scored] == [line_of(asyncio.run(pipeline.run(answer))) for answer in answers]


def test_the_trainer_has_validation_rows_read_and_no_others(folder: Path) -> None:
    unseen = f"reward_model.evaluation_classmates=[{{model: {folder / 'unigram'}}}]"
    for schedule, classmates in (("streamed", ()), ("batched", ("classmate/0", "classmate/1"))):
        config = run_config(folder, CLASSMATES, unseen, f"reward_model.classmate_schedule={schedule}")
        passes = Passes(config, this_run(config))
        assert passes.reads_later == {False: classmates, True: (*classmates, "unseen/0")}
        validates = [False]
        stand_in = RewardsComeLater(lambda now=validates, of=passes: of.reads_later[now[0]])
        assert (stand_in.reward_loop_worker_handles is None) == bool(classmates)
        validates[0] = True
        assert stand_in.reward_loop_worker_handles is None


def test_a_replay_comes_to_the_same(folder: Path) -> None:
    pipeline, client = pipeline_of(folder, f"{KIND}=remove_wo_cot")
    row = asyncio.run(pipeline.run(answer_of(validate=True, uid=None)))
    record = RowRecord.from_json(RowRecord.of(row).to_json())
    asked = len(client.requests)
    for rescore in (False, True):
        again = asyncio.run(score_again(pipeline, record, rescore=rescore))
        assert list(differences(line_of(row), line_of(again))) == []
        assert row_numbers(again)["unseen_0_alone_score"] == 1.0
    assert len(client.requests) == asked


def test_a_client_counts_its_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    reward = from_mapping({"classmates": [{"model": "a"}], "evaluation_classmates": [{"model": "b"}]})
    client = ClassmateClient(reward, max_model_len=32)

    async def answer(*_: Any) -> Reply:
        return Reply(outcome=Outcome.ok, token_ids=(1,))

    monkeypatch.setattr(client, "_ask_engines", answer)
    for reader, seeds in ((0, [1, 2]), (1, [3])):
        asyncio.run(client.sample(reader, [1], seeds=seeds, validate=True))
    assert client.requests == {"classmate/0": 2, "unseen/0": 1}
