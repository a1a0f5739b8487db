"""The agent loop: from the policy's tokens to what the classmates are asked, the reward, and the fields of the row.

The engines are played by scripts of answers, since what is looked at is what reaches them and what is made of it.
"""

import asyncio
import copy
import dataclasses
import datetime
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omegaconf import DictConfig, open_dict
from tensordict import NonTensorStack, TensorDict

from tests.classmate.template_families import FAMILIES
from tests.classmate.toy_tokenizers import TOKENIZERS
from tests.run_config import run_config, save_tokenizers
from verl.classmate.config import from_mapping, this_run
from verl.classmate.outcome import Outcome
from verl.classmate.record import asked_from_json
from verl.classmate.reply import Reply
from verl.classmate.row import Task
from verl.experimental.agent_loop import agent_loop
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.experimental.agent_loop.classmate_agent_loop import partners
from verl.experimental.agent_loop.row_loop import ClassmateAgentLoop
from verl.experimental.agent_loop.row_reading import ASKED_EARLY, ClassmateAgentLoopOutput, row_pipeline
from verl.experimental.agent_loop.row_worker import ClassmateAgentLoopWorker
from verl.trainer.ppo.start_up import run_tokenizer
from verl.trainer.ppo.v1 import agent_loop_tq
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.classmate_workers import ClassmateClient
from verl.workers.rollout.replica import TokenOutput

QUESTION = "Tom has three apples and gets four."
THOUGHT = "\nTom has 3 apples and gets 4, so 3 + 4 = 7."
ANSWERED = f"<think>{THOUGHT}</think>\n\nThe answer is 7."
CLASSMATES = ("text_bpe", "unigram")


class Policy:
    """Writes one text, whatever it is asked."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.requests: list[dict[str, Any]] = []

    async def generate(self, **request: Any) -> TokenOutput:
        self.requests.append(request)
        ids = TOKENIZERS["byte_bpe"]().encode(self.text, add_special_tokens=False)
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason="completed")


class Classmates:
    """Answer 7 for even samples and 8 for odd ones, in their own tokens, but for those that fail."""

    def __init__(self, failing: dict[int, Outcome]) -> None:
        self.failing = failing
        self.live: ClassmateClient | None = None
        self.requests: list[dict[str, Any]] = []

    async def sample(
        self,
        classmate: int,
        prompt_ids: list[int],
        *,
        seeds: Sequence[int],
        validate: bool,
        excluded: frozenset[int] = frozenset(),
        max_new_tokens: int | None = None,
    ) -> list[Reply]:
        if classmate == len(CLASSMATES):
            assert self.live is not None
            return await self.live.sample(classmate, prompt_ids, seeds=seeds, validate=validate)
        tokenizer = TOKENIZERS[CLASSMATES[classmate]]()
        self.requests.append(
            {"classmate": classmate, "prompt": tokenizer.decode(prompt_ids), "seeds": seeds, "validate": validate}
            | {"excluded": excluded}
        )
        if classmate in self.failing:
            return [Reply(outcome=self.failing[classmate]) for _ in seeds]
        return [
            Reply(
                outcome=Outcome.ok,
                token_ids=tuple(tokenizer.encode(f"The answer is {7 + s % 2}.", add_special_tokens=False)),
                finish_reason="stop",
            )
            for s in range(len(seeds))
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """What became of one row."""

    output: ClassmateAgentLoopOutput
    """For the trainer."""
    policy: Policy
    """With what it was asked."""
    classmates: Classmates
    """With what they were asked."""

    @property
    def record(self) -> dict[str, Any]:
        """For the dump."""
        return json.loads(self.output.extra_fields["reward_extra_info"]["record"])


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> DictConfig:
    return composed(save_tokenizers(tmp_path_factory.mktemp("tokenizers"), CLASSMATES))


def composed(folder: Path, *overrides: str) -> DictConfig:
    samples = "reward_model.classmate_generation_configs.num_return_sequences=2"
    return run_config(folder, CLASSMATES, samples, *overrides)


def loop_of(config: DictConfig, policy: Policy) -> ClassmateAgentLoop:
    """The loop as a worker makes it; within a running event loop."""
    tokenizer = TOKENIZERS["byte_bpe"]()
    return ClassmateAgentLoop(
        pipeline=row_pipeline(config, tokenizer, policy),
        trainer_config=DictConfigWrap(config),
        server_manager=policy,
        tokenizer=tokenizer,
        processor=None,
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(config.data),
    )


def worker_without_engine(config: DictConfig, postprocess: Callable[..., Awaitable[None]]) -> ClassmateAgentLoopWorker:
    """A worker that hands what its loops make to `postprocess`."""
    worker = object.__new__(ClassmateAgentLoopWorker)
    worker.config, worker._agent_loop_postprocess, worker.tools = config, postprocess, []
    worker.llm_client = worker.tokenizer = worker.processor = worker.hf_model_type = worker.dataset_cls = None
    worker._reading, worker._making = {}, set()
    return worker


def run(
    config: DictConfig,
    text: str,
    *,
    failing: dict[int, Outcome] | None = None,
    live_client: bool = False,
    **columns: Any,
) -> Row:
    """One row through the loop; with `live_client` the policy's own client answers for the policy."""
    policy, classmates = Policy(text), Classmates(failing or {})
    row = {
        "raw_prompt": [{"role": "user", "content": QUESTION}],
        "data_source": "hinted_arithmetic",
        "reward_model": {"ground_truth": "7"},
        "extra_info": {"index": 3, "split": "train"},
        "uid": "0-1-key",
        "session_id": 2,
        "global_steps": 5,
        "is_validate": False,
        "excluded_classmates": (),
        "read_later": False,
        "read_beside": False,
        "partner": "",
        **columns,
    }

    async def go() -> ClassmateAgentLoopOutput:
        loop = loop_of(config, policy)
        classmates.live = loop.pipeline.asker.client if live_client else None
        loop.pipeline.asker.client = classmates
        return await loop.run({"temperature": 1.0}, **row)

    return Row(output=asyncio.run(go()), policy=policy, classmates=classmates)


