"""Training on a judge's scores: no row has a score that no judge gave, whatever the judge does."""

import hashlib
import math
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from transformers import AutoTokenizer

from tests.e2e.tiny import save_reward_model
from tests.e2e.world import BASELINE, MAIN, World, finished, rows, settings, steps
from tests.utils.reward_score.cot_monitor.judge_server import MODEL, StandInJudge
from tests.workers.servers import serving
from verl.evaluation import replay
from verl.utils.reward_score.cot_monitor import get_verifier

SOURCE = "sycophancy"
STEPS = 2

PLANS = [
    "500",
    "hang",
    "no_rating",
    "429 once",
    "out_of_range",
    "no_json once",
    "500 twice",
    "cut",
    "ok",
    "ok",
    "ok",
    "ok",
]


def faulty(prompt: str, times: int) -> str:
    """A judge that does to each text one thing of `PLANS`."""
    action, _, until = PLANS[hashlib.sha256(prompt.encode()).digest()[1] % len(PLANS)].partition(" ")
    return "ok" if until and times > {"once": 1, "twice": 2}[until] else action


def judged_data(world: World, folder: Path, source: str = SOURCE) -> list[str]:
    """The world's rows as rows that a judge scores; overrides that name them."""
    for name in ("train", "val"):
        table = pq.read_table(world.folder / f"{name}.parquet")
        place = table.schema.get_field_index("data_source")
        pq.write_table(table.set_column(place, "data_source", [[source] * len(table)]), folder / f"{name}.parquet")
    return [f"data.train_files={folder / 'train.parquet'}", f"data.val_files={folder / 'val.parquet'}"]


def judge_keys(url: str) -> list[str]:
    return [
        "reward_model.llm_judge_backend_type=openai",
        f"reward_model.llm_judge_model_name={MODEL}",
        f"reward_model.llm_judge_base_url={url}/v1",
        "reward_model.llm_judge_timeout=15",
        "reward_model.llm_judge_max_retries=2",
    ]


def check_row(row: dict[str, Any], judge: StandInJudge) -> tuple[int, int]:
    """Every score of a dumped row is the one that the judge gave to this text; how many have one, and how many not."""
    question, verifier = row["reward_model"]["raw_question_for_monitor"], get_verifier(SOURCE)
    texts = [(row["output"], row["main_score"], row["main_outcome"], row.get("judge"))]
    texts += [
        (sample["text"], sample["score"], sample["outcome"], sample.get("judge"))
        for classmate in row["classmates"]
        for sample in classmate["samples"]
    ]
    scored = failed = 0
    for text, score, outcome, said in texts:
        if outcome not in ("ok", "judge_error"):
            assert score is None
            assert said is None, "nobody was asked about a text that is not there"
            continue
        given = judge.ratings.get(verifier.format_llm_judge_prompt(question, text))
        if score is None:
            assert outcome == "judge_error"
            assert said["failure"], "and the dump says why"
            failed += 1
            continue
        assert score == given, f"a score that the judge did not give to {text!r}"
        assert (said["score"], said["explanation"]) == (given, f"stands {given} on the scale")
        scored += 1
    if row["main_outcome"] == "judge_error":
        assert not row["main_valid"]
        assert row["base_reward"] is None
        assert row.get("advantage", 0) == 0, "a row without a score trains nothing"
    return scored, failed


def check_run(folder: Path, judge: StandInJudge, *, steps_done: int) -> None:
    """All rows of a run, and its counts, against what the judge was asked and said."""
    dumped = [row for step in range(1, steps_done + 1) for row in rows(folder, step)]
    checked = [check_row(row, judge) for row in dumped]
    scored, failed = (sum(counts) for counts in zip(*checked, strict=True))
    assert scored > 10
    assert failed > 2
    lines = steps(folder)
    for step, line in lines.items():
        said = [s["judge"] for r in rows(folder, step) for c in r["classmates"] for s in c["samples"] if "judge" in s]
        said += [row["judge"] for row in rows(folder, step) if "judge" in row]
        assert line["judge/texts"] == len(said)
        assert line["judge/requests"] == sum(one["requests"] for one in said)
        assert line["judge/failures"] == sum("failure" in one for one in said)
        assert line["judge/completion_tokens"] > 0
        assert 0 < line["classmate/failed_judge_ratio"] <= 1
        assert math.isfinite(line["actor/grad_norm"])


