"""Templates are tried on the data's own rows before anything starts: what they refuse is one line, and so is what was
decided by them."""

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from omegaconf import DictConfig, OmegaConf

from tests.classmate.template_families import FAMILIES
from tests.classmate.toy_tokenizers import TOKENIZERS, templated
from tests.run_config import run_config
from verl.classmate.config import from_mapping
from verl.classmate.errors import ConfigError
from verl.trainer.preflight.chats import sampled_chats
from verl.trainer.preflight.models import load_tokenizer
from verl.trainer.preflight.templates import check_templates, template_notes

KEEP = "reward_model.classmate_cot_reward_configs.main_cot_keep_rate=0.5"
HELP = "reward_model.classmate_cot_reward_configs.classmate_reward_type=help_other_questions"
SYSTEM, FIRST, REPLY, SECOND = (
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "3 + 4?"},
    {"role": "assistant", "content": "7"},
    {"role": "user", "content": "And 4 + 5?"},
)
CHATS = {
    "u": [FIRST],
    "su": [SYSTEM, FIRST],
    "uau": [FIRST, REPLY, SECOND],
    "uu": [FIRST, SECOND],
    "usu": [FIRST, SYSTEM, SECOND],
    "ua": [FIRST, REPLY],
    "au": [REPLY, FIRST],
    "tool": [FIRST, {"role": "tool", "content": "7"}, SECOND],
    "s": [SYSTEM],
    "ss": [SYSTEM, {"role": "system", "content": "Use digits."}, FIRST],
    "human": [{"role": "human", "content": "3 + 4?"}],
    "User": [{"role": "User", "content": "3 + 4?"}],
    "developer": [{"role": "developer", "content": "Be short."}, FIRST],
    "tool last": [FIRST, {"role": "tool", "content": "7"}],
    "twice": [FIRST, REPLY, FIRST],
    "letter": [{"role": "system", "content": "a"}, FIRST],
    "thought": [FIRST, {"role": "assistant", "content": "<think>\nadd\n</think>\n\nIt is 7."}, SECOND],
    "only a thought": [FIRST, {"role": "assistant", "content": "<think>\nadd\n</think>"}, SECOND],
    "spaced": [{"role": "user", "content": "  3\n\n\t+ 4?  \n"}],
    "switch": [{"role": "system", "content": "Be short. /no_think"}, FIRST],
    "blank system": [{"role": "system", "content": ""}, FIRST],
    "none": [],
    "null": [{"role": "user", "content": None}],
    "null behind": [FIRST, {"role": "assistant", "content": None}, SECOND],
    "blank": [{"role": "user", "content": " \n"}],
}
KNOWN_ROLES = (
    "{% for m in messages %}{% if m.role in ('system', 'user', 'assistant') %}"
    "{{ '<|' + m.role + '|>' + m.content + '\n' }}{% endif %}{% endfor %}<|assistant|>"
)
"""Of OLMo-2 and Phi: other roles are left out."""
LAST_SYSTEM = (
    "{% set ns = namespace(system='') %}{% for m in messages if m.role == 'system' %}{% set ns.system = m.content %}"
    "{% endfor %}{{ ns.system }}{% for m in messages if m.role != 'system' %}"
    "{% if m.role == 'user' %}{{ '<|User|>' + m.content }}{% endif %}"
    "{% if m.role == 'assistant' %}{{ '<|Assistant|>' + m.content.split('</think>')[-1] }}{% endif %}"
    "{% endfor %}<|Assistant|><think>\n"
)
"""Of R1: the last system turn counts."""
SYSTEM_WITH_USER = (
    "{% set ns = namespace(system='') %}{% for m in messages %}{% if m.role == 'system' and loop.first %}"
    "{% set ns.system = m.content + '\n\n' %}{% elif m.role == 'user' %}"
    "{{ '[INST]' + (ns.system if loop.last else '') + m.content + '[/INST]' }}"
    "{% elif m.role == 'assistant' %}{{ m.content }}{% else %}{{ raise_exception('unknown role') }}{% endif %}"
    "{% endfor %}"
)
"""Of Mistral: the system's text stands in the last user turn, and nowhere without one."""
FIRST_TURN_ONLY = "{{ messages[0].content }}{% for m in messages[1:] if m.role == 'user' %}{{ m.content }}{% endfor %}"
"""Answers of earlier turns are left out."""


