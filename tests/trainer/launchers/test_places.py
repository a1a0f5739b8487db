"""Where a run finds its rows, its models and the embedded world, and where an evaluation does."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf
from safetensors.numpy import save_file

from tests.trainer.launchers.shown import refusal, shown, value
from verl.data_preprocessing.reasoning_traces import DATA_CONFIGS
from verl.data_preprocessing.recipe import parse as parse_options
from verl.data_preprocessing.teaching_rows import TeachingRows
from verl.data_preprocessing.teaching_world import prompts
from verl.data_preprocessing.teaching_world.spec import TeachingWorldSpec
from verl.evaluation.teaching.__main__ import _parser as evaluation_parser
from verl.evaluation.teaching.options import CONTROLS, DECODINGS
from verl.trainer.launchers import world
from verl.trainer.launchers.__main__ import main
from verl.trainer.launchers.datasets import Preparation
from verl.trainer.launchers.evaluating import SETTINGS
from verl.trainer.launchers.phases import PHASES
from verl.trainer.launchers.plan import AT_END
from verl.trainer.launchers.run_files import CONFIGS, ROOT
from verl.trainer.launchers.world import TEACHING_LIMIT, WARMUP_FORMAT

RCL = ("server", "4", "4", "teacher_rcl", "dataset_id_or_path=rows.parquet")


def options(arguments: list[str]) -> dict[str, str]:
    """An evaluation's, by name."""
    return {word: arguments[index + 1] for index, word in enumerate(arguments) if word.startswith("--")}


