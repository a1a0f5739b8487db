"""The page and the picture at a pipeline's end: what each stage gave and cost, by hand."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from verl.reasoning.estimates import Estimate
from verl.reasoning.evaluation import EvalReport, EvalSettings
from verl.reasoning.pipeline_config import ReasoningPipelineConfig
from verl.reasoning.pipeline_figure import draw
from verl.reasoning.pipeline_report import FIGURE, report_text
from verl.reasoning.stage_runs import Cost, StageRuns


def report(stage: str, right: tuple[bool, ...]) -> EvalReport:
    share = sum(right) / len(right)
    told = Estimate(value=share, low=max(0.0, share - 0.1), high=min(1.0, share + 0.1), n=len(right))
    return EvalReport(
        stage=stage,
        model=stage,
        settings=EvalSettings(k=2),
        num_evaluated=len(right),
        excluded=0,
        pass_at_1=told,
        right={str(i): (one, one) for i, one in enumerate(right)},
    )


REPORTS = {"base": report("base", (True, False, False, False)), "pure_rl": report("pure_rl", (True,) * 4)}


@pytest.fixture
def runs(tmp_path: Path) -> StageRuns:
    """Of a pipeline that was started again after its training."""
    found = StageRuns(tmp_path, on_event=print)
    found.costs = {
        "problems": Cost(seconds=0.4, counts={"train": 1800}),
        "evaluation/base_test": Cost(seconds=20.0, counts={}),
        "pure_rl": Cost(seconds=331.4, counts={"steps": 40, "tokens": 1234567}),
        "evaluation/pure_rl_test": Cost(seconds=15.0, counts={}),
        "prm": Cost(seconds=None, counts={}),
    }
    found.seconds = dict.fromkeys(found.costs, 0.0) | {"evaluation/pure_rl_test": 15.0, "prm": 3.0}
    return found


def test_the_page_says_what_each_stage_cost_and_gave(runs: StageRuns) -> None:
    page = report_text(ReasoningPipelineConfig(base_model_name="m"), REPORTS, "pure_rl", runs)
    costs = page.partition("## What each stage cost\n")[2]
    rows = {
        line.split("|")[1].strip(): [x.strip() for x in line.split("|")[2:-1]]
        for line in costs.splitlines()
        if "|" in line
    }
    assert rows["pure_rl"][:2] == ["331", "done before"]
    assert rows["pure_rl"][2].startswith("0.750 [")
    assert rows["pure_rl"][2].endswith("] over base")
    assert rows["pure_rl"][3] == "40 steps, 1,234,567 tokens"
    assert rows["evaluations"] == ["35", "15", "-", "2 evaluations"]
    assert rows["prm"] == ["-", "3", "-", "-"], "an unknown cost is not 0"
    assert f"]({FIGURE})" in page


def test_the_picture_shows_models_without_a_judge_too(tmp_path: Path) -> None:
    draw(REPORTS, tmp_path / FIGURE)
    with Image.open(tmp_path / FIGURE) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    assert pixels.shape[1] == 1200
    blue = (pixels == (0, 114, 178)).all(axis=-1)
    assert blue[:200, :620].any(), "pass@1 is there"
    assert not blue[:150, 700:].any()
