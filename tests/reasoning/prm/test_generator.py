"""Training rows from solved problems: what is labelled, what is left out, and what a killed run finds again."""

import random
from pathlib import Path
from typing import Any

import pytest

from tests.reasoning.prm.standins import Oracle, right_sum, solution_of
from verl.classmate.errors import ConfigError
from verl.reasoning.prm.config import PRMConfig
from verl.reasoning.prm.generator import PRMDataGenerator
from verl.reasoning.prm.judge import RuleJudge
from verl.reasoning.prm.rows import LabelledSolution, solution_rows, split_by_problem
from verl.reasoning.records import Solution, problem_id
from verl.stepwise.first_error import first_wrong


def solved(count: int, seed: int = 0, right: bool | None = None) -> list[dict[str, Any]]:
    """Solved problems; `truth` is the first error."""
    rng, found = random.Random(seed), list[dict[str, Any]]()
    while len(found) < count:
        problem, steps, truth = solution_of(rng, len(found))
        if right is None or right == (truth < 0):
            given = {"problem": problem.problem, "answer": problem.answer, "solution": "".join(steps)}
            found.append({**given, "truth": truth})
    return found


def generator(backend: Oracle | None = None, judge: Any = None, **options: Any) -> PRMDataGenerator:
    return PRMDataGenerator(right_sum, PRMConfig(progress=False, **options), backend, judge)  # type: ignore[arg-type]


def test_rows_have_both_documented_forms() -> None:
    items = solved(12)
    data = generator(Oracle()).generate_prm_dataset(items)
    assert set(data[0]) >= {
        "problem",
        "context",
        "step",
        "label",
        "step_index",
        "total_steps",
        "is_correct",
        "perturbation_type",
    }
    assert set(data.solution_rows[0]) >= {"prompt", "completions", "labels", "sources", "problem_id"}
    assert [first_wrong(row["labels"]) for row in data.solution_rows] == [item["truth"] for item in items]
    first = [row for row in data if row["problem"] == items[0]["problem"]]
    assert [row["context"] + [row["step"]] for row in first] == [
        data.solutions[0].completions[: at + 1] for at in range(len(first))
    ] or all(isinstance(row["context"], list) for row in first)
    assert {row["problem_id"] for row in data.solution_rows} == {problem_id(item["problem"]) for item in items}


def test_rows_of_steps_become_solutions_again() -> None:
    data = generator(Oracle()).generate_prm_dataset(solved(20))
    again = solution_rows(list(data))
    # Steps without a label have no row: what is behind the last labelled one is not there any more.
    for one, other in zip(data.solutions, again, strict=True):
        assert other.completions == one.completions[: len(other.completions)]
        assert other.labels == one.labels[: len(other.labels)]
        assert (other.first_error, other.problem_id) == (one.first_error, one.problem_id)


def test_wrong_solutions_are_used() -> None:
    data = generator(Oracle()).generate_prm_dataset(solved(10, right=False))
    assert data.stats["wrong_rows"] == 10


@pytest.mark.guards("corrupted steps with correct answers labelled positive")
def test_a_planted_step_is_never_called_right() -> None:
    data = generator(Oracle(), label_mode="perturb", num_perturbations=4).generate_prm_dataset(solved(30, right=True))
    planted = [row for row in data.solutions if row.perturbation_type]
    assert planted
    for row in planted:
        place = row.meta["place"]
        assert row.labels[place] is False
        assert row.labels[place + 1 :] == (None,) * (len(row.labels) - place - 1)
        assert row.correct is None, "how the spliced solution ends is nobody's label"


