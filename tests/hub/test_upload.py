"""Checkpoints out: a run with three tiny checkpoints goes to a hub on loopback, whole, in part, and again."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock

import pytest
import yaml
from huggingface_hub import constants
from transformers import AutoModelForCausalLM

from tests.hub.stand_in import LocalHub, Request
from verl.trainer.run.model_folders import has_whole_weights

ROOT = Path(__file__).parents[2]


def local_files(run: Path, step: int) -> dict[str, bytes]:
    folder = run / f"global_step_{step}" / "actor" / "huggingface"
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_whole(hub: LocalHub, name: str, run: Path, branches: dict[str, int]) -> None:
    """Each branch holds its step, byte for byte, with card and picture, and nothing else."""
    there = hub.repositories[name].branches
    assert set(there) == {"main", *branches}
    for branch, step in branches.items():
        files = dict(there[branch])
        assert files.pop("README.md")
        assert files.pop(".gitattributes")
        files.pop("validation.png", None)
        assert files == local_files(run, step)


def test_what_is_left_of_a_removed_checkpoint_is_none(run: Path, command: Callable[..., tuple[str, str]]) -> None:
    shutil.rmtree(run / "global_step_1" / "actor")
    shown, error = command("--root_path", run, "--repo_name", "model", "--dry_run")
    assert not error
    assert "global_step_1:" not in shown
    for step in (2, 10):
        assert f"branch global_step_{step}" in shown
        shutil.rmtree(run / f"global_step_{step}" / "actor")
    _, error = command("--root_path", run, "--repo_name", "model", "--dry_run")
    assert error == f"error: no global_step_N folder with a model in {run}: name a run folder"


EVERYWHERE = {"global_step_1": 1, "global_step_2": 2, "global_step_10": 10, "main": 10}


def test_every_step_gets_a_branch_and_the_newest_main(
    hub: LocalHub, run: Path, command: Callable[..., tuple[str, str]]
) -> None:
    hub.part = 40_000
    shown, error = command("--root_path", run, "--repo_name", "model", "--private")
    assert not error
    assert [request for request in hub.requests if re.fullmatch("PUT /store/.+/2", request)], "large files go in parts"
    assert_whole(hub, "me/model", run, EVERYWHERE)
    assert hub.repositories["me/model"].private
    assert set(hub.arrived.values()) == {1}, "main took from the store what its branch had brought"
    assert [line.split(":")[0] for line in shown.splitlines()] == [*EVERYWHERE, "everything is uploaded"]

    before = len(hub.requests)
    shown, error = command("--root_path", run, "--repo_name", "me/model", "--private")
    assert not error
    assert shown.count("are there already") == 4
    assert not [request for request in hub.requests[before:] if "commit" in request or "/store/" in request]


def test_killed_in_the_middle_and_resumed(
    hub: LocalHub, run: Path, tmp_path: Path, command: Callable[..., tuple[str, str]]
) -> None:
    folder = run / "global_step_2" / "actor" / "huggingface"
    weights = sorted(folder.glob("*.safetensors"))
    cut = hashlib.sha256(weights[1].read_bytes()).hexdigest()
    others = {hashlib.sha256(path.read_bytes()).hexdigest() for path in weights} - {cut}
    assert len(others) > 1
    halfway, killed = Event(), Event()

    def hold(request: Request) -> str | None:
        if request.path != f"/store/{cut}" or killed.is_set():
            return None
        request.body.read(request.body.length // 2)
        deadline = time.monotonic() + 60
        while not others <= set(hub.stored) and time.monotonic() < deadline:
            killed.wait(0.01)
        halfway.set()
        killed.wait(60)
        return "close"

    hub.when = hold
    arguments = ["--root_path", str(run), "--repo_name", "lab/model"]
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "upload_ckpts_to_huggingface.py"), *arguments],
        env={key: value for key, value in os.environ.items() if not key.startswith("VERL_")}
        | hub.environment(tmp_path / "home"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert halfway.wait(90)
    process.kill()
    _, shown_by_it = process.communicate()
    assert shown_by_it == "", "no bar without a terminal"
    killed.set()
    assert others <= set(hub.stored)
    assert cut not in hub.stored
    assert set(hub.repositories["lab/model"].branches["global_step_2"]) == {".gitattributes"}, "nothing or all"

    before = len(hub.requests)
    shown, error = command(*arguments)
    assert not error
    assert_whole(hub, "lab/model", run, EVERYWHERE)
    assert set(hub.arrived.values()) == {1}, "nothing that had arrived was sent again"
    assert shown.splitlines()[0].endswith("files are there already")
    assert not [r for r in hub.requests[before:] if r.endswith("/commit/global_step_1")]


def test_a_connection_that_breaks_is_taken_up_again(
    hub: LocalHub, run: Path, command: Callable[..., tuple[str, str]]
) -> None:
    faults: list[int | str] = ["close", 500]
    broken: list[str] = []
    # The hub's threads ask at the same time.
    turn = Lock()

    def break_once(request: Request) -> int | str | None:
        with turn:
            if request.method != "PUT" or not faults or request.path in broken:
                return None
            broken.append(request.path)
            fault = faults.pop(0)
        request.body.read(request.body.length // 2)
        return fault

    hub.when = break_once
    _, error = command("--root_path", run, "--repo_name", "model")
    assert not error
    assert len(broken) == 2
    assert_whole(hub, "me/model", run, EVERYWHERE)
    assert set(hub.arrived.values()) == {1}


def test_broken_off_says_so_in_one_line_and_continues(
    hub: LocalHub, run: Path, command: Callable[..., tuple[str, str]]
) -> None:
    hub.when = lambda request: 403 if request.path.endswith("/commit/global_step_2") else None
    _, error = command("--root_path", run, "--repo_name", "model")
    assert error.startswith("error: global_step_2 was not uploaded (")
    assert error.endswith("the same command continues where it stopped")
    assert "\n" not in error
    branches = hub.repositories["me/model"].branches
    assert set(branches) == {"main", "global_step_1", "global_step_2"}
    assert set(branches["main"]) == set(branches["global_step_2"]) == {".gitattributes"}

    hub.when = lambda request: None
    shown, error = command("--root_path", run, "--repo_name", "model")
    assert not error
    assert shown.splitlines()[0].endswith("files are there already")
    assert_whole(hub, "me/model", run, EVERYWHERE)
    assert set(hub.arrived.values()) == {1}, "the weights had arrived before the commit was refused"


def test_the_default_protocol_of_the_library(
    hub: LocalHub,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Callable[..., tuple[str, str]],
) -> None:
    """hf_xet stores chunks by their hash: a commit that is refused after they arrived does not make them go again."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    hub.chunks = tmp_path / "chunks"
    arguments = ("--main_only_path", run / "global_step_1", "--repo_name", "model")

    def blocks() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in hub.chunks.rglob("default.*")}  # type: ignore[union-attr]

    hub.when = lambda request: 403 if request.path.endswith("/commit/main") else None
    _, error = command(*arguments)
    assert error.startswith("error: main was not uploaded")
    arrived = blocks()
    assert arrived
    hub.when = lambda request: None
    _, error = command(*arguments)
    assert not error
    assert blocks() == arrived
    files = hub.repositories["me/model"].branches["main"]
    for name, content in local_files(run, 1).items():
        if name.endswith(".safetensors"):
            assert files[name].sha256 == hashlib.sha256(content).hexdigest()
        else:
            assert files[name] == content


