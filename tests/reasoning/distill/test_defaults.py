"""The example of the original document, with small models: nothing but a config and problems is given."""

from pathlib import Path

import pytest

from tests.reasoning.sums import pairs_of_sums, save_model, sums_tokenizer
from verl.reasoning.distill.config import DistillationConfig
from verl.reasoning.distill.progressive import ProgressiveDistiller
from verl.reasoning.sft.fine_tune import fine_tune
from verl.reasoning.sft.settings import FineTuneSettings


@pytest.mark.slow
@pytest.mark.parametrize("difficulty", ["passrate", "heuristic"])
def test_the_documents_example_with_its_gaps_filled_in(tmp_path: Path, difficulty: str) -> None:
    pairs = {problem: f"The answer is {text.split()[-1]}" for problem, text in pairs_of_sums(5)}
    settings = FineTuneSettings(epochs=50, batch_size=25, micro_batch_size=25, learning_rate=1e-2, device="cpu")
    untaught = save_model(tmp_path / "untaught", sums_tokenizer(), hidden=64)
    teacher = fine_tune(untaught, pairs, tmp_path / "trained_model", settings)
    problems = [{"problem": one, "answer": text.split()[-1].rstrip(".")} for one, text in pairs.items()]
    config = DistillationConfig(
        teacher_model_name=str(teacher),
        student_model_name=str(save_model(tmp_path / "small", sums_tokenizer())),
        temperature=3.0,
        curriculum_learning=True,
        max_length=64,
        eval_samples=2,
        difficulty_samples=2,
        looks_per_stage=0,
        num_epochs=1,
        difficulty=difficulty,  # type: ignore[arg-type]
        device="cpu",
        output_dir=str(tmp_path / "out"),
    )
    distiller = ProgressiveDistiller(config)
    told = distiller.progressive_distillation(problems)
    assert len(told["stages"]) == 3
    assert distiller.teacher_report["kept"] > 10
    assert Path(told["final"]["model"], "model.safetensors").is_file()