class World:
    """A policy and two classmates with families' templates, and data with given chats."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def model(self, name: str, family: str, toy: str = "byte_bpe") -> Path:
        with templated(TOKENIZERS[toy](), FAMILIES[family].template) as tokenizer:
            tokenizer.save_pretrained(self.folder / name)
        return self.folder / name

    def templated(self, name: str, template: str) -> None:
        """Gives a model another template."""
        with templated(TOKENIZERS["byte_bpe"](), template) as tokenizer:
            tokenizer.save_pretrained(self.folder / name)
        load_tokenizer.cache_clear()

    def write(self, name: str, chats: list[str], *, suffix: str = "parquet", last: str | None = None) -> Path:
        rows = [{"prompt": CHATS[chat]} for chat in chats] + ([{"prompt": CHATS[last]}] if last else [])
        file = self.folder / f"{name}.{suffix}"
        if suffix == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), file)
        else:
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return file

    def config(self, policy: str, classmates: tuple[str, ...], train: Path, val: Path, *overrides: str) -> tuple:
        names = [f"classmate{i}" for i in range(len(classmates))]
        for name, family in zip(names, classmates, strict=True):
            self.model(name, family)
        config = copy.deepcopy(base())
        given = [
            f"reward_model.classmate_cot_reward_configs.classmate_model_name_or_path_list="
            f"{[str(self.folder / name) for name in names]}",
            f"actor_rollout_ref.model.path={self.model('policy', policy)}",
            f"data.train_files={train}",
            f"data.val_files={val}",
        ]
        for override in [*given, *overrides]:
            key, _, value = override.partition("=")
            OmegaConf.update(config, key, yaml.safe_load(value))
        container: Any = OmegaConf.to_container(config, resolve=True)
        return container, from_mapping(container["reward_model"])


@cache
def base() -> DictConfig:
    """Composed once: it takes longer than what is tested here."""
    return run_config(Path("models"), ["none"])


@pytest.fixture
def world(tmp_path: Path) -> World:
    sampled_chats.cache_clear()
    load_tokenizer.cache_clear()
    return World(tmp_path)


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_takes_the_chats_of_our_data(world: World, family: str, suffix: str) -> None:
    file = world.write("train", ["u", "su", "uau", "uu"], suffix=suffix)
    check_templates(*world.config(family, (family, "qwen3"), file, file))


@pytest.mark.parametrize(
    ("policy", "classmates", "chat", "named"),
    [
        ("qwen3", ("qwen3", "gemma2"), "su", "reward_model.classmates[1].model"),
        ("gemma2", ("qwen3",), "su", "actor_rollout_ref.model.path"),
        ("mistral_v0_1", ("qwen3",), "su", "actor_rollout_ref.model.path"),
        ("qwen3", ("gemma3",), "uu", "reward_model.classmates[0].model"),
    ],
)
def test_a_refused_chat_is_told_with_model_file_and_row(
    world: World, policy: str, classmates: tuple[str, ...], chat: str, named: str
) -> None:
    """Also where it stands far behind the first rows, or in the validation's file only."""
    train, val = world.write("train", ["u"] * 300), world.write("val", ["u"] * 300, last=chat)
    with pytest.raises(ConfigError) as refused:
        check_templates(*world.config(policy, classmates, train, val, "reward_model.system_as_user=false"))
    text = str(refused.value)
    assert "\n" not in text
    assert text.startswith(f"{named}={world.folder}/")
    assert f"data.val_files={val}, row 300" in text
    assert "write reward_model.system_as_user=true" in text
    check_templates(*world.config(policy, classmates, train, val))


@pytest.mark.parametrize(("family", "chat"), [("gemma2", "au"), ("mistral_small_3", "tool"), ("gemma3", "au")])
def test_what_no_option_helps_is_refused(world: World, family: str, chat: str) -> None:
    file = world.write("train", ["u"], last=chat)
    for policy, classmate in ((family, "qwen3"), ("qwen3", family)):
        with pytest.raises(ConfigError, match=r"refuses the roles \[\w+, .*change the roles in the data"):
            check_templates(*world.config(policy, (classmate,), file, file))


def test_help_other_needs_earlier_answers(world: World) -> None:
    dropping = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    file = world.write("train", ["u"])
    container, reward = world.config("qwen3", ("qwen3",), file, file, HELP)
    check_templates(container, reward)
    with templated(TOKENIZERS["byte_bpe"](), dropping) as tokenizer:
        tokenizer.save_pretrained(world.folder / "classmate0")
    load_tokenizer.cache_clear()
    with pytest.raises(ConfigError, match="changes or drops earlier assistant turns"):
        check_templates(container, reward)


