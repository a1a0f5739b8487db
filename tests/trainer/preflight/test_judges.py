"""Data that needs a judge, without one that will do: one line that says which keys to set."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.tiny import make_tiny_world
from tests.utils.reward_score.cot_monitor.judge_server import MODEL, StandInJudge
from tests.workers.servers import serving
from verl.classmate.config import from_mapping
from verl.classmate.errors import ConfigError
from verl.trainer.preflight.judges import check_judges
from verl.trainer.resources.plan import needed_ray_cpus

SYCOPHANCY = ("sycophancy", {"raw_question_for_monitor": "1 + 1 = ?"})
GENERAL = ("general_reward", {"raw_question_for_monitor": "1 + 1 = ?"})
RULE = ("openai/gsm8k", {"ground_truth": "2"})
OPENAI = {"llm_judge_backend_type": "openai", "llm_judge_model_name": "m"}
SCORING = {"llm_judge_backend_type": "hf_scoring"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_tiny_world(tmp_path_factory.mktemp("tiny")).model)


def check(
    folder: Path, train: tuple[str, dict], val: tuple[str, dict] = RULE, *, function: Any = None, **keys: Any
) -> None:
    data: dict[str, Any] = {"custom_cls": {"path": None}}
    for name, (source, reward_model) in (("train", train), ("val", val)):
        row = {"data_source": source, "prompt": [{"role": "user", "content": "?"}], "reward_model": reward_model}
        pq.write_table(pa.Table.from_pylist([row]), folder / f"{name}.parquet")
        data[f"{name}_files"] = str(folder / f"{name}.parquet")
    custom = {"custom_reward_function": {"path": function}}
    options, deterministic = {"classmate_cot_reward_configs": keys.pop("options", {})}, keys.pop("deterministic", False)
    reward = from_mapping({**options, **keys}, require_classmates=False)
    check_judges({"data": data, "reward": custom}, reward, deterministic=deterministic)


LOOSE = {"unfinished_main_score": "exclude", "use_classmate_main_cond": "always"}

MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no judge": (
        {"train": SYCOPHANCY},
        "write reward_model.llm_judge_backend_type=openai reward_model.llm_judge_model_n",
    ),
    "no judge of the validation": (
        {"train": RULE, "val": GENERAL, "options": LOOSE},
        "data source general_reward is scored by a judge, but no judge is configured; write "
        "reward_model.llm_judge_backend_type=hf_scoring",
    ),
    "a reward model for words": (
        {"train": SYCOPHANCY, **SCORING},
        "data source sycophancy needs a judge that answers in words",
    ),
    "words for a reward model": (
        {"train": GENERAL, "options": LOOSE, **OPENAI},
        "data source general_reward is scored by a reward model; write hf_scoring",
    ),
    "rows without a question": (
        {"train": ("sycophancy", {"style": "rule"}), **OPENAI},
        "lacks reward_model.raw_question",
    ),
    "no threshold": (
        {"train": GENERAL, "options": {"unfinished_main_score": "exclude"}, **SCORING},
        "the verifier of general_reward has no threshold of a correct answer",
    ),
    "agreement": (
        {"train": SYCOPHANCY, "options": {"add_consistency_reward": True}, **OPENAI},
        "the verifier of sycophancy compares no answers",
    ),
    "agreement of programs": (
        {"train": ("code", {"ground_truth": "{}"}), "options": {"add_consistency_reward": True}},
        "the verifier of code compares no answers",
    ),
    "an answer to strip": (
        {"train": ("code", {"ground_truth": "{}"}), "options": {"strip_answer": True}},
        "strip_answer: the verifier of code compares no answers; write False",
    ),
    "likelihood of a judged answer": (
        {"train": SYCOPHANCY, "options": {"classmate_reward_type": "likelihood_gain"}, **OPENAI},
        "likelihood_gain needs an answer as ground truth, and the rows of sycophancy have none",
    ),
    "the same numbers in each run": (
        {"train": SYCOPHANCY, "deterministic": True, **OPENAI},
        "trainer.deterministic=true needs reward_model.llm_judge_backend_type=hf",
    ),
    "a judge that is nowhere": (
        {"train": SYCOPHANCY, "llm_judge_backend_type": "hf", "llm_judge_model_name": "/nowhere/model"},
        "reward_model.llm_judge_model_name=/nowhere/model does not exist",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_one_line(mistake: str, tmp_path: Path) -> None:
    how, message = MISTAKES[mistake]
    with pytest.raises(ConfigError) as error:
        check(tmp_path, **how)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


KEYS = {
    "how, but not whom": (
        {"llm_judge_backend_type": "openai"},
        "needs a model; write reward_model.llm_judge_model_name=",
    ),
    "whom, but not how": ({"llm_judge_model_name": "m"}, "write reward_model.llm_judge_backend_type=openai"),
    "no address": ({**OPENAI, "llm_judge_base_url": "localhost:8000"}, "write for instance http://127.0.0.1:8003/v1"),
    "nobody's address": (
        {**OPENAI, "eval_llm_judge_base_url": "http://a/v1"},
        "write reward_model.eval_llm_judge_model_name=MODEL",
    ),
    "five retries": ({"llm_judge_max_retries": 5}, "5 is not in [0, 4]; write 4"),
    "no time": ({"llm_judge_timeout": 0.0}, "llm_judge_timeout: 0 s is not possible"),
    "no calls": ({"llm_judge_max_concurrency": 0}, "write 1 or more"),
    "no rate": ({"llm_judge_requests_per_minute": 0.0}, "write null for no limit"),
    "no room": ({**OPENAI, "llm_judge_max_context": 100}, "leaves no room for a prompt"),
    "unknown back end": ({"llm_judge_backend_type": "sglang"}, "write one of: openai, tinker, vllm, hf, hf_scoring"),
}


@pytest.mark.parametrize("mistake", KEYS)
def test_keys_that_say_nothing(mistake: str) -> None:
    keys, message = KEYS[mistake]
    with pytest.raises(ConfigError, match=r"reward_model\.(eval_)?llm_judge_") as error:
        from_mapping(keys, require_classmates=False)
    assert message in str(error.value)


def test_another_judge_of_the_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://environment/v1/")
    alone = from_mapping(OPENAI, require_classmates=False)
    assert alone.judge(validate=True) == alone.judge(validate=False)
    assert alone.judges[0].base_url == "http://environment/v1"
    two = from_mapping({**OPENAI, "eval_llm_judge_model_name": "strong"}, require_classmates=False)
    assert [(one.role, one.model, one.backend) for one in two.judges] == [
        ("llm_judge", "m", "openai"),
        ("eval_llm_judge", "strong", "openai"),
    ]
    assert two.judges[1].base_url == two.judges[0].base_url


def test_a_judge_of_the_run_counts_as_an_engine() -> None:
    config = {
        "transfer_queue": {"backend": {"SimpleStorage": {"num_data_storage_units": 1}}},
        "trainer": {"n_gpus_per_node": 1, "nnodes": 1, "device": "cpu"},
    }
    alone = needed_ray_cpus(config, from_mapping({}, require_classmates=False))
    assert needed_ray_cpus(config, from_mapping(SCORING, require_classmates=False)) == alone + 1
    assert needed_ray_cpus(config, from_mapping(OPENAI, require_classmates=False)) == alone


def test_a_judge_that_answers_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    judge = StandInJudge()
    with serving(judge.app, name=MODEL) as server:
        keys = {**OPENAI, "llm_judge_base_url": f"{server.url}/v1"}
        check(tmp_path, SYCOPHANCY, SYCOPHANCY, **keys)
    assert len(judge.bodies) == 1
    busy = StandInJudge(plan=lambda prompt, times: "429")
    with serving(busy.app, name=MODEL) as server:
        check(tmp_path, SYCOPHANCY, **{**OPENAI, "llm_judge_base_url": f"{server.url}/v1"})
    with pytest.raises(ConfigError, match=r"the judge m cannot be asked .*no key is in OPENAI_API_KEY"):
        check(tmp_path, SYCOPHANCY, **{**OPENAI, "llm_judge_base_url": f"{server.url}/v1"})


def test_who_needs_no_judge_is_asked_for_none(tmp_path: Path, model: str) -> None:
    check(tmp_path, RULE)
    check(tmp_path, SYCOPHANCY, function="mine.py")
    local = {"llm_judge_backend_type": "hf", "llm_judge_model_name": model, "llm_judge_max_tokens": 16}
    check(tmp_path, SYCOPHANCY, deterministic=True, llm_judge_max_context=128, **local)
    with pytest.raises(ConfigError, match=r"reads at most 128 tokens; write reward_model.llm_judge_max_context=128"):
        check(tmp_path, SYCOPHANCY, **local)