def test_each_classmate_reads_question_and_thought_in_its_tokens(config: DictConfig) -> None:
    row = run(config, ANSWERED)
    assert [request["classmate"] for request in row.classmates.requests] == [0, 1]
    for request, recorded in zip(row.classmates.requests, row.record["classmates"], strict=True):
        for text in (request["prompt"], recorded["prompt"]):
            assert QUESTION in text
            assert THOUGHT.strip() in text
            assert "The answer is" not in text, "the thought alone is handed over"
    assert row.record["classmates"][0]["prompt"].endswith(f"<think>{THOUGHT}</think>")
    seeds = [seed for request in row.classmates.requests for seed in request["seeds"]]
    assert len({*seeds, row.policy.requests[0]["sampling_params"]["seed"]}) == 5, "every request has a seed of its own"


def test_batched_leaves_those_in_policy_memory_to_the_trainer(config: DictConfig, tmp_path: Path) -> None:
    later = run(config, ANSWERED, read_later=True)
    assert later.classmates.requests == []
    assert later.output.extra_fields[ASKED_EARLY] == {}
    for name in CLASSMATES:
        TOKENIZERS[name]().save_pretrained(tmp_path / name)
    dedicated = composed(tmp_path, "reward_model.classmate_placement=dedicated")
    early = run(dedicated, ANSWERED, read_later=True)
    assert [request["classmate"] for request in early.classmates.requests] == [0, 1]
    asked = asked_from_json(early.output.extra_fields[ASKED_EARLY][1])
    assert [item.text for item in asked.continuations] == ["The answer is 7.", "The answer is 8."]
    assert all(item.outcome is Outcome.ok for item in asked.continuations)


def test_live_self_play_asks_the_policy_in_its_own_tokens(config: DictConfig, tmp_path: Path) -> None:
    for name in CLASSMATES:
        TOKENIZERS[name]().save_pretrained(tmp_path / name)
    node = "reward_model.classmate_cot_reward_configs"
    live = composed(tmp_path, f"{node}.self_play=live", "actor_rollout_ref.model.path=policy")
    row = run(live, ANSWERED, live_client=True)
    assert [record["model"] for record in row.record["classmates"]][2] == "policy"
    answers = row.policy.requests[1:]
    assert len(answers) == 2, "S samples"
    assert len({request["sampling_params"]["seed"] for request in row.policy.requests}) == 3
    tokenizer = TOKENIZERS["byte_bpe"]()
    for request in answers:
        assert tokenizer.decode(request["prompt_ids"]).endswith(f"<think>{THOUGHT}</think>")
        assert request["sampling_params"]["max_tokens"] == 16
        assert request["sampling_params"]["temperature"] == 0.7


