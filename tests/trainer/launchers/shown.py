"""What `--dry-run` shows, taken apart as a shell does, and the config that it would have.

>>> shown(capsys, "plain", "2", "teacher_sft").config().optim.lr
"""

import shlex
import sys
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from verl.trainer.launchers.__main__ import main
from verl.trainer.launchers.arguments import Launcher
from verl.trainer.launchers.phases import PHASES
from verl.trainer.run.command_line import compose, prepare_overrides


class Shown:
    """What `--dry-run` has shown, taken apart as a shell does."""

    def __init__(self, line: str, before: str) -> None:
        words = shlex.split(line)
        self.environment: dict[str, str] = {}
        if words[0] == "env":
            end = words.index(sys.executable)
            self.environment = dict(word.split("=", 1) for word in words[1:end])
            words = words[end:]
        assert words[:2] == [sys.executable, "-m"]
        self.module, self.arguments, self.before = words[2], words[3:], before

    def config(self) -> DictConfig:
        """As the entry point would have it."""
        hardware = next(phase.hardware for phase in PHASES.values() if phase.module == self.module)
        arguments = prepare_overrides(list(self.arguments), hardware=hardware)
        config = compose("no default", arguments, hardware=hardware)
        assert config is not None
        return config


def shown(capsys: pytest.CaptureFixture[str], launcher: Launcher, *words: str) -> Shown:
    code = main(launcher, [*words, "--dry-run"])
    output = capsys.readouterr()
    assert code == 0, output.err
    assert output.out.count("\n") == 1, "one command"
    return Shown(output.out, output.err)


def refusal(capsys: pytest.CaptureFixture[str], launcher: Launcher, *words: str) -> str:
    code = main(launcher, [*words, "--dry-run"])
    output = capsys.readouterr()
    assert (code, output.out) == (2, "")
    (line,) = output.err.splitlines()
    return line


def value(config: DictConfig, key: str) -> Any:
    node = OmegaConf.select(config, key)
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
