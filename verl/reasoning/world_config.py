"""The pipeline in the embedded world: models of a few hundred thousand weights, and settings with which all five stages
take minutes on two cores.

>>> values, (train, test) = embedded(Path("outputs/reasoning"), {})
>>> values["base_model_name"]
'outputs/reasoning/world/models/base'
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from verl.classmate.errors import ConfigError
from verl.data_preprocessing.reasoning_world.build import MODELS, make_world
from verl.data_preprocessing.reasoning_world.measure import MAX_TOKENS
from verl.data_preprocessing.reasoning_world.rl_settings import STEPS
from verl.data_preprocessing.reasoning_world.rows import PROBLEMS, PROBLEMS_VAL
from verl.data_preprocessing.reasoning_world.spec import ReasoningWorldSpec
from verl.reasoning.records import Problem, read_jsonl

EMBEDDED = "embedded"
"""Name of this config on the command line."""
WORLD = "world"
"""Folder of the world, in the pipeline's, unless `world` names another one."""


def embedded(output_dir: Path, given: dict[str, Any]) -> tuple[dict[str, Any], tuple[list[Problem], list[Problem]]]:
    """Options of the pipeline, and the world's training and test problems; builds the world if it is not there.

    Args:
        output_dir: of the pipeline.
        given: what the user wrote; `world` and `world_size` (`full` or `short`) are taken out of it.

    Raises:
        ConfigError: a size that is unknown, or an option that the pipeline does not take.
    """
    folder, size = Path(str(given.pop(WORLD, None) or output_dir / WORLD)), given.pop("world_size", "full")
    seed = int(given.get("seed") or 0)
    if size not in _SIZES:
        raise ConfigError(f"world_size={size} is not possible; write one of: {', '.join(_SIZES)}")
    spec = ReasoningWorldSpec(seed=seed)
    models = folder.expanduser().resolve() / MODELS
    values = {
        "base_model_name": str(models / "base"),
        "student_model_name": str(models / "student"),
        "output_dir": str(output_dir),
        **_settings(_SIZES[size]),
    }
    # A mistake is told before the minutes that a world takes.
    _check(values, given)
    world = make_world(folder, _short(spec) if size == "short" else spec)
    return values, (read_jsonl(world.file(PROBLEMS), Problem), read_jsonl(world.file(PROBLEMS_VAL), Problem))


def _check(values: dict[str, Any], given: dict[str, Any]) -> None:
    # It imports torch.
    from verl.reasoning.pipeline_config import read_config

    merged: Any = OmegaConf.to_container(OmegaConf.merge(OmegaConf.create(values), OmegaConf.create(given)))
    read_config(merged)


_SIZES: Mapping[str, int] = {"full": 1, "short": 0}
"""Whether models are trained for as long as it takes them to learn."""


def _short(spec: ReasoningWorldSpec) -> ReasoningWorldSpec:
    """A few problems, and a policy that was taught just long enough to solve some of them."""
    base, student = (dataclasses.replace(one, steps=steps) for one, steps in ((spec.base, 900), (spec.student, 300)))
    return dataclasses.replace(spec.short(), train_rows=64, val_rows=16, measured=16, base=base, student=student)


def _settings(full: int) -> dict[str, Any]:
    """Of a world whose models learn in minutes, or of one in which nothing is learnt and everything is run."""
    return {
        "pure_rl_iterations": STEPS if full else 2,
        "cot_iterations": STEPS // 2 if full else 2,
        "rejection_samples": 8 if full else 4,
        "prm_epochs": 6 if full else 1,
        "num_test_problems": 256,
        "prm_solutions": 1600 if full else 32,
        "sampled_problems": 1024 if full else None,
        "checkpoint_interval": 20 if full else 1,
        "pure_rl": _rl(full),
        # It goes on where pure RL ended, with steps that are small enough to lose nothing of it.
        "cot": _rl(full)
        | {
            "learning_rate": 2e-4,
            "prompt_template": "{problem}",
            "max_thinking_length": MAX_TOKENS - 16,
            "max_answer_length": 16,
        },
        "rejection": {"temperature": 1.0, "top_p": 1.0, "max_tokens": MAX_TOKENS, "max_length": MAX_TOKENS},
        "fine_tune": {"epochs": 2, "batch_size": 16, "micro_batch_size": 16, "learning_rate": 1e-3, "max_length": 320},
        "prm": {
            "label_mode": "mc",
            "mc_rollouts": 16 if full else 4,
            "search": "binary",
            "mc_max_tokens": MAX_TOKENS,
            "mc_temperature": 1.0,
            "batch_size": 16,
            "micro_batch_size": 16,
            "learning_rate": 1e-3,
            "max_length": 320,
        },
        "distill": {
            "max_length": MAX_TOKENS,
            "n_teacher": 4,
            "learning_rate": 2e-3,
            "batch_size": 16,
            "gradient_accumulation_steps": 1,
            "difficulty_samples": 4,
            "eval_samples": 4,
            "looks_per_stage": 1,
        },
        "eval": {"k": 8, "max_tokens": MAX_TOKENS, "temperature": 1.0, "top_p": 1.0},
    }


def _rl(full: int) -> dict[str, Any]:
    return {
        "learning_rate": 5e-4,
        "batch_size": 16 if full else 4,
        "group_size": 8 if full else 2,
        "max_prompt_length": 64,
        "max_length": 64 + MAX_TOKENS,
        "kl_coef": 0.0,
    }
