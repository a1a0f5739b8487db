"""All stages in small, as the command that a user starts, for tests that end it and start it again.

One decision: the model knows nothing, and the reward takes about half of what it writes, so that every stage has right
and wrong solutions without a model that was taught.

    >>> command = make_small(tmp_path, "whole")
    >>> subprocess.run(command, cwd=tmp_path)
"""

import json
import sys
from pathlib import Path
from typing import Any

from tests.reasoning.sums import pairs_of_sums, save_model, sums_tokenizer

REWARD = """
import os
import signal

calls = 0


def accepts(problem: str, solution: str) -> bool:
    global calls
    calls += 1
    for variable, itself in (("SMALL_PIPELINE_ENDED_BY", False), ("SMALL_PIPELINE_ENDS_ITSELF", True)):
        call, pid = map(int, os.environ.get(variable, "0 0").split())
        if call == calls and pid != os.getpid():
            os.kill(os.getpid() if itself else pid, signal.SIGKILL)
    return len(solution) % 2 == 0
"""
"""Kills the pipeline from a training, or the training, where `killing` has asked for it."""


def make_small(folder: Path, name: str) -> list[str]:
    """Writes model, problems, reward and config into `folder` once; the command of a pipeline in `folder/name`."""
    config = folder / "pipeline.yaml"
    if not config.exists():
        tokenizer = sums_tokenizer()
        for number, role in enumerate(("base", "student")):
            save_model(folder / role, tokenizer, seed=number)
        sums = [{"problem": problem, "answer": text.split()[-1].strip(".")} for problem, text in pairs_of_sums()]
        for file, some in (("train", sums[:28]), ("test", sums[28:])):
            (folder / f"{file}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in some))
        (folder / "parity.py").write_text(REWARD)
        # JSON is YAML.
        config.write_text(json.dumps(_settings(folder)))
    return [sys.executable, "-m", "verl.reasoning.run", f"config={config}", f"output_dir={folder / name}"]


def _settings(folder: Path) -> dict[str, Any]:
    learning = {"batch_size": 4, "group_size": 2, "max_prompt_length": 32, "max_length": 56, "kl_coef": 0.0}
    rl = {**learning, "in_process": True, "dynamic_sampling": False, "deterministic": True, "learning_rate": 1e-3}
    tuned = {"batch_size": 4, "micro_batch_size": 4, "learning_rate": 1e-3, "max_length": 64}
    return {
        "base_model_name": str(folder / "base"),
        "student_model_name": str(folder / "student"),
        "train": str(folder / "train.jsonl"),
        "test": str(folder / "test.jsonl"),
        "reward": "parity:accepts",
        "device": "cpu",
        "pure_rl_iterations": 3,
        "cot_iterations": 3,
        "checkpoint_interval": 1,
        "rejection_samples": 4,
        "prm_epochs": 2,
        "prm_solutions": 64,
        "dev_share": 0.2,
        "pure_rl": rl,
        "cot": {**rl, "prompt_template": "{problem}", "max_thinking_length": 16, "max_answer_length": 8},
        "rejection": {"temperature": 1.0, "top_p": 1.0, "max_tokens": 24, "max_length": 24, "adaptive": False},
        "fine_tune": {**tuned, "epochs": 2, "backend": "transformers", "save_every": 1},
        "prm": {**tuned, "mc_rollouts": 2, "mc_max_tokens": 24, "mc_temperature": 1.0, "early_stopping_patience": None},
        "distill": {
            "max_length": 64,
            "n_teacher": 2,
            "batch_size": 4,
            "gradient_accumulation_steps": 1,
            "difficulty_samples": 2,
            "eval_samples": 2,
            "looks_per_stage": 1,
        },
        "eval": {"k": 2, "max_tokens": 24, "temperature": 1.0, "top_p": 1.0},
    }
