"""A finished run's policy -> the numbers of its result: what it writes, and what each reader makes of that.

Each reader of the world is shown the thoughts about the held-out problems whole, stripped of their answer, and cut
(`thoughts.py`). With 0 % it sees an empty thought, closed at once; `alone` it thinks for itself. What does not depend
on the run, the start policy and the readers alone, is measured once a seed.

    measure_start(study, 11, folders, file, key=key)
    measure_run(study, arm, 11, folders, policy, start=file, seconds={}, key=key, results_dir=results_dir)
"""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl.classmate import answer_forms, strip
from verl.data_preprocessing.embedded_models import load_model
from verl.data_preprocessing.embedded_tokenizers import THINK_END
from verl.data_preprocessing.worlds.lessons import prompt_text
from verl.data_preprocessing.worlds.measure import POLICY_MAX_TOKENS, READER_MAX_TOKENS, mean
from verl.evaluation.study import learner, thoughts
from verl.evaluation.study.results import SHARES, RunResult, write_result
from verl.evaluation.study.spec import Arm, Study
from verl.evaluation.study.thoughts import Written, accuracies, ask, is_right, write_thoughts
from verl.trainer.run.state import write_atomically

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from verl.data_preprocessing.embedded_models import CausalLM

EXAMPLES = 3
"""Held-out problems that a result shows."""

SOURCES = (sys.modules[__name__], thoughts, learner, strip, answer_forms)
"""Modules that decide what is measured."""


def start_file(folder: Path, seed: int) -> Path:
    """Where a study keeps what was measured before training."""
    return folder / f"start_seed{seed}.json"


def plan_of(study: Study, arm: Arm) -> tuple[Any, ...]:
    """What of a study decides how an arm's run is measured."""
    return study.strips_by_clause, study.learner_samples if arm.name in study.learner_arms else ()


def measure_start(study: Study, seed: int, folders: Mapping[str, Path], file: Path, *, key: str) -> None:
    """Measures the start policy, and each reader from the question alone; writes them into `file`.

    Args:
        folders: of the world's parts, by name.
        key: is written beside the numbers.
    """
    written = write_thoughts(study, seed, folders["policy"])
    roles = roles_of(study)
    numbers = {"start_accuracy": mean(w.right for w in written), "start_tokens": mean(w.tokens for w in written)}
    numbers |= {f"start_{name}": share for name, share in _style_shares(written).items()}
    reads: dict[str, dict[str, float]] = {"stripped": {}, "whole": {}}
    for name in roles:
        model, tokenizer = load_model(folders[name])
        numbers[f"alone_{name}"] = _alone(study, model, tokenizer, written)
        if roles[name] == "unseen":
            views = {"stripped": [w.stripped for w in written], "whole": [w.thought for w in written]}
            for view, share in accuracies(study, model, tokenizer, written, views).items():
                reads[view][name] = share
    numbers |= {f"start_{name}": value for name, value in _unseen(numbers, reads["stripped"], reads["whole"]).items()}
    shown = [{"question": w.problem.question, "before": w.thought} for w in written[:EXAMPLES]]
    write_atomically(file, json.dumps({"key": key, "numbers": numbers, "thoughts": shown}, indent=1) + "\n")


