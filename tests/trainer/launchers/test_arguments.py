"""Command lines of the launchers: what is a number, a run file, a setting or a word, and what shows the usage."""

import re

import pytest

from tests.test_structure import ROOT
from verl.trainer.launchers.__main__ import main
from verl.trainer.launchers.arguments import BARE_WORDS, Launcher, UsageError, parse

NUMBERS = {"N_VLLM": "first", "N_TRAIN": "second"}


def test_words_and_settings_may_stand_anywhere() -> None:
    words = ["offload", "4", "beta=0.1", "2", "--dry-run", "x.yaml", "zero1", "a.b=[1, 2]", "~trainer.logger"]
    request = parse("server", words)
    assert (request.server_gpus, request.train_gpus, request.run_file) == (4, 2, "x.yaml")
    assert request.settings == ("beta=0.1", "a.b=[1, 2]", "~trainer.logger")
    assert request.words == {"offload", "zero1"}
    assert request.dry_run


def test_the_plain_launcher_has_one_number() -> None:
    request = parse("plain", ["8", "configs/run/teacher_sft.yaml"])
    assert (request.server_gpus, request.train_gpus, request.dry_run) == (0, 8, False)


@pytest.mark.parametrize(
    ("launcher", "words", "says"),
    [
        ("plain", [], "write N_GPUS RUN_FILE; there is only nothing"),
        ("plain", ["8"], "there is only 8"),
        ("plain", ["x.yaml", "8"], "N_GPUS=x.yaml is not a number of GPUs"),
        ("plain", ["4", "4", "x.yaml"], "RUN_FILE=4 is a number|'x.yaml' comes after N_GPUS RUN_FILE"),
        ("plain", ["-1", "x.yaml"], "N_GPUS=-1 is not a number of GPUs"),
        ("plain", ["2.5", "x.yaml"], "N_GPUS=2.5 is not a number of GPUs"),
        ("plain", ["all", "x.yaml"], "N_GPUS=all is not a number of GPUs"),
        ("plain", ["\uff11", "x.yaml"], "is not a number of GPUs"),
        ("server", ["4", "x.yaml"], "write N_VLLM N_TRAIN RUN_FILE; there is only 4 x.yaml"),
        ("server", ["4", "x.yaml", "4"], "N_TRAIN=x.yaml is not a number of GPUs"),
        ("server", ["4", "4", "4"], "RUN_FILE=4 is a number"),
        ("plain", ["8", "x.yaml", "+offload"], "did you mean offload"),
        ("plain", ["8", "x.yaml", "offlaod"], "did you mean offload"),
        ("plain", ["8", "x.yaml", "zero-1"], "did you mean zero1"),
        ("plain", ["8", "x.yaml", "learning_rate"], "'learning_rate' comes after"),
        ("plain", ["8", "x.yaml", "--offload"], "--offload is not a flag"),
        ("plain", ["8", "x.yaml", "--cfg"], "--cfg is not a flag"),
    ],
)
def test_what_is_no_command_line_shows_the_usage(
    launcher: Launcher, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=says):
        parse(launcher, words)
    assert main(launcher, words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert "usage: ./launch" in shown.err


@pytest.mark.parametrize("launcher", ["plain", "server"])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_names_every_word(launcher: Launcher, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(launcher, ["nonsense", flag]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    for word in (*BARE_WORDS, "--dry-run", "RUN_FILE", "N_VLLM" if launcher == "server" else "N_GPUS"):
        assert word in shown.out


@pytest.mark.guards("documentation swapping the two GPU numbers")
def test_documents_and_help_have_the_numbers_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    request = parse("server", ["1", "3", "x.yaml"])
    assert (request.server_gpus, request.train_gpus) == (1, 3)
    main("server", ["--help"])
    told = [capsys.readouterr().out, (ROOT / "docs" / "teaching.md").read_text()]
    for text in (*told, (ROOT / "launch_with_server.sh").read_text()):
        assert 0 < text.index("N_VLLM") < text.index("N_TRAIN")
    lines = {name: next(line for line in told[1].splitlines() if f"| `{name}`" in line) for name in NUMBERS}
    assert {name: re.search("first|second", line)[0] for name, line in lines.items()} == NUMBERS  # type: ignore[index]
    assert "serve" in lines["N_VLLM"]
    assert "train" in lines["N_TRAIN"]
