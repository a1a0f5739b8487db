"""What a training came to: a line for each step, the best step, and what a person should look at.

One decision: all of it is read from the run's own `metrics.jsonl`, so that a resumed training has the whole history.

    >>> history(folder)[-1]["mean_reward"], best_step(folder), alarms(folder)
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl.reasoning.rl.running import lines, steps
from verl.trainer.run.checkpoints import step_folders

NAMES: Mapping[str, tuple[str, ...]] = {
    "mean_reward": ("critic/main_model_reward/mean",),
    "policy_loss": ("actor/pg_loss", "actor/actor/pg_loss"),
    "value_loss": ("critic/vf_loss", "critic/critic/vf_loss"),
    "entropy": ("actor/entropy",),
    "kl_div": ("actor/kl_loss", "actor/reward_kl_penalty"),
    "rollout_kl": ("rollout_corr/kl",),
    "clip_fraction": ("actor/pg_clipfrac",),
    "total_loss": ("actor/loss",),
    "grad_norm": ("actor/grad_norm",),
    "learning_rate": ("actor/lr",),
    "temperature": ("reasoning/temperature",),
    "entropy_coef": ("reasoning/entropy_coeff",),
    "zero_variance": ("reasoning/zero_variance",),
    "failed_rewards": ("critic/main_judge_error/mean",),
    "response_length": ("response_length/mean",),
    "truncated": ("response_length/clip_ratio",),
}
"""Name in the history -> names of the trainer's metric, of which the first that is there counts."""
LOW_ENTROPY, HIGH_KL, MANY_TRUNCATED = 0.05, 0.5, 0.3
"""Nats of a token, nats of a token, share of answers: beyond them an alarm is raised."""
_WINDOW = 5
"""Steps over which rewards are averaged."""


def history(folder: Path) -> list[dict[str, Any]]:
    """A mapping for each training step: `step`, and those of `NAMES` that the run has; `validation` where there is one.

    `validation` is the mean reward of the validation problems.
    """
    found = []
    for line in lines(folder):
        entry: dict[str, Any] = {"step": line["step"]}
        if "training/global_step" in line:
            for name, keys in NAMES.items():
                value = next((line[key] for key in keys if line.get(key) is not None), None)
                if value is not None:
                    entry[name] = value
        validated = _validated(line)
        if validated is not None:
            entry["validation"] = validated
        found.append(entry)
    return found


def _validated(line: Mapping[str, Any]) -> float | None:
    scores = [
        value
        for key, value in line.items()
        if key.startswith("val-core/") and "/main_model_reward/mean@" in key and value is not None
    ]
    return sum(scores) / len(scores) if scores else None


def best_step(folder: Path) -> int:
    """Of the steps whose checkpoint is there: that with the best validation, else with the best rewards around it.

    0 if there is no checkpoint.
    """
    saved = sorted(step_folders(folder))
    told = {entry["step"]: entry for entry in history(folder)}
    validated = {step: told[step]["validation"] for step in saved if "validation" in told.get(step, {})}
    if validated:
        return max(validated, key=lambda step: (validated[step], -step))
    means = {step: _mean_reward(told, step) for step in saved}
    return max(saved, key=lambda step: (means[step], step), default=0)


def _mean_reward(told: Mapping[int, Mapping[str, Any]], step: int) -> float:
    around = [told[k]["mean_reward"] for k in range(step - _WINDOW + 1, step + 1) if "mean_reward" in told.get(k, {})]
    return sum(around) / len(around) if around else float("-inf")


def alarms(folder: Path) -> list[str]:
    """What a person should look at, a line each: entropy, KL, cut answers, rewards that validation does not confirm."""
    told = history(folder)
    found = []
    checks = (
        ("entropy", lambda value: value < LOW_ENTROPY, f"entropy below {LOW_ENTROPY}"),
        ("kl_div", lambda value: value > HIGH_KL, f"KL to the reference above {HIGH_KL}"),
        ("truncated", lambda value: value > MANY_TRUNCATED, f"more than {MANY_TRUNCATED:.0%} of answers cut off"),
    )
    for name, is_bad, text in checks:
        bad = [entry["step"] for entry in told if entry.get(name) is not None and is_bad(entry[name])]
        if bad:
            found.append(f"{text} at {len(bad)} of {len(told)} steps, first at step {bad[0]}")
    failed = [entry["failed_rewards"] for entry in told if entry.get("failed_rewards")]
    if failed:
        found.append(f"the reward failed on {sum(failed) / len(told):.1%} of answers; they were left out")
    return found + _unconfirmed(told)


def _unconfirmed(told: Sequence[Mapping[str, Any]]) -> list[str]:
    validated = [entry for entry in told if "validation" in entry]
    if len(validated) < 2:
        return []
    first, last = validated[-2], validated[-1]
    between = [entry["mean_reward"] for entry in told if "mean_reward" in entry and entry["step"] > first["step"]]
    rises = len(between) > 1 and between[-1] > between[0]
    if rises and last["validation"] < first["validation"]:
        return [
            f"rewards rose after step {first['step']} while validation fell from {first['validation']:.3f} to "
            f"{last['validation']:.3f}"
        ]
    return []


def trained(folder: Path) -> int:
    """Steps of the run so far."""
    done = steps(folder)
    return int(done[-1]["step"]) if done else 0
