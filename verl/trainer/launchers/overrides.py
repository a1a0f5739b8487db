"""The documented names of settings, and the keys of ours that they stand for.

One decision: each name is one line of `NAMES`, and whatever is not there goes to Hydra as it is. Two spellings of one
key that disagree are refused, and so is a name for which the chosen phase has no use.

    >>> translate(["learning_rate=1e-6"], PHASES["rl"], groups={}).overrides
    ['actor_rollout_ref.actor.optim.lr=1e-6']
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from verl.classmate.errors import ConfigError
from verl.trainer.launchers.phases import PHASES, Phase
from verl.trainer.launchers.values import Kind, count, plain_text, text_list, written

_ACTOR = "actor_rollout_ref.actor"
_REWARD, _PROTOCOL, _MIX = "rcl.reward", "rcl.protocol", "rcl.ref_mix"
FOLDER = "trainer.default_local_dir"


@dataclass(frozen=True, kw_only=True)
class Name:
    """One documented name."""

    kind: Kind
    """What it takes."""
    rl: str | None = None
    """Its key where a policy is trained; None: it has no use there."""
    sft: str | None = None
    """Its key in supervised training."""
    evaluates: bool = False
    """Whether it also counts where a teacher is only evaluated."""
    needs_plan: bool = False
    """Whether its value depends on more than itself; `Settings` has it."""


NAMES: Mapping[str, Name] = {
    "model_name_or_path": Name(kind="text", rl="actor_rollout_ref.model.path", sft="model.path", evaluates=True),
    "student_model": Name(kind="texts", rl="rcl.students", evaluates=True, needs_plan=True),
    "dataset_id_or_path": Name(
        kind="texts", rl="data.train_files", sft="data.train_files", evaluates=True, needs_plan=True
    ),
    "learning_rate": Name(kind="number", rl=f"{_ACTOR}.optim.lr", sft="optim.lr"),
    "num_generations": Name(kind="count", rl="actor_rollout_ref.rollout.n"),
    "train_batch_size": Name(kind="count", rl="data.train_batch_size", sft="data.train_batch_size", needs_plan=True),
    "max_prompt_length": Name(kind="count", rl="data.max_prompt_length", evaluates=True),
    "max_completion_length": Name(kind="count", rl="data.max_response_length", evaluates=True),
    "max_steps": Name(kind="steps", rl="trainer.total_training_steps", sft="trainer.total_training_steps"),
    "beta": Name(kind="number", rl=f"{_ACTOR}.kl_loss_coef"),
    "temperature": Name(kind="number", rl="actor_rollout_ref.rollout.temperature"),
    "degradation_penalty": Name(kind="number", rl=f"{_REWARD}.degradation_penalty", evaluates=True),
    "degradation_penalty_multiplier": Name(kind="number", rl=f"{_REWARD}.degradation_penalty", evaluates=True),
    "efficiency_weight": Name(kind="number", rl=f"{_REWARD}.efficiency_weight", evaluates=True),
    "max_probe_tokens": Name(kind="budget", rl=f"{_PROTOCOL}.max_probe_tokens", evaluates=True),
    "sync_ref_model": Name(kind="switch", rl=f"{_MIX}.enable"),
    "ref_model_mixup_alpha": Name(kind="number", rl=f"{_MIX}.alpha"),
    "ref_model_sync_steps": Name(kind="count", rl=f"{_MIX}.every"),
    "output_dir": Name(kind="text", rl=FOLDER, sft=FOLDER, evaluates=True, needs_plan=True),
    "results_dir": Name(kind="text", rl=FOLDER, sft=FOLDER, evaluates=True, needs_plan=True),
    "report_to": Name(kind="texts", rl="trainer.logger", sft="trainer.logger", evaluates=True),
    "resume_from": Name(kind="text", rl="trainer.resume_from_path", sft="trainer.resume_from_path"),
}
"""By the names that users write."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What was typed, in our keys, and what needs the rest of the config before it is a key's value."""

    overrides: list[str] = field(default_factory=list)
    """For Hydra, in the order that they were typed."""
    keys: frozenset[str] = frozenset()
    """Keys of the config that are set by them, and folders of `configs` that they choose from."""
    dataset: tuple[str, ...] = ()
    """`dataset_id_or_path`."""
    students: tuple[str, ...] = ()
    """`student_model`."""
    rollouts_per_step: int | None = None
    """`train_batch_size` where it counts rollouts."""
    output_dir: str | None = None
    """`output_dir`."""
    results_dir: str | None = None
    """`results_dir`."""