def test_the_reward_and_the_fields_of_the_row(config: DictConfig) -> None:
    row = run(config, ANSWERED)
    fields = row.output.as_dict()
    assert (fields["base_reward"], fields["classmate_reward"], fields["final_reward"]) == (1.0, 0.5, 1.5)
    assert fields["classmate_scores"].tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert fields["rm_scores"].sum() == 1.5
    assert fields["rm_scores"][-1] == 1.5
    assert (bool(fields["main_valid"]), bool(fields["classmate_valid"])) == (True, True)
    assert bool(fields["main_correct"])
    assert fields["classmate_mask"].shape == fields["responses"].shape == fields["response_mask"].shape
    tokenizer = TOKENIZERS["byte_bpe"]()
    handed_over = tokenizer.decode(fields["responses"][fields["classmate_mask"].bool()])
    assert handed_over.strip() == THOUGHT.strip()
    record = row.record
    assert (record["cot"], record["output"], record["response"]) == (THOUGHT, "\n\nThe answer is 7.", ANSWERED)
    assert [s["text"] for s in record["classmates"][1]["samples"]] == ["The answer is 7.", "The answer is 8."]
    assert (record["step"], record["rollout"], record["index"], record["uid"]) == (5, 2, 3, "0-1-key")


def test_the_actors_mask_is_there_where_the_loss_counts_a_part(config: DictConfig, tmp_path: Path) -> None:
    assert "actor_mask" not in run(config, ANSWERED).output.as_dict()
    for name in CLASSMATES:
        TOKENIZERS[name]().save_pretrained(tmp_path / name)
    mode = "reward_model.token_level_main_reward_mode=output_only"
    fields = run(composed(tmp_path, "algorithm.adv_estimator=grpo", mode), ANSWERED).output.as_dict()
    tokenizer = TOKENIZERS["byte_bpe"]()
    counted = tokenizer.decode(fields["responses"][fields["actor_mask"].bool()])
    assert counted == "<think></think>\n\nThe answer is 7."
    assert fields["response_mask"].all(), "metrics count all tokens"


def test_a_function_in_the_registry_makes_a_loop_without_hydra() -> None:
    make = agent_loop.hydra.utils.instantiate
    loop = object()
    assert make(config=lambda **_: loop, tools=[]) is loop
    assert make(config={"_target_": "fractions.Fraction"}, numerator=3) == 3


def sessions(config: DictConfig, monkeypatch: pytest.MonkeyPatch, *, validate: bool) -> list[dict[str, Any]]:
    """What the policy is asked about one prompt, by session."""
    asked: list[dict[str, Any]] = []

    class Loop:
        async def run(self, sampling_params: dict[str, Any], **columns: Any) -> None:
            asked.append({**sampling_params, **columns})

    async def ignore(*args: Any, **kwargs: Any) -> None:
        pass

    monkeypatch.setattr(agent_loop_tq.tq, "async_kv_put", ignore)
    worker = worker_without_engine(config, ignore)
    worker._register(Loop())  # type: ignore[arg-type]
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": validate}
    prompt = {"uid": "0-1-key", "agent_name": "classmate_cot"}
    asyncio.run(worker._run_prompt(prompt, {"temperature": 1.0, "top_p": 0.9, "top_k": 5}, trajectory))
    return asked


@pytest.mark.guards("REMAX and async paths unpacking wrong tuples")
@pytest.mark.parametrize("estimator", ["remax", "rloo"])
def test_remax_has_one_greedy_session_more(config: DictConfig, monkeypatch: pytest.MonkeyPatch, estimator: str) -> None:
    config = copy.deepcopy(config)
    with open_dict(config):
        config.algorithm.adv_estimator = estimator
    n = config.actor_rollout_ref.rollout.n
    *sampled, last = sessions(config, monkeypatch, validate=False)
    assert [row["session_id"] for row in (*sampled, last)] == list(range(n + (estimator == "remax")))
    assert {(row["temperature"], row["top_p"], row["top_k"]) for row in sampled} == {(1.0, 0.9, 5)}
    if estimator == "remax":
        assert (last["temperature"], last["top_p"], last["top_k"]) == (0, 1.0, -1)
        assert {row["greedy_session"] for row in sampled} == {last["session_id"]}
    validation = sessions(config, monkeypatch, validate=True)
    assert len(validation) == config.actor_rollout_ref.rollout.val_kwargs.n
    assert {row["temperature"] for row in validation} == {1.0}


