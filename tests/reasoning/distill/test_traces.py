"""Which of a teacher's texts are learnt from, and that none is drawn twice."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.reasoning.distill.stand_in import Scripted, right_sum
from verl.classmate.errors import ConfigError
from verl.reasoning.backends import Completion, SamplingParams
from verl.reasoning.distill.config import DistillationConfig
from verl.reasoning.distill.distiller import ReasoningDistiller, held_out
from verl.reasoning.distill.sampling import pass_rate, sample
from verl.reasoning.records import as_problems
from verl.reasoning.rewards import as_reward

PROBLEMS = ["What is 1 + 2?", "What is 3 + 4?"]


def teacher_texts(problem: str, index: int) -> str | Completion:
    """Of the first problem two right ones, one of them twice, a wrong one, a cut one, none; of the second no right."""
    if "3" in problem:
        return "3 + 4 = 8."
    texts: list[str | Completion] = [
        "1 + 2 = 3.",
        "1 + 2 = 3.",
        "2 and 1 make 3.",
        "1 + 2 = 4.",
        Completion(text="1 + 2 = 3", finish_reason="length"),
        Completion(text="", error="the engine died"),
    ]
    return texts[index]


def distiller(folder: Path, teacher: Scripted | None = None, **more: Any) -> ReasoningDistiller:
    usual: dict[str, Any] = {"teacher_model_name": "t", "student_model_name": "s", "n_teacher": 6}
    config = DistillationConfig(**{**usual, "output_dir": str(folder), **more})
    return ReasoningDistiller(config, more.pop("reward", right_sum), teacher=teacher or Scripted(teacher_texts))


@pytest.mark.guards("distillation: unverified traces")
def test_only_verified_whole_traces_are_learnt(tmp_path: Path) -> None:
    found = distiller(tmp_path)
    kept = found.generate_teacher_solutions(PROBLEMS)
    assert [one.text for one in kept] == ["1 + 2 = 3.", "2 and 1 make 3."]
    told = found.teacher_report
    assert {name: told[name] for name in ("sampled", "failed", "truncated", "wrong", "repeated", "kept")} == {
        "sampled": 12,
        "failed": 1,
        "truncated": 1,
        "wrong": 7,
        "repeated": 1,
        "kept": 2,
    }
    assert told["unsolved_problems"] == [as_problems(PROBLEMS)[1].id]


def test_a_limit_keeps_the_best(tmp_path: Path) -> None:
    found = distiller(tmp_path, max_per_problem=1)
    assert [one.text for one in found.generate_teacher_solutions(PROBLEMS)] == ["1 + 2 = 3."]
    assert found.teacher_report["beyond_limit"] == 1


def test_unverified_wrong_ones_stay_and_cut_ones_do_not(tmp_path: Path) -> None:
    kept = distiller(tmp_path, verify=False).generate_teacher_solutions(PROBLEMS)
    assert "3 + 4 = 8." in [one.text for one in kept]
    assert all(one.finish_reason != "length" for one in kept)


def test_no_trace_at_all_is_an_error_that_counts(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no trace .*'wrong': 6.*verify=False"):
        distiller(tmp_path).generate_teacher_solutions(PROBLEMS[1:])


def test_a_reward_that_fails_is_no_wrong_answer(tmp_path: Path) -> None:
    def fails(problem: str, solution: str) -> float:
        raise OSError("no verifier")

    config = DistillationConfig(teacher_model_name="t", student_model_name="s", output_dir=str(tmp_path))
    found = ReasoningDistiller(config, fails, teacher=Scripted(lambda problem, index: "3"))
    with pytest.raises(ValueError, match="'unscored': 8"):
        found.generate_teacher_solutions(PROBLEMS)


def drawn(backend: Scripted, journal: Path, seed: int = 0) -> Any:
    asked = as_problems([f"What is {a} + 1?" for a in range(6)])
    sampling = SamplingParams(seed=seed)
    reward = as_reward(right_sum)
    return sample(backend, asked, n=2, sampling=sampling, reward=reward, journal=journal, at_once=2)


def test_a_killed_run_draws_only_what_is_missing(tmp_path: Path) -> None:
    def dies(problem: str, index: int) -> str:
        if "4" in problem:
            raise KeyboardInterrupt
        return f"{problem} 7"

    journal = tmp_path / "texts.jsonl"
    with pytest.raises(KeyboardInterrupt):
        drawn(Scripted(dies), journal)
    # And a line was cut in two.
    journal.write_text(journal.read_text() + '{"id": "x", "solu')
    again = Scripted(lambda problem, index: f"{problem} 7")
    found = drawn(again, journal)
    assert again.asked == ["What is 4 + 1?", "What is 5 + 1?"]
    assert [some[0].text for some in found] == [f"What is {a} + 1? 7" for a in range(6)]
    assert drawn(Scripted(dies), journal) == found, "nothing is asked"
    assert all(json.loads(line) for line in journal.read_text().splitlines())


def test_texts_of_other_settings_are_not_taken(tmp_path: Path) -> None:
    backend = Scripted(lambda problem, index: "7")
    drawn(backend, tmp_path / "texts.jsonl")
    with pytest.raises(ConfigError, match="name another output_dir"):
        drawn(backend, tmp_path / "texts.jsonl", seed=1)


def test_a_pass_rate_leaves_unscored_texts_out() -> None:
    asked = as_problems(["What is 1 + 2?"])
    backend = Scripted(lambda problem, index: ["3", "4", "fails", "3"][index])

    def reward(problem: str, solution: str) -> float | None:
        return None if solution == "fails" else right_sum(problem, solution)

    (found,) = sample(backend, asked, n=4, sampling=SamplingParams(), reward=as_reward(reward))
    assert pass_rate(found, 0.7) == pytest.approx(2 / 3)
    assert found[2].score is None
    assert pass_rate(found[2:3], 0.7) is None


def test_held_out_problems_follow_from_their_ids() -> None:
    asked = as_problems([f"What is {a} + 1?" for a in range(20)])
    train, out = held_out(asked, 0.2)
    assert len(out) == 4
    assert not {one.id for one in train} & {one.id for one in out}
    assert {one.id for one in held_out(asked[::-1], 0.2)[1]} == {one.id for one in out}
    assert held_out(asked, 0.0) == (asked, [])


def test_a_problem_in_both_sets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="both trained on and held out"):
        distiller(tmp_path).distill_with_reasoning_preservation(PROBLEMS, PROBLEMS[:1])


def test_the_documents_name_of_gpt2_is_known() -> None:
    config = DistillationConfig(teacher_model_name="./trained_model", student_model_name="gpt2-small", temperature=3.0)
    assert config.student == "gpt2"
    with pytest.raises(ConfigError, match="write one of: seq, logit, on_policy, gold"):
        DistillationConfig(teacher_model_name="t", student_model_name="s", mode="ulm")  # type: ignore[arg-type]