def translate(words: Sequence[str], phase: Phase, *, groups: Mapping[str, bool]) -> Settings:
    """The settings of a command line.

    Args:
        words: `key=value` or Hydra's `~key`.
        phase: what is run.
        groups: folders of `configs` that a setting may choose from; whether the run file chooses already.

    Raises:
        ConfigError: a name has no use in this phase, a value is of another kind, or two spellings disagree.
    """
    spelled: dict[str, tuple[str, str]] = {}
    settings, keys = Settings(), set()
    for word in words:
        marks = word[: len(word) - len(word.lstrip("+~"))]
        key, equals, value = word[len(marks) :].partition("=")
        name = NAMES.get(key)
        if name is not None and equals:
            canonical = _key_of(key, name, phase)
            _refuse_second_spelling(spelled, canonical, key, value)
            settings = _planned(settings, key, value, phase)
            pairs = [] if _is_planned(key, phase) else _pairs(key, name, canonical, value)
            settings.overrides.extend(f"{one}={text}" for one, text in pairs)
            keys |= {canonical, *(one for one, _ in pairs)}
            continue
        if key in groups and equals:
            keys.add(key)
            settings.overrides.append(f"{'' if groups[key] else '+'}{key}@_global_={value}")
            continue
        if equals:
            _refuse_second_spelling(spelled, key, key, value)
        keys.add(key)
        settings.overrides.append(word)
    return replace(settings, keys=frozenset(keys))


def _key_of(typed: str, name: Name, phase: Phase) -> str:
    key = name.sft if phase.family == "sft" else name.rl
    if key is not None and (phase.trains or name.evaluates):
        return key
    others = [
        one.name
        for one in PHASES.values()
        if (name.sft if one.family == "sft" else name.rl) and (one.trains or name.evaluates)
    ]
    raise ConfigError(f"{typed}: {phase.title} has no use for it; leave it out (it belongs to: {', '.join(others)})")


def _is_planned(typed: str, phase: Phase) -> bool:
    # A batch of supervised training counts rows, as the key does.
    return NAMES[typed].needs_plan and not (typed == "train_batch_size" and phase.family == "sft")


def _planned(settings: Settings, typed: str, value: str, phase: Phase) -> Settings:
    if not _is_planned(typed, phase):
        return settings
    if typed == "dataset_id_or_path":
        return replace(settings, dataset=tuple(text_list(typed, value)))
    if typed == "student_model":
        return replace(settings, students=tuple(text_list(typed, value)))
    if typed == "train_batch_size":
        return replace(settings, rollouts_per_step=count(typed, value))
    if typed == "output_dir":
        return replace(settings, output_dir=plain_text(typed, value))
    return replace(settings, results_dir=plain_text(typed, value))


def _pairs(typed: str, name: Name, key: str, value: str) -> list[tuple[str, str]]:
    """Keys and values of a name that needs no more than its value."""
    if typed == "report_to":
        nothing = value.strip().lower() in ("null", "none", "[]", "")
        return [(key, "[console]" if nothing else f"[{','.join(text_list(typed, value))}]")]
    text = written(name.kind, typed, value)
    if typed == "resume_from":
        return [("trainer.resume_mode", "resume_path"), (key, text)]
    if typed == "beta":
        if text == "null" or float(text) == 0:
            return [(f"{_ACTOR}.use_kl_loss", "false")]
        return [(key, text), (f"{_ACTOR}.use_kl_loss", "true"), (f"{_ACTOR}.kl_loss_type", "low_var_kl")]
    return [(key, text)]


def _refuse_second_spelling(spelled: dict[str, tuple[str, str]], key: str, typed: str, value: str) -> None:
    """The same spelling twice is Hydra's business: the last one counts.

    Raises:
        ConfigError: another spelling of the key was typed before, with another value.
    """
    before = spelled.get(key)
    if before is not None and before[0] != typed and not _same(before[1], value):
        raise ConfigError(f"{before[0]}={before[1]} and {typed}={value} disagree on {key}; write only one of them")
    spelled[key] = (typed, value)


def _same(a: str, b: str) -> bool:
    try:
        return float(a) == float(b)
    except ValueError:
        return a.strip().strip("\"'") == b.strip().strip("\"'")