def test_what_a_completer_recovers_from_is_left_out() -> None:
    class Recovers(Oracle):
        """Whatever stands before, the right answer comes out."""

        def _one(self, prompt: str, prefix: str, seed: str):  # type: ignore[no-untyped-def]
            return super()._one(prompt, "", seed)

    options: dict[str, Any] = {"label_mode": "perturb", "perturbation_types": ("operand_copy",), "max_leak": 1.0}
    lost = generator(Oracle(), **options).generate_prm_dataset(solved(20, right=True))
    saved = generator(Recovers(), **options).generate_prm_dataset(solved(20, right=True))
    unproven = generator(None, **options).generate_prm_dataset(solved(20, right=True))
    assert lost.stats["planted_rows"] > 0
    assert saved.stats["planted_rows"] == unproven.stats["planted_rows"] == 0
    assert saved.stats["planted_recovered"] > 0
    assert unproven.stats["planted_without_proof"] > 0


def test_needless_steps_have_a_channel_of_their_own() -> None:
    made = generator(None, label_mode="perturb", perturbation_types=("redundant",)).generate_prm_dataset(
        solved(10, right=True)
    )
    assert made.needless
    assert made.stats["planted_rows"] == 0
    assert all(row.meta["channel"] == "redundant" and False not in row.labels for row in made.needless)


def test_planted_ones_are_at_most_thirty_percent() -> None:
    options: dict[str, Any] = {"label_mode": "mixed", "num_perturbations": 3, "max_leak": 1.0}
    data = generator(Oracle(), **options).generate_prm_dataset(solved(60))
    assert 0 < data.stats["planted_share"] <= 0.3
    assert data.stats["planted_left_out"] > 0


def test_planted_steps_pass_the_leak_check() -> None:
    options: dict[str, Any] = {"label_mode": "perturb", "perturbation_types": ("arithmetic_error",)}
    data = generator(Oracle(), **options).generate_prm_dataset(solved(80, right=True))
    assert data.stats["planted_rows"] >= 20
    assert data.stats["leak_auc_kept"] < 0.6


def test_consensus_drops_what_the_judge_doubts() -> None:
    data = generator(Oracle(noise=0.5), RuleJudge(), label_mode="consensus", mc_rollouts=2).generate_prm_dataset(
        items := solved(60)
    )
    alone = generator(Oracle(noise=0.5), mc_rollouts=2).generate_prm_dataset(items)
    truth = {item["problem"]: item["truth"] for item in items}

    def exact(rows: Any) -> float:
        return sum(row.first_error == truth[row.prompt] for row in rows) / len(rows)

    assert exact(data.solutions) > exact(alone.solutions)
    assert 0 < data.stats["consensus"]["share"] < 1


@pytest.mark.parametrize("mode", ["mc", "mixed"])
def test_threads_change_nothing(mode: str) -> None:
    items = solved(50)
    one = generator(Oracle(0.3), label_mode=mode).generate_prm_dataset(items)
    four = generator(Oracle(0.3), label_mode=mode, num_workers=4).generate_prm_dataset(items)
    assert one.solution_rows == four.solution_rows


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    class Dies(Oracle):
        def continue_from(self, *args: Any, **kwargs: Any) -> Any:
            if len(self.asked) > 60:
                raise KeyboardInterrupt
            return super().continue_from(*args, **kwargs)

    items, file = solved(64), tmp_path / "prm.jsonl"
    with pytest.raises(KeyboardInterrupt):
        generator(Dies()).generate_prm_dataset(items, resume=file)
    with file.open("a") as torn:
        torn.write('{"key": "to')
    backend = Oracle()
    resumed = generator(backend).generate_prm_dataset(items, resume=file)
    whole = Oracle()
    assert resumed.solution_rows == generator(whole).generate_prm_dataset(items).solution_rows
    assert len(backend.asked) < len(whole.asked)
    again = Oracle()
    generator(again).generate_prm_dataset(items, resume=file)
    assert not again.asked
    with pytest.raises(ConfigError, match="name another file"):
        generator(Oracle(), mc_rollouts=3).generate_prm_dataset(items, resume=file)


