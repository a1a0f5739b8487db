"""What weight, keep rate, temperature and condition do to a short training run: the table of docs/tuning.md.

One decision: every run differs from the run `base` in one option, and `base` itself is there with two seeds: what lies
between those two is noise.

    python scripts/bench/tuning.py                            # all runs
    python scripts/bench/tuning.py --cases base "weight 2"    # some of them

Runs that are finished are not repeated, an interrupted one is resumed; the table holds all that are finished. Ends with
one line of JSON.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.learning import is_finished, train, validations  # noqa: E402

CASES: dict[str, tuple[int, dict[str, str]]] = {
    "base": (1, {}),
    "base, seed 2": (2, {}),
    "weight 0.25": (1, {"classmate_reward_weight": "0.25"}),
    "weight 2": (1, {"classmate_reward_weight": "2"}),
    "keep 0.9": (1, {"main_cot_keep_rate": "0.9"}),
    "keep 0.5": (1, {"main_cot_keep_rate": "0.5"}),
    "condition always": (1, {"use_classmate_main_cond": "always"}),
    "greedy": (1, {"do_sample": "false"}),
    "temperature 1": (1, {"temperature": "1.0", "top_p": "1.0"}),
}
"""Name -> seed, and the options in which the run differs from those of `learning.py`: weight 1, the whole CoT,
temperature 0.7, top_p 0.9, condition no_classmate_when_main_incorrect."""

BATCH = [
    "data.train_batch_size=16",
    "actor_rollout_ref.actor.ppo_mini_batch_size=16",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=128",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=128",
]
"""Twice the rows a step of `learning.py`: 20 steps are few."""

_GENERATION = {"do_sample", "temperature", "top_p"}


def overrides_of(options: dict[str, str]) -> list[str]:
    """Hydra overrides for reward options."""
    return [
        f"reward_model.classmate_{'generation' if key in _GENERATION else 'cot_reward'}_configs.{key}={value}"
        for key, value in options.items()
    ]


def measure(folder: Path) -> dict[str, float]:
    """What the table says about one finished run."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    training = [line for line in lines if "training/global_step" in line]
    curves = {label: curve for label, curve in validations(folder).items() if curve}
    return {label: curve[-1][1] for label, curve in curves.items()} | {
        "training, main reward": mean(line["critic/main_model_reward/mean"] for line in training),
        "training, classmate score": mean(line["critic/classmate_scores/mean"] for line in training),
        "training, group std of w W": mean(
            line["critic/weighted_classmate_group_reward_std/mean"] for line in training
        ),
        "training, answered": mean(line["classmate/valid_ratio"] for line in training),
    }


def table(results: dict[str, dict[str, float]]) -> str:
    """Markdown, one row a run."""
    labels = list(dict.fromkeys(label for result in results.values() for label in result))
    lines = ["| run | " + " | ".join(labels) + " |", "|---|" + "---:|" * len(labels)]
    for case, result in results.items():
        cells = [f"{result[label]:.1f}" if "length" in label else f"{result[label]:.3f}" for label in labels]
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES), metavar="NAME", help="runs")
    parser.add_argument("--steps", type=int, default=20, help="training steps of each run")
    parser.add_argument("--output_dir", type=Path, default=ROOT / "outputs" / "tuning", help="where the runs lie")
    arguments = parser.parse_args()

    folders = {
        case: arguments.output_dir.resolve() / f"{case.replace(', ', '_').replace(' ', '_')}_{arguments.steps}"
        for case in CASES
    }
    for case in arguments.cases:
        seed, options = CASES[case]
        print(case, file=sys.stderr)
        # In one process: starting Ray's eight would take as long as the training.
        fixed = ["debug=true", f"trainer.test_freq={arguments.steps}", "trainer.save_freq=5", *BATCH]
        train(
            folders[case],
            seed=seed,
            baseline=False,
            steps=arguments.steps,
            overrides=[*overrides_of(options), *fixed],
        )
    results: dict[str, Any] = {case: measure(folder) for case, folder in folders.items() if is_finished(folder)}
    print(table(results))
    print(json.dumps({"steps": arguments.steps, "runs": results}))


if __name__ == "__main__":
    main()
