"""A replay comes to what the run came to, says where it does not, and tells what other reward options would have made.

The runs here are hand-made: rows that the real pipeline scored from scripted answers, written as a run writes them.
"""

import asyncio
import copy
import json
import statistics
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf, open_dict

from tests.classmate.toy_tokenizers import TOKENIZERS, byte_bpe
from tests.run_config import run_config
from tests.workers.test_row_pipeline import CLASSMATES, QUESTION, Client, Say, answer_of
from verl.classmate.outcome import Outcome
from verl.classmate.record import RowRecord
from verl.classmate.row import Task
from verl.evaluation import replay
from verl.workers.row_pipeline import RowPipeline

REWARD = "reward_model.classmate_cot_reward_configs"
GRPO = "algorithm.adv_estimator=grpo"
ANSWERS = (7, 8, 7, 9)
"""What the policy answers in the rows of each of the two prompts; 7 is right."""


def says(prompt: str) -> str:
    """Classmates repeat the thought's last number."""
    return f"The answer is {7 if '= 7.' in prompt else 8}."


def text_of(answer: int) -> str:
    thought = 7 if answer in (7, 9) else 8
    return f"<think>\nTom has 3 apples and gets 4, so 3 + 4 = {thought}.</think>\n\nThe answer is {answer}."


@lru_cache
def composed(models: Path, *overrides: str) -> DictConfig:
    return run_config(models, CLASSMATES, *overrides)


class Run:
    """A run folder with the rows of one step."""

    def __init__(self, folder: Path, config: DictConfig, records: list[dict[str, Any]]) -> None:
        self.folder, self.config, self.records = folder, config, records

    def write(self, *, step: int = 1, validation: bool = False) -> "Run":
        self.folder.mkdir(exist_ok=True)
        (self.folder / "config.yaml").write_text(OmegaConf.to_yaml(self.config, resolve=True))
        rows = self.folder / ("val_preds" if validation else "rollouts")
        rows.mkdir(exist_ok=True)
        lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in self.records)
        (rows / f"step_{step}.jsonl").write_text(lines)
        return self


def made(
    folder: Path,
    *overrides: str,
    say: Say = says,
    texts: Sequence[str] = tuple(map(text_of, ANSWERS)),
    validation: bool = False,
    reward: dict[str, Any] | None = None,
) -> Run:
    """A step of two prompts with these responses each; advantages as GRPO has them."""
    models = folder.parents[1] / "tokenizers"  # pytest's own folder, of which every test has one below
    if not models.exists():
        for name in ("text_bpe", "byte_bpe"):
            TOKENIZERS[name]().save_pretrained(models / name)
    config = composed(models, f"actor_rollout_ref.model.path={models / 'byte_bpe'}", GRPO, *overrides)
    pipeline = RowPipeline.build(config, byte_bpe(), Client(say))
    task = Task(
        question=QUESTION,
        data_source="hinted_arithmetic",
        reward_model={"ground_truth": "7"} | (reward or {}),
        extra_info={"index": 3},
    )
    records = []
    for prompt in range(2):
        for rollout, text in enumerate(texts):
            uid = None if validation else f"{prompt}-1-key"
            answer = answer_of(text, uid=uid, step=1, rollout=rollout, validate=validation, task=task)
            records.append(json.loads(RowRecord.of(asyncio.run(pipeline.run(answer))).to_json()))
    # Where some rows have no classmate score GRPO is more than this line, and the estimators' tests' business.
    if not validation and len(texts) > 1 and len({record["classmate_valid"] for record in records}) == 1:
        for record in records:
            group = [other["final_reward"] for other in records if other["uid"] == record["uid"]]
            spread = statistics.stdev(group) + 1e-6
            record["advantage"] = (record["final_reward"] - statistics.fmean(group)) / spread
            record["advantage_on_cot"] = record["advantage"] if record["handed_over_tokens"] else None
    return Run(folder, config, records).write(validation=validation)


Replayed = tuple[int, dict[str, Any]]


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """For tests that only look at it."""
    return made(tmp_path_factory.mktemp("one") / "run")


@pytest.fixture
def replayed(capsys: pytest.CaptureFixture[str]) -> Callable[..., Replayed]:
    """The command with `--json`: exit code and object."""

    def run(folder: Path, *arguments: str) -> Replayed:
        code = replay.main([str(folder), "--step", "1", "--json", *arguments])
        return code, json.loads(capsys.readouterr().out)

    return run


def values(shown: dict[str, Any], key: str) -> list[Any]:
    return [row["record"][key] for row in shown["rows"]]


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
    ],
    ids=["vanilla", "remove", "immediate", "plain", "samples"],
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


