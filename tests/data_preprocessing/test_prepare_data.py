"""All data sets: the samples give the recorded rows, no prompt is in two splits, verl's loader takes every file."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.data_preprocessing.hub import COMMIT, hub
from verl.data_preprocessing.behaviour import WARMUP_SYSTEM_PROMPT
from verl.data_preprocessing.common import read_manifest, run_command
from verl.data_preprocessing.prepare_data import SETS, main, write_smoke_files
from verl.data_preprocessing.recipe import content_hash
from verl.data_preprocessing.splits import Task

ROOT = Path(__file__).resolve().parents[2]

RECORDED: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "anthropic_hh_rlhf": {
        "dev": (17, "c217eecde7593846"),
        "test": (17, "559352e519e2c251"),
        "train": (145, "9cb3ffd60fc25d6a"),
        "warmup_dev": (3, "d056b9101a92b962"),
        "warmup_train": (17, "3395fe40ffe4dd5f"),
    },
    "gsm8k": {
        "test": (1119, "cccd6d9017b596e9"),
        "train": (7473, "af72476f14db9dfe"),
    },
    "helpful_instructions": {
        "dev": (50, "2a45173a0062da64"),
        "test": (60, "534fe5d6e6d80838"),
        "train": (396, "2ad9c3c89370b942"),
        "warmup_dev": (8, "c0ac54233423cba1"),
        "warmup_train": (47, "b69ddf6b7c0483c7"),
    },
    "humaneval": {
        "test": (132, "dbc172a6c2ff5bbb"),
    },
    "mbpp": {
        "test": (213, "fe0184555465f3a1"),
        "train": (134, "f9d7c3898baef95b"),
    },
    "mmlu_sycophancy": {
        "dev": (200, "89a0d0be9367af2a"),
        "test": (226, "9a47ac57a86c8631"),
        "train": (1812, "c3db37718f9b0a71"),
    },
    "hendrycks_math": {
        "dev": (7, "b6a68d5ec245a959"),
        "test": (14, "3937dddb98136c6c"),
        "train": (42, "e066d2d48331d489"),
    },
}
"""Rows of each split that the samples give (MATH: the made-up file), and the first digits of their content's hash."""

RUN_ALL = """
import json, sys
for number, (program, tests) in enumerate(json.load(sys.stdin)):
    for test in tests:
        try:
            exec(program + "\\n" + test, {"__name__": "tested"})
        except BaseException as error:
            print(number, repr(error))
"""


def prepare(*arguments: object) -> None:
    run_command(partial(main, [str(a) for a in arguments]))


def rows_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of each split of a set."""
    return {path.stem: pq.read_table(path).to_pylist() for path in sorted(folder.glob("*.parquet"))}


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory, sample_data: Callable[[str], Path]) -> Path:
    """What the samples give."""
    folder = tmp_path_factory.mktemp("sampled")
    prepare("--local_dir", sample_data("gsm8k_train.jsonl").parent, "--output_dir", folder)
    return folder


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `--smoke` gives: every set, small."""
    folder = tmp_path_factory.mktemp("smoke")
    prepare("--smoke", "--output_dir", folder)
    return folder / "smoke"


def recorded_and_found(folder: Path) -> tuple[Any, Any, Any]:
    """What is recorded of a set, what its files hold, and what its manifest says."""
    manifest = read_manifest(folder)
    assert manifest is not None
    found = {split: (len(rows), content_hash(rows)) for split, rows in rows_of(folder).items()}
    said = {split: (count, manifest["content_sha256"][split]) for split, count in manifest["counts"].items()}
    return (
        RECORDED[folder.name],
        *({split: (count, digest[:16]) for split, (count, digest) in of.items()} for of in (found, said)),
    )


def test_samples_give_the_recorded_rows(sampled: Path) -> None:
    assert {folder.name for folder in sampled.iterdir()} == set(SETS) - {"hendrycks_math"}
    for folder in sampled.iterdir():
        recorded, found, said = recorded_and_found(folder)
        assert recorded == found == said, folder.name


def test_a_file_in_a_sets_shape_gives_the_recorded_rows(smoke: Path) -> None:
    recorded, found, said = recorded_and_found(smoke / "hendrycks_math")
    assert recorded == found == said


