"""Judges that are engines of the run: asked in words or as a reward model, placed and healed like classmates."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from transformers import AutoTokenizer, GenerationConfig, Qwen3ForSequenceClassification

from tests.e2e.tiny import make_tiny_world, save_reward_model
from tests.workers.running import cpu_config
from verl.classmate.config import ClassmateRewardModelConfig, from_mapping
from verl.classmate.errors import ClassmateEngineError
from verl.classmate.frozen import frozen_models
from verl.classmate.judgement import Judgement
from verl.classmate.outcome import Outcome
from verl.utils.reward_score.cot_monitor import BaseVerifier, get_verifier
from verl.utils.reward_score.cot_monitor.judges import make_judge
from verl.workers.classmate_workers import ClassmateClient, create_classmate_workers
from verl.workers.classmates.placement import engines
from verl.workers.inprocess import InProcessClient, classmate_servers
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig
from verl.workers.scoring_worker import ScoringJudgeWorker

REWARD = get_verifier("general_reward")
CONFIG = cpu_config(max_response_length=32)


class Length(BaseVerifier):
    """Reads any answer: its length."""

    reward_description = "length"

    def format_llm_judge_prompt(self, question: str, output: str) -> str:
        return f"{question}\n{output}"

    def parse_llm_judge_output(self, text: str) -> tuple[float | None, str]:
        return float(len(text)), text


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model that ends its answers at a letter which it is fond of."""
    folder = make_tiny_world(tmp_path_factory.mktemp("tiny")).model
    ends = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(["<eos>", "n"])
    GenerationConfig(eos_token_id=ends).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def reward_model(causal: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random reward model with the tiny model's tokenizer, whose padding is what its chats end with."""
    tokenizer = AutoTokenizer.from_pretrained(causal)
    tokenizer.pad_token = "\n"
    return save_reward_model(tmp_path_factory.mktemp("reward"), tokenizer, max_length=256)


def config_of(backend: str, model: Path, **keys: Any) -> ClassmateRewardModelConfig:
    given = {"backend_type": backend, "model_name": str(model), "max_context": 128, "max_tokens": 8, "cache_path": None}
    return from_mapping({f"llm_judge_{key}": value for key, value in (given | keys).items()}, require_classmates=False)


def ask(config: ClassmateRewardModelConfig, client: Any, verifier: BaseVerifier, *outputs: str) -> list[Judgement]:
    spec = config.judge(validate=False)
    assert spec is not None
    judge = make_judge(spec, config, client=client)

    async def run() -> list[Judgement]:
        return list(await asyncio.gather(*(judge.score(verifier, "a + b?", output) for output in outputs)))

    return asyncio.run(run())


def in_process(config: ClassmateRewardModelConfig) -> InProcessClient:
    servers = classmate_servers(CONFIG, config)
    return InProcessClient(CONFIG, config, servers, policy=None)  # type: ignore[arg-type]


def test_a_judge_is_an_engine_with_a_name_of_its_own(causal: Path) -> None:
    mapping = {
        "classmate_cot_reward_configs": {"classmate_model_name_or_path_list": ["a"]},
        "classmate_backend": "hf",
        "llm_judge_backend_type": "hf",
        "llm_judge_model_name": str(causal),
        "llm_judge_replicas": 2,
        "eval_llm_judge_model_name": "b",
    }
    running = engines(frozen_models(from_mapping(mapping)))
    assert [engine.name for engine in running] == [
        "classmate_0",
        "judge",
        "judge_1",
        "judge_validation",
        "judge_validation_1",
    ]
    assert [engine.frozen.required for engine in running] == [False, True, True, True, True]
    assert [running[place].label for place in (2, -1)] == [
        f"judge ({causal}, engine 1)",
        "validation judge (b, engine 1)",
    ]


def test_an_engine_of_the_run_judges_in_words(causal: Path) -> None:
    config = config_of("hf", causal)
    client = in_process(config)
    first, again, other = ask(config, client, Length(), "c", "c", "d + d")
    assert first.outcome is Outcome.ok
    assert first.completion_tokens < 8
    assert (first.text, first.score) == (again.text, again.score), "a judge is greedy"
    assert first.score == len(first.text or "")
    assert other.prompt_tokens == first.prompt_tokens + 4
    (strict,) = ask(config, client, get_verifier("sycophancy"), "c")
    assert (strict.score, strict.failure) == (None, "refused"), (
        "the rubric does not fit into 128 tokens, and nothing is cut"
    )


def scores_alone(model: Path, outputs: list[str]) -> list[float]:
    """What transformers says of each text alone, without padding."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    network = Qwen3ForSequenceClassification.from_pretrained(model).eval()
    scores = []
    for output in outputs:
        chat = [{"role": "user", "content": "a + b?"}, {"role": "assistant", "content": output}]
        ids = tokenizer(tokenizer.apply_chat_template(chat, tokenize=False), add_special_tokens=False)["input_ids"]
        hidden = network.model(torch.tensor([ids])).last_hidden_state[0, -1]
        scores.append(float(network.score(hidden).detach()))
    return scores


def test_a_reward_model_scores_a_text_as_it_does_alone(reward_model: Path) -> None:
    """Also among longer ones, and where its padding is what every text ends with."""
    config = config_of("hf_scoring", reward_model)
    outputs = ["c", "d + d = e", "f" * 60, "c", "g " * 20]
    judgements = ask(config, in_process(config), REWARD, *outputs)
    assert [one.outcome for one in judgements] == [Outcome.ok] * 5
    assert [one.score for one in judgements] == pytest.approx(scores_alone(reward_model, outputs), rel=1e-4)
    assert len({round(one.score or 0, 4) for one in judgements}) == 4
    (long,) = ask(config, in_process(config), REWARD, "h" * 200)
    assert (long.score, long.failure) == (None, "refused"), "a text that does not fit is not cut"


def test_a_reward_model_runs_texts_of_like_length_together(reward_model: Path) -> None:
    worker = ScoringJudgeWorker(EngineConfig(model_path=str(reward_model), max_model_len=256, max_batch_size=4))
    widths: list[list[int]] = []
    run = worker._run
    worker._run = lambda rows: (widths.append([len(row) for row in rows]), run(rows))[1]  # type: ignore[method-assign]

    async def score(lengths: list[int]) -> list[float]:
        return list(await asyncio.gather(*(worker.score([5 + n % 7 for n in range(length)]) for length in lengths)))

    scores = asyncio.run(score([3, 90, 5, 80, 4, 85, 6, 88]))
    assert len(scores) == 8
    assert widths == [[90, 88, 85, 80], [6, 5, 4, 3]]


def test_a_reward_model_without_numbers_gives_no_score(reward_model: Path) -> None:
    worker = ScoringJudgeWorker(EngineConfig(model_path=str(reward_model), max_model_len=256))
    worker.model.score.weight.data.fill_(float("nan"))
    with pytest.raises(ValueError, match="number is nan"):
        asyncio.run(worker.score([5, 6]))
    with pytest.raises(ValueError, match="cannot be scored"):
        asyncio.run(worker.score([]))


@pytest.mark.long
@pytest.mark.usefixtures("_ray")
def test_a_reward_models_actor_is_restarted_or_ends_the_run(reward_model: Path) -> None:
    config = config_of("hf_scoring", reward_model)
    config = from_mapping(
        {
            "llm_judge_backend_type": "hf_scoring",
            "llm_judge_model_name": str(reward_model),
            "llm_judge_max_context": 128,
            "classmate_max_restarts": 1,
        },
        require_classmates=False,
    )
    events: list[str] = []
    group = create_classmate_workers(CONFIG, config, on_event=events.append)
    try:
        outputs = ["c", "d + d = e"]
        expected = pytest.approx(scores_alone(reward_model, outputs), rel=1e-4)
        client = ClassmateClient(config, max_model_len=128)
        assert [one.score for one in ask(config, client, REWARD, *outputs)] == expected
        ray.kill(ray.get_actor("judge"))
        (lost,) = ask(config, client, REWARD, "c")
        assert (lost.outcome, lost.score, lost.failure) == (Outcome.engine_error, None, "unreachable")
        group.heal()
        assert "judge" in events[-1]
        assert "restart 1 of 1" in events[-1]
        assert [one.score for one in ask(config, client, REWARD, *outputs)] == expected
        ray.kill(ray.get_actor("judge"))
        with pytest.raises(ClassmateEngineError, match="without it no row has a score"):
            group.heal()
    finally:
        group.shutdown()