@pytest.mark.parametrize("family", ["qwen3", "smollm3"])
@pytest.mark.parametrize(
    ("switch", "named"),
    [
        ("reward_model.enable_thinking=false", "reward_model.enable_thinking=false"),
        ("data.apply_chat_template_kwargs.enable_thinking=false", "data.apply_chat_template_kwargs"),
    ],
)
def test_a_thought_that_the_prompt_closes_is_refused(world: World, family: str, switch: str, named: str) -> None:
    file = world.write("train", ["u"])
    with pytest.raises(ConfigError) as refused:
        check_templates(*world.config(family, ("qwen2_5",), file, file, switch))
    text = str(refused.value)
    assert text.startswith(named)
    assert "\n" not in text
    assert "reward_model.enable_thinking=true" in text
    advice = text.partition("or reward_model.cot_format=plain ")[2]
    check_templates(*world.config(family, ("qwen2_5",), file, file, switch, "reward_model.cot_format=plain", advice))


@pytest.mark.parametrize("family", ["qwen2_5", "olmo2", "r1_distill", "gemma3"])
def test_a_template_that_does_not_know_the_switch_is_not_refused(world: World, family: str) -> None:
    file = world.write("train", ["u"])
    check_templates(*world.config(family, ("qwen3",), file, file, "reward_model.enable_thinking=false"))


def told(world: World, *args: Any, date: str | None = "2026-01-02") -> list[str]:
    container, reward = world.config(*args)
    return template_notes(container, reward, chat_date=date)


def test_what_was_decided_is_said_once(world: World) -> None:
    file = world.write("train", ["u", "su", "uu"])
    assert told(world, "qwen3", ("qwen3", "gemma2", "olmo2"), file, file, KEEP) == [
        "roles        classmate 1 takes no system role: its text stands in front of the user's turn",
        "roles        classmate 1 takes no two turns of one role in a row: they are joined",
        "CoT          a part of it is closed for classmate 1, classmate 2 (no CoT in the chat template) and left open "
        "for classmate 0, to be finished",
    ]


def test_nothing_is_said_where_nothing_was_decided(world: World) -> None:
    file = world.write("train", ["u", "uau"])
    assert told(world, "qwen3", ("qwen3", "gemma2"), file, file) == []
    always = "reward_model.classmate_cot_reward_configs.classmate_close_marker=always"
    assert told(world, "qwen3", ("qwen3", "gemma2"), file, file, KEEP, always) == []


def test_the_day_is_said(world: World) -> None:
    file = world.write("train", ["u"])
    assert told(world, "qwen3", ("llama3_1", "llama3_2"), file, file) == [
        "date         chat templates (classmate 1) are told 2026-01-02, also in resumed runs and replays"
    ]


def test_a_policy_that_knows_no_markers_is_warned_of(world: World) -> None:
    file = world.write("train", ["u"])
    assert told(world, "olmo2", ("qwen3",), file, file) == [], "its vocabulary has the markers"
    other = f"actor_rollout_ref.model.tokenizer_path={world.model('other', 'olmo2', toy='text_bpe')}"
    (line,) = told(world, "qwen3", ("qwen3",), file, file, other)
    assert line.startswith("warning: neither chat template nor vocabulary of the policy know <think>")
    plain = told(world, "qwen3", ("qwen3",), file, file, other, "reward_model.cot_format=plain", KEEP)
    assert plain == ["CoT          a part of it is left open for classmate 0, to be finished"]


LOST = [
    (SYSTEM_WITH_USER, "s", "system", 1, "write its role as user"),
    (LAST_SYSTEM, "ss", "system", 1, "write the system turns as one"),
    (KNOWN_ROLES, "human", "human", 1, "write its role as user"),
    (KNOWN_ROLES, "User", "User", 1, "write its role as user"),
    (LAST_SYSTEM, "User", "User", 1, "write its role as user"),
    (KNOWN_ROLES, "developer", "developer", 1, "write its role as system"),
    (KNOWN_ROLES, "tool last", "tool", 2, "write its role as user"),
    (LAST_SYSTEM, "tool", "tool", 2, "write its role as user"),
    (FIRST_TURN_ONLY, "uau", "assistant", 2, "name another model"),
    (FIRST_TURN_ONLY, "twice", "assistant", 2, "name another model"),
]


