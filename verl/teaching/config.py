"""The node `rcl` of a config, typed: students, protocol, reward, templates. Every option with its one default.

One decision: students are the run's frozen readers. `rcl.students` stands for `reward_model.classmates` and
`rcl.unseen_students` for `reward_model.evaluation_classmates`, so that one machinery places, starts, asks and heals
them; here stands only what is said to whom, and what it is worth.

    >>> teaching = this_teaching(hydra_config)                      # None: the run trains no teacher
    >>> teaching.protocol.max_probe_tokens
    50

`python -m verl.teaching.config` prints the YAML with all defaults; with `--write` it renews `_rcl_base.yaml`.
"""

import dataclasses
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from verl.classmate.errors import ConfigError
from verl.classmate.specs import ClassmateSpec, ReaderSpec
from verl.classmate.typed import COUNT, field_docs, parse, plain_mapping, render_yaml, require
from verl.teaching.reward_config import TeachingRewardConfig
from verl.teaching.templates import Templates

BASE_YAML = Path(__file__).resolve().parents[1] / "trainer" / "config" / "_rcl_base.yaml"

NODE = "rcl"


@dataclass(frozen=True, kw_only=True)
class ProbeConfig:
    """The student's outline, which the teacher reads."""

    temperature: float = field(default=0.7, metadata={"at_least": 0, "write": "0.7"})
    """Softmax temperature of the outline."""
    resample: Literal["step", "epoch", "never"] = "step"
    """When a question gets another outline: at each step, once in an epoch, or never."""
    author: Literal["student_prompt", "teacher"] = "student_prompt"
    """student_prompt: students are asked for their plan in the words of student_diagnostic_template; teacher: the
    teacher writes what its student is asked, as a first turn that is trained like the second one, its advice
    (docs/teaching.md#questions-that-the-teacher-writes)."""
    max_question_tokens: int = field(default=96, metadata=COUNT)
    """With author=teacher: most tokens of the first turn, its private part and its tags among them."""


@dataclass(frozen=True, kw_only=True)
class ProtocolConfig:
    """Who is asked what, and how often."""

    max_probe_tokens: int = field(default=50, metadata={"at_least": 0, "write": "50, or 0 for no probe"})
    """Most tokens of the student's outline (the probe); 0: the student is not asked for one."""
    probe: ProbeConfig = field(default_factory=ProbeConfig)
    """How outlines are drawn."""
    baseline_samples: int = field(default=8, metadata=COUNT)
    """Answers of a student to the question alone, M; they are asked for once and stored."""
    guided_samples: int = field(default=1, metadata=COUNT)
    """Answers of a student to each teaching, N."""
    val_baseline_samples: int = field(default=16, metadata=COUNT)
    """M in validation."""
    val_guided_samples: int = field(default=4, metadata=COUNT)
    """N in validation."""
    max_teaching_tokens: int = field(default=512, metadata=COUNT)
    """Most tokens of a teaching, in the student's tokenizer."""
    teaching_overflow: Literal["penalize", "truncate"] = "penalize"
    """penalize: a longer teaching is not shown and costs reward.format_penalty; truncate: its beginning is shown."""
    student_assignment: Literal["round_robin", "all", "joint"] = "round_robin"
    """round_robin: each question is put to one student, another one in the next epoch; all: it becomes one group for
    each student; joint: one teaching is scored on all of them."""
    joint_reduction: Literal["mean", "min"] = "mean"
    """With joint: the reward is the students' mean, or that of the student who fares worst."""
    name_student: bool = False
    """Whether the teacher is told the student's name ({student_name} in teacher_adaptive_template)."""

    @property
    def teacher_asks(self) -> bool:
        """Whether the teacher writes what its students are asked for the probe."""
        return self.probe.author == "teacher"

    def baseline(self, *, validate: bool) -> int:
        """M."""
        return self.val_baseline_samples if validate else self.baseline_samples

    def guided(self, *, validate: bool) -> int:
        """N."""
        return self.val_guided_samples if validate else self.guided_samples


@dataclass(frozen=True, kw_only=True)
class ExtractConfig:
    """How a student's answer is found."""

    allow_last_number: bool = False
    """Whether an answer without any mark is its last number."""


@dataclass(frozen=True, kw_only=True)
class RefMixConfig:
    """Mixing the policy into the reference of the KL loss (`sync_ref_model` of TRL)."""

    enable: bool = False
    """Whether the reference follows the policy. The loss then no longer holds the policy near its start."""
    alpha: float = field(default=0.9, metadata={"above": 0, "at_most": 1, "write": "0.9"})
    """Share of the policy: reference = alpha policy + (1 - alpha) reference. Small shares are lost in a reference of
    16 bits: write actor_rollout_ref.ref.fsdp_config.model_dtype=fp32 for them."""
    every: int = field(default=32, metadata=COUNT)
    """Steps between two mixes, each right after the step's update. Checkpoints hold the reference as it is then."""


@dataclass(frozen=True, kw_only=True)
class CollectConfig:
    """What is kept of the teachings for the training of students."""

    enable: bool = False
    """Whether every training row is written to teachings/*.jsonl of the run folder."""
    exclude_files: tuple[str, ...] = ()
    """Parquet or JSONL files whose questions are never collected: those of an evaluation. Those of data.val_files never
    are."""