def test_rows_of_a_prompt_share_answers_to_the_question_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the worker that makes them; nothing of it outlives the prompt."""
    for name in CLASSMATES:
        TOKENIZERS[name]().save_pretrained(tmp_path / name)
    kind = "reward_model.classmate_cot_reward_configs.classmate_reward_type=remove_wo_cot"
    config = composed(tmp_path, kind, "actor_rollout_ref.rollout.n=5")
    classmates, made = Classmates({}), []

    async def ignore(*args: Any, **kwargs: Any) -> None:
        pass

    async def keep(output: ClassmateAgentLoopOutput, *args: Any, **kwargs: Any) -> None:
        made.append(json.loads(output.extra_fields["reward_extra_info"]["record"]))

    monkeypatch.setattr(agent_loop_tq.tq, "async_kv_put", ignore)
    worker = worker_without_engine(config, keep)
    row = {
        "raw_prompt": [{"role": "user", "content": QUESTION}],
        "data_source": "hinted_arithmetic",
        "reward_model": {"ground_truth": "7"},
        "extra_info": {"index": 3, "split": "train"},
        "global_steps": 5,
        "is_validate": False,
        "excluded_classmates": (),
        "read_later": False,
        "read_beside": False,
        "partner": "",
        "agent_name": "classmate_cot",
    }

    async def go() -> None:
        worker._agent_loop = loop_of(config, Policy(ANSWERED))
        worker._agent_loop.pipeline.asker.client = classmates
        worker._register(worker._agent_loop)
        trajectory = {"step": 5, "sample_index": 0, "rollout_n": 0, "validate": False}
        for uid in ("0-5-key", "1-5-key"):
            await worker._run_prompt({"uid": uid, **row}, {"temperature": 1.0}, trajectory)

    asyncio.run(go())
    alone = [request for request in classmates.requests if THOUGHT.strip() not in request["prompt"]]
    assert (len(made), len(classmates.requests)) == (10, 2 * (2 * 5 + 2))
    assert [request["classmate"] for request in alone] == [0, 1, 0, 1], "once for each prompt"
    for record in made:
        views = [sample["view"] for one in record["classmates"] for sample in one["samples"]]
        assert views == [0, 0, 1, 1] * 2, "every row shows them"


@pytest.mark.guards("same seed for every step and row")
def test_seeds_follow_from_run_step_row_and_rollout(config: DictConfig) -> None:
    def seeds(**columns: Any) -> list[int]:
        row = run(config, ANSWERED, **columns)
        policy = row.policy.requests[0]["sampling_params"]["seed"]
        return [policy, *(seed for request in row.classmates.requests for seed in request["seeds"])]

    first = seeds()
    assert first == seeds()
    for change in ({"global_steps": 6}, {"session_id": 3}, {"extra_info": {"index": 4}}):
        assert not set(first) & set(seeds(**change)), change


def test_vllm_is_asked_without_seeds(tmp_path: Path) -> None:
    """It serves seeded requests one by one; `trainer.deterministic` is for the engine hf."""
    for name in CLASSMATES:
        TOKENIZERS[name]().save_pretrained(tmp_path / name)
    engine = "actor_rollout_ref.rollout.name=vllm"
    assert run(composed(tmp_path, engine), ANSWERED).policy.requests[0]["sampling_params"] == {"temperature": 1.0}
    seeded = run(composed(tmp_path, engine, "trainer.deterministic=true"), ANSWERED)
    assert set(seeded.policy.requests[0]["sampling_params"]) == {"temperature", "seed"}


@pytest.mark.guards("unfinished CoT closed and rewarded")
@pytest.mark.guards("crash on an empty CoT")
@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("<think>\nTom has 3", Outcome.unfinished_cot),
        ("<think>\n</think>\n\nThe answer is 7.", Outcome.empty_cot),
        ("The answer is 7.", Outcome.unfinished_cot),
    ],
)
def test_without_a_whole_thought_nobody_is_asked(config: DictConfig, text: str, outcome: Outcome) -> None:
    row = run(config, text)
    assert row.classmates.requests == []
    assert not row.output.scored.scores.classmate_valid
    assert {s["outcome"] for c in row.record["classmates"] for s in c["samples"]} == {outcome.value}
    assert all(s["score"] is None for c in row.record["classmates"] for s in c["samples"])
    assert row.record["final_reward"] == row.record["base_reward"]
    assert sum(row.output.scored.mask) == 0


@pytest.mark.parametrize("outcome", [Outcome.timeout, Outcome.engine_error, Outcome.excluded])
def test_a_classmate_that_fails_is_left_out(config: DictConfig, outcome: Outcome) -> None:
    row = run(config, ANSWERED, failing={0: outcome})
    assert {sample["outcome"] for sample in row.record["classmates"][0]["samples"]} == {outcome.value}
    assert (row.record["classmate_score"], row.record["final_reward"]) == (0.5, 1.5)
    alone = run(config, ANSWERED, failing={0: outcome, 1: outcome})
    assert (alone.record["classmate_valid"], alone.record["final_reward"]) == (False, 1.0)
    assert alone.record["classmate_reward"] is None


def test_excluded_classmates_reach_the_client(config: DictConfig) -> None:
    row = run(config, ANSWERED, excluded_classmates=(1,))
    assert {request["excluded"] for request in row.classmates.requests} == {frozenset({1})}


@pytest.mark.guards("validation settings ignored")
def test_validation_asks_as_val_kwargs_say(config: DictConfig) -> None:
    row = run(config, ANSWERED, is_validate=True)
    assert [len(request["seeds"]) for request in row.classmates.requests] == [1, 1]
    assert all(request["validate"] for request in row.classmates.requests)


def test_a_thought_beyond_a_classmates_context_is_too_long(tmp_path: Path) -> None:
    for name in CLASSMATES:
        TOKENIZERS[name]().save_pretrained(tmp_path / name)
    config = composed(tmp_path, "reward_model.classmate_generation_configs.max_model_len=24")
    row = run(config, ANSWERED)
    assert row.classmates.requests == []
    assert {s["outcome"] for c in row.record["classmates"] for s in c["samples"]} == {"too_long"}


@pytest.mark.guards("baseline and classmate validation curves on different quantities")
def test_the_baseline_asks_in_validation_only(tmp_path: Path) -> None:
    for name in CLASSMATES:
        TOKENIZERS[name]().save_pretrained(tmp_path / name)
    config = composed(tmp_path, "trainer.v1.trainer_mode=baseline")
    training = run(config, ANSWERED)
    assert training.classmates.requests == []
    assert training.record["classmates"] == []
    assert training.record["final_reward"] == 1.0
    assert len(run(config, ANSWERED, is_validate=True).classmates.requests) == 2


def paired(
    prompts: TensorDict, *, kind: str = "help_other_questions", seed: int = 0, validate: bool = False
) -> list[str]:
    reward = from_mapping(
        {"seed": seed, "classmate_cot_reward_configs": {"classmate_reward_type": kind}}, require_classmates=False
    )
    return partners(prompts, reward, validate=validate)


def batch(size: int, *, step: int = 5, first: int = 0) -> TensorDict:
    rows = {
        "raw_prompt": [[{"role": "user", "content": f"question {first + i}"}] for i in range(size)],
        "data_source": ["hinted_arithmetic"] * size,
        "reward_model": [{"ground_truth": str(first + i)} for i in range(size)],
        "extra_info": [{"index": np.int64(first + i)} for i in range(size)],
    }
    prompts = TensorDict({}, batch_size=size)
    for name, column in rows.items():
        prompts[name] = NonTensorStack(*column)
    tu.assign_non_tensor_data(prompts, "global_steps", step)
    return prompts


@pytest.mark.parametrize("size", [2, 3, 8])
def test_every_question_is_paired_with_another_one_of_its_batch(size: int) -> None:
    found = [Task.from_json(text) for text in paired(batch(size))]
    asked = [int(partner.question.removeprefix("question ")) for partner in found if partner]
    assert sorted(asked) == list(range(size))
    assert not any(i == other for i, other in enumerate(asked))
    for partner, other in zip(found, asked, strict=True):
        assert partner is not None
        assert (partner.reward_model, partner.extra_info) == ({"ground_truth": str(other)}, {"index": other})
        assert partner.data_source == "hinted_arithmetic"


def test_pairs_follow_from_seed_and_step_fixed_in_validation() -> None:
    def pairs(step: int, **options: Any) -> list[str]:
        return paired(batch(8, step=step), **options)

    assert pairs(5) == pairs(5)
    assert len({tuple(pairs(step)) for step in range(20)}) > 15
    assert pairs(5) != pairs(5, seed=1)
    assert pairs(5, validate=True) == pairs(9, validate=True)


@pytest.mark.guards("derangement of one")
def test_a_batch_of_one_and_other_reward_types_have_no_partner() -> None:
    assert paired(batch(1)) == [""]
    assert paired(batch(3), kind="vanilla_reward") == [""] * 3
    assert Task.from_json("") is None


class Tomorrow(datetime.datetime):
    """A clock that stands at another day."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return datetime.datetime(2031, 12, 9, 23, 59, 58, tzinfo=tz)


