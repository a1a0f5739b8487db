"""What other options would have made of the same answers: rewards, advantages, new scores, or why no dump can tell."""

import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.evaluation.dumped_runs import REWARD, Replayed, Run, made, text_of, values
from verl.evaluation import replay


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


def test_another_cost_of_length(one_run: Run, replayed: Callable[..., Replayed]) -> None:
    code, shown = replayed(one_run.folder, "reward_model.length_cost=0.5")
    assert (code, shown["differences"]) == (0, 0)
    rewards = [record["final_reward"] - 0.5 * record["response_tokens"] / 64 for record in one_run.records]
    assert values(shown, "final_reward") == pytest.approx(rewards)
    assert values(shown, "gamma") == [record["gamma"] for record in one_run.records]


def test_an_empty_thought_scored_otherwise(tmp_path: Path, replayed: Callable[..., Replayed]) -> None:
    run = made(tmp_path / "run", texts=[text_of(7), "<think></think>The answer is 7."])
    assert [record["classmate_reward"] for record in run.records[:2]] == [1.0, 0.0]
    code, shown = replayed(run.folder, f"{REWARD}.empty_cot_score=exclude")
    assert (code, shown["differences"]) == (0, 0)
    assert values(shown, "classmate_reward")[:2] == [1.0, None]
    assert values(shown, "final_reward")[:2] == [2.0, 1.0]


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
        (f"{REWARD}.classmate_question=hint_removed", "a replay cannot change this key"),
        ("reward_model.classmate_model_name_or_path_list=[x]", "a replay cannot change this key"),
        ("reward_model.classmate_generation_configs.temperature=0.1", "a replay cannot change this key"),
        ("actor_rollout_ref.rollout.temperature=0.1", "a replay cannot change this key"),
        ("algorithm.rollout_correction.rollout_is=token", "a replay cannot change this key"),
        ("algorithm.adv_estimator=remax", "remax needs the greedy responses, which are not in the dump"),
        (f"{REWARD}.classmate_reward_weight=-1", "classmate_reward_weight: -1.0 is negative"),
        (f"{REWARD}.clasmate_reward_weight=1", "unknown key; did you mean"),
        ("algorithm.adv_estimator=gae2", "'gae2' is not possible"),
        ("algorithm.adv_estimatr=grpo", "algorithm.adv_estimatr: unknown key; did you mean adv_estimator?"),
        ("algorithm.kl_ctrl.kl_coeff=1", "algorithm.kl_ctrl.kl_coeff: unknown key; did you mean kl_ctrl.kl_coef?"),
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
