"""A hosted classmate is asked before a run starts: whatever would fail later is one line that says what to do."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from tests.e2e.tiny import make_tiny_world
from tests.workers.servers import serving
from verl.classmate.errors import ConfigError
from verl.trainer.preflight.models import check_model, check_server, load_tokenizer
from verl.utils.model_servers.mapping import Server, changing
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig, HFEngine
from verl.workers.rollout.hf_rollout_server.openai_api import Served, create_app

KEY = "reward_model.classmates[0].model"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_tiny_world(tmp_path_factory.mktemp("tiny")).model)


@pytest.fixture(scope="module")
def engine(model: str) -> Iterator[HFEngine]:
    engine = HFEngine.from_config(EngineConfig(model_path=model))
    yield engine
    engine.close()


@pytest.fixture
def check(model: str, tmp_path: Path) -> Callable[..., None]:
    """Runs the check with a mapping file that names the given server."""

    def run(server: Server | None, needed: int = 100) -> None:
        mapping = tmp_path / "mapping.json"
        with changing(mapping) as servers:
            servers.clear()
            if server is not None:
                servers[model] = Server(name=model, outward_host="localhost", port=server.port)
        check_server(KEY, model, load_tokenizer(KEY, model), needed, mapping_file=str(mapping))

    return run


def refusal(check: Callable[..., None], server: Server | None, **how: Any) -> str:
    with pytest.raises(ConfigError) as error:
        check(server, **how)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(KEY)
    return str(error.value)


def test_a_server_that_will_do(check: Callable[..., None], engine: HFEngine, model: str) -> None:
    with serving(create_app(Served(engine=engine, names=(model,))), name=model) as server:
        check(server)
        assert "reads at most 128 tokens, but rows need up to 129" in refusal(check, server, needed=129)
    assert "does not answer (Connection refused); start it by `bash my_scripts/host_classmate_model.sh" in refusal(
        check, server
    )


def test_no_server(check: Callable[..., None]) -> None:
    said = refusal(check, None)
    assert "names no server for it; start it by `bash my_scripts/host_classmate_model.sh" in said
    assert "classmate_backend=hf" in said


def test_a_server_of_another_model(check: Callable[..., None], engine: HFEngine) -> None:
    with serving(create_app(Served(engine=engine, names=("another",))), name="another") as server:
        assert "serves other models" in refusal(check, server)


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ({"choices": [{"text": "4"}]}, "sends no token ids; it must know return_token_ids"),
        ({"choices": [{"token_ids": [5], "prompt_token_ids": [1, 2]}]}, "has another tokenizer"),
        ({"choices": []}, "something else than completions"),
        ([], "something else than completions"),
    ],
)
def test_a_server_of_another_make(check: Callable[..., None], model: str, reply: Any, says: str) -> None:
    app = FastAPI()

    @app.get("/v1/models")
    async def _models() -> Any:
        return {"data": [{"id": model}]}

    @app.post("/v1/completions")
    async def _completions() -> Any:
        return reply

    with serving(app, name=model) as server:
        assert says in refusal(check, server)


def test_a_broken_mapping_file(model: str, tmp_path: Path) -> None:
    (tmp_path / "mapping.json").write_text("{")
    with pytest.raises(ConfigError, match=r"host_classmate_name_to_url_json_fn: .*mapping\.json is not JSON"):
        check_server(KEY, model, None, 1, mapping_file=str(tmp_path / "mapping.json"))


def test_weights_may_lie_where_the_server_is(model: str, tmp_path: Path) -> None:
    for file in Path(model).iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    check_model(KEY, str(tmp_path), tokenizer_only=True)
    with pytest.raises(ConfigError, match="holds no weights"):
        check_model(KEY, str(tmp_path))
