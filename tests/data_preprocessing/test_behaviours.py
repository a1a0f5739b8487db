"""Requests without a right answer: shapes of records, first turns, and the behaviour that becomes the data source."""

import json
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from verl.data_preprocessing.anthropic_hh_rlhf import AnthropicHhRlhf
from verl.data_preprocessing.behaviour import BEHAVIOURS, SIZES
from verl.data_preprocessing.common import read_manifest, run_command
from verl.data_preprocessing.helpful_instructions import HelpfulInstructions
from verl.data_preprocessing.recipe import Recipe, run_recipe


def build(recipe: Recipe, folder: Path, records: list[dict], *arguments: object) -> dict[str, list[dict]]:
    """Rows of each split that the records give."""
    source = folder / "mine.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    command = ["--local_file", source, "--output_dir", folder / "out", *arguments]
    run_command(partial(run_recipe, recipe, [str(part) for part in command]))
    return {path.stem: pq.read_table(path).to_pylist() for path in (folder / "out").glob("*.parquet")}


def questions(splits: dict[str, list[dict]]) -> dict[int, str]:
    """What the user says, by index."""
    return {row["extra_info"]["index"]: row["prompt"][-1]["content"] for rows in splits.values() for row in rows}


def test_three_shapes_of_instructions_are_read_others_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [
        {"instruction": " Name a bird. ", "demonstration": "Wren."},
        {"prompt": "Name a fish.\n", "completion": "Cod.<|endoftext|>"},
        {"instruction": "Translate.", "instances": [{"input": "Guten Tag", "output": "Hello"}, {"input": "Ja"}]},
        {"instruction": "Name a tree.", "instances": [{"input": "", "output": "Elm."}]},
        {"instruction": "Name a river.", "demonstration": ""},
        {"instruction": "Translate.", "instances": [{"input": "Danke"}]},
        {"instruction": "Name a star.", "instances": []},
        {"instruction": None, "prompt": "Name a town."},
        {"text": "Name a lake."},
    ]
    assert questions(build(HelpfulInstructions(), tmp_path, records)) == {
        0: "Name a bird.",
        1: "Name a fish.",
        2: "Translate.\n\nGuten Tag",
        3: "Name a tree.",
        4: "Name a river.",
        5: "Translate.\n\nDanke",
    }
    reported = capsys.readouterr().err
    assert [line.split(" left out")[0] for line in reported.splitlines()] == [
        "mine.jsonl line 7",
        "mine.jsonl line 8",
        "mine.jsonl line 9",
    ]


def test_only_the_first_human_turn_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [
        "\n\nHuman: Hi there\n\nAssistant: Hello!\n\nHuman: Bye\n\nAssistant: Bye!",
        "\n\nHuman: Two\n\nparts: Human: me\n\nAssistant: Yes",
        "\n\nHuman: Again\n\nHuman: and more\n\nAssistant: Yes",
        "\n\nHuman: Nobody answers",
        "\n\nAssistant: I begin\n\nHuman: No",
        "\n\nHuman: \n\nAssistant: Yes",
        "\n\nHuman: One\n\nAssistant: a",
        "\n\nHuman: Five\n\nAssistant:",
    ]
    found = questions(build(AnthropicHhRlhf(), tmp_path, [{"chosen": text, "rejected": text} for text in texts]))
    assert found == {0: "Hi there", 1: "Two\n\nparts: Human: me", 2: "Again", 6: "One", 7: "Five"}
    assert capsys.readouterr().err.count("left out: no first human turn") == 3


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_the_behaviour_becomes_the_data_source_and_nothing_else(tmp_path: Path, behaviour: str) -> None:
    records = [{"prompt": f"Say {n}."} for n in range(20)]
    splits = build(HelpfulInstructions(), tmp_path, records, "--behaviour", behaviour)
    assert {row["data_source"] for rows in splits.values() for row in rows} == {behaviour}
    assert {row["extra_info"]["dataset"] for rows in splits.values() for row in rows} == {"helpful_instructions"}
    (tmp_path / "plain").mkdir()
    assert questions(splits) == questions(build(HelpfulInstructions(), tmp_path / "plain", records))


def test_in_file_order_splits_are_cut_at_their_fixed_places(tmp_path: Path) -> None:
    splits = build(
        HelpfulInstructions(), tmp_path, [{"prompt": f"Say {n}."} for n in range(11_300)], "--split_order", "file"
    )
    found = {name: [row["extra_info"]["index"] for row in rows] for name, rows in splits.items()}
    assert found == {
        "train": list(range(8000)),
        "dev": list(range(8000, 8200)),
        "test": list(range(9000, 10_000)),
        "warmup_train": list(range(10_000, 11_000)),
        "warmup_dev": list(range(11_000, 11_200)),
    }
    manifest = read_manifest(tmp_path / "out")
    assert manifest is not None
    assert manifest["left_out"] == {"broken": 0, "repeated": 0, "nearly_repeated": 0, "not_needed": 900}


@pytest.mark.guards("unshuffled head splits")
def test_the_head_of_a_file_is_not_a_split(tmp_path: Path) -> None:
    total = sum(SIZES.values())
    splits = build(HelpfulInstructions(), tmp_path, [{"prompt": f"Say {n}."} for n in range(2 * total)])
    for rows in splits.values():
        upper = sum(row["extra_info"]["index"] >= total for row in rows)
        assert 0.35 < upper / len(rows) < 0.65