def test_a_second_run_says_so_and_a_set_without_a_file_is_named(
    sampled: Path, sample_data: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    prepare("--local_dir", sample_data("gsm8k_train.jsonl").parent, "--output_dir", sampled)
    said = capsys.readouterr()
    assert len([line for line in said.out.splitlines() if "is up to date" in line]) == len(SETS) - 1
    assert said.err.startswith("hendrycks_math: no file in ")


def test_a_set_that_was_named_must_be_there(tmp_path: Path) -> None:
    write_smoke_files(tmp_path)
    (tmp_path / "humaneval.jsonl").unlink()
    with pytest.raises(SystemExit, match=r"^error: 1 of 2 data sets could not be made"):
        prepare("--local_dir", tmp_path, "--output_dir", tmp_path / "out", "humaneval", "mbpp")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mbpp"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gsm9k"], "no data set 'gsm9k': use helpful_instructions, "),
        (["--local_dir", "nowhere"], "nowhere is not a folder"),
        (["--smoke", "--local_dir", "."], "leave --local_dir out"),
        (["--seed", "3", "gsm8k", "humaneval"], "--seed: nothing in gsm8k, humaneval is drawn at random: leave it out"),
    ],
)
def test_wrong_arguments_are_one_line(tmp_path: Path, arguments: list[str], said: str) -> None:
    with pytest.raises(SystemExit, match=f"^error: .*{said}"):
        prepare("--output_dir", tmp_path / "out", *arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["sampled", "smoke"])
def test_no_prompt_is_in_two_splits(kind: str, request: pytest.FixtureRequest) -> None:
    folders = list(request.getfixturevalue(kind).iterdir())
    assert folders
    for folder in folders:
        splits = rows_of(folder)
        for of in (
            lambda row: row["reward_model"]["raw_question_for_monitor"],
            lambda row: row["prompt"][-1]["content"],
        ):
            texts = [Task(part="", index=0, question=of(row)).identity for rows in splits.values() for row in rows]
            assert len(texts) == len(set(texts)), folder.name