def test_mistakes_say_what_to_write() -> None:
    with pytest.raises(ConfigError, match="give generator="):
        generator(None)
    with pytest.raises(ConfigError, match="needs judge="):
        generator(Oracle(), label_mode="consensus")
    with pytest.raises(ValueError, match="item 0 of problems_with_solutions"):
        generator(Oracle()).generate_prm_dataset([{"problem": "p"}])
    with pytest.raises(ConfigError, match=r"PRMConfig.label_mode='all': write one of mc, perturb"):
        PRMConfig(label_mode="all")  # type: ignore[arg-type]


def test_solutions_may_be_records_and_empty() -> None:
    items = solved(2)
    pairs = [
        (items[0], Solution(problem_id="x", text=items[0]["solution"])),
        (items[1], Solution(problem_id="y", text="")),
    ]
    data = generator(Oracle()).generate_prm_dataset(pairs)
    assert len(data.solutions) == 1
    assert data.stats["no_steps"] == 1


def test_all_rows_of_a_problem_are_on_one_side() -> None:
    rows = [row for _ in range(3) for row in generator(Oracle()).generate_prm_dataset(solved(20)).solutions]
    train, held = split_by_problem(rows, 0.2)
    assert len({row.problem_id for row in held}) == 4
    assert not {row.problem_id for row in train} & {row.problem_id for row in held}
    assert split_by_problem(rows[::-1], 0.2)[1] == [row for row in rows[::-1] if row in held]
    with pytest.raises(ValueError, match="give val_data"):
        split_by_problem(rows[:1], 0.5)


@pytest.mark.guards("mixed units")
def test_training_and_scoring_cut_alike() -> None:
    """Lengths of steps are in words everywhere: a solution has the same steps as a row and when it is scored."""
    from verl.reasoning.prm.evaluator import ProcessRewardEvaluator

    text = "Yes.\n3 + 4 = 7 apples are there now.\n" + " ".join(["word"] * 30) + ".\n" + "So we have 7."
    options: dict[str, Any] = {"min_step_length": 4, "max_step_length": 20}
    data = generator(None, label_mode="perturb", **options).generate_prm_dataset(
        [{"problem": "Sum: 3, 4?", "solution": text, "correct": True}]
    )
    scored = ProcessRewardEvaluator(RuleJudge(), min_step_words=4, max_step_words=20)
    natural = next(row for row in data.solutions if not row.perturbation_type)
    assert natural.completions == tuple(
        detail["step_text"] for detail in scored.evaluate_solution("Sum: 3, 4?", text)["step_details"]
    )
    assert natural.completions[0].startswith("Yes.\n3 + 4"), "three letters would be a step, one word is none"


class TestThoughts:
    """A solution with a thought: its steps are those of the thought, and completions go on from its own text."""

    TEXT = "<think>\n10 + 20 = 31.\n31 + 30 = 61.\n</think>\nThe answer is 61."

    def made(self, backend: Oracle, **options: object) -> LabelledSolution:
        problem = {"problem": "Sum: 10, 20, 30?", "answer": "60", "solution": self.TEXT}
        (row,) = generator(backend, **options).generate_prm_dataset([problem]).solutions
        return row

    def test_marks_and_answer_are_no_steps(self) -> None:
        row = self.made(Oracle())
        assert [step.strip() for step in row.completions] == ["10 + 20 = 31.", "31 + 30 = 61."]
        assert row.labels == (False, None)

    def test_completions_begin_as_the_model_did(self) -> None:
        backend = Oracle()
        self.made(backend)
        assert {prefix for prefix, _ in backend.asked} == {"<think>\n10 + 20 = 31.\n"}

    def test_a_right_thought_with_another_answer_has_right_steps(self) -> None:
        text = "<think>\n10 + 20 = 30.\n30 + 30 = 60.\n</think>\nThe answer is 7."
        problem = {"problem": "Sum: 10, 20, 30?", "answer": "60", "solution": text}
        (row,) = generator(Oracle()).generate_prm_dataset([problem]).solutions
        assert (row.correct, row.labels) == (False, (True, True))