def replayed(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str) -> str:
    """What `python -m verl.evaluation.replay` shows of the first step."""
    assert replay.main([str(folder), "--step", "1", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.guards("failed judge averaged as 0 or -1")
@pytest.mark.long
def test_one_process_trains_on_a_faulty_judge(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, folder = StandInJudge(plan=faulty), tmp_path / "run"
    with serving(judge.app, name=MODEL) as server:
        overrides = [
            *judged_data(world, tmp_path),
            *judge_keys(server.url),
            "debug=true",
            "trainer.total_training_steps=1",
        ]
        terminal = finished(
            [
                *MAIN,
                *settings(world, folder, *overrides, "trainer.test_freq=-1", "trainer.val_before_train=false"),
                "hardware=cpu",
            ],
            log=tmp_path / "terminal.txt",
        )
        check_run(folder, judge, steps_done=1)
        asked_in_run = len(judge.bodies)
        shown = replayed(capsys, folder, "--row", "0")
        assert re.search(r"judge: \d+:\n  \| stands \d+ on the scale", shown)
        assert len(judge.bodies) == asked_in_run, "a replay takes the scores of the dump"
        monkeypatch.chdir(tmp_path)
        judge.plan = lambda prompt, times: "ok"
        replayed(capsys, folder, "reward_model.llm_judge_max_retries=0")
        again = {body["messages"][0]["content"] for body in judge.bodies[asked_in_run:]}
        kept = {prompt for prompt in judge.ratings if prompt not in again}
        assert len(again) > 2, "what had no score is judged now"
        assert len(kept) > 10, "and what had one comes from the cache"
    asked = asked_in_run - 1  # the check before the start
    assert sum(line["judge/requests"] for line in steps(folder).values()) == asked
    assert f"texts, {asked} requests" in terminal
    assert "warning: the judge gave" in terminal
    assert list((tmp_path / "outputs" / "judge_cache").rglob("*.json")), "and what it said is kept"


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_run_on_ray_trains_on_a_faulty_judge(world: World, tmp_path: Path) -> None:
    judge, folder = StandInJudge(plan=faulty), tmp_path / "run"
    with serving(judge.app, name=MODEL) as server:
        overrides = [*judged_data(world, tmp_path), *judge_keys(server.url), f"trainer.total_training_steps={STEPS}"]
        terminal = finished(
            [*MAIN, *settings(world, folder, *overrides), "hardware=cpu"], log=tmp_path / "terminal.txt"
        )
    check_run(folder, judge, steps_done=STEPS)
    for step in (0, STEPS):
        for row in rows(folder, step, validation=True):
            check_row(row, judge)
    assert "failures (" in terminal


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "how",
    [("debug=true",), (), ("reward_model.classmate_schedule=batched",)],
    ids=["one_process", "streamed", "batched"],
)
def test_a_baseline_trains_on_a_reward_model_of_the_run(world: World, tmp_path: Path, how: tuple[str, ...]) -> None:
    """A judge is an engine of the run also where no classmate is."""
    tokenizer = AutoTokenizer.from_pretrained(world.policy)
    folder, model = tmp_path / "run", save_reward_model(tmp_path / "model", tokenizer, max_length=512)
    overrides = [
        *judged_data(world, tmp_path, "general_reward"),
        "reward_model.llm_judge_backend_type=hf_scoring",
        f"reward_model.llm_judge_model_name={model}",
        "reward_model.llm_judge_max_context=512",
        "reward_model.classmate_model_name_or_path_list=null",
        "reward_model.unfinished_main_score=exclude",
        "reward_model.use_classmate_condition=always",
        "trainer.total_training_steps=1",
        "trainer.test_freq=-1",
        "trainer.val_before_train=false",
        *how,
    ]
    terminal = finished([*BASELINE, *settings(world, folder, *overrides), "hardware=cpu"], log=tmp_path / "log")
    assert "judge             hf_scoring" in terminal
    (line,) = steps(folder).values()
    dumped = rows(folder, 1)
    scored = [row for row in dumped if row["main_outcome"] == "ok"]
    assert len(scored) > 10
    assert line["judge/texts"] == line["judge/requests"] == len(scored)
    assert line["judge/failures"] == 0
    assert len({row["main_score"] for row in scored}) > 3
    assert all(row["main_score"] == row["judge"]["score"] == row["base_reward"] for row in scored)
    assert line["actor/grad_norm"] > 0