def policy_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str, *overrides: str) -> str:
    """What the policy is asked by a worker's own loop, about a row with a system turn."""
    models = save_tokenizers(tmp_path, CLASSMATES)
    config = composed(models, "reward_model.chat_date=2026-01-02", *overrides)
    policy = Policy(ANSWERED)
    own = copy.copy(TOKENIZERS["byte_bpe"]())
    own.chat_template = template

    def upstream(self: Any) -> None:
        self.config, self.llm_client, self.tokenizer, self.processor = config, policy, own, None
        self.dataset_cls, self.hf_model_type = RLHFDataset, None

    monkeypatch.setattr(ClassmateAgentLoopWorker.__mro__[1], "__init__", upstream)
    worker = ClassmateAgentLoopWorker()
    loop = worker._agent_loop
    loop.pipeline.asker.client = Classmates({})
    chat = [{"role": "system", "content": "Be short."}, {"role": "user", "content": QUESTION}]
    columns = {
        "raw_prompt": chat,
        "data_source": "hinted_arithmetic",
        "reward_model": {"ground_truth": "7"},
        "extra_info": {"index": 3, "split": "train"},
        "uid": "0-1-key",
        "session_id": 2,
        "global_steps": 5,
        "is_validate": False,
        "excluded_classmates": (),
        "read_later": False,
        "read_beside": False,
        "partner": "",
    }

    async def go() -> None:
        loop.loop = asyncio.get_running_loop()
        await loop.run({"temperature": 1.0}, **columns)

    asyncio.run(go())
    assert own.chat_template == template, "checkpoints keep the model's own"
    return own.decode(policy.requests[0]["prompt_ids"])