def test_an_evaluation_is_told_by_its_own_options(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("model=qwen3bi", "max_probe_tokens=7", "dataset_id_or_path=test set.parquet", "student_model=s/t")
    found = shown(capsys, "plain", "2", "eval_teacher", *words)
    told = options(found.arguments)
    assert found.module == "verl.evaluation.teaching"
    assert (told["--teacher"], told["--students"]) == ("Qwen/Qwen2.5-3B-Instruct", "s/t")
    assert told["--train_data"] == "test set.parquet"
    assert (told["--baseline_samples"], told["--guided_samples"]) == ("16", "4")
    assert told["--output"].startswith("results/eval_teacher/")
    assert {"rcl.protocol.max_probe_tokens=7", "hardware=gpu", "trainer.n_gpus_per_node=2"} <= set(found.arguments)
    assert "reward_model.classmate_generation_configs.max_new_tokens=4096" in found.arguments, "as in training"
    assert not [word for word in found.arguments if word.startswith(("launch.", "rcl.students", "trainer.total"))]


def test_an_evaluation_of_the_world_finds_its_parts(
    clean: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEACHING_WORLD", str(clean / "a world"))
    told = options(shown(capsys, "plain", "0", "eval_teacher", "model_name_or_path=mine").arguments)
    there = f"{clean}/a world"
    assert told["--teacher"] == "mine"
    assert told["--untrained"] == f"{there}/teacher"
    assert told["--unseen"] == f"{there}/students/unseen_llama,{there}/students/unseen_mixed"
    assert (told["--data"], told["--templates"]) == (f"{there}/test.parquet", f"{there}/templates.yaml")
    assert (told["--engine"], told["--items"]) == ("hf", "64")
    assert "holds its students itself; write ./launch.sh 3" in refusal(capsys, "server", "1", "2", "eval_teacher")


def test_an_evaluation_is_taken_as_it_is_set(
    clean: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEACHING_WORLD", str(clean / "world"))
    (clean / "off task.parquet").touch()
    words = ("decoding=[sampled]", "seeds=[0,1]", "controls=[null,untrained]", "search_items=7", "guided_samples=2")
    given = [f"launch.evaluation.{word}" for word in (*words, "offtask=off task.parquet")]
    wanted = {
        "--items": "64",
        "--decoding": "sampled",
        "--seeds": "0,1",
        "--controls": "null,untrained",
        "--search_items": "7",
        "--guided_samples": "2",
        "--offtask": "off task.parquet",
    }
    at_end = shlex.split(shown(capsys, "server", "0", "0", "teacher_rcl", *given).environment[AT_END])
    assert options(at_end) == wanted
    alone = options(shown(capsys, "plain", "0", "eval_teacher", "model_name_or_path=mine", *given).arguments)
    assert alone | wanted == alone
    assert alone["--baseline_samples"] == "16"


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("items=0", "expected a whole number of 1 or more"),
        ("decoding=beam", r"decoding=beam: write some of \[sampled,greedy\]"),
        ("controls=[fixed,oracle]", r"controls=fixed,oracle: write some of \[null"),
        ("controls=[none,fixed]", "write some of"),
        ("seeds=[1,1]", "different whole numbers"),
        ("reveal=psst", r"write \{ground_truth\}"),
        ("offtask=nowhere.parquet", "there is no such file"),
        ("+search_seed=1", r"launch\.evaluation\.search_seed: write items, decoding"),
    ],
)
def test_a_wrong_evaluation_is_told_before_the_training(
    clean: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, word: str, told: str
) -> None:
    monkeypatch.setenv("TEACHING_WORLD", str(clean / "world"))
    mark, word = ("+", word[1:]) if word.startswith("+") else ("", word)
    assert re.search(told, refusal(capsys, "server", "0", "0", "teacher_rcl", f"{mark}launch.evaluation.{word}"))


def test_each_setting_is_an_option_of_the_evaluation() -> None:
    known = {option for action in evaluation_parser()._actions for option in action.option_strings}
    assert {f"--{name}" for name in SETTINGS} <= known
    read = {name: takes for name, takes in SETTINGS.items() if isinstance(takes, tuple)}
    assert read == {"decoding": DECODINGS, "controls": (*CONTROLS, "none")}
    listed = OmegaConf.load(CONFIGS / "run" / "teacher_rcl.yaml").launch.evaluation
    assert set(listed) == set(SETTINGS)
    assert set(listed.values()) == {None}, "defaults are the command's own"


def test_zero_gpus_are_the_embedded_world(
    clean: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEACHING_WORLD", str(clean / "a world"))
    warmup = shown(capsys, "plain", "0", "teacher_sft")
    left = value(warmup.config(), "trainer.default_local_dir")
    assert warmup.module == PHASES["teacher_sft"].module
    assert value(warmup.config(), "model.path") == f"{clean}/a world/teacher"
    assert "-m verl.data_preprocessing.teaching_world --local_dir" in warmup.before
    assert warmup.environment == {}

    found = shown(capsys, "server", "0", "0", "teacher_rcl", "degradation_penalty=0")
    config = found.config()
    assert value(config, "actor_rollout_ref.model.path") == left, "where the warm-up leaves it"
    assert value(config, "trainer.device") == "cpu"
    assert [one["model"].rpartition("/")[2] for one in value(config, "rcl.students")] == ["weak", "strong"]
    assert len(value(config, "rcl.unseen_students")) == 2
    assert value(config, "data.val_files") == f"{clean}/a world/test.parquet"
    assert value(config, "rcl.protocol.max_teaching_tokens") == 64
    assert value(config, "rcl.reward.degradation_penalty") == 0, "what is typed counts more than the world's sizes"
    assert found.environment[AT_END].endswith(" -m verl.evaluation.teaching --items 64")


def test_what_a_user_names_is_not_the_worlds(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(capsys, "server", "0", "0", "teacher_rcl", "model_name_or_path=mine", "student_model=s")
    config = found.config()
    assert value(config, "actor_rollout_ref.model.path") == "mine"
    assert value(config, "rcl.students") == [{"model": "s"}]
    found = shown(capsys, "server", "0", "0", "teacher_rcl", "dataset_id_or_path=rows.parquet")
    assert "teaching_world" not in " ".join(found.arguments)
    assert value(found.config(), "data.train_files") == "rows.parquet"


def test_without_a_warm_teacher_the_line_says_what_to_run(
    clean: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEACHING_WORLD", str(clean / "world"))
    assert main("server", ["0", "0", "teacher_rcl"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "run `./launch.sh 0 configs/run/teacher_sft.yaml` here first" in line
    assert list(clean.iterdir()) == []


def test_a_run_named_as_a_model_stands_for_its_last_weights(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step, inner in ((5, "actor/huggingface"), (20, "actor/huggingface"), (100, "actor")):
        folder = clean / "run" / f"global_step_{step}" / inner
        folder.mkdir(parents=True)
        (folder / "config.json").touch()
        if step < 100:
            save_file({"weight": np.zeros(3)}, folder / "model.safetensors")
    config = shown(capsys, *RCL, "model_name_or_path=run", "student_model=run").config()
    assert value(config, "actor_rollout_ref.model.path") == "run/global_step_20/actor/huggingface"
    assert value(config, "rcl.students.0.model") == "run/global_step_20/actor/huggingface"
    for weights in clean.rglob("*.safetensors"):
        weights.write_bytes(weights.read_bytes()[:-4])
    assert "my_scripts/merge_fsdp_ckpts.sh run" in refusal(capsys, *RCL, "model_name_or_path=run")


def test_data_sets_are_files_or_are_prepared(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = clean / "my rows"
    folder.mkdir()
    for name in ("train.parquet", "test.parquet"):
        (folder / name).touch()
    (clean / "rows.jsonl").touch()
    found = shown(capsys, "plain", "2", "teacher_sft", "dataset_id_or_path=my rows")
    assert value(found.config(), "data.train_files") == "my rows/train.parquet"
    assert value(found.config(), "data.val_files") == "my rows/test.parquet"
    assert "before: " not in found.before
    found = shown(capsys, "plain", "2", "teacher_sft", "dataset_id_or_path=['a=1.parquet','b c.parquet']")
    assert value(found.config(), "data.train_files") == ["a=1.parquet", "b c.parquet"]
    found = shown(capsys, "plain", "2", "teacher_sft", "dataset_id_or_path=rows.jsonl", "data.max_teaching_tokens=99")
    for words in ("--rows teacher_sft --format custom", f"--dataset {clean}/rows.jsonl", "--kind rcl", "_tokens 99"):
        assert words in found.before
    assert "rows.jsonl is read as data.format=custom; write data.format=NAME" in found.before
    assert value(found.config(), "data.format") == "custom"
    assert value(found.config(), "data.train_files").startswith(str(ROOT / "data" / "teaching"))
    found = shown(capsys, "plain", "2", "teacher_sft", "dataset_id_or_path=openai/gsm8k")
    assert "--format gsm8k --dataset openai/gsm8k" in found.before
    found = shown(capsys, "plain", "2", "teacher_sft", "dataset_id_or_path=rows.jsonl", "data=bespoke_stratos")
    assert "--format bespoke_stratos" in found.before, "what is typed counts"


def test_the_preparer_knows_every_option_and_format(clean: Path) -> None:
    how = Preparation(
        rows="teacher_sft", data=clean, kind="rcl", tokenizer="t", templates=clean / "t.yaml", max_teaching_tokens=9
    )
    options = parse_options(TeachingRows(), how.argv("rows.jsonl", clean / "out")[3:])
    assert (options.rows, options.dataset, options.max_teaching_tokens) == ("teacher_sft", "rows.jsonl", 9)
    formats = {OmegaConf.select(OmegaConf.load(file), "data.format") for file in (CONFIGS / "data").glob("*.yaml")}
    assert formats | {WARMUP_FORMAT} <= DATA_CONFIGS.keys()


def test_the_worlds_numbers_are_those_it_is_built_with() -> None:
    sizes = OmegaConf.load(CONFIGS / "world" / "rl.yaml")
    assert sizes.rcl.protocol.max_teaching_tokens == TEACHING_LIMIT == prompts.TEACHING_LIMIT
    assert sizes.rcl.protocol.max_probe_tokens == prompts.PROBE_LIMIT
    names = {one.name for one in TeachingWorldSpec().students}
    assert {*world.STUDENTS, *world.UNSEEN} == names