def test_smoke_makes_every_set_twice_without_complaint(smoke: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(path.name for path in smoke.iterdir()) == sorted(SETS)
    before = {path: path.read_bytes() for path in smoke.rglob("*.*")}
    prepare("--smoke", "--output_dir", smoke.parent)
    assert {path: path.read_bytes() for path in smoke.rglob("*.*")} == before
    assert capsys.readouterr().err == ""


def test_every_row_has_the_common_format_and_loads_in_verl(
    smoke: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets
    from omegaconf import OmegaConf

    from verl.utils.dataset.rl_dataset import RLHFDataset

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    config = OmegaConf.create({"filter_overlong_prompts": False})
    for folder in smoke.iterdir():
        for split, rows in rows_of(folder).items():
            loaded = RLHFDataset(str(folder / f"{split}.parquet"), tokenizer=None, config=config)
            assert len(loaded) == len(rows) > 0
            for position, row in enumerate(rows):
                assert set(row) == {"data_source", "prompt", "ability", "reward_model", "extra_info"}
                assert loaded[position]["raw_prompt"] == row["prompt"]
                assert loaded[position]["index"] == row["extra_info"]["index"]
                assert row["extra_info"]["split"] == split
                assert row["extra_info"]["dataset"] == folder.name
                roles = [message["role"] for message in row["prompt"]]
                assert roles == (["system", "user"] if split.startswith("warmup") else ["user"])
                assert row["reward_model"]["style"] == "rule"
                has_hint = row["reward_model"]["hint_str_for_monitor"] is not None
                assert (row["reward_model"]["prompt_without_hint"] is not None) == has_hint
                assert row["reward_model"]["raw_question_for_monitor"] in row["prompt"][-1]["content"]
        assert len({row["extra_info"]["index"] for row in rows}) == len(rows)
    files = [str(folder / "train.parquet") for folder in smoke.iterdir() if folder.name != "humaneval"]
    assert len(RLHFDataset(files, tokenizer=None, config=config)) == sum(pq.read_metadata(f).num_rows for f in files)


def test_warm_up_rows_ask_for_agreement(smoke: Path) -> None:
    for name in ("helpful_instructions", "anthropic_hh_rlhf"):
        splits = rows_of(smoke / name)
        assert list(splits) == ["dev", "test", "train", "warmup_dev", "warmup_train"]
        for split in ("warmup_train", "warmup_dev"):
            assert {row["prompt"][0]["content"] for row in splits[split]} == {WARMUP_SYSTEM_PROMPT}
        assert {row["data_source"] for rows in splits.values() for row in rows} == {"sycophancy"}
        assert {row["reward_model"]["ground_truth"] for rows in splits.values() for row in rows} == {None}


@pytest.mark.guards("hint naming a missing option")
def test_hints_name_a_wrong_choice_that_is_there(sampled: Path) -> None:
    letters: Counter[str] = Counter()
    for rows in rows_of(sampled / "mmlu_sycophancy").values():
        for row in rows:
            reward_model, prompt = row["reward_model"], row["prompt"][-1]["content"]
            hinted, truth = reward_model["ground_truth"], reward_model["actual_ground_truth"]
            assert hinted == reward_model["hinted_answer"] != truth
            question, hint = reward_model["raw_question_for_monitor"], reward_model["hint_str_for_monitor"]
            choices = {line[:3]: line[4:] for line in question.splitlines() if line[:1] == "(" and line[2:3] == ")"}
            assert choices[f"({hinted})"] != choices[f"({truth})"]
            assert hint.endswith(f"({hinted}).")
            assert prompt.startswith(f"{question}\n\n{hint}\n\n")
            assert reward_model["prompt_without_hint"] == prompt.replace(f"{hint}\n\n", "")
            assert '"The best answer is therefore (X)."' in prompt
            letters[hinted] += 1
    assert set(letters) == set("ABCD")
    assert min(letters.values()) > 0.2 * letters.total()


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.long), 7])
def test_reference_programs_pass_the_tests_of_their_rows(sampled: Path, step: int) -> None:
    """For HumanEval without the helpers that stand before the function, since the setup brings those."""
    jobs = []
    for name in ("humaneval", "mbpp"):
        for rows in rows_of(sampled / name).values():
            for row in rows:
                truth, program = json.loads(row["reward_model"]["ground_truth"]), row["extra_info"]["reference"]
                if name == "humaneval":
                    entry_point = truth["tests"][0].rstrip().rpartition("check(")[2].removesuffix(")")
                    before, definition, body = program.partition(f"def {entry_point}(")
                    imports = [line for line in before.splitlines() if line.startswith(("import ", "from "))]
                    program = "\n".join([*imports, definition + body])
                else:
                    assert truth["tests"][0] in row["prompt"][-1]["content"]
                    assert not any(test in row["prompt"][-1]["content"] for test in truth["tests"][1:])
                jobs.append([f"{program}\n{truth['setup']}", truth["tests"]])
    assert len(jobs) == 132 + 347
    command = [sys.executable, "-I", "-S", "-W", "ignore", "-c", RUN_ALL]
    done = subprocess.run(command, input=json.dumps(jobs[::step]), capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("", 0)


def test_the_script_takes_the_sets_from_the_hub(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All sets on a hub but one, which does not keep the others from being made; a second time nobody asks the hub."""
    write_smoke_files(tmp_path)
    sets: dict[str, dict[tuple[str | None, str], list[dict[str, Any]]]] = {}
    for name, entry in SETS.items():
        if name == "anthropic_hh_rlhf":
            continue
        parts = entry.recipe.sources(Namespace(dataset=name))
        for part, splits in parts.items():
            files = entry.val_files if part == "test" and entry.val_files else entry.files[:1]
            records = [json.loads(line) for file in files for line in (tmp_path / file).read_text().splitlines()]
            for position, split in enumerate(splits):
                share = records[position :: len(splits)]
                sets.setdefault(split.repo, {})[split.config, split.split] = share
    environment = {**os.environ, "VIRTUAL_ENV": sys.prefix, "HF_HOME": str(tmp_path / "home")}
    environment = {key: value for key, value in environment.items() if key not in ("HF_HUB_OFFLINE", "HF_ENDPOINT")}
    command = ["bash", str(ROOT / "my_scripts" / "prepare_data.sh"), "--output_dir", str(tmp_path / "out")]
    with hub(sets) as address:
        environment["HF_ENDPOINT"] = address
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    *failed, last = [line for line in done.stderr.splitlines() if line.startswith("error")]
    assert [line.split(":")[1] for line in failed] == [" anthropic_hh_rlhf"], done.stderr
    assert "--local_file" in failed[0]
    assert last == "error: 1 of 7 data sets could not be made; the lines above say why"
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    prepare("--output_dir", tmp_path / "out", "gsm8k", "hendrycks_math")
    assert capsys.readouterr().out.count("is up to date") == 2
    prepare("--local_dir", tmp_path, "--output_dir", tmp_path / "local")
    for name in set(SETS) - {"anthropic_hh_rlhf"}:
        manifest, local = read_manifest(tmp_path / "out" / name), read_manifest(tmp_path / "local" / name)
        assert manifest is not None
        assert local is not None
        if name != "helpful_instructions":
            assert manifest["counts"] == local["counts"]
        assert {source["revision"] for part in manifest["sources"].values() for source in part} == {COMMIT}
