"""The command of an evaluation, which has options of its own, from the same run files and settings as a training's.

One decision: who is evaluated on what is told by the evaluation's options; everything else that a run file, a folder of
`configs` or a user sets is told by its key, where the evaluation reads such keys.

    >>> evaluation_options(students, config, files={"teacher": "T", "data": "test.parquet"}, untrained=None)
    ['--teacher', 'T', '--data', 'test.parquet', '--students', 'A,B', ...]
"""

from collections.abc import Mapping
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from verl.classmate.errors import ConfigError
from verl.trainer.launchers.composing import value_of
from verl.trainer.launchers.values import count, hydra_value
from verl.trainer.run.recorded_config import flatten

DOCUMENT = "teaching_evaluation.json"
"""File of the results folder with the numbers."""

_READ = ("rcl", "reward_model", "actor_rollout_ref.rollout", "data.max_prompt_length", "data.max_response_length")
"""Nodes and keys that an evaluation reads as a training does."""

_TOLD = (
    "rcl.students",
    "rcl.unseen_students",
    "rcl.templates_file",
    "rcl.protocol.val_baseline_samples",
    "rcl.protocol.val_guided_samples",
)
"""Keys that its options tell."""

NODE = "launch.evaluation"
"""What a run file or a user sets of the evaluation; null: as the evaluation's own command has it."""

SETTINGS: Mapping[str, str | tuple[str, ...]] = {
    "items": "count",
    "decoding": ("sampled", "greedy"),
    "seeds": "numbers",
    "baseline_samples": "count",
    "guided_samples": "count",
    "controls": ("null", "untrained", "reveal", "fixed", "none"),
    "reveal": "text",
    "candidates": "file",
    "fixed_candidates": "count",
    "search_items": "count",
    "search_samples": "count",
    "offtask": "file",
    "offtask_items": "count",
}
"""Key of the node and option of the command -> what it takes: a count, text, numbers, a file, or some of the words."""


def evaluation_options(
    students: dict[str, list[dict[str, object]]], config: DictConfig, *, files: dict[str, str], untrained: str | None
) -> list[str]:
    """Who is evaluated on what.

    Args:
        students: node -> its students.
        config: the composed config.
        files: `teacher`, `data`, `train_data`, `templates` and `output`; those that there are.
        untrained: what the teacher was trained from; None: that is not known.

    Raises:
        ConfigError: a student's path holds a comma, which the options cannot tell; whatever `chosen` raises.
    """
    named = {node: [str(one["model"]) for one in entries] for node, entries in students.items()}
    for model in (one for models in named.values() for one in models if "," in one):
        raise ConfigError(f"{model}: an evaluation cannot be told a path with a comma; give the folder another name")
    values = {
        **files,
        "untrained": untrained,
        "students": ",".join(named["rcl.students"]),
        "unseen": ",".join(named["rcl.unseen_students"]),
        "baseline_samples": value_of(config, "rcl.protocol.val_baseline_samples"),
        "guided_samples": value_of(config, "rcl.protocol.val_guided_samples"),
        "engine": "hf" if value_of(config, "trainer.device") == "cpu" else None,
        **chosen(config),
    }
    return [word for name, value in values.items() if value for word in (f"--{name}", str(value))]


def chosen(config: DictConfig) -> dict[str, str]:
    """What is set of the evaluation: options by name, as they are written.

    They are looked at before a training begins, at whose end it would be late to hear of a mistake.

    Raises:
        ConfigError: a name or a value that the evaluation does not have, or a file that is not there.
    """
    node = value_of(config, NODE) or {}
    if not isinstance(node, dict) or (unknown := sorted(node.keys() - SETTINGS.keys())):
        raise ConfigError(f"{NODE}.{unknown[0] if isinstance(node, dict) else node}: write {', '.join(SETTINGS)}")
    return {name: _told(name, node[name]) for name in SETTINGS if node.get(name) is not None}


def _told(name: str, value: object) -> str:
    """One setting as its option is written."""
    takes, key = SETTINGS[name], f"{NODE}.{name}"
    if takes == "count":
        return str(count(key, str(value)))
    # The control `null` is a word, which YAML reads as nothing.
    listed = value if isinstance(value, list) else str(value).split(",")
    words = ["null" if one is None else str(one).strip() for one in listed]
    if isinstance(takes, tuple):
        if not words or not set(words) <= set(takes) or ("none" in words and len(words) > 1):
            raise ConfigError(f"{key}={','.join(words)}: write some of [{','.join(takes)}]")
    elif takes == "numbers" and (len(set(words)) < len(words) or not all(word.isdecimal() for word in words)):
        raise ConfigError(f"{key}={','.join(words)}: write different whole numbers, such as [0,1]")
    elif takes == "text" and "{ground_truth}" not in str(value):
        raise ConfigError(f"{key}={value}: write {{ground_truth}} where the answer is to stand")
    elif takes == "file" and not Path(str(value)).expanduser().is_file():
        raise ConfigError(f"{key}={value}: there is no such file; name one")
    return ",".join(words) if isinstance(value, list) or isinstance(takes, tuple) else str(value)


def changed_keys(config: DictConfig, base: DictConfig) -> list[str]:
    """What the config sets otherwise than the primary config does, as overrides.

    Args:
        config: with run file and settings.
        base: without.
    """
    lines = []
    for node in _READ:
        here, there = _flat(config, node), _flat(base, node)
        for key, value in here.items():
            if not key.startswith(_TOLD) and key in there and value != there[key] and not _refers(value):
                lines.append(f"{key}={hydra_value(value)}")
    return lines


def _flat(config: DictConfig, node: str) -> dict[str, object]:
    found = OmegaConf.select(config, node)
    # Unresolved: what follows another key follows it in the evaluation too.
    plain = OmegaConf.to_container(found, resolve=False) if OmegaConf.is_config(found) else found
    return flatten({node: plain})


def _refers(value: object) -> bool:
    return isinstance(value, str) and "${" in value


def output_file(folder: Path) -> str:
    """Where the numbers are written."""
    return str(folder / DOCUMENT)
