"""From documented commands to configs: what a launcher shows is pasted here, composed, and looked at key by key."""

import hashlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from tests.trainer.launchers.documented import DOCUMENTED
from tests.trainer.launchers.shown import refusal, shown, value
from verl.classmate.algorithm_config import algorithm_from_mapping
from verl.classmate.config import from_mapping
from verl.classmate.typed import parse
from verl.teaching.reward_config import RCL_PRESETS, TEACHING_REWARD_NODE, RclShape, TeachingRewardConfig
from verl.trainer.launchers.phases import PHASES
from verl.trainer.launchers.plan import AT_END
from verl.trainer.launchers.run_files import CONFIGS, find, phase_of
from verl.trainer.preflight.batches import check_batch_sizes
from verl.trainer.run import launch
from verl.trainer.run.choices import Machine
from verl.trainer.run.command_line import compose, prepare_overrides
from verl.trainer.run.unset import fill_in
from verl.utils.config import omega_conf_to_dataclass

RUN_FILES = sorted(path.stem for path in (CONFIGS / "run").glob("*.yaml"))
ACTOR = "actor_rollout_ref.actor"
HOSTED = "reward_model.classmate_cot_reward_configs.host_classmate_name_to_url_json_fn"


def hashes() -> dict[str, str]:
    files = [path for path in CONFIGS.rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.acceptance("T9")
@pytest.mark.guards("editing the run YAML")
@pytest.mark.parametrize("command", DOCUMENTED, ids=lambda one: one.split(" learning")[0].removeprefix("./"))
def test_a_documented_command_has_the_keys_it_says(
    command: str, clean: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = hashes()
    script, *words = shlex.split(command)
    found = shown(capsys, "server" if "server" in script else "plain", *words)
    config = found.config()
    for key, expected in DOCUMENTED[command].items():
        assert value(config, key) == expected, key
    assert hashes() == before, "no config file is edited"
    assert list(clean.iterdir()) == [], "and nothing is made"


@pytest.mark.parametrize("hardware", ["cpu", "gpu"])
@pytest.mark.parametrize("name", RUN_FILES)
def test_every_run_file_composes_and_resolves(name: str, hardware: str, clean: Path) -> None:
    phase = phase_of(name, CONFIGS)
    flags = [f"--config-name={phase.config}", f"--config-dir={CONFIGS}", f"+run={name}", f"hardware={hardware}"]
    arguments = prepare_overrides(flags, hardware=phase.hardware)
    config = compose(phase.config, arguments, hardware=phase.hardware)
    assert config is not None
    written = OmegaConf.load(CONFIGS / "run" / f"{name}.yaml")
    assert isinstance(written, DictConfig)
    del written["defaults"]
    merged = OmegaConf.merge(config, written)
    for key in _leaves(OmegaConf.to_container(written)):
        assert value(config, key) == value(merged, key), key
    assert value(config, "data.seed") == 42
    if phase.family == "rl":
        _build_rl(config)
    else:
        assert value(config, "model.path") == value(config, "launch.model")
        assert omega_conf_to_dataclass(config.optim).lr == value(config, "optim.lr")
        assert omega_conf_to_dataclass(config.engine).strategy


def _build_rl(config: DictConfig) -> None:
    assert value(config, "algorithm.norm_adv_by_std_in_grpo") is False
    algorithm_from_mapping(value(config, "algorithm"))
    reward = from_mapping(value(config, "reward_model"))
    assert [one.model for one in reward.classmates] == [one["model"] for one in value(config, "rcl.students")]
    built = parse(TeachingRewardConfig, value(config, TEACHING_REWARD_NODE), TEACHING_REWARD_NODE)
    assert built.kind == value(config, "rcl.reward.kind")
    fill_in(config, Machine(gpus=8, gpu_gib=80))
    assert omega_conf_to_dataclass(config.actor_rollout_ref.rollout).n == value(config, "actor_rollout_ref.rollout.n")
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert actor.optim.lr == value(config, f"{ACTOR}.optim.lr")


def test_a_changed_value_changes_what_is_built(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def shape(*typed: str) -> RclShape:
        node = value(shown(capsys, *RCL, *typed).config(), TEACHING_REWARD_NODE)
        return parse(TeachingRewardConfig, node, TEACHING_REWARD_NODE).shape

    assert shape() == RCL_PRESETS["rcl_readme"]
    assert shape("reward=released") == RCL_PRESETS["released"]
    assert shape("reward=rcl", "degradation_penalty=3").degradation_penalty == 3
    assert shape("efficiency_weight=0.25").efficiency_weight == 0.25


def _leaves(node: dict[str, Any], prefix: str = "") -> list[str]:
    return [
        leaf
        for key, one in node.items()
        for leaf in (_leaves(one, f"{prefix}{key}.") if isinstance(one, dict) else [f"{prefix}{key}"])
    ]


def test_the_tree_has_the_documented_files() -> None:
    names = {folder.name: {path.stem for path in folder.glob("*.yaml")} for folder in CONFIGS.iterdir()}
    assert names["run"] == {
        "teacher_sft",
        "teacher_rcl",
        "teacher_rlt",
        "student_sft",
        "eval_teacher",
        "teacher_rcl_1gpu",
        "smoke_cpu",
    }
    assert names["model"] == {"qwen05bi", "qwen3bi", "qwen7bi", "qwen32bi"}
    assert names["reward"] == {"rcl", "rcl_readme", "released", "rlt", "online"}
    stratos = {"bespoke_stratos", "custom_bespoke_stratos", "teacher_bespoke_stratos"}
    assert names["data"] == {"base", *stratos, "teacher_custom", "gsm8k"}


@pytest.mark.parametrize("typed", ["configs/run/teacher_rcl.yaml", "./run/teacher_rcl.yaml", "teacher_rcl.yaml"])
def test_a_run_file_has_several_names(typed: str) -> None:
    assert find(typed, CONFIGS) == find("teacher_rcl", CONFIGS) == "teacher_rcl"
    assert find(str(CONFIGS / "run" / "teacher_rcl.yaml"), CONFIGS) == "teacher_rcl"


@pytest.mark.parametrize("typed", ["no_such", "../run/teacher_rcl", "configs/data/gsm8k.yaml", "run", "/etc/passwd"])
def test_an_unknown_run_file_lists_those_there_are(typed: str, clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refusal(capsys, "plain", "0", typed)
    assert line == f"error: {typed}: there is no such run file in configs/run; write one of: {', '.join(RUN_FILES)}"


def test_a_run_file_of_ones_own_takes_its_phase_from_another(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "base.yaml").write_text("launch: {phase: rl}\n")
    (run / "mine.yaml").write_text("defaults: [base, /data@_global_: x, _self_]\n")
    (run / "none.yaml").write_text("defaults: [/data@_global_: x]\n")
    (run / "odd.yaml").write_text("launch: {phase: rlhf}\n")
    (run / "loop.yaml").write_text("defaults: [loop]\n")
    assert phase_of("mine", tmp_path) is PHASES["rl"]
    for name, says in (("none", "does not say its phase"), ("odd", "phase=rlhf"), ("loop", "does not say its phase")):
        with pytest.raises(ValueError, match=says):
            phase_of(name, tmp_path)


RCL = ("server", "4", "4", "teacher_rcl", "dataset_id_or_path=rows.parquet")


@pytest.mark.parametrize(
    ("typed", "prompts", "rollouts"),
    [
        (["train_batch_size=64", "num_generations=16"], 4, 16),
        (["train_batch_size=64"], 2, 32),
        (["num_generations=16"], 8, 16),
        (["num_generations=16", "data.train_batch_size=3"], 3, 16),
        (["actor_rollout_ref.rollout.n=64", "train_batch_size=64"], 1, 64),
    ],
)
def test_a_batch_counts_rollouts(
    typed: list[str], prompts: int, rollouts: int, clean: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = shown(capsys, *RCL, *typed).config()
    assert value(config, "data.train_batch_size") == prompts
    assert value(config, f"{ACTOR}.ppo_mini_batch_size") == prompts, "one optimiser step a batch"
    assert value(config, "actor_rollout_ref.rollout.n") == rollouts


@pytest.mark.parametrize(("gpus", "prompts"), [("3", 3), ("4", 4), ("5", 5), ("8", 4)])
def test_a_step_can_be_divided_among_the_gpus(
    gpus: str, prompts: int, clean: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = shown(capsys, "server", "1", gpus, "teacher_rcl", "dataset_id_or_path=rows.parquet")
    config = found.config()
    assert ("prompts a step and not 4" in found.before) == (prompts != 4)
    assert value(config, "data.train_batch_size") == prompts
    fill_in(config, Machine(gpus=int(gpus), gpu_gib=80))
    check_batch_sizes(OmegaConf.to_container(config, resolve=True))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((*RCL, "train_batch_size=100"), "train_batch_size=100 cannot be divided .* write train_batch_size=96"),
        ((*RCL, "train_batch_size=8"), "write train_batch_size=32"),
        ((*RCL, "num_generations=7"), "the run file's 128 rollouts of a step cannot be divided"),
        ((*RCL, "no_such_key=1"), "no_such_key"),
        ((*RCL, "data.train_batchsize=1"), "did you mean data.train_batch_size"),
        ((*RCL, "model=qwen9bi"), "qwen9bi"),
        ((*RCL, "trainer.n_gpus_per_node=2"), "this script's argument; leave the setting out"),
        (("server", "4", "4", "teacher_rlt", "degradation_penalty=2"), "kind=rlt has no such term"),
        (("server", "4", "4", "teacher_sft"), "asks no students; write ./launch.sh 8 teacher_sft"),
        (("plain", "0", "student_sft"), "a student's supervised training needs rows; write dataset_id_or_path"),
        (("plain", "1", "teacher_sft", "num_generations=2"), "num_generations: .* no use for it"),
        (("plain", "1", "teacher_sft", "dataset_id_or_path=./rows.jsonl"), "dataset_id_or_path=./rows.jsonl does not"),
        (("plain", "1", "teacher_sft", "dataset_id_or_path=[a,b.parquet]"), "a list may hold parquet files only"),
        ((*RCL, "rcl.students=[]"), "rcl.students is empty; write student_model=NAME"),
        ((*RCL, "rcl.students=[{backend: hf}]"), "rcl.students: expected a list of students"),
        ((*RCL, "rcl.students=[{model: a, backend: hf}]"), "every student has an engine or a server already"),
        ((*RCL, "rcl.students=[{model: a, tensor_parallel_size: 8}]"), "spread over 8 GPUs .* but has 4"),
    ],
)
def test_a_mistake_is_one_line(
    words: tuple[Any, ...], says: str, clean: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert re.search(says, line := refusal(capsys, *words)), line


@pytest.mark.guards("one server meaning zero students")
@pytest.mark.guards("documentation swapping the two GPU numbers")
def test_gpus_are_taken_in_the_order_they_are_named(
    clean: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,5,GPU-ab,1,0")
    found = shown(capsys, "server", "1", "3", "teacher_rcl", "dataset_id_or_path=rows.parquet")
    assert found.environment == {"CUDA_VISIBLE_DEVICES": "5,GPU-ab,1"}
    assert "Qwen/Qwen3-4B on auto, GPU 7\n" in found.before
    line = refusal(capsys, "server", "3", "4", "teacher_rcl", "dataset_id_or_path=rows.parquet")
    assert (
        "3 for the students' servers and 4 to train are 7 GPUs, but CUDA_VISIBLE_DEVICES=7,5,GPU-ab,1,0 names 5" in line
    )
    assert "the first one is the servers'" in line
    line = refusal(capsys, "plain", "6", "teacher_sft")
    assert line.endswith("names 5; write smaller numbers")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,-1,1")
    assert "names 1;" in refusal(capsys, "plain", "2", "teacher_sft")


def test_the_run_is_told_of_its_servers(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    students = "rcl.students=[{model: a, weight: 2, tensor_parallel_size: 2}, {model: b, backend: hf}]"
    found = shown(capsys, *RCL, students, "rcl.unseen_students=[{model: c}]")
    config = found.config()
    assert value(config, "rcl.students") == [
        {"model": "a", "weight": 2, "backend": "openai"},
        {"model": "b", "backend": "hf"},
    ]
    assert value(config, "rcl.unseen_students") == [{"model": "c", "backend": "openai"}]
    folder = Path(value(config, "trainer.default_local_dir"))
    assert folder.parent == Path("results/rcl_teacher")
    assert value(config, HOSTED) == str(clean / folder / "servers" / "students.json")


def test_several_students_have_the_run_files_settings(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("teacher_rcl_1gpu", "student_model=[org/a,b]", "dataset_id_or_path=rows.parquet")
    config = shown(capsys, "plain", "1", *words).config()
    assert value(config, "rcl.students") == [
        {"model": "org/a", "placement": "colocated"},
        {"model": "b", "placement": "colocated"},
    ]
    found = shown(capsys, *RCL, "student_model=[org/a,b]", "dataset_id_or_path=rows.parquet")
    assert "server: org/a on auto, GPU 0,1\n" in found.before
    assert "server: b on auto, GPU 2,3\n" in found.before


@pytest.mark.parametrize(("numbers", "told"), [(("4", "0"), True), (("4", "4"), False)])
def test_a_teacher_on_the_cpu_beside_served_students_is_told(
    numbers: tuple[str, str], told: bool, clean: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = shown(capsys, "server", *numbers, "teacher_rcl", "dataset_id_or_path=rows.parquet")
    line = "the teacher trains on the CPU (N_TRAIN=0), beside 4 GPUs for its students; write N_VLLM N_TRAIN=2 2"
    assert (line in found.before) == told


def test_the_name_of_the_table_at_the_end_is_the_runs() -> None:
    assert AT_END == launch.AT_END
