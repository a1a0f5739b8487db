"""A replay comes to what the run came to, of every kind of row, and says where it does not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.dumped_runs import ANSWERS, REWARD, Replayed, made, text_of, values
from verl.classmate.outcome import Outcome
from verl.evaluation import replay


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        (f"{REWARD}.classmate_reward_type=remove_wo_cot", f"{REWARD}.add_consistency_reward=True"),
        (f"{REWARD}.classmate_continue_mode=immediate_answer", f"{REWARD}.main_cot_keep_rate=first-6-tokens"),
        (
            "reward_model.cot_format=plain",
            f"{REWARD}.main_cot_keep_rate=0.5",
            f"{REWARD}.classmate_close_marker=always",
        ),
        ("reward_model.classmate_generation_configs.num_return_sequences=3", f"{REWARD}.reward_fusion=base_plus_max"),
        ("reward_model.length_cost=0.5", f"{REWARD}.unfinished_cot=close_and_score"),
    ],
    ids=["vanilla", "remove", "immediate", "plain", "samples", "length"],
)
def test_what_was_dumped_comes_out_again(tmp_path: Path, replayed: Callable[..., Replayed], overrides: tuple) -> None:
    run = made(tmp_path / "run", *overrides)
    code, shown = replayed(run.folder)
    assert (code, shown["differences"], shown["note"]) == (0, 0, None)
    for row, record in zip(shown["rows"], run.records, strict=True):
        assert row["record"]["classmates"] == record["classmates"]
        assert row["record"]["kept_cot"] == record["kept_cot"]
        assert row["record"]["advantage"] == pytest.approx(record["advantage"], abs=1e-4)


def test_characters_that_some_take_for_ends_of_lines(tmp_path: Path, replayed: Callable[..., Replayed]) -> None:
    odd = "\x85 \u2028 \u2029 \x1c \x0b \x0c"
    run = made(tmp_path / "run", texts=[f"{odd}{text_of(answer)}" for answer in ANSWERS])
    code, shown = replayed(run.folder)
    assert (code, len(shown["rows"]), shown["differences"]) == (0, len(run.records), 0)


def test_step_wise_segments_and_their_advantages(tmp_path: Path, replayed: Callable[..., Replayed]) -> None:
    kind = f"{REWARD}.classmate_reward_type=random_truncate_step_wise_utility"
    run = made(tmp_path / "run", kind, say=lambda prompt: f"</think>{len(prompt) % 3 + 6}")
    for record in run.records:
        # Made by hand for the fused reward; per segment they are the estimators' tests' business.
        record.pop("advantage", None)
        record.pop("advantage_on_cot", None)
    run.write()
    code, shown = replayed(run.folder)
    assert code == 0
    assert any(any(rewards) for rewards in values(shown, "segment_rewards"))
    assert all(len(segments) == 2 for segments in values(shown, "advantage_on_segments"))


def test_failures_are_replayed_as_failures(tmp_path: Path, replayed: Callable[..., Replayed]) -> None:
    texts = (text_of(7), "<think>no end", "no thought", "<think></think>7", "<think>3 + 4</think>")
    run = made(tmp_path / "run", texts=texts, say=lambda prompt: Outcome.timeout if "Tom has 3 ap" in prompt else "7")
    assert {s["outcome"] for r in run.records for c in r["classmates"] for s in c["samples"]} >= {
        "timeout",
        "unfinished_cot",
        "empty_cot",
    }
    code, shown = replayed(run.folder)
    assert (code, shown["differences"]) == (0, 0)
    narrow = "reward_model.classmate_generation_configs.max_model_len=40"
    assert replayed(made(tmp_path / "narrow", narrow).folder)[0] == 0


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("final_reward", lambda value: value + 1e-3),
        ("advantage", lambda value: value + 1e-3),
        ("kept_cot", lambda value: value[:-1]),
        ("main_valid", lambda value: not value),
        ("response_tokens", lambda _: 10**400),
    ],
)
def test_a_number_that_is_not_what_the_rules_make_is_told(
    tmp_path: Path, replayed: Callable[..., Replayed], capsys: pytest.CaptureFixture[str], field: str, change: Any
) -> None:
    run = made(tmp_path / "run")
    right = run.records[5][field]
    run.records[5][field] = change(right)
    run.write()
    code, shown = replayed(run.folder)
    (difference,) = shown["rows"][5]["differences"]
    assert (code, difference["field"], difference["dumped"]) == (1, field, change(right))
    assert difference["now"] == pytest.approx(right, abs=1e-4)
    assert replay.main([str(run.folder), "--step", "1"]) == 1
    assert f"row 5 {field}: dumped " in capsys.readouterr().out
    assert replayed(run.folder, "--row", "4")[0] == 0, "the row that was asked for is right"
    assert replayed(run.folder, "--row", "5")[0] == 1


def test_a_prompt_or_an_answer_that_was_tampered_with_is_told(
    tmp_path: Path, replayed: Callable[..., Replayed]
) -> None:
    run = made(tmp_path / "run")
    run.records[2]["classmates"][1]["prompt"] += " "
    run.records[3]["classmates"][0]["samples"][0]["score"] = 0.25
    run.write()
    code, shown = replayed(run.folder)
    assert code == 1
    fields = {one["field"] for one in shown["rows"][2]["differences"]}
    assert fields == {"classmates[1].prompt", "advantage", "advantage_on_cot"}, "its group has another mean"
    fields = {one["field"] for one in shown["rows"][3]["differences"]}
    assert {"classmate_score", "final_reward", "advantage"} <= fields


def test_validation_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(tmp_path / "run", validation=True)
    assert replay.main([str(run.folder), "--step", "1", "--validation"]) == 0
    assert replay.main([str(run.folder), "--step", "1", "--validation", "--row", "0"]) == 0
    assert "validation rows have no advantage" in capsys.readouterr().out


def test_baseline_rows(tmp_path: Path, replayed: Callable[..., Replayed]) -> None:
    """Its classmates read validation rows only."""
    run = made(tmp_path / "run", "trainer.v1.trainer_mode=baseline")
    assert all(record["classmates"] == [] for record in run.records)
    code, shown = replayed(run.folder)
    assert (code, shown["differences"]) == (0, 0)
    assert values(shown, "final_reward")[:4] == [1.0, 0.0, 1.0, 0.0]


def test_no_ray_and_no_model_is_needed(tmp_path: Path, replayed: Callable[..., Replayed]) -> None:
    import ray

    run = made(tmp_path / "run", texts=[text_of(7), text_of(8)])
    assert replayed(run.folder)[0] == 0
    assert not ray.is_initialized()
    assert not list(tmp_path.rglob("*.safetensors"))
