"""What all data sets share: sources, broken records, manifest, and a folder that is replaced whole or not at all."""

import gzip
import json
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl.data_preprocessing import recipe as recipe_module
from verl.data_preprocessing.common import read_manifest, run_command, write_manifest
from verl.data_preprocessing.gsm8k import Gsm8k
from verl.data_preprocessing.helpful_instructions import HelpfulInstructions
from verl.data_preprocessing.recipe import content_hash, run_recipe
from verl.data_preprocessing.sources import LocalFile, read

ROWS = [{"question": f"What is {n} + {n}?", "answer": f"#### {2 * n}"} for n in range(6)]


def gsm8k(*arguments: object) -> None:
    run_command(partial(run_recipe, Gsm8k(), [str(a) for a in arguments]))


def jsonl(path: Path, records: list[dict]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return jsonl(tmp_path / "mine.jsonl", ROWS)


def stamp(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}


def test_jsonl_gz_and_parquet_give_the_same_records(tmp_path: Path, source: Path) -> None:
    (tmp_path / "mine.jsonl.gz").write_bytes(gzip.compress(source.read_bytes()))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "mine.parquet")
    for name in ("mine.jsonl", "mine.jsonl.gz", "mine.parquet"):
        records = list(read([LocalFile(path=tmp_path / name)], part="train"))
        assert [record.fields for record in records] == ROWS
        assert [record.index for record in records] == list(range(6))


def test_what_is_no_record_is_named_by_its_line(tmp_path: Path) -> None:
    good = json.dumps(ROWS[0]).encode()
    lines = [b"\xef\xbb\xbf" + good, b"", b"[1]", b"{broken", b"\xff\xfe", b'"a\xe2\x80\xa8b"', good]
    (tmp_path / "mine.jsonl").write_bytes(b"\r\n".join(lines))
    jsonl(tmp_path / "next.jsonl", ROWS[:1])
    files = [LocalFile(path=tmp_path / name) for name in ("mine.jsonl", "next.jsonl")]
    records = list(read(files, part="train"))
    places = [(record.place, record.index, record.problem is None) for record in records]
    assert places == [
        ("mine.jsonl line 1", 0, True),
        ("mine.jsonl line 3", 2, False),
        ("mine.jsonl line 4", 3, False),
        ("mine.jsonl line 5", 4, False),
        ("mine.jsonl line 6", 5, False),
        ("mine.jsonl line 7", 6, True),
        ("next.jsonl line 1", 7, True),
    ]
    assert records[3].problem == "not UTF-8"