def test_other_reward_options_on_the_same_answers(one_run: Run, replayed: Callable[..., Replayed]) -> None:
    """By hand: thoughts lead classmates to 7, 8, 7, 7; the policy answers 7, 8, 7, 9."""
    assert [record["final_reward"] for record in one_run.records[:4]] == [2.0, 0.0, 2.0, 1.0]
    code, shown = replayed(
        one_run.folder,
        "reward_model.use_classmate_condition=neg_classmate_when_main_incorrect",
        "+reward_model.reward_kwargs.classmate_cot_reward_configs.classmate_reward_weight=0.5",
    )
    assert (code, shown["differences"]) == (0, 0), "the run itself is as it was dumped"
    assert values(shown, "gamma")[:4] == [1.0, -1.0, 1.0, -1.0]
    assert values(shown, "final_reward")[:4] == [1.5, 0.0, 1.5, -0.5]
    fused = [1.5, 0.0, 1.5, -0.5]
    expected = [(x - statistics.fmean(fused)) / (statistics.stdev(fused) + 1e-6) for x in fused]
    assert values(shown, "advantage")[:4] == pytest.approx(expected, abs=1e-4)
    changed = {one["field"] for one in shown["rows"][3]["changes"]}
    assert {"gamma", "classmate_reward", "final_reward"} <= changed


@pytest.mark.parametrize(
    ("override", "rewards"),
    [
        (f"{REWARD}.use_classmate_main_cond=no_classmate", [1.0, 0.0, 1.0, 0.0]),
        (f"{REWARD}.reward_fusion=weighted_average", [1.0, 0.0, 1.0, 1.0]),
        (f"{REWARD}.classmate_weights=[1,0]", [2.0, 0.0, 2.0, 1.0]),
        (f"{REWARD}.add_consistency_reward=True", [3.0, 1.0, 3.0, 1.0]),
        ("reward_model.format_weight=0.5", [2.5, 0.5, 2.5, 1.5]),
        # What was right is wrong, for the policy and for the classmates.
        ("reward_model.reward_direction=minimize", [0.0, 2.0, 0.0, 1.0]),
    ],
)
def test_each_kind_of_option(
    one_run: Run, replayed: Callable[..., Replayed], override: str, rewards: list[float]
) -> None:
    code, shown = replayed(one_run.folder, override)
    assert code == 0
    assert values(shown, "final_reward")[:4] == rewards


def test_other_estimators_on_the_same_answers(one_run: Run, replayed: Callable[..., Replayed]) -> None:
    code, shown = replayed(one_run.folder, "algorithm.adv_estimator=drgrpo")
    mean = statistics.fmean([2.0, 0.0, 2.0, 1.0])
    assert code == 0
    assert values(shown, "advantage")[:4] == pytest.approx([2 - mean, -mean, 2 - mean, 1 - mean], abs=1e-5)
    _, shown = replayed(one_run.folder, "algorithm.adv_estimator=gdpo")
    assert values(shown, "advantage")[:4] != pytest.approx(values(shown, "advantage_on_cot")[:4])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (f"{REWARD}.main_cot_keep_rate=0.5", "main_cot_keep_rate: a replay cannot change this key"),
        (f"{REWARD}.classmate_reward_type=remove_wo_cot", "classmate_reward_type: a replay cannot change this key"),
        (f"{REWARD}.classmate_continue_mode=immediate_answer", "a replay cannot change this key"),
        ("reward_model.classmate_model_name_or_path_list=[x]", "a replay cannot change this key"),
        ("reward_model.classmate_generation_configs.temperature=0.1", "a replay cannot change this key"),
        ("actor_rollout_ref.rollout.temperature=0.1", "a replay cannot change this key"),
        ("algorithm.rollout_correction.rollout_is=token", "a replay cannot change this key"),
        ("algorithm.adv_estimator=remax", "remax needs the greedy responses, which are not in the dump"),
        (f"{REWARD}.classmate_reward_weight=-1", "classmate_reward_weight: -1.0 is negative"),
        (f"{REWARD}.clasmate_reward_weight=1", "unknown key; did you mean"),
        ("algorithm.adv_estimator=gae2", "'gae2' is not possible"),
        ("rewards.x=1", "rewards.x: unknown key"),
        ("nonsense", "'nonsense' cannot be read"),
        (f"~{REWARD}.classmate_reward_weight", "is not possible here; write key=value"),
        (f"{REWARD}.classmate_reward_weight=1,2", "is not possible here; write key=value"),
    ],
)
def test_what_a_dump_cannot_answer_is_refused(
    one_run: Run, capsys: pytest.CaptureFixture[str], override: str, message: str
) -> None:
    assert replay.main([str(one_run.folder), "--step", "1", override]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in shown.err
    assert shown.err.startswith("error: ")
    assert len(shown.err.splitlines()) == 1


def test_bad_input_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(tmp_path / "run", texts=[text_of(7)])
    old = made(tmp_path / "old", texts=[text_of(7)])
    for record in old.records:
        del record["response_ids"]
    old.write()
    damaged = made(tmp_path / "damaged", texts=[text_of(7)])
    with (damaged.folder / "rollouts" / "step_1.jsonl").open("a") as file:
        file.write('{"uid": ')
    moved = made(tmp_path / "moved", texts=[text_of(7)])
    moved.config = copy.deepcopy(moved.config)
    with open_dict(moved.config):
        moved.config.actor_rollout_ref.model.path = str(tmp_path / "gone")
    moved.write()
    for arguments, message in (
        ([str(tmp_path), "--step", "1"], "is not a run folder"),
        ([str(run.folder), "--step", "2"], "has no rows of a trained step 2; it has 1"),
        ([str(run.folder), "--step", "1", "--validation"], "validated step 1; it has none"),
        ([str(run.folder), "--step", "1", "--row", "2"], "--row 2: step 1 has rows 0 to 1"),
        ([str(run.folder), "--step", "1", "--row", "-1"], "--row -1: step 1 has rows 0 to 1"),
        ([str(run.folder)], "--step"),
        ([str(run.folder), "--step", "one"], "'one'"),
        ([str(run.folder), "--step", "1", "--nonsense"], "--nonsense"),
        ([str(old.folder), "--step", "1"], "is of an older format (row 0 has no response_ids)"),
        ([str(damaged.folder), "--step", "1"], "is damaged"),
        ([str(moved.folder), "--step", "1"], "cannot be loaded"),
    ):
        assert replay.main(arguments) == 2, arguments
        shown = capsys.readouterr()
        lines = [line for line in shown.err.splitlines() if line.startswith("error: ")]
        assert (shown.out, len(lines)) == ("", 1), shown.err
        assert message in lines[0]


def test_a_judge_that_costs_money_is_asked_only_when_told_to(tmp_path: Path, replayed: Callable[..., Replayed]) -> None:
    calls = tmp_path / "calls.txt"
    function = tmp_path / "judge.py"
    source = (
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):\n"
        f"    with open({str(calls)!r}, 'a') as f:\n"
        "        f.write(solution_str.strip() + '\\n')\n"
        "    return SCORE * float(ground_truth in solution_str)\n"
    )
    function.write_text(source.replace("SCORE", "0.5"))
    run = made(tmp_path / "run", f"reward.custom_reward_function.path={function}")
    asked = len(calls.read_text().splitlines())
    assert asked == 2 * 4 * 3
    assert run.records[0]["base_reward"] == 0.5
    code, _ = replayed(run.folder)
    assert code == 0
    assert replayed(run.folder, f"{REWARD}.classmate_reward_weight=2")[0] == 0
    assert len(calls.read_text().splitlines()) == asked, "its scores stand in the dump"
    assert replayed(run.folder, "--rescore")[0] == 0
    assert len(calls.read_text().splitlines()) == 2 * asked
    other = tmp_path / "other.py"
    other.write_text(source.replace("SCORE", "1.0"))
    code, shown = replayed(run.folder, f"reward.custom_reward_function.path={other}")
    assert (code, values(shown, "base_reward")[0]) == (0, 1.0), "another verifier is asked without being told to"
    assert len(calls.read_text().splitlines()) == 3 * asked
    function.write_text(source.replace("SCORE", "0.25"))
    code, shown = replayed(run.folder, "--rescore")
    assert (code, values(shown, "base_reward")[0]) == (1, 0.25)


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