@dataclass(frozen=True, kw_only=True)
class TeachingConfig:
    """The node `rcl`."""

    students: tuple[ClassmateSpec, ...] = ()
    """The frozen students, each {model, backend, placement, replicas, tensor_parallel_size, gpu_memory_utilization};
    all but the model may be left out."""
    unseen_students: tuple[ReaderSpec, ...] = ()
    """Students that are taught in validation only: whether teaching helps those it was not trained on."""
    reward: TeachingRewardConfig = field(default_factory=TeachingRewardConfig)
    """What a teaching is worth."""
    protocol: ProtocolConfig = field(default_factory=ProtocolConfig)
    """Who is asked what."""
    extract: ExtractConfig = field(default_factory=ExtractConfig)
    """How answers are found."""
    templates_file: str | None = None
    """YAML file with templates, under the keys of rcl.templates, which come before it."""
    baseline_cache: str | None = None
    """SQLite file of the students' stored answers without advice; null: baselines.sqlite in the run folder. Runs may
    share one."""
    ref_mix: RefMixConfig = field(default_factory=RefMixConfig)
    """Whether the reference follows the policy."""
    collect: CollectConfig = field(default_factory=CollectConfig)
    """What is kept for students."""
    templates: Templates = field(default_factory=Templates, metadata={"in_yaml": False})
    """Prompts of the run, in the place of those in templates_file and of the built-in ones (null): each a text for the
    user's turn, or {system, user} (docs/teaching.md)."""

    def __post_init__(self) -> None:
        require(
            not self.reward.uses_rlt or self.protocol.student_assignment != "joint",
            f"{NODE}.protocol.student_assignment: joint needs students that answer; write round_robin, or "
            f"{NODE}.reward.kind=rcl",
        )
        require(
            not self.protocol.name_student or "student_name" in self.templates.teacher_adaptive_template.placeholders,
            f"{NODE}.protocol.name_student: the template teacher_adaptive_template has no {{student_name}}; write it "
            "there, or name_student=false",
        )
        require(
            not self.protocol.teacher_asks or self.protocol.max_probe_tokens > 0,
            f"{NODE}.protocol.probe.author: teacher asks for replies of max_probe_tokens=0 tokens; write 50, or "
            "author=student_prompt",
        )
        require(
            not self.protocol.teacher_asks or self.reward.kind == "rcl",
            f"{NODE}.protocol.probe.author: teacher is for {NODE}.reward.kind=rcl, as students that score an "
            f"explanation are asked nothing (it is {self.reward.kind}); write student_prompt",
        )
        if self.protocol.teacher_asks:
            self.templates.check_probe_author()

    @classmethod
    def read(cls, node: Mapping[str, Any]) -> "TeachingConfig":
        """The typed node.

        Raises:
            ConfigError: a key, a value or a combination that is not possible; one line that says what to write.
        """
        plain = dict(plain_mapping(node))
        stored = _from_file(plain.get("templates_file"))
        given = plain.pop("templates", None) or {}
        if isinstance(given, Mapping):
            given = {**stored, **{key: value for key, value in given.items() if value is not None}}
        return parse(cls, {**plain, "templates": Templates.from_mapping(given)}, NODE)

    def cache_file(self, folder: Path | None) -> Path | None:
        """Where baselines are stored, for a run in `folder`; None: nowhere."""
        if self.baseline_cache:
            return Path(self.baseline_cache).expanduser()
        return None if folder is None else folder / "baselines.sqlite"


def _from_file(name: Any) -> dict[str, Any]:
    """The templates of a YAML file.

    Raises:
        ConfigError: it is not there, or no YAML of keys and values.
    """
    if name is None:
        return {}
    require(isinstance(name, str), f"{NODE}.templates_file: {name!r} is no file; name a YAML file")
    try:
        content = yaml.safe_load(Path(name).expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{NODE}.templates_file={name} cannot be read ({reason}); name a YAML file") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{NODE}.templates_file={name} holds no keys; write for instance answer_format: TEXT")
    return content


_kept: list[tuple[Mapping[str, Any], TeachingConfig | None]] = []
"""The config that this process works with, and its typed node; empty before there is one."""


def this_teaching(config: Mapping[str, Any]) -> TeachingConfig | None:
    """The typed node `rcl` of the config that this process works with; None in a run that trains no teacher."""
    if not _kept or _kept[0][0] is not config:
        node = config.get(NODE)
        _kept[:] = [(config, None if node is None else TeachingConfig.read(node))]
    return _kept[0][1]


def forget_teaching() -> None:
    """What was read of a config before it was settled is read again."""
    _kept.clear()


def render_base_yaml() -> str:
    """The content of `verl/trainer/config/_rcl_base.yaml`: all defaults of the node, with their docs."""
    return (
        "# @package _global_\n"
        "# Generated by `python -m verl.teaching.config --write` from the dataclasses there; do not edit.\n\n"
        f"{NODE}:\n\n{render_yaml(TeachingConfig, indent=2)}\n\n{_render_templates()}\n"
    )


def _render_templates() -> str:
    """The keys of the templates, none of them set."""
    about = textwrap.fill(field_docs(TeachingConfig)["templates"], 116, initial_indent="  # ", subsequent_indent="  # ")
    keys = "\n".join(f"    {one.name}: null" for one in dataclasses.fields(Templates) if one.name != "tags")
    return f"{about}\n  templates:\n{keys}"


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
