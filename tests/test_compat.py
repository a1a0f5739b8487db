"""The original document's imports and keywords work from anywhere, as it writes them (specs/pipeline.md, 11)."""

import importlib
from pathlib import Path
from typing import Any

import pytest

NAMES = {
    "reasoning_pipeline": ("ReasoningModelPipeline", "ReasoningPipelineConfig"),
    "pure_rl_trainer": ("PureRLTrainer", "PureRLConfig"),
    "cot_emergence": ("ChainOfThoughtTrainer", "CoTConfig", "ChainOfThoughtAnalyzer"),
    "rejection_sampling": (
        "DiversityAwareSampler",
        "RejectionSamplingConfig",
        "RejectionSampler",
        "BeamSearchSampler",
    ),
    "process_rewards": ("PRMTrainer", "ProcessRewardEvaluator", "PRMConfig", "PRMDataGenerator"),
    "distillation": ("ProgressiveDistiller", "DistillationConfig", "ReasoningDistillationPipeline"),
}
METHODS = [
    ("reasoning_pipeline", "ReasoningModelPipeline", "run_pipeline"),
    ("pure_rl_trainer", "PureRLTrainer", "train"),
    ("cot_emergence", "ChainOfThoughtTrainer", "train_with_cot_rewards"),
    ("rejection_sampling", "DiversityAwareSampler", "sample_diverse_solutions"),
    ("rejection_sampling", "DiversityAwareSampler", "ensemble_solutions"),
    ("process_rewards", "PRMDataGenerator", "generate_prm_dataset"),
    ("process_rewards", "PRMTrainer", "train"),
    ("process_rewards", "ProcessRewardEvaluator", "evaluate_solution"),
    ("distillation", "ProgressiveDistiller", "progressive_distillation"),
]
CONFIGS: list[tuple[str, str, dict[str, Any]]] = [
    (
        "reasoning_pipeline",
        "ReasoningPipelineConfig",
        {
            "base_model_name": "EleutherAI/gpt-neo-125M",
            "enable_pure_rl": True,
            "enable_cot_training": True,
            "enable_rejection_sampling": True,
            "enable_prm_training": True,
            "enable_distillation": True,
            "output_dir": "./reasoning_output",
        },
    ),
    (
        "pure_rl_trainer",
        "PureRLConfig",
        {
            "model_name": "gpt2",
            "learning_rate": 1e-5,
            "temperature_start": 1.2,
            "temperature_end": 0.3,
            "entropy_coef_start": 0.1,
        },
    ),
    (
        "cot_emergence",
        "CoTConfig",
        {
            "model_name": "gpt2",
            "thinking_reward_weight": 0.3,
            "answer_reward_weight": 0.7,
            "force_thinking_steps": 3,
        },
    ),
    (
        "rejection_sampling",
        "RejectionSamplingConfig",
        {"num_samples": 16, "min_score_threshold": 0.7, "diversity_bonus": 0.1},
    ),
    ("process_rewards", "PRMConfig", {"base_model_name": "gpt2"}),
    (
        "distillation",
        "DistillationConfig",
        {
            "teacher_model_name": "./trained_model",
            "student_model_name": "gpt2-small",
            "temperature": 3.0,
            "curriculum_learning": True,
        },
    ),
]


@pytest.mark.parametrize("module", NAMES)
def test_original_names_can_be_imported(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = importlib.import_module(module)
    assert [name for name in NAMES[module] if not hasattr(found, name)] == []
    assert set(NAMES[module]) <= set(found.__all__)


@pytest.mark.parametrize(("module", "kind", "method"), METHODS)
def test_classes_have_the_original_methods(module: str, kind: str, method: str) -> None:
    assert callable(getattr(getattr(importlib.import_module(module), kind), method))


@pytest.mark.parametrize(("module", "kind", "keywords"), CONFIGS)
def test_configs_take_the_original_keywords(module: str, kind: str, keywords: dict[str, Any]) -> None:
    config = getattr(importlib.import_module(module), kind)(**keywords)
    assert {name: getattr(config, name) for name in keywords} == keywords
