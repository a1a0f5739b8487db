"""The command line: aliases, hardware and flags as Hydra gets them, and help that costs nothing."""

import hydra
import pytest
from omegaconf import OmegaConf

from tests.trainer.entry_process import run_entry
from verl.classmate.errors import ConfigError
from verl.trainer.run import command_line
from verl.trainer.run.command_line import prepare_overrides
from verl.trainer.run.recorded_config import flatten


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(command_line, "default_hardware", lambda: "cpu")


def test_hardware_is_found_out_unless_it_is_given():
    assert prepare_overrides(["data.seed=2"]) == ["data.seed=2", "hardware=cpu"]
    assert prepare_overrides(["hardware=gpu"]) == ["hardware=gpu"]


def test_aliases_are_resolved():
    typed = ["+reward_model.reward_kwargs.classmate_cot_reward_configs.use_classmate_condition=always"]
    key = "reward_model.classmate_cot_reward_configs.use_classmate_main_cond"
    assert prepare_overrides(typed) == [f"++{key}=always", "hardware=cpu"]


@pytest.mark.parametrize("flag", [["--config-name=qwen_ppo_trainer"], ["--config-name", "qwen_ppo_trainer"]])
def test_flags_come_first_wherever_they_stand(flag):
    expected = [*flag, "data.seed=2", "data.shuffle=false", "hardware=cpu"]
    assert prepare_overrides(["data.seed=2", *flag, "data.shuffle=false"]) == expected
    assert prepare_overrides([*flag, "data.seed=2", "data.shuffle=false"]) == expected
    assert prepare_overrides(["data.seed=2", "data.shuffle=false", *flag]) == expected


def test_an_unknown_flag_is_refused():
    with pytest.raises(ConfigError, match="--batch-size=4"):
        prepare_overrides(["--batch-size=4"])


@pytest.mark.parametrize(
    "typed",
    [
        ["--multirun", "data.seed=1,2"],
        ["data.seed=1,2", "-m"],
        ["hydra.mode=MULTIRUN", "data.seed=1,2"],
        ["data.seed=1,2", "++hydra.mode=multirun"],
        ["hydra.sweeper.params={data.seed: 1}"],
        ["hydra/sweeper=basic"],
    ],
)
def test_a_sweep_is_refused(typed):
    with pytest.raises(ConfigError, match="one command trains one run"):
        prepare_overrides(typed)


@pytest.mark.parametrize("name", ["2026", "20261122_1", "1e5", "true"])
def test_a_name_may_look_like_a_number(name):
    assert prepare_overrides([f"trainer.experiment_name={name}"])[0] == f"trainer.experiment_name='{name}'"


@pytest.mark.parametrize("name", ["null", "plain", "'2026'", "a b", "[1"])
def test_other_names_are_passed_on_as_they_are(name):
    assert prepare_overrides([f"trainer.project_name={name}"])[0] == f"trainer.project_name={name}"


def composed(*typed):
    return command_line.compose("classmate_cot_ppo_trainer", prepare_overrides(["hardware=cpu", *typed]))


@pytest.mark.parametrize(
    "typed", ["algorithm.rollout_correction.bypass_mode=no", "actor_rollout_ref.rollout.enable_sleep_mode=no"]
)
def test_text_for_a_switch_is_refused_whatever_its_name(typed):
    with pytest.raises(ConfigError, match="_mode: expected true or false, got 'no'"):
        composed(typed)


def test_text_for_a_switch_is_refused_whatever_it_holds():
    with pytest.raises(ConfigError, match=r"val_before_train: expected true or false, got 'n/a'"):
        composed("trainer.val_before_train=n/a")


@pytest.mark.parametrize("hardware", ["cpu", "gpu"])
@pytest.mark.parametrize("config", ["classmate_cot_ppo_trainer", "qwen_ppo_trainer"])
def test_no_number_or_switch_has_a_name_that_is_taken_for_text(config, hardware):
    with hydra.initialize_config_dir(str(command_line.CONFIG_FOLDER), version_base="1.3"):
        defaults = hydra.compose(config, overrides=[f"hardware={hardware}"])
    values = flatten(OmegaConf.to_container(defaults, resolve=True))
    named = {key: value for key, value in values.items() if key.endswith(command_line._FREE_TEXT)}
    assert len(named) > 20
    assert [key for key, value in named.items() if isinstance(value, bool | int | float)] == []


@pytest.mark.parametrize(
    ("typed", "compositions"),
    [
        (["trainer.experiment_name=mine", "actor_rollout_ref.model.path=gpt2"], 1),
        (["algorithm.adv_estimator=grpo", "reward_model.classmate_backend=hf", "actor_rollout_ref.rollout.name=hf"], 1),
        (["trainer.console=plain"], 2),
    ],
)
def test_defaults_are_composed_only_where_text_may_be_a_mistake(typed, compositions, monkeypatch):
    loaded = []
    load = command_line._load
    monkeypatch.setattr(command_line, "_load", lambda *given: loaded.append(given) or load(*given))
    composed(*typed)
    assert len(loaded) == compositions


def test_home_is_put_in_once_for_everybody(monkeypatch):
    monkeypatch.setenv("HOME", "/homes/me")
    models = "reward_model.classmate_model_name_or_path_list=['~/a',b]"
    files = "data.train_files=['~/x.parquet','/y.parquet']"
    config = composed(models, files, "actor_rollout_ref.model.path='~/model'", "trainer.experiment_name='a~/b'")
    reward = config.reward_model.classmate_cot_reward_configs
    assert config.actor_rollout_ref.model.path == config.critic.model.path == "/homes/me/model"
    assert reward.self_play_model == "/homes/me/model"
    assert list(reward.classmate_model_name_or_path_list) == ["/homes/me/a", "b"]
    assert list(config.data.train_files) == ["/homes/me/x.parquet", "/y.parquet"]
    assert config.trainer.experiment_name == "a~/b"
    assert config.skip.rollout.dump_dir.startswith("~/")
    listed = composed("reward_model.classmates=[{model: '~/a'}]")
    assert listed.reward_model.classmates[0].model == "/homes/me/a"


