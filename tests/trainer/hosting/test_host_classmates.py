"""The hosting script: what it starts, writes and says, and that nothing of it is left when it ends."""

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.tiny import make_tiny_world
from tests.processes import CONTEXT
from verl.classmate.errors import ConfigError
from verl.trainer.hosting import host_classmates
from verl.trainer.hosting.options import FIRST_PORT, Options, parse
from verl.trainer.hosting.ports import reserved_ports
from verl.trainer.hosting.servers import command, environment
from verl.utils.model_servers.mapping import Server, ask, changing, problem, read

ELSEWHERE = Server(name="other/model", outward_host="node7", port=8003)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return [str(make_tiny_world(tmp_path_factory.mktemp("tiny"), seed=seed).model) for seed in (0, 1)]


@pytest.fixture
def mapping(tmp_path: Path) -> Path:
    """A mapping file in which another launcher has an entry."""
    path = tmp_path / "hosting" / "mapping.json"
    with changing(path) as servers:
        servers[ELSEWHERE.name] = ELSEWHERE
    return path


def _enter(arguments: list[str], log: str) -> None:
    for number in (1, 2):
        os.dup2(os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.exit(host_classmates.main(arguments))


class Launcher:
    """What the script starts, in a process of its own."""

    def __init__(self, *arguments: str, folder: Path) -> None:
        self._log = folder / "said.txt"
        self._log.touch()
        self.process = CONTEXT.Process(target=_enter, args=(list(arguments), str(self._log)))
        self.process.start()
        self.servers: list[psutil.Process] = []

    @property
    def said(self) -> str:
        return self._log.read_text()

    def wait_for(self, text: str) -> None:
        while text not in self.said:
            self.process.join(0.05)
            assert self.process.is_alive() or text in self.said, self.said
        self.servers = psutil.Process(self.process.pid).children(recursive=True)

    def ends(self) -> int:
        self.process.join(300)
        code = self.process.exitcode
        assert code is not None, f"the launcher does not end:\n{self.said}"
        _, alive = psutil.wait_procs(self.servers, timeout=60)
        assert not alive, "servers outlive the launcher"
        return code


@contextlib.contextmanager
def launched(*arguments: str, folder: Path) -> Iterator[Launcher]:
    launcher = Launcher(*arguments, folder=folder)
    try:
        yield launcher
    finally:
        launcher.process.kill()
        launcher.process.join()


@pytest.mark.guards("server generation not implemented in the shipped mode")
@pytest.mark.guards("unauthenticated wildcard bind")
@pytest.mark.slow
def test_servers_answer_until_a_signal_and_only_their_entries_go(
    models: list[str], mapping: Path, tmp_path: Path
) -> None:
    with launched("--backend", "hf", "--mapping", str(mapping), *models, folder=tmp_path) as launcher:
        launcher.wait_for("Ctrl-C ends it")
        for model in models:
            assert f"{model}: starting on hf" in launcher.said
            assert f"{model}: ready after" in launcher.said
        servers = read(mapping)
        assert set(servers) == {*models, ELSEWHERE.name}
        assert len({servers[model].port for model in models}) == 2
        assert all(servers[model].outward_host == "127.0.0.1" for model in models), "loopback unless told otherwise"
        for model in models:
            body = {"model": model, "prompt": [7, 8], "max_tokens": 3, "return_token_ids": True}
            assert ask(f"{servers[model].url}/v1/completions", body)["choices"][0]["token_ids"]
        with pytest.raises(ConfigError, match="is hosted already at"):
            host_classmates.host(Options(models=(models[0],), mapping=mapping, backend="hf"))
        assert launcher.process.pid is not None
        os.kill(launcher.process.pid, signal.SIGINT)
        assert launcher.ends() == 128 + signal.SIGINT
        assert "Traceback" not in launcher.said
    assert read(mapping) == {ELSEWHERE.name: ELSEWHERE}
    assert all(problem(servers[model]) for model in models)


@pytest.mark.slow
def test_a_dying_server_ends_the_launcher_with_its_last_words(models: list[str], mapping: Path, tmp_path: Path) -> None:
    with launched("--backend", "hf", "--mapping", str(mapping), *models, folder=tmp_path) as launcher:
        launcher.wait_for("Ctrl-C ends it")
        victim = next(process for process in launcher.servers if models[0] in process.cmdline())
        log = next((mapping.parent / "logs").glob(f"*_{read(mapping)[models[0]].port}.log"))
        with log.open("a") as file:
            file.write("out of memory\n")
        victim.kill()
        assert launcher.ends() == 1
        assert f"error: the server of {models[0]} ended with code -9" in launcher.said
        assert "  | out of memory" in launcher.said
        assert "Traceback" not in launcher.said
    assert read(mapping) == {ELSEWHERE.name: ELSEWHERE}


@pytest.mark.slow
def test_a_server_that_does_not_start_is_told_and_not_entered(models: list[str], mapping: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in Path(models[0]).iterdir():
        (broken / file.name).write_bytes(b"no weights" if file.suffix == ".safetensors" else file.read_bytes())
    with launched("--backend", "hf", "--mapping", str(mapping), str(broken), folder=tmp_path) as launcher:
        assert launcher.ends() == 1
        assert f"error: the server of {broken} ended with code 1" in launcher.said
        assert "  | " in launcher.said
    assert read(mapping) == {ELSEWHERE.name: ELSEWHERE}


# The command line, without a process


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        host_classmates.main(["--help"])
    shown = capsys.readouterr().out
    assert shown.startswith("usage: host_classmate_model.sh")
    assert "qwen_classmate_cot_ppo_trainer" in shown


def test_without_a_model_those_of_the_run_config_are_hosted(
    models: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    key = "reward_model.classmate_model_name_or_path_list"
    options = parse([f"{key}=[{models[0]},{models[1]},{models[0]}]", "--backend", "hf"])
    assert options.models == tuple(models)
    assert options.mapping == tmp_path / "outputs" / "host_classmate_models" / "classmate_model_mapping.json"
    options = parse(
        ["--backend=hf", models[1], "reward_model.host_classmate_name_to_url_json_fn=elsewhere.json", f"{key}=[x]"]
    )
    assert options.models == (models[1],), "named models count"
    assert options.mapping == tmp_path / "elsewhere.json"
    with pytest.raises(ConfigError, match="qwen_classmate_cot_ppo_trainer names no classmate; name the models"):
        parse(["--backend=hf"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["no/such/model"], "MODEL=no/such/model does not exist"),
        (["{model}", "--tensor-parallel-size=2"], "are vLLM's; leave them out on hf"),
        (["{model}", "reward_model.no_such_key=1"], "reward_model.no_such_key: unknown key"),
        (["{model}", "--config-name=nothing"], "nothing"),
        (
            ["{model}", "--mapping=m.json", "reward_model.seed=3"],
            "reward_model.seed=3: no run config is read when models and --mapping are",
        ),
        (
            ["{model}", "--mapping=m.json", "--config-name=qwen_ppo_trainer"],
            "--config-name: no run config is read when models and --mapping",
        ),
    ],
)
def test_mistakes_on_the_command_line(models: list[str], arguments: list[str], says: str) -> None:
    arguments = [argument.format(model=models[0]) for argument in arguments]
    with pytest.raises(ConfigError, match=says) as error:
        parse([*arguments, "--backend=hf"])
    assert "\n" not in str(error.value)


def test_ports_are_free_and_of_one_launcher_only(tmp_path: Path) -> None:
    options = Options(models=("a", "b"), mapping=tmp_path / "m.json")
    with reserved_ports(options) as first, reserved_ports(options) as second:
        assert len({*first, *second}) == 4
        assert min(first) >= FIRST_PORT
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        asked = Options(models=("a",), mapping=tmp_path / "m.json", port=port)
        with pytest.raises(ConfigError, match=f"port {port} on .* is taken"), reserved_ports(asked):
            pass


def test_an_entry_of_a_dead_server_is_no_obstacle(mapping: Path) -> None:
    host_classmates.refuse_doubles(Options(models=(ELSEWHERE.name,), mapping=mapping))


@pytest.mark.guards("unauthenticated wildcard bind")
def test_what_starts_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    options = Options(models=("a", "b", "c"), mapping=tmp_path / "m.json", backend="vllm", max_model_len=100)
    words = command(options, "a", 8003, 0.45)
    assert words[1:5] == ["-m", "verl.trainer.hosting.vllm_serve", "serve", "a"]
    for pair in (("--served-model-name", "a"), ("--port", "8003"), ("--host", "127.0.0.1"), ("--max-model-len", "100")):
        assert words[words.index(pair[0]) + 1] == pair[1]
    assert words[words.index("--gpu-memory-utilization") + 1] == "0.45"

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    placed = [environment(options, index) for index in range(3)]
    assert [variables["CUDA_VISIBLE_DEVICES"] for variables, _ in placed] == ["4", "6", "4"]
    assert {share for _, share in placed} == {0.45}, "two of them share a GPU"
    wide = Options(models=("a",), mapping=tmp_path / "m.json", backend="vllm", tensor_parallel_size=2)
    assert environment(wide, 0)[0]["CUDA_VISIBLE_DEVICES"] == "4,6"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="has 1 GPUs"):
        environment(wide, 0)
