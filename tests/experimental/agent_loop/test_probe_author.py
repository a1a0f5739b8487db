"""A teacher that writes its own question: two turns of one row, with scripted engines and real tokenizers."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.classmate.toy_tokenizers import TOKENIZERS
from tests.workers.scripted_students import QUESTION, STUDENTS, ScriptedEngines, columns, teaching_config
from verl.classmate.errors import ConfigError
from verl.classmate.record import RowRecord
from verl.evaluation.recompute import differences, score_again
from verl.evaluation.replay_teaching import show_taught
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.experimental.agent_loop.row_reading import ClassmateAgentLoopOutput
from verl.experimental.agent_loop.teacher_loop import PromptTooLong, TeacherAgentLoop
from verl.teaching.config import this_teaching
from verl.teaching.taught import Taught
from verl.teaching.templates import NO_APPROACH
from verl.trainer.ppo.teaching_metrics import teaching_metrics
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.classmates.shared_draws import shared_draws
from verl.workers.rollout.replica import TokenOutput
from verl.workers.teaching_pipeline import TeachingPipeline

ASKS = "rcl.protocol.probe.author=teacher"
ROOM = "data.max_response_length=3000"
ASKED = "<thinking>Who forgets?</thinking><teaching>Which columns carry?</teaching>"
ADVICE = "<thinking>It forgets.</thinking><teaching>Mind the carry.</teaching>"


class Policy:
    """Writes its turns in their order, each ended; keeps what it was asked."""

    def __init__(self, first: Callable[[int], str] | str, second: str = ADVICE) -> None:
        self.first = first if callable(first) else lambda rollout: str(first)
        self.second = second
        self.requests: list[dict[str, Any]] = []
        self.tokenizer = TOKENIZERS["byte_bpe"]()

    async def generate(self, **request: Any) -> TokenOutput:
        self.requests.append(request)
        asked = self.tokenizer.decode(request["prompt_ids"])
        text = self.second if "plans:" in asked else self.first(len(self.requests) - 1)
        ids = [*self.tokenizer.encode(text, add_special_tokens=False), self.tokenizer.eos_token_id]
        ids = ids[: request["sampling_params"].get("max_tokens", len(ids))]
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason="completed")

    def prompt(self, number: int) -> str:
        return str(self.tokenizer.decode(self.requests[number]["prompt_ids"]))


class Made:
    """Rows of one group, and who was asked what."""

    def __init__(self, folder: Path, policy: Policy, *overrides: str, rollouts: int = 1, dead: bool = False) -> None:
        self.policy = policy
        config = teaching_config(folder, ASKS, ROOM, *overrides)
        self.engines = ScriptedEngines([TOKENIZERS[name]() for name in STUDENTS])
        self.engines.failing |= {"classmate/0"} if dead else set()
        teaching = this_teaching(config)
        assert teaching is not None
        client: Any = self.engines
        self.pipeline = TeachingPipeline.of_teacher(config, policy.tokenizer, client, teaching)

        async def go() -> list[ClassmateAgentLoopOutput]:
            loop = TeacherAgentLoop(
                pipeline=self.pipeline,
                trainer_config=DictConfigWrap(config),
                server_manager=policy,
                tokenizer=policy.tokenizer,
                processor=None,
                dataset_cls=RLHFDataset,
                data_config=DictConfigWrap(config.data),
            )
            rows = [
                columns(student=0)
                | {"uid": "q", "session_id": i, "read_later": (), "read_beside": False, "partner": ""}
                for i in range(rollouts)
            ]
            with shared_draws():
                return list(await asyncio.gather(*(loop.run({"temperature": 1.0}, **row) for row in rows)))

        self.outputs = asyncio.run(go())
        lines = [one.extra_fields["reward_extra_info"]["record"] for one in self.outputs]
        self.lines: list[str] = lines
        self.records = [RowRecord.from_json(line) for line in lines]
        self.taught = [Taught.from_record(one.teaching or {}) for one in self.records]


def test_a_teacher_asks_and_then_teaches(tmp_path: Path) -> None:
    made = Made(tmp_path, Policy(ASKED))
    (row,), (taught,) = made.outputs, made.taught
    (put,) = [prompt for _, prompt in made.engines.asked if "your teacher asks you" in prompt]
    assert "Which columns carry?" in put
    assert "Who forgets?" not in put
    assert "Do not solve the problem yet" in put
    # The second turn follows the first in one conversation, and reads the reply.
    first, second = made.policy.requests
    assert second["prompt_ids"][: len(first["prompt_ids"])] == first["prompt_ids"]
    assert "I forget the carry." in made.policy.prompt(1)
    assert "Who forgets?" in made.policy.prompt(1)
    assert first["sampling_params"]["seed"] != second["sampling_params"]["seed"]
    assert taught.question is not None
    assert (taught.question.text, taught.question.state) == ("Which columns carry?", "ok")
    assert taught.teaching.text == "Mind the carry."
    # Wrong alone, right with it; no contract is broken.
    assert row.reward_score == pytest.approx(1 + 100 / (100 + taught.students[0].length))
    assert made.records[0].response == ADVICE


def test_both_turns_are_trained_and_nothing_between_them(tmp_path: Path) -> None:
    made = Made(tmp_path, Policy(ASKED))
    (row,) = made.outputs
    first, second = made.policy.requests
    sent = len(second["prompt_ids"]) - len(first["prompt_ids"])
    assert row.prompt_ids == first["prompt_ids"]
    assert [*row.prompt_ids, *row.response_ids][: len(second["prompt_ids"])] == second["prompt_ids"]
    tokenizer = made.policy.tokenizer
    texts = [
        tokenizer.decode(
            [token for token, one in zip(row.response_ids[part], row.response_mask[part], strict=True) if one]
        )
        for part in (slice(0, sent), slice(sent, None))
    ]
    assert texts == [ASKED + tokenizer.eos_token, ADVICE + tokenizer.eos_token]
    assert row.response_logprobs == [-0.5 if one else 0.0 for one in row.response_mask]
    assert made.records[0].answer.turns[1][0] == sent


def test_rollouts_share_prompt_baseline_and_equal_replies(tmp_path: Path) -> None:
    other = "<teaching>What do you do first?</teaching>"
    made = Made(tmp_path, Policy(lambda i: other if i == 1 else ASKED), rollouts=3)
    assert len({tuple(one.prompt_ids) for one in made.outputs}) == 1
    alone = [p for _, p in made.engines.asked if "advises you" not in p and "teacher asks" not in p]
    assert len(alone) == 4, "M answers, once"
    assert sum("teacher asks" in prompt for _, prompt in made.engines.asked) == 2, "one for each question"
    assert "Do not carry the steps out" not in "".join(prompt for _, prompt in made.engines.asked)


@pytest.mark.parametrize(
    ("first", "state", "penalty"),
    [
        ("<teaching> </teaching>", "empty", 0.0),
        ("Which columns carry?", "missing", 0.5),
        ("<teaching>Which columns", "unclosed", 0.5),
        ("<teaching>a<teaching>b</teaching>", "malformed", 0.5),
    ],
)
def test_without_a_question_nobody_is_asked(tmp_path: Path, first: str, state: str, penalty: float) -> None:
    """Advice that helps is worth as much as ever; a broken question costs the format penalty."""
    made = Made(tmp_path, Policy(first))
    assert made.engines.count("teacher asks") == {}
    assert NO_APPROACH in made.policy.prompt(1)
    (taught,) = made.taught
    assert taught.question is not None
    assert taught.question.state == state
    length = taught.students[0].length
    assert made.outputs[0].reward_score == pytest.approx(1 + 100 / (100 + length) - penalty)
    told = teaching_metrics(made.records)
    assert (told["rcl/question/broken"], told["rcl/question/empty"]) == (float(penalty > 0), float(state == "empty"))
    assert told["rcl/missing"] == 0, "the advice's own state is another"


def test_two_broken_turns_cost_one_penalty(tmp_path: Path) -> None:
    made = Made(tmp_path, Policy("what?", "carry on"))
    assert made.outputs[0].reward_score == pytest.approx(-0.5)


def test_a_first_turn_ends_at_its_budget(tmp_path: Path) -> None:
    made = Made(tmp_path, Policy(ASKED * 9), "rcl.protocol.probe.max_question_tokens=12")
    (row,) = made.outputs
    assert made.policy.requests[0]["sampling_params"]["max_tokens"] == 12
    assert row.response_mask[:13] == [1] * 12 + [0], "what ends the turn is not the teacher's"
    assert row.response_ids[12] == made.policy.tokenizer.eos_token_id
    assert made.taught[0].question is not None
    assert made.taught[0].question.state == "unclosed"


def test_a_row_without_room_for_advice_is_left_out(tmp_path: Path) -> None:
    with pytest.raises(PromptTooLong, match=r"raise data\.max_response_length=200"):
        Made(tmp_path, Policy(ASKED), "data.max_response_length=200")


@pytest.mark.parametrize("author", ["student_prompt", "teacher"])
def test_a_prompt_beyond_its_limit_is_lost_and_never_cut(author: str, tmp_path: Path) -> None:
    asks = f"rcl.protocol.probe.author={author}"
    sent = Made(tmp_path / "fits", Policy(ASKED), asks).policy.requests[0]["prompt_ids"]
    policy = Policy(ASKED)
    assert Made(tmp_path / "just", policy, asks, f"data.max_prompt_length={len(sent)}").outputs
    assert policy.requests[0]["prompt_ids"] == sent
    refused = Policy(ASKED)
    with pytest.raises(PromptTooLong, match=rf"has {len(sent)} tokens; raise data\.max_prompt_length={len(sent) - 1},"):
        Made(tmp_path / "long", refused, asks, f"data.max_prompt_length={len(sent) - 1}")
    assert not refused.requests, "nobody was asked with a part of it"


def test_a_dead_student_costs_the_row(tmp_path: Path) -> None:
    """It is excluded, not scored; its baseline is stored, so that the reply is what fails."""
    Made(tmp_path, Policy(ASKED))
    made = Made(tmp_path, Policy(ASKED), dead=True)
    assert not [one for _, one in made.engines.asked if "teacher asks" not in one and "advises you" not in one]
    assert not made.records[0].main_valid
    assert teaching_metrics(made.records)["rcl/excluded_rows"] == 1


def test_the_row_is_scored_again_from_its_line(tmp_path: Path) -> None:
    for number, first in enumerate((ASKED, "what?")):
        made = Made(tmp_path / str(number), Policy(first))
        (line,), (record,) = made.lines, made.records
        again = asyncio.run(score_again(made.pipeline, record, rescore=True))
        assert list(differences(json.loads(line), json.loads(RowRecord.of(again).to_json()))) == []
        shown = Shown()
        show_taught(shown, again, made.pipeline)
        assert first in shown.text
        assert made.pipeline.teaching.templates.teacher_probe_template.user.split("{")[0] in shown.text
        assert QUESTION in shown.text


class Shown:
    """Keeps lines."""

    def __init__(self) -> None:
        self.text = ""

    def title(self, text: str) -> None:
        self.text += f"{text}\n"

    line = title

    def block(self, name: str, text: str) -> None:
        self.text += f"{name}\n{text}\n"


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["rcl.protocol.max_probe_tokens=0"], "max_probe_tokens=0"),
        (["rcl.reward.kind=rlt"], "write student_prompt"),
        (["rcl.protocol.probe.max_question_tokens=0"], "max_question_tokens"),
        (["rcl.templates.student_probe_template='Solve {question} {probe_limit}'"], "{probe_question} is missing"),
        (["rcl.templates.teacher_probe_template='{question} {teaching_limit}'"], "unknown placeholder"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, overrides: list[str], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        this_teaching(teaching_config(tmp_path, ASKS, ROOM, *overrides))
    assert told in str(error.value)
    assert "\n" not in str(error.value)