def test_a_policy_without_a_system_role_is_asked_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = policy_prompt(tmp_path, monkeypatch, FAMILIES["gemma2"].template)
    assert text.startswith(f"<s><start_of_turn>user\nBe short.\n\n{QUESTION}<end_of_turn>")


def test_the_policy_is_told_the_run_s_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    today = policy_prompt(tmp_path / "one", monkeypatch, FAMILIES["llama3_2"].template)
    monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", Tomorrow)
    assert policy_prompt(tmp_path / "two", monkeypatch, FAMILIES["llama3_2"].template) == today
    assert "Today Date: 02 Jan 2026" in today


@pytest.mark.parametrize("family", ["gemma2", "mistral_v0_1", "phi3_old"])
def test_no_row_is_dropped_where_a_template_refuses_system_text(tmp_path: Path, family: str) -> None:
    """Upstream counts a row that the template refuses as too long."""
    chat = [{"role": "system", "content": "Be short."}, {"role": "user", "content": QUESTION}]
    rows = [{"prompt": chat, "data_source": "hinted_arithmetic", "extra_info": {"index": i}} for i in range(4)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train.parquet")
    config = composed(save_tokenizers(tmp_path, CLASSMATES), "reward_model.chat_date=2026-01-02")
    own = copy.copy(TOKENIZERS["byte_bpe"]())
    own.chat_template = FAMILIES[family].template
    tokenizer = run_tokenizer(own, this_run(config).reward)
    assert len(RLHFDataset([str(tmp_path / "train.parquet")], tokenizer, config.data)) == 4