def test_a_file_of_another_kind_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.parquet").write_text("no parquet")
    with pytest.raises(SystemExit, match=r"^error: [^\n]*mine.parquet cannot be read as parquet[^\n]*$"):
        gsm8k("--local_file", tmp_path / "mine.parquet", "--output_dir", tmp_path / "out")
    with pytest.raises(SystemExit, match=r"^error: no row of mine.jsonl can be used for gsm8k[^\n]*$"):
        gsm8k("--local_file", jsonl(tmp_path / "mine.jsonl", [{"a": 1}]), "--output_dir", tmp_path / "out")
    both = jsonl(tmp_path / "both.jsonl", ROWS)
    with pytest.raises(SystemExit, match=r"^error: every row of train is in the test part too"):
        gsm8k("--local_file", both, "--val_file", both, "--output_dir", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_many_broken_rows_are_counted_not_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = jsonl(tmp_path / "mine.jsonl", [*ROWS, *({"question": str(n)} for n in range(100))])
    gsm8k("--local_file", source, "--output_dir", tmp_path / "out")
    reported = capsys.readouterr().err.splitlines()
    assert reported[0] == "mine.jsonl line 7 left out: no text in the field answer"
    assert reported[-1] == f"... and {101 - len(reported)} more left out"
    assert len(reported) <= 21
    manifest = read_manifest(tmp_path / "out")
    assert manifest is not None
    assert manifest["left_out"] == {"broken": 100, "repeated": 0, "nearly_repeated": 0, "not_needed": 0}


def test_the_test_part_keeps_what_both_parts_have(tmp_path: Path, source: Path) -> None:
    other_spelling = [{**ROWS[2], "question": "  what IS 2 + 2?"}]
    test = jsonl(tmp_path / "test.jsonl", other_spelling)
    gsm8k("--local_file", source, "--val_file", test, "--output_dir", tmp_path / "out")
    assert 2 not in [row["extra_info"]["index"] for row in pq.read_table(tmp_path / "out/train.parquet").to_pylist()]
    assert pq.read_table(tmp_path / "out/test.parquet").num_rows == 1


@pytest.mark.guards("silent reuse")
def test_a_second_run_changes_nothing(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    gsm8k("--local_file", source, "--output_dir", out)
    before = stamp(out)
    renamed = source.rename(tmp_path / "renamed.jsonl")
    gsm8k("--local_file", renamed, "--output_dir", out)
    assert "out is up to date: train 6 rows" in capsys.readouterr().out
    assert stamp(out) == before


@pytest.mark.guards("silent reuse")
def test_other_options_are_refused_without_force(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out"
    gsm8k("--local_file", source, "--output_dir", out)
    before = stamp(out)
    with pytest.raises(SystemExit, match=r"^error: [^\n]*made with another --train_rows: [^\n]*--force[^\n]*$"):
        gsm8k("--local_file", source, "--output_dir", out, "--train_rows", 2)
    with pytest.raises(SystemExit, match="made with other input"):
        gsm8k("--local_file", jsonl(tmp_path / "more.jsonl", ROWS[1:]), "--output_dir", out)
    assert stamp(out) == before
    gsm8k("--local_file", source, "--output_dir", out, "--train_rows", 2, "--force")
    assert pq.read_table(out / "train.parquet").num_rows == 2


def test_a_damaged_folder_is_built_again_only_when_told(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out"
    gsm8k("--local_file", source, "--output_dir", out)
    (out / "train.parquet").write_bytes(b"")
    with pytest.raises(SystemExit, match="damaged"):
        gsm8k("--local_file", source, "--output_dir", out)
    gsm8k("--local_file", source, "--output_dir", out, "--force")
    assert read_manifest(out) is not None


@pytest.mark.parametrize("built", [True, False])
def test_files_of_others_are_left_alone_even_with_force(tmp_path: Path, source: Path, built: bool) -> None:
    out = tmp_path / "out"
    if built:
        gsm8k("--local_file", source, "--output_dir", out)
    out.mkdir(exist_ok=True)
    (out / "thesis.txt").write_text("mine")
    before = stamp(out)
    with pytest.raises(SystemExit, match="holds other files"):
        gsm8k("--local_file", source, "--output_dir", out, "--force")
    assert stamp(out) == before


@pytest.mark.parametrize("built", [True, False])
def test_an_interrupted_build_leaves_what_was_there(
    tmp_path: Path, source: Path, built: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "new" / "out"
    if built:
        gsm8k("--local_file", source, "--output_dir", out)
    before = stamp(out) if built else None

    def interrupted(folder: Path, content: dict) -> None:
        write_manifest(folder, content)
        raise KeyboardInterrupt

    monkeypatch.setattr(recipe_module, "write_manifest", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gsm8k("--local_file", source, "--output_dir", out, "--train_rows", 2, "--force")
    assert (stamp(out) if built else None) == before
    assert [path.name for path in out.parent.iterdir()] == (["out"] if built else [])


def test_the_content_hash_is_that_of_the_rows_as_they_are_read(tmp_path: Path, source: Path) -> None:
    gsm8k("--local_file", source, "--output_dir", tmp_path / "out")
    manifest = read_manifest(tmp_path / "out")
    assert manifest is not None
    rows = pq.read_table(tmp_path / "out" / "train.parquet").to_pylist()
    assert manifest["content_sha256"] == {"train": content_hash(rows)}
    rows[0]["prompt"][0]["content"] += "!"
    assert manifest["content_sha256"] != {"train": content_hash(rows)}


@pytest.mark.guards("--seed unused or crashing")
def test_the_seed_decides(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "mine.jsonl", [{"prompt": f"Say {n}."} for n in range(40)])
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        command = ["--local_file", str(source), "--output_dir", str(tmp_path / name), "--seed", str(seed)]
        run_recipe(HelpfulInstructions(), command)
    files = {name: {p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in "abc"}
    assert files["a"] == files["b"]
    assert files["a"]["train.parquet"] != files["c"]["train.parquet"]
