"""The node `reasoning` of a config, typed: numbers that change while a policy is trained, and what else reasoning asks
of reinforcement learning. Every option with its one default.

One decision: the node is part of every run of ours, and with its defaults it changes nothing; so a schedule works with
classmates, with a baseline and with a teacher alike.

    >>> reasoning = this_reasoning(hydra_config)
    >>> reasoning.temperature.schedule(usual=1.0, total_steps=500).at(0)
    1.0

`python -m verl.stepwise.config` prints the YAML with all defaults; with `--write` it renews `_reasoning_base.yaml`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError
from verl.classmate.typed import COUNT, parse, plain_mapping, render_yaml, require
from verl.stepwise.schedules import Schedule, ScheduleKind, TargetEntropy

BASE_YAML = Path(__file__).resolve().parents[1] / "trainer" / "config" / "_reasoning_base.yaml"

NODE = "reasoning"


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """A number that changes from step to step; the first step is step 0 of the schedule."""

    kind: ScheduleKind = "constant"
    """constant: start; exp: start * decay ** step, as far as end; linear and cosine: from start to end within steps;
    piecewise: straight lines between points."""
    start: float | None = field(default=None, metadata={"at_least": 0, "write": "0 or more"})
    """At the first step; null: the number that the run has without a schedule."""
    end: float | None = field(default=None, metadata={"at_least": 0, "write": "0 or more"})
    """Where it stops; null: start, or 0 with exp."""
    decay: float = field(default=0.995, metadata={"above": 0, "write": "0.995"})
    """exp: factor of each step."""
    steps: int | None = field(default=None, metadata=COUNT)
    """linear, cosine: how many steps it takes; null: all of the run."""
    points: tuple[tuple[float, ...], ...] = field(default=(), metadata={"example": "[[0,1.0],[100,0.6]]"})
    """piecewise: pairs of a step and a value, in order."""

    def schedule(self, *, usual: float, total_steps: int) -> Schedule:
        """What it is in a run.

        Args:
            usual: the number without a schedule.
            total_steps: of the run.

        Raises:
            ValueError: it has no value at some step.
        """
        if any(len(point) != 2 or point[0] != int(point[0]) for point in self.points):
            raise ValueError("points are pairs of a step and a value; write [[0,1.0],[100,0.6]]")
        return Schedule(
            kind=self.kind,
            start=usual if self.start is None else self.start,
            end=self.end,
            decay=self.decay,
            steps=total_steps if self.steps is None else self.steps,
            points=tuple((int(step), value) for step, value in self.points),
        )

    def check(self, where: str) -> None:
        """Refuses what gives no value.

        Raises:
            ConfigError: names the node `where`.
        """
        try:
            self.schedule(usual=1.0, total_steps=1)
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from None
        lowest = min((value for _, value in self.points), default=0.0)
        require(lowest >= 0, f"{where}.points: {lowest} is negative; write 0 or more")


@dataclass(frozen=True, kw_only=True)
class ReasoningConfig:
    """The node `reasoning`."""

    temperature: ScheduleConfig = field(default_factory=ScheduleConfig)
    """With which the policy's answers are drawn, and with which all of their log-probs are computed; start null:
    actor_rollout_ref.rollout.temperature. Validation has a temperature of its own."""
    hold_temperature: bool = True
    """The temperature's schedule stands still at steps in which more than half of the groups have no variance."""
    entropy_coeff: ScheduleConfig = field(default_factory=ScheduleConfig)
    """Of the bonus for entropy in the actor's loss; start null: actor_rollout_ref.actor.entropy_coeff."""
    target_entropy: float | None = field(default=None, metadata={"above": 0, "write": "0.5, or null"})
    """Mean entropy of a token, in nats, towards which the coefficient is steered, by at most 10 % a step, instead of
    following its schedule; it begins at entropy_coeff.start. null: it follows its schedule."""
    ref_sync_every: int = field(default=0, metadata={"at_least": 0, "write": "400, or 0 for never"})
    """Steps after which the reference of the KL becomes the policy as it is then (R1: 400); 0: it never moves."""
    most_left_out: int = field(default=20, metadata=COUNT)
    """With algorithm.filter_groups.enable: a run ends with an error when it has left out this many batches of groups
    whose rewards are all the same, and still has no batch to train on."""
    overlong_buffer: int = field(default=0, metadata={"at_least": 0, "write": "512, or 0 for none"})
    """Tokens before data.max_response_length in which an answer costs more and more; 0: none (DAPO)."""
    overlong_penalty: float = field(default=1.0, metadata={"at_least": 0, "write": "1.0"})
    """What the longest answer costs of its reward."""

    def __post_init__(self) -> None:
        for name in ("temperature", "entropy_coeff"):
            getattr(self, name).check(f"{NODE}.{name}")
        values = self.temperature.points or ((0, 1.0),)
        require(
            all(value > 0 for _, value in values) and self.temperature.start != 0 and self.temperature.end != 0,
            f"{NODE}.temperature: answers drawn at 0 are all the same, and have no log-probs to train on; write more",
        )
        if self.temperature.kind in ("exp", "linear", "cosine"):
            require(
                self.temperature.end is not None,
                f"{NODE}.temperature.end: where does {self.temperature.kind} stop? write for instance 0.3",
            )
        if self.target_entropy is not None:
            coefficient = self.entropy_coeff
            require(
                coefficient.kind == "constant",
                f"{NODE}.target_entropy steers the coefficient, and entropy_coeff.kind={coefficient.kind} does too; "
                f"write {NODE}.entropy_coeff.kind=constant, or {NODE}.target_entropy=null",
            )
            require(
                bool(coefficient.start),
                f"{NODE}.target_entropy steers from a coefficient above 0; write {NODE}.entropy_coeff.start=0.001",
            )

    @classmethod
    def read(cls, node: Mapping[str, Any]) -> "ReasoningConfig":
        """The typed view of the node.

        Raises:
            ConfigError: a key, a value or a combination that is not possible.
        """
        return parse(cls, plain_mapping(node), NODE)

    @property
    def controller(self) -> TargetEntropy | None:
        """What steers the coefficient of the entropy, if anything does."""
        if self.target_entropy is None:
            return None
        start = self.entropy_coeff.start or 0.0
        usual = TargetEntropy(target=self.target_entropy)
        return TargetEntropy(
            target=self.target_entropy, lowest=min(start, usual.lowest), highest=max(start, usual.highest)
        )


_kept: list[tuple[Mapping[str, Any], ReasoningConfig]] = []
"""The config that this process works with, and its typed node; empty before there is one."""


def this_reasoning(config: Mapping[str, Any]) -> ReasoningConfig:
    """The typed node `reasoning` of the config that this process works with; its defaults where there is no node."""
    if not _kept or _kept[0][0] is not config:
        node = config.get(NODE)
        _kept[:] = [(config, ReasoningConfig() if node is None else ReasoningConfig.read(node))]
    return _kept[0][1]


def render_base_yaml() -> str:
    """The content of `verl/trainer/config/_reasoning_base.yaml`: all defaults of the node, with their docs."""
    return (
        "# @package _global_\n"
        "# Generated by `python -m verl.stepwise.config --write` from the dataclasses there; do not edit.\n\n"
        f"{NODE}:\n\n{render_yaml(ReasoningConfig, indent=2)}\n"
    )


def main(arguments: list[str]) -> None:
    """Prints the base YAML, or with `--write` puts it where Hydra finds it."""
    if arguments == ["--write"]:
        BASE_YAML.write_text(render_base_yaml())
        print(BASE_YAML)
    else:
        print(render_base_yaml(), end="")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