@pytest.mark.parametrize(("template", "chat", "role", "turn", "advice"), LOST)
@pytest.mark.parametrize("who", ["policy", "classmate1"])
def test_a_turn_that_is_left_out_without_a_word_is_told(
    world: World, template: str, chat: str, role: str, turn: int, advice: str, who: str
) -> None:
    """The run would train on prompts without the question, and end as a good one."""
    train, val = world.write("train", ["u"] * 20), world.write("val", ["u"] * 20, last=chat)
    container, reward = world.config("qwen2_5", ("qwen3", "qwen3"), train, val)
    world.templated(who, template)
    with pytest.raises(ConfigError) as refused:
        check_templates(container, reward)
    text = str(refused.value)
    key = "actor_rollout_ref.model.path" if who == "policy" else "reward_model.classmates[1].model"
    assert "\n" not in text
    assert text.startswith(
        f"{key}={world.folder / who}: its chat template leaves out text of the {role} turn (turn {turn}"
    )
    assert f"data.val_files={val}, row 20; " in text
    assert advice in text


def test_a_dropped_system_turn_is_told_without_the_option(world: World) -> None:
    """Whatever its length: a letter is in every prompt."""
    dropping = "{% for m in messages if m.role != 'system' %}{{ '<' + m.role + '>' + m.content }}{% endfor %}"
    for chat in ("su", "letter"):
        file = world.write("train", ["u", chat])
        container, reward = world.config("qwen3", ("qwen3",), file, file, "reward_model.system_as_user=false")
        world.templated("classmate0", dropping)
        with pytest.raises(ConfigError, match=r"leaves out text of the system turn.*system_as_user=true"):
            check_templates(container, reward)
        check_templates(*world.config("qwen3", ("qwen3",), file, file))
        sampled_chats.cache_clear()


def test_a_turn_that_repeats_another_is_missed(world: World) -> None:
    last = "{{ messages[-1].content }}{% for m in messages if m.role == 'assistant' %}{{ m.content }}{% endfor %}"
    file = world.write("train", ["twice"])
    container, reward = world.config("qwen3", ("qwen3",), file, file)
    world.templated("policy", last)
    with pytest.raises(ConfigError, match=r"leaves out text of the user turn \(turn 1 of 3\)"):
        check_templates(container, reward)


@pytest.mark.parametrize(
    "template", [KNOWN_ROLES, LAST_SYSTEM, *(FAMILIES[name].template for name in ("qwen3", "gemma3"))]
)
def test_what_may_be_changed_of_a_turn(world: World, template: str) -> None:
    """White space, thoughts of earlier turns, a switch that the template takes out."""
    chats = ["u", "uau", "thought", "only a thought", "spaced", "blank system", "switch"]
    file = world.write("train", chats)
    container, reward = world.config("qwen3", ("qwen3",), file, file)
    for who in ("policy", "classmate0"):
        world.templated(who, template)
    check_templates(container, reward)
    world.templated(
        "classmate0",
        "{% for m in messages %}{{ '<' + m.role + '>' + m.content.replace('/no_think', '').rstrip() }}{% endfor %}",
    )
    check_templates(container, reward)


@pytest.mark.parametrize(
    ("chat", "reason"),
    [
        ("none", "no turns"),
        ("null", "the user turn has content null"),
        ("null behind", "the assistant turn has content null"),
        ("blank", "no turn has a text"),
    ],
)
@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_empty_prompts_are_of_the_data(world: World, chat: str, reason: str, suffix: str) -> None:
    """Also behind hundreds of rows with the same roles."""
    val = world.write("val", ["u", "uau"] * 150, suffix=suffix, last=chat)
    train = world.write("train", ["u"])
    container, reward = world.config("qwen3", ("gemma3",), train, val)
    with pytest.raises(ConfigError) as refused:
        check_templates(container, reward)
    assert str(refused.value) == (
        f"data.val_files={val}, row 300: its prompt is empty ({reason}); take the row out, or write its text"
    )


def test_a_system_turn_without_a_user_is_said(world: World) -> None:
    alone, both = world.write("alone", ["s"]), world.write("both", ["s", "su"])
    line = "roles        classmate 0 takes no system role: "
    assert told(world, "qwen3", ("gemma2",), alone, alone) == [
        f"{line}where no user turn follows, its text becomes one"
    ]
    assert told(world, "qwen3", ("gemma2",), both, both) == [
        f"{line}its text stands in front of the user's turn",
        f"{line}where no user turn follows, its text becomes one",
    ]