def test_a_person_sees_how_a_row_came_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half = f"{REWARD}.main_cot_keep_rate=0.5"
    run = made(tmp_path / "run", half, f"{REWARD}.classmate_reward_weight=0.5",
               say=lambda _: "so 3 + 4 = 7.</think>It is 7.")  # fmt: skip
    assert replay.main([str(run.folder), "--step", "1", "--row", "3"]) == 0
    text = capsys.readouterr().out
    record = run.records[3]
    for said in (
        "Tom has three apples and gets four.",
        "The answer is 9.",
        f"handed over   {record['handed_over_tokens']} of {record['response_tokens']} tokens",
        str(record["classmates"][0]["model"]),
        "| It is 7.",
        "r           = 0 ",
        "C           = 1 ",
        "gamma       = 1   (always, the main answer is not correct)",
        "F           = 0.5   (r + 0.5 W)",
        "group         rows 0, 1, 2, 3",
        "advantage     -",
        "all recomputed numbers of this row are those of the dump",
    ):
        assert said in text, said
    assert "\x1b" not in text, "no colours in a file"
    assert replay.main([str(run.folder), "--step", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.split()[:2] == [str(i), "3"] for i, line in enumerate(lines, start=-2)) == 8, "a line for each row"
    assert max(map(len, lines)) <= 120 or len(str(run.folder)) > 60


def test_a_change_is_shown_beside_what_was(one_run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(one_run.folder), "--step", "1", "reward_model.use_classmate_condition=no_classmate"]
    assert replay.main(arguments) == 0
    text = capsys.readouterr().out
    assert "F was" in text
    assert "changed by the options: 8 of 8 rows" in text
    assert replay.main([*arguments, "--row", "0"]) == 0
    text = capsys.readouterr().out
    assert "final_reward: 2.0 -> 1.0" in text
    assert "no_classmate" in text


def test_no_ray_and_no_model_is_needed(tmp_path: Path, replayed: Callable[..., Replayed]) -> None:
    import ray

    run = made(tmp_path / "run", texts=[text_of(7), text_of(8)])
    assert replayed(run.folder)[0] == 0
    assert not ray.is_initialized()
    assert not list(tmp_path.rglob("*.safetensors"))