def test_a_dry_run_asks_nobody_and_touches_nothing(
    hub: LocalHub, run: Path, command: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    (run / "global_step_2" / "actor" / "huggingface" / "model.safetensors.index.json").unlink()
    before = sorted(run.rglob("*"))
    shown, error = command("--root_path", run, "--repo_name", "lab/model", "--private", "--dry_run")
    assert not error
    assert "to lab/model, private" in shown
    assert "branch global_step_10 and main: " in shown
    assert "merged first from the shards" in shown
    assert "README.md" in shown
    assert "optim" not in shown
    assert hub.requests == []
    assert sorted(run.rglob("*")) == before


def test_without_login(
    hub: LocalHub, run: Path, command: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    _, error = command("--root_path", run, "--repo_name", "model")
    assert error == "error: not logged in to the hub: run `hf auth login`, or set HF_TOKEN"
    monkeypatch.setenv("HF_TOKEN", "hf_of_somebody")
    _, error = command("--root_path", run, "--repo_name", "model")
    assert error == "error: the hub does not know this token: run `hf auth login`, or set HF_TOKEN anew"
    assert not hub.repositories


def test_the_card_tells_the_run_and_no_path_of_this_machine(
    hub: LocalHub, run: Path, command: Callable[..., tuple[str, str]]
) -> None:
    command("--root_path", run, "--repo_name", "model", "--license", "apache-2.0")
    branches = hub.repositories["me/model"].branches
    card = branches["main"]["README.md"].decode()
    header = yaml.safe_load(card.split("---")[1])
    assert header["base_model"] == "Qwen/Qwen3-0.6B"
    assert header["license"] == "apache-2.0"
    for said in (
        "after 10 training steps",
        "`gdpo_classmate`",
        "`meta-llama/Llama-3.2-1B-Instruct`, `my_classmate`, `the policy itself (frozen self-play)`",
        "| `reward_model.classmate_cot_reward_configs.classmate_reward_weight` | 0.5 |",
        "| hinted_arithmetic: main_model_reward | 0.250 (step 0) | 0.750 (step 10) |",
        "`train.parquet`",
        "transformers",
    ):
        assert said in card
    assert "secret" not in card
    assert "| 0.500 (step 2) |" in branches["global_step_2"]["README.md"].decode()
    assert branches["main"]["validation.png"].startswith(b"\x89PNG")
    assert "validation.png" not in branches["global_step_1"], "one point is no curve"


def test_a_card_written_by_hand_stays(hub: LocalHub, run: Path, command: Callable[..., tuple[str, str]]) -> None:
    command("--main_only_path", run / "global_step_10", "--repo_name", "model")
    main = hub.repositories["me/model"].branches["main"]
    main["README.md"] = b"# My model\n"
    (run / "global_step_10" / "actor" / "huggingface" / "config.json").write_text("{}")
    shown, error = command("--main_only_path", run / "global_step_10", "--repo_name", "model")
    assert not error
    main = hub.repositories["me/model"].branches["main"]
    assert main["README.md"] == b"# My model\n"
    assert main["config.json"] == b"{}"
    assert "which somebody wrote by hand, stays" in shown


@pytest.mark.parametrize("name", ["a/b/c d", "a/b/c", "a b", "", "/", "me/", "-a", "a--b", "x.git", "a" * 97])
@pytest.mark.parametrize("how", [["--dry_run"], []], ids=["dry", "real"])
def test_an_impossible_name_is_refused_before_anything_is_asked(
    name: str, how: list[str], hub: LocalHub, run: Path, command: Callable[..., tuple[str, str]]
) -> None:
    shown, error = command("--root_path", run, f"--repo_name={name}", *how)
    assert (shown, error.count("\n")) == ("", 0)
    assert f"--repo_name {name!r} is not a name of a repository" in error
    assert not hub.requests
    _, error = command("--root_path", run, "--repo_name", "model", "--organization", "a b", *how)
    assert "--repo_name 'a b/model' is not a name of a repository" in error


def test_a_step_goes_to_its_branch_and_to_main_if_newest(
    hub: LocalHub, run: Path, command: Callable[..., tuple[str, str]]
) -> None:
    shown, _ = command("--root_path", run, "--step", 2, "--repo_name", "older", "--dry_run")
    assert "branch global_step_2:" in shown
    assert "main" not in shown
    assert "global_step_10" not in shown
    assert command("--root_path", run, "--step", 2, "--repo_name", "older")[1] == ""
    assert set(hub.repositories["me/older"].branches) == {"main", "global_step_2"}
    assert "config.json" not in hub.repositories["me/older"].branches["main"], "main is the newest's"
    assert command("--root_path", run, "--step", 10, "--repo_name", "newest")[1] == ""
    assert_whole(hub, "me/newest", run, {"global_step_10": 10, "main": 10})
    _, error = command("--root_path", run, "--step", 7, "--repo_name", "model", "--dry_run")
    assert error == f"error: --step 7: {run} has the steps 1, 2, 10; write one of them"


def test_options_that_would_do_nothing_are_refused(run: Path, command: Callable[..., tuple[str, str]]) -> None:
    model = run / "global_step_2" / "actor" / "huggingface"
    alone = run.parent / "alone"
    shutil.copytree(model, alone)
    (alone / "README.md").write_text("# Mine\n")
    for given, said in (
        (["--main_only_path", alone, "--training_state"], "--training_state: no training state lies beside"),
        (["--main_only_path", alone, "--license", "mit"], "--license: .* has a README.md of its own"),
        (
            ["--root_path", run, "--license", "Apache 2.0"],
            "--license Apache 2.0 is not a licence in the hub's spelling",
        ),
    ):
        shown, error = command(*given, "--repo_name", "model", "--dry_run")
        assert not shown
        assert re.search(said, error), error
    _, error = command("--main_only_path", alone, "--step", 2, "--repo_name", "model", "--dry_run")
    assert error == "2", "the parser's own way to say so"


def test_one_folder_to_main(hub: LocalHub, run: Path, command: Callable[..., tuple[str, str]]) -> None:
    _, error = command("--main_only_path", run / "global_step_2", "--repo_name", "model", "--organization", "lab")
    assert not error
    assert_whole(hub, "lab/model", run, {"main": 2})
    # Other shards of the weights come, the old ones go.
    model = AutoModelForCausalLM.from_pretrained(run / "global_step_10" / "actor" / "huggingface")
    model.save_pretrained(run / "one_file")
    _, error = command("--main_only_path", run / "one_file", "--repo_name", "lab/model")
    assert not error
    files = hub.repositories["lab/model"].branches["main"]
    assert [name for name in files if "safetensors" in name] == ["model.safetensors"]


def test_training_state_goes_only_when_asked(hub: LocalHub, run: Path, command: Callable[..., tuple[str, str]]) -> None:
    command("--main_only_path", run / "global_step_2", "--repo_name", "plain")
    command("--main_only_path", run / "global_step_2", "--repo_name", "whole", "--training_state")
    assert not [path for path in hub.repositories["me/plain"].branches["main"] if path.endswith(".pt")]
    files = hub.repositories["me/whole"].branches["main"]
    assert files["training_state/optim_world_size_1_rank_0.pt"] == b"moments"
    assert files["training_state/data.pt"] == b"dataloader"


def test_bad_input_is_told_in_one_line(
    hub: LocalHub, run: Path, tmp_path: Path, command: Callable[..., tuple[str, str]]
) -> None:
    def told(*arguments: object) -> str:
        _, error = command(*arguments)
        assert error.startswith("error: ")
        assert "\n" not in error
        return error

    assert "no global_step_N folder" in told("--root_path", tmp_path / "nowhere", "--repo_name", "model")
    assert "--main_only_path" in told("--root_path", run / "global_step_1", "--repo_name", "model")
    assert "not a name of a repository" in told("--root_path", run, "--repo_name", "a/b/c")
    assert "cannot be written by this login" in told("--root_path", run, "--repo_name", "others/model")
    assert not hub.repositories
    command("--root_path", run, "--repo_name", "model")
    assert "exists already and is public" in told("--root_path", run, "--repo_name", "model", "--private")
    weights = next((run / "global_step_1" / "actor" / "huggingface").glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1])
    (run / "global_step_1" / "actor" / "model_world_size_1_rank_0.pt").unlink()
    assert "neither a whole model" in told("--root_path", run, "--repo_name", "other")
    assert "me/other" not in hub.repositories


def test_a_checkpoint_that_was_not_saved_to_its_end_is_left_out(
    hub: LocalHub, run: Path, command: Callable[..., tuple[str, str]]
) -> None:
    (run / "global_step_12" / "actor" / "huggingface").mkdir(parents=True)
    shown, error = command("--root_path", run, "--repo_name", "model")
    assert not error
    assert shown.startswith("global_step_12 is left out: its save did not finish\n")
    assert_whole(hub, "me/model", run, EVERYWHERE)


def test_cut_weights_are_recognised(run: Path) -> None:
    folder = run / "global_step_1" / "actor" / "huggingface"
    assert has_whole_weights(folder)
    weights = sorted(folder.glob("*.safetensors"))[-1]
    content = weights.read_bytes()
    for cut in (content[:-1], content[:100], b""):
        weights.write_bytes(cut)
        assert not has_whole_weights(folder)
    weights.unlink()
    assert not has_whole_weights(folder)
