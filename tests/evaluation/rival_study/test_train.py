"""An arm's training from a seed's traces: it spends what RL drew, and learns what is accepted, if anything is."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from tests.evaluation.dumped_runs import made
from tests.evaluation.rival_study.made_up import tiny_study, trace
from verl.data_preprocessing.worlds import models
from verl.evaluation.rival_study import numbers
from verl.evaluation.rival_study.runs import Places, RivalRun, train
from verl.evaluation.rival_study.traces import Trace

STUDY = tiny_study()


@pytest.fixture
def run(tmp_path: Path) -> RivalRun:
    """An arm that readers decide about, with a start policy and the rows of the RL run that sets the pace."""
    places = Places(study=STUDY, output_dir=tmp_path / "x" / "out", results_dir=tmp_path / "x" / "results")
    one = RivalRun(places=places, arm=STUDY.arm("rft_reader"), seed=11)
    models.teach_policy(STUDY.world_of(11), one.parts["policy"].folder)
    paced = made(tmp_path / "rl").write()
    shutil.copytree(paced.folder, one.pace.folder)
    return one


def trained(run: RivalRun, pool: list[Trace]) -> dict[str, float]:
    content = {"key": run.traces_key, "seconds": 1.0, "traces": [dataclasses.asdict(one) for one in pool]}
    run.places.traces(run.seed).write_text(json.dumps(content))
    run.prepare()
    train(run)
    assert run.is_trained()
    return json.loads((run.folder / "counts.json").read_text())["numbers"]  # type: ignore[no-any-return]


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_it_learns_what_readers_approve(run: RivalRun) -> None:
    start = run.parts["policy"].folder
    both = dict.fromkeys(run.arm.classmates, True)
    budget = numbers.sampled_tokens(run.pace.folder)
    pool = [trace(0, *range(5, 15), approved=both), trace(1, *[5] * (budget - 10), approved={})]
    counts = trained(run, [*pool, trace(2, 7, 8, approved=both)])
    assert counts["tokens_sampled"] == budget, "the third trace is beyond what RL drew"
    assert counts["tokens_trained"] == 10 * STUDY.fine_tuning.epochs
    assert (counts["sampled"], counts["kept"]) == (2.0, 0.5)
    assert weights(run.policy) != weights(start)


def test_nothing_accepted_leaves_the_start_policy(run: RivalRun) -> None:
    counts = trained(run, [trace(i, 5, 6, right=False) for i in range(10)])
    assert counts["kept"] == counts["tokens_trained"] == 0
    assert weights(run.policy) == weights(run.parts["policy"].folder)
