"""Building a world: its files, what is kept and refused, and that its labels are the checker's."""

import dataclasses
import json
import shutil

import pyarrow.parquet as pq
import pytest

from verl.classmate.errors import ConfigError
from verl.data_preprocessing.embedded_models import load_model
from verl.data_preprocessing.reasoning_world import __main__ as command
from verl.data_preprocessing.reasoning_world import rows
from verl.data_preprocessing.reasoning_world.build import make_world, summary
from verl.data_preprocessing.reasoning_world.checking import check_solution
from verl.data_preprocessing.reasoning_world.measure import numbers_of
from verl.data_preprocessing.reasoning_world.planting import solution_text, solve
from verl.data_preprocessing.reasoning_world.problems import make_problem, parse_question
from verl.data_preprocessing.reasoning_world.spec import ReasoningWorldSpec
from verl.reasoning.records import Problem, Solution, as_problem, read_jsonl
from verl.utils.reward_score.cot_monitor import get_verifier

pytestmark = pytest.mark.slow

SHORT = ReasoningWorldSpec().short()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("reasoning") / "world", SHORT, jobs=1)


def test_rows_and_problems_are_those_that_stages_read(built):
    files = ("train", 16, rows.TRAIN, rows.PROBLEMS), ("val", 8, rows.VAL, rows.PROBLEMS_VAL)
    for split, count, table, records in files:
        problems = read_jsonl(built.file(records), Problem)
        made = pq.read_table(built.file(table)).to_pylist()
        assert len(problems) == len(made) == count
        for index, (problem, row) in enumerate(zip(problems, made, strict=True)):
            assert problem.id == as_problem(problem.problem).id == row["extra_info"]["id"]
            assert row["prompt"] == [{"role": "user", "content": problem.problem}]
            assert row["data_source"] == problem.source == "reasoning_steps"
            assert row["reward_model"]["ground_truth"] == problem.answer
            assert problem.meta == {"split": split, "index": index}
            right = solve(parse_question(problem.problem)).text
            assert get_verifier("reasoning_steps").compute_score(right.partition("</think>")[2], problem.answer) == 1.0
            assert get_verifier("reasoning_steps").compute_score("The answer is 77.", problem.answer) == 0.0


def test_labels_are_those_of_the_checker(built):
    known = {one.id for name in (rows.PROBLEMS, rows.PROBLEMS_VAL) for one in read_jsonl(built.file(name), Problem)}
    for name in rows.LABELLED_FILES:
        solutions = read_jsonl(built.file(name), Solution)
        assert solutions
        for one in solutions:
            report = check_solution(parse_question(one.meta["problem"]), one.text)
            assert one.problem_id in known
            assert one.meta["labels"] == list(report.labels)
            assert one.meta["first_error"] == report.first_error
            assert one.correct == report.answer_right
            assert "".join(step.text for step in one.steps) == one.thinking
            assert [step.text.strip() for step in one.steps] == list(report.steps)


def test_the_held_out_kind_is_in_no_training_label():
    found = {"train": set(), "val": set()}
    for split, kinds in (("train", ("arithmetic", "combining", "slip")), ("val", rows.KINDS)):
        for index in range(200):
            problem = make_problem(seed=0, split=split, index=index)
            text = rows.planted_solution(problem, rows.random.Random(index), kinds)
            found[split] |= set(check_solution(problem, text).kinds[:1]) | {check_solution(problem, text).first_kind}
    assert found == {"train": {"", "arithmetic", "combining", "slip"}, "val": {"", *rows.KINDS}}


def test_no_training_label_of_a_world_shows_the_kind(built):
    lines = [json.loads(line) for line in built.file(rows.LABELLED).read_text().splitlines()]
    assert all("copy" not in line["meta"]["kinds"] for line in lines)


def test_models_load_as_what_they_are(built):
    families = {"base": "qwen3", "student": "qwen3", "reader": "qwen3", "reader_other": "llama"}
    for name, family in families.items():
        model, tokenizer = load_model(built.model(name))
        assert model.config.model_type == family
        assert tokenizer.apply_chat_template([{"role": "user", "content": "7 + 2 = ?"}], tokenize=False)
        assert sum(weight.numel() for weight in model.parameters()) < 600_000
    assert set(built.manifest["models"]) == set(families)
    assert "pass@1" in summary(built)


def test_what_stands_is_kept_and_another_world_refused(built):
    again = make_world(built.folder, SHORT)
    assert again.reused
    assert again.manifest == built.manifest
    with pytest.raises(ConfigError, match="holds another world: choose another folder"):
        make_world(built.folder, dataclasses.replace(SHORT, seed=1))


def test_the_command_builds_once_and_shares_readers(built, tmp_path, capsys):
    readers = tmp_path / "readers"
    for name in ("reader", "reader_other"):
        shutil.copytree(built.model(name), readers / name)
    arguments = [str(tmp_path / "world"), "--seed", "1", "--readers", str(readers), "--jobs", "1", "--short"]
    command.main(arguments)
    assert "reasoning world built" in capsys.readouterr().out
    command.main(arguments)
    assert "reasoning world found" in capsys.readouterr().out
    mine, other = (json.loads((folder / "manifest.json").read_text()) for folder in (tmp_path / "world", built.folder))
    same = {name for name in mine["keys"] if mine["keys"][name] == other["keys"][name]}
    assert same == {"reader", "reader_other"}


def test_another_folder_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds other files"):
        make_world(tmp_path, SHORT)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("arguments", [["--seed", "-1"], ["--seed", "٣"], ["--train_rows", "0"], ["--jobs", "x"]])
def test_wrong_arguments_are_refused(arguments, tmp_path, capsys):
    with pytest.raises(SystemExit):
        command.main([str(tmp_path / "world"), *arguments])
    assert "is no number of" in capsys.readouterr().err


def test_numbers_of_samples_by_hand():
    problem = parse_question("12 + 5 - 4 = ?")
    right, lucky, wrong = (
        check_solution(problem, solution_text(lines, answer))
        for lines, answer in (
            (["So 12 + 5 = 17", "So 17 - 4 = 13"], 13),
            (["So 12 + 5 = 18", "So 17 - 4 = 13"], 13),
            (["So 12 + 5 = 18", "So 18 - 4 = 14"], 14),
        )
    )
    numbers = numbers_of([[right, lucky, wrong, wrong], [wrong, wrong, wrong, right], [wrong] * 4])
    assert numbers["pass@1"] == pytest.approx(3 / 12)
    # The first group is a tie, which the answer that came first wins.
    assert numbers["majority@4"] == pytest.approx(1 / 3)
    assert numbers["pass@4"] == pytest.approx(2 / 3)
    assert numbers["unsound"] == pytest.approx(1 / 3)
    assert numbers["first error arithmetic"] == pytest.approx(10 / 12)