@pytest.fixture
def own(tmp_path):
    """A folder with a YAML of the user's own."""
    text = (command_line.CONFIG_FOLDER / "qwen_ppo_trainer.yaml").read_text()
    (tmp_path / "copy.yaml").write_text(text.replace("qwen_baseline", "own"))
    (tmp_path / "sweeping.yaml").write_text(text.replace("hydra:\n", "hydra:\n  mode: MULTIRUN\n"))
    return tmp_path


def test_own_yaml_is_checked_by_its_own_defaults(own):
    config = composed(f"--config-dir={own}", "--config-name=copy", "algorithm.adv_estimator=grpo")
    assert config.trainer.experiment_name == "own"
    with pytest.raises(ConfigError, match=r"data\.seed: expected an integer, got 'abc'"):
        composed(f"--config-dir={own}", "--config-name=copy", "data.seed=abc")


def test_own_yaml_must_be_there_and_not_sweep(own):
    with pytest.raises(ConfigError, match="--config-dir=/nowhere does not exist"):
        composed("--config-dir=/nowhere")
    with pytest.raises(ConfigError, match=r"hydra\.mode=MULTIRUN in sweeping: one command trains one run"):
        composed(f"--config-dir={own}", "--config-name=sweeping")


def test_own_yaml_may_build_on_one_of_ours(tmp_path):
    (tmp_path / "mine.yaml").write_text("defaults: [qwen_ppo_trainer, _self_]\ndata:\n  seed: 7\n")
    (tmp_path / "theirs.yaml").write_text("defaults: [mine, _self_]\ntrainer:\n  nnodes: 2\n")
    ours = composed("--config-name=qwen_ppo_trainer", "trainer.nnodes=2", "data.seed=7")
    assert composed(f"--config-dir={tmp_path}", "--config-name=mine", "trainer.nnodes=2") == ours
    assert composed(f"--config-dir={tmp_path}", "--config-name=theirs") == ours
    with pytest.raises(ConfigError, match=r"data\.seed: expected an integer, got 'abc'"):
        composed(f"--config-dir={tmp_path}", "--config-name=theirs", "data.seed=abc")


@pytest.mark.parametrize("shown", [["--cfg", "job"], ["--info", "defaults"]])
def test_own_yaml_that_builds_on_ours_is_shown_too(shown, tmp_path):
    (tmp_path / "mine.yaml").write_text("defaults: [classmate_cot_ppo_trainer, _self_]\ndata:\n  seed: 777\n")
    result = run_entry([f"--config-dir={tmp_path}", "--config-name=mine", *shown], folder=tmp_path)
    assert (result.code, result.left_behind) == (0, [])
    assert ("  seed: 777\n" if shown[0] == "--cfg" else "classmate_cot_ppo_trainer") in result.stdout


def test_flags_that_show_something_come_alone():
    with pytest.raises(ConfigError, match="--cfg, --info and --shell-completion exclude each other"):
        composed("--cfg", "job", "--info", "defaults")
    with pytest.raises(ConfigError, match="write --cfg job --resolve"):
        composed("--resolve")


OWN = "defaults: [classmate_cot_ppo_trainer, _self_]\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            OWN + "data:\n\tseed: 1\n",
            r"mine.yaml, line 3: found character '\t' that cannot start any token; write spaces",
        ),
        (OWN + "data:\n  seed: 1\n  seed: 2\n", "mine.yaml, line 4: found duplicate key seed; write it once"),
        (OWN + "data: [1\n", "mine.yaml, line 3: expected ',' or ']', but got '<stream end>'; correct the line"),
        (OWN + "data: *x\n", "mine.yaml, line 2: found undefined alias 'x'; correct the line"),
        ("data:\n  seed: 1\n", "write `defaults: [classmate_cot_ppo_trainer, _self_]` at the top of the YAML"),
    ],
)
def test_own_yaml_that_cannot_be_read_is_one_line(text, told, tmp_path):
    (tmp_path / "mine.yaml").write_text(text)
    result = run_entry([f"--config-dir={tmp_path}", "--config-name=mine"], folder=tmp_path / "run")
    assert (result.code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith("error: ")
    assert result.stderr.endswith(f"{told}\n")


def test_help_names_the_keys_that_a_run_needs_and_ours(tmp_path):
    result = run_entry(["--help"], folder=tmp_path)
    assert (result.code, result.stderr, result.left_behind) == (0, "", [])
    for text in ("actor_rollout_ref.model.path=", "data.train_files=", "--cfg job", "main_cot_keep_rate: 1"):
        assert text in result.stdout


def test_cfg_job_shows_every_key_with_what_was_typed(tmp_path):
    result = run_entry(["data.train_batch_size=12", "--cfg", "job"], folder=tmp_path)
    assert (result.code, result.stderr, result.left_behind) == (0, "", [])
    assert "  train_batch_size: 12\n" in result.stdout
    assert "ppo_mini_batch_size" in result.stdout


def test_a_number_may_be_written_in_any_way_that_yaml_reads(tmp_path):
    typed = ["actor_rollout_ref.actor.optim.lr=1e-4", "trainer.val_before_train=False", "--cfg", "job"]
    result = run_entry(typed, folder=tmp_path)
    assert "lr: 0.0001" in result.stdout
