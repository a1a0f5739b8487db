"""The judge of steps: the best signal on held-out labels is chosen, kept, and judges the same when loaded."""

import json
from pathlib import Path

import pytest

from tests.reasoning.prm.toy import toy_base, toy_rows
from verl.reasoning.prm.config import PRMConfig
from verl.reasoning.prm.rows import LabelledSolution
from verl.reasoning.prm.step_judge import FILE, load_judge, make_judge
from verl.reasoning.prm.trainer import PRMTrainer
from verl.stepwise.first_error import SOUND, first_error


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A head that has learnt little, and a reader with random weights."""
    root = tmp_path_factory.mktemp("judge")
    base, tokenizer = toy_base(32, 1)
    base.save_pretrained(root / "reader")
    tokenizer.save_pretrained(root / "reader")
    config = PRMConfig(output_dir=root, template="plain", learning_rate=1e-2, batch_size=32, num_epochs=2, device="cpu")
    PRMTrainer(config, base, tokenizer).train(toy_rows(300), toy_rows(60, 1))
    return root


def made(folder: Path, signal: str = "auto") -> dict[str, object]:
    reader = str(folder / "reader")
    return make_judge(folder, toy_rows(80, 2), head=folder / "model", reader=reader, signal=signal, device="cpu")  # type: ignore[arg-type]


def test_the_best_signal_judges(folder: Path) -> None:
    said = made(folder)
    f1 = said["f1"]
    assert isinstance(f1, dict)
    assert set(f1) == {"head", "likelihood", "both"}
    assert f1[said["signal"]] == max(f1.values())
    assert said["n_solutions"] == 80


@pytest.mark.parametrize("signal", ["head", "likelihood", "both"])
def test_it_judges_the_same_when_loaded(folder: Path, signal: str) -> None:
    said = made(folder, signal)
    assert said["signal"] == signal
    rows = toy_rows(80, 2)
    scores = load_judge(folder, device="cpu").score_steps([r.prompt for r in rows], [r.completions for r in rows])
    guesses = [first_error(some, SOUND) for some in scores]
    right = [guess == row.first_error for guess, row in zip(guesses, rows, strict=True)]
    wrong = [hit for hit, row in zip(right, rows, strict=True) if row.first_error >= 0]
    sound = [hit for hit, row in zip(right, rows, strict=True) if row.first_error < 0]
    shares = sum(wrong) / len(wrong), sum(sound) / len(sound)
    f1 = 2 * shares[0] * shares[1] / (sum(shares) or 1)
    assert said["f1"][signal] == pytest.approx(f1)  # type: ignore[index]


def test_without_a_known_first_error_it_judges_all_the_same(folder: Path) -> None:
    row = LabelledSolution(prompt="Add.", completions=("1+1=2\n", "1+2=3\n"), labels=(None, None), problem_id="a")
    said = make_judge(folder, [row], head=folder / "model", reader=str(folder / "reader"), device="cpu")
    assert (said["n_solutions"], set(said["f1"].values())) == (0, {None})
    (scores,) = load_judge(folder, device="cpu").score_steps(["Add."], [row.completions])
    assert all(score is not None and 0 <= score <= 1 for score in scores)
    assert json.loads((folder / FILE).read_text())["signal"] == "both"
