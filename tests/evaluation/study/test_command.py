"""What the command says before it does anything, and that a study goes on where it was killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl.evaluation.study import __main__ as command
from verl.evaluation.study.command import seeds_of
from verl.evaluation.study.presets import STUDIES
from verl.evaluation.study.results import load_results

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("cot_transfr", "no study cot_transfr; did you mean cot_transfer?"),
        ("cot_transfer --arms baseline,tow", "no arm tow; did you mean two?"),
        ("cot_transfer --short --arms insider", "no arm insider; use one of baseline, two"),
        ("cot_transfer --through_ray likelyhood", "no arm likelyhood; did you mean likelihood?"),
        ("cot_transfer --through_ray two --arms two", "--arms: --through_ray names the arm; leave --arms out"),
        ("cot_transfer --seeds 14-11", "--seeds 14-11: names no seed; write the lower one first"),
        ("cot_transfer --seeds 0-999999999", "these are more than 1000; write fewer"),
        ("cot_transfer --seeds 11-", "--seeds 11-: write for instance 11,12 or 11-14"),
        ("cot_transfer --seeds \N{ARABIC-INDIC DIGIT ONE}", "write for instance 11,12 or 11-14"),
        ("cot_transfer --seeds 99999999999", "--seeds 99999999999: a seed is at most 2147483647"),
        ("cot_transfer --arms ,", "--arms names no arm; use baseline"),
        ("cot_transfer --through_ray=", "--through_ray names no arm; use baseline"),
        ("report --arms two", "--arms: the report is of all result files; leave it out"),
        ("report --short", "--short: the report is of all result files; leave it out"),
        ("cot_transfer --seeds eleven", "--seeds eleven: write for instance 11,12 or 11-14"),
        ("cot_transfer --steps 0", "--steps 0: write 1 or more"),
        ("cot_transfer --jobs 0", "--jobs 0: write 1 or more"),
        ("cot_transfer --check", "--check: belongs to report; leave it out"),
        ("cot_transfer --arm two --unknown", "unrecognized arguments: --unknown; --help shows how it is written"),
        ("", "no study is named; write one of cot_transfer"),
    ],
)
def test_a_mistake_is_told_in_one_line(typed: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r".") as told:
        command.main(typed.split())
    assert said in str(told.value)
    assert "\n" not in str(told.value)
    assert not list(tmp_path.iterdir()), "nothing was begun"


@given(seeds=st.lists(st.integers(0, 99), min_size=1, max_size=5, unique=True))
def test_seeds_are_listed_or_a_range(seeds: list[int]) -> None:
    assert seeds_of(",".join(map(str, seeds))) == tuple(seeds)
    first = seeds[0]
    assert seeds_of(f"{first}-{first + 3},{first}") == tuple(range(first, first + 4))


def test_the_list_shows_what_could_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    shown = capsys.readouterr().out
    for study in STUDIES.values():
        assert f"{study.name}: world {study.world.name}" in shown
        for arm in study.arms:
            assert f"  {arm.name}: {arm.title}" in shown
            assert all(f"    {override}\n" in shown + "\n" for override in (*study.settings, *arm.overrides))


def test_who_reads_part_of_the_list_gets_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    listed = [sys.executable, "-m", "verl.evaluation.study", "--list"]
    done = subprocess.run(listed, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert done.stderr == ""


def test_what_is_tried_out_stays_off_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the presets' own runs go where the page is made from."""
    seen = {}
    monkeypatch.setattr(command, "_work", lambda study, output, results, _: seen.update({study.name: results}) or 0)
    for typed in ("cot_transfer", "cot_transfer --steps 80", "cot_transfer --steps 2", "cot_transfer --short"):
        monkeypatch.chdir(tmp_path)
        assert command.main([*typed.split(), "--output_dir", "out"]) == 0
    own = tmp_path / "out" / "results"
    page = tmp_path / "docs" / "claim"
    assert seen == {"cot_transfer": page, "cot_transfer_2_steps": own, "cot_transfer_short": own}


def test_results_that_cannot_be_written_are_told_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_work", lambda *_: pytest.fail("the work was begun"))
    (tmp_path / "results").touch()
    typed = ["cot_transfer", "--output_dir", str(tmp_path / "out"), "--results_dir", str(tmp_path / "results")]
    with pytest.raises(OSError, match="results"):
        command.main(typed)


_RUN = """
import sys
from tests.evaluation.study.studies import tiny_study
from verl.data_preprocessing.common import run_command
from verl.evaluation.study import __main__ as command
from verl.evaluation.study.presets import STUDIES
STUDIES["tiny"] = tiny_study()
if __name__ == "__main__":
    run_command(lambda: sys.exit(command.main(sys.argv[1:])))
"""


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_study_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    """Killed in a training, run again, then run once more with a stale result."""
    script = tmp_path / "tiny.py"
    script.write_text(_RUN)
    typed = [sys.executable, str(script), "tiny", "--output_dir", str(tmp_path / "out"), "--results_dir", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    runs, results = tmp_path / "out" / "tiny", tmp_path / "tiny"

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([*typed, *more], env=environment, capture_output=True, text=True)
        print(done.stdout, done.stderr)
        return done

    first = subprocess.Popen(typed, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 600
    while not list(runs.glob("*/rollouts/step_1.jsonl")):
        assert first.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    begun = {path.parent.parent.name for path in runs.glob("*/rollouts/step_1.jsonl")}
    assert not list(results.glob("*.json")), "nothing that was begun counts"
    world = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "worlds").rglob("*.safetensors")}

    assert run("--seeds", "11").returncode == 0
    assert all(path.stat().st_mtime_ns == when for path, when in world.items()), "the world is kept"
    found = {(one.arm, one.seed): one for one in load_results(tmp_path, "tiny")}
    assert set(found) == {("baseline", 11), ("two", 11)}
    assert begun <= {f"{arm}_seed{seed}" for arm, seed in found} | {"baseline_seed12", "two_seed12"}
    for one in found.values():
        assert {"unseen", "accuracy", "start_unseen", "reads_unseen_llama", "alone_unseen_llama"} <= set(one.numbers)
        assert set(one.curves) == {"classmate_a", "classmate_b", "unseen_llama"}
        assert len(one.examples) == 3
        folder = runs / f"{one.arm}_seed11"
        assert (folder / "policy" / "model.safetensors").exists()
        assert not list(folder.glob("global_step_*"))
        assert sorted(path.name for path in (folder / "rollouts").iterdir()) == ["step_1.jsonl", "step_2.jsonl"]
    assert "learner_0" in found["baseline", 11].numbers

    stale = results / "two_seed11.json"
    text = stale.read_text()
    stale.write_text(json.dumps(json.loads(text) | {"key": "older"}))
    again = run("--seeds", "11")
    assert again.returncode == 0
    assert "tiny: 2 runs, 1 there" in again.stdout
    assert "stale, made again: two, seed 11" in again.stdout
    one, other = json.loads(stale.read_text()), json.loads(text)
    assert one["key"] == other["key"]
    assert one["numbers"] == other["numbers"], "measured again from the policy that is there"