def measure_run(
    study: Study,
    arm: Arm,
    seed: int,
    folders: Mapping[str, Path],
    policy: Path,
    *,
    start: Path,
    seconds: Mapping[str, float],
    key: str,
    results_dir: Path,
) -> None:
    """Measures a trained policy and writes the result of its run.

    Args:
        folders: of the world's parts, by name.
        policy: the final model.
        start: what `measure_start` wrote.
        seconds: `world` and `training`.
        key: of the result.
    """
    began = time.monotonic()
    before = json.loads(start.read_text())
    written = write_thoughts(study, seed, policy)
    roles = roles_of(study)
    numbers = dict(before["numbers"])
    numbers |= {"accuracy": mean(w.right for w in written), "tokens": mean(w.tokens for w in written)}
    numbers |= _style_shares(written)
    curves: dict[str, list[float]] = {}
    whole: dict[str, float] = {}
    inner = [f"{share:g}" for share in SHARES[1:-1]]
    views = {"whole": [w.thought for w in written], "0": [""] * len(written)}
    views |= {name: [w.cuts[i] for w in written] for i, name in enumerate(inner)}
    views["1"] = [w.stripped for w in written]
    for name in roles:
        shares = accuracies(study, *load_model(folders[name]), written, views)
        whole[name] = shares["whole"]
        curves[name] = [shares[view] for view in ("0", *inner, "1")]
    reads = {name: curve[-1] for name, curve in curves.items()}
    numbers |= {f"reads_{name}": value for name, value in reads.items()}
    numbers |= {f"reads_full_{name}": value for name, value in whole.items()}
    numbers |= _summaries(roles, numbers, reads, whole)
    if arm.name in study.learner_arms:
        unseen = next(name for name, role in roles.items() if role == "unseen")
        numbers |= learner.learning_curve(study, seed, policy, folders[unseen], written)
    result = RunResult(
        study=study.name,
        arm=arm.name,
        seed=seed,
        steps=study.steps,
        key=key,
        commit=_commit(),
        seconds={name: round(value, 1) for name, value in {**seconds, "measuring": time.monotonic() - began}.items()},
        readers=dict(roles),
        numbers=numbers,
        curves=curves,
        examples=[{**one, "after": w.thought} for one, w in zip(before["thoughts"], written, strict=False)],
    )
    write_result(result, results_dir)


def roles_of(study: Study) -> dict[str, str]:
    """Reader -> role."""
    return {reader.model.name: reader.role for reader in study.world.readers}


def _alone(study: Study, model: "CausalLM", tokenizer: "PreTrainedTokenizerFast", written: Sequence[Written]) -> float:
    """How often a reader is right that thinks for itself."""
    prompts = [prompt_text(w.problem) for w in written]
    replies = ask(model, tokenizer, prompts, POLICY_MAX_TOKENS + READER_MAX_TOKENS)
    said = [replies[prompt].partition(THINK_END)[2] for prompt in prompts]
    return mean(is_right(study, text, w) for text, w in zip(said, written, strict=True))


def _style_shares(written: Sequence[Written]) -> dict[str, float]:
    return {f"style_{style}": round(n / len(written), 4) for style, n in Counter(w.style for w in written).items()}


def _unseen(alone: Mapping[str, float], reads: Mapping[str, float], whole: Mapping[str, float]) -> dict[str, float]:
    """`unseen` and `unseen_raw`.

    Args:
        alone: holds `alone_READER`.
        reads, whole: unseen reader -> accuracy from stripped and from whole thoughts.
    """
    if not reads:
        return {}
    return {
        "unseen": mean(value - alone[f"alone_{name}"] for name, value in reads.items()),
        "unseen_raw": mean(whole.values()),
    }


def _summaries(
    roles: Mapping[str, str],
    numbers: Mapping[str, float],
    reads: Mapping[str, float],
    whole: Mapping[str, float],
) -> dict[str, float]:
    """What is said of several readers at once."""
    of_role = {role: {n: v for n, v in reads.items() if roles[n] == role} for role in set(roles.values())}
    unseen = of_role.get("unseen", {})
    found = _unseen(numbers, unseen, {name: whole[name] for name in unseen})
    if "classmate" in of_role:
        found["classmates"] = mean(of_role["classmate"].values())
    if "insider" in of_role and unseen:
        found["insider_gap"] = round(mean(of_role["insider"].values()) - mean(unseen.values()), 4)
    return found


def _commit() -> str:
    root = Path(__file__).resolve().parents[3]
    try:
        said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.stdout.strip()
