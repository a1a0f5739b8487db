"""Documented names: the key that each stands for, what a value may hold, what is refused and how it is said."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from verl.classmate.errors import ConfigError
from verl.trainer.launchers.overrides import NAMES, translate
from verl.trainer.launchers.phases import PHASES
from verl.trainer.launchers.values import hydra_value, quoted, written

RL, SFT = PHASES["rl"], PHASES["teacher_sft"]
ACTOR = "actor_rollout_ref.actor"

TABLE = {
    "model_name_or_path=my/model": (["actor_rollout_ref.model.path=my/model"], ["model.path=my/model"]),
    "learning_rate=1e-6": ([f"{ACTOR}.optim.lr=1e-6"], ["optim.lr=1e-6"]),
    "num_generations=8": (["actor_rollout_ref.rollout.n=8"], None),
    "max_prompt_length=512": (["data.max_prompt_length=512"], None),
    "max_completion_length=512": (["data.max_response_length=512"], None),
    "max_steps=null": (["trainer.total_training_steps=null"],) * 2,
    "max_steps=7": (["trainer.total_training_steps=7"], ["trainer.total_training_steps=7"]),
    "beta=0.04": (
        [f"{ACTOR}.kl_loss_coef=0.04", f"{ACTOR}.use_kl_loss=true", f"{ACTOR}.kl_loss_type=low_var_kl"],
        None,
    ),
    "beta=0": ([f"{ACTOR}.use_kl_loss=false"], None),
    "temperature=0.7": (["actor_rollout_ref.rollout.temperature=0.7"], None),
    "report_to=null": (["trainer.logger=[console]"], ["trainer.logger=[console]"]),
    "report_to=wandb": (["trainer.logger=[wandb]"], ["trainer.logger=[wandb]"]),
    "report_to=[wandb,tensorboard]": (["trainer.logger=[wandb,tensorboard]"],) * 2,
    "degradation_penalty=2.0": (["rcl.reward.degradation_penalty=2.0"], None),
    "degradation_penalty_multiplier=3": (["rcl.reward.degradation_penalty=3"], None),
    "efficiency_weight=0.5": (["rcl.reward.efficiency_weight=0.5"], None),
    "max_probe_tokens=500": (["rcl.protocol.max_probe_tokens=500"], None),
    "max_probe_tokens=0": (["rcl.protocol.max_probe_tokens=0"], None),
    "sync_ref_model=True": (["rcl.ref_mix.enable=true"], None),
    "ref_model_mixup_alpha=0.9": (["rcl.ref_mix.alpha=0.9"], None),
    "ref_model_sync_steps=32": (["rcl.ref_mix.every=32"], None),
    "train_batch_size=32": ([], ["data.train_batch_size=32"]),
    "resume_from=r/global_step_5": (["trainer.resume_mode=resume_path", "trainer.resume_from_path=r/global_step_5"],)
    * 2,
}
"""What is typed -> its overrides in reinforcement learning and in supervised training; None: refused."""

PLANNED = {"student_model", "dataset_id_or_path", "output_dir", "results_dir"}
"""Names whose values depend on more; tests of plans have them."""


def test_every_documented_name_is_in_the_table() -> None:
    assert {line.partition("=")[0] for line in TABLE} | PLANNED == NAMES.keys()


@pytest.mark.parametrize("typed", TABLE)
@pytest.mark.parametrize("phase", [RL, SFT], ids=lambda phase: phase.name)
def test_each_name_has_its_key_or_is_refused(typed: str, phase) -> None:
    expected = TABLE[typed][0 if phase is RL else 1]
    if expected is None:
        with pytest.raises(ConfigError, match=f"^{typed.partition('=')[0]}: .* has no use for it") as error:
            translate([typed], phase, groups={})
        assert "\n" not in str(error.value)
    else:
        assert translate([typed], phase, groups={}).overrides == expected
        assert translate([f"+{typed}"], phase, groups={}).overrides == expected, "Hydra's mark changes nothing"


def test_an_evaluation_has_no_use_for_training() -> None:
    settings = translate(["max_probe_tokens=7", "student_model=s"], PHASES["evaluation"], groups={})
    assert settings.overrides == ["rcl.protocol.max_probe_tokens=7"]
    assert settings.students == ("s",)
    with pytest.raises(ConfigError, match=r"learning_rate: the evaluation of a teacher .*belongs to: .*rl"):
        translate(["learning_rate=1"], PHASES["evaluation"], groups={})


def test_other_keys_pass_as_they_are() -> None:
    words = ["data.seed=3", "+a.b=[1, 2]", "~trainer.logger", "'rcl.students=[{model: a}]'"]
    assert translate(words, RL, groups={}).overrides == words


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["degradation_penalty=2", "degradation_penalty_multiplier=1"],
            "degradation_penalty=2 and degradation_penalty_multiplier=1 disagree on rcl.reward.degradation_penalty",
        ),
        (["learning_rate=1e-6", f"{ACTOR}.optim.lr=1e-5"], "disagree on .*optim.lr; write only one"),
        ([f"+{ACTOR}.optim.lr=1e-5", "learning_rate=1e-6"], "disagree on .*optim.lr; write only one"),
        (["train_batch_size=64", "data.train_batch_size=4"], "disagree on data.train_batch_size"),
        (["output_dir=a", "results_dir=b"], "disagree on trainer.default_local_dir"),
        (["dataset_id_or_path=a", "data.train_files=b"], "disagree on data.train_files"),
        (["student_model=a", "rcl.students=[{model: b}]"], "disagree on rcl.students"),
        (["num_generations=eight"], "num_generations=eight: expected a whole number of 1 or more"),
        (["num_generations=0"], "num_generations=0: expected a whole number"),
        (["num_generations=null"], "num_generations=null: expected a whole number of 1 or more"),
        (["max_probe_tokens=-1"], "max_probe_tokens=-1: expected a whole number of 0 or more"),
        (["num_generations=2.5"], "num_generations=2.5: expected a whole number"),
        (["learning_rate=fast"], "learning_rate=fast: expected a number"),
        (["beta=nan"], "beta=nan: expected a number"),
        (["sync_ref_model=yes"], "sync_ref_model=yes: expected true or false"),
        (["model_name_or_path="], "model_name_or_path=: expected a name or a path"),
        (["model_name_or_path=null"], "model_name_or_path=null: expected a name or a path"),
        (["dataset_id_or_path=[]"], r"dataset_id_or_path=\[\]: expected a name, a path or a list"),
        (["dataset_id_or_path=[a,{b: c}]"], "expected a name, a path or a list"),
    ],
)
def test_what_is_refused_is_one_line(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as error:
        translate(words, RL, groups={})
    assert "\n" not in str(error.value)


def test_the_same_value_under_two_names_is_no_contradiction() -> None:
    words = ["degradation_penalty=2", "rcl.reward.degradation_penalty=2.0", "learning_rate=1", "learning_rate=2"]
    assert translate(words, RL, groups={}).overrides[-1] == f"{ACTOR}.optim.lr=2"


def test_groups_of_the_config_tree_can_be_chosen() -> None:
    settings = translate(["data=gsm8k", "reward=rcl"], RL, groups={"data": True, "reward": False})
    assert settings.overrides == ["data@_global_=gsm8k", "+reward@_global_=rcl"]


HOSTILE = [
    "my models/a b",
    "a=b",
    "a=b=c",
    "it's",
    'say "no"',
    "back\\slash",
    "ends\\",
    "quote\\'s",
    "x,y",
    "[a]",
    "{a: b}",
    "(a)",
    "~/models",
    "$HOME/x",
    "a#b",
    "a;b&c|d",
    "é/ü",
    "7",
    "true",
    "1e3",
    " a",
    "a:b",
    "s3://bucket/x",
    "*?!",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hydra_reads_a_text_as_it_was_typed(text: str) -> None:
    parser = OverridesParser.create()
    assert parser.parse_override(f"k={quoted(text)}").value() == text
    assert parser.parse_override(f"k={hydra_value([{'model': text}, text])}").value() == [{"model": text}, text]
    assert parser.parse_override(f"k={written('text', 'model_name_or_path', text)}").value() == text.strip()


def test_quotes_that_were_typed_for_hydra_are_no_part_of_a_path() -> None:
    assert written("text", "output_dir", "'a b'") == "a b"
    assert written("texts", "dataset_id_or_path", '["a b",c]') == "[a b,c]"
