"""Does training with classmates work? Trains with and without them in the world of hinted arithmetic, over several
seeds, and compares validation.

    python scripts/bench/learning.py                      # 3 seeds x 2 runs, about 40 minutes on 2 cores
    python scripts/bench/learning.py --seeds 1 --steps 20

Runs that are finished are not repeated, an interrupted one is resumed. Prints the table, writes the curves next to
the runs (or to --plot), and ends with one line of JSON.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WORLD = ROOT / "data" / "embedded_world"
SETTINGS = (
    f"actor_rollout_ref.model.path={WORLD}/models/policy",
    f"reward_model.classmate_model_name_or_path_list=[{WORLD}/models/classmate_a,{WORLD}/models/classmate_b]",
    f"data.train_files={WORLD}/train.parquet",
    f"data.val_files={WORLD}/val.parquet",
    "data.train_batch_size=8",
    "data.max_prompt_length=128",
    "data.max_response_length=64",
    "actor_rollout_ref.rollout.n=8",
    "actor_rollout_ref.actor.optim.lr=1e-4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16",
    "reward_model.classmate_generation_configs.max_new_tokens=24",
    "reward_model.classmate_batch_size=128",
    "trainer.test_freq=20",
    "trainer.save_freq=20",
)
"""The same with and without classmates, which then read validation rows only."""
ENTRIES = {
    True: ("verl.trainer.qwen_main_ppo",),
    False: ("verl.trainer.classmate_cot_main_ppo", "--config-name=classmate_cot_ppo_trainer"),
}
"""Whether it is the baseline -> entry point."""
MEASURES = {
    "main accuracy": "main_model_reward",
    "answers that follow the wrong hint": "follows_hint",
    "classmate accuracy, mean": "avg_classmate_score",
    "mean CoT length, tokens": "main_cot_length",
}
"""Label -> validation variable of `metrics.jsonl`."""


def validations(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Label -> [(step, value)] of every validation of one run."""
    curves: dict[str, list[tuple[int, float]]] = {label: [] for label in MEASURES}
    for line in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()):
        for label, variable in MEASURES.items():
            for key, value in line.items():
                if re.fullmatch(rf"val-core/.+/{variable}/mean@\d+", key) and value is not None:
                    curves[label].append((line["step"], value))
    return curves


def is_finished(folder: Path) -> bool:
    """Whether the run in `folder` came to its end."""
    state = folder / "run.json"
    return state.exists() and json.loads(state.read_text())["state"] == "finished"


def train(folder: Path, *, seed: int, baseline: bool, steps: int, overrides: list[str]) -> None:
    """Trains in the hinted world, which is built where it is not there, unless the run is there.

    Raises:
        subprocess.CalledProcessError: when the run fails.
    """
    if is_finished(folder):
        return
    builder = [sys.executable, "-m", "verl.data_preprocessing.hinted_arithmetic", "--output_dir", str(WORLD)]
    subprocess.run(builder, cwd=ROOT, check=True)
    own = (f"data.seed={seed}", f"trainer.default_local_dir={folder}", f"trainer.total_training_steps={steps}")
    command = [sys.executable, "-m", *ENTRIES[baseline], *SETTINGS, *own, *overrides]
    # One thread each, as the launch scripts have it: a run has several processes.
    environment = {"OMP_NUM_THREADS": "1", "TQ_NUM_THREADS": "1"} | os.environ
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def plot(runs: dict[str, list[dict[str, list[tuple[int, float]]]]], path: Path) -> None:
    """One panel a measure; a thin line a seed, a thick one their mean."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    labels = [label for label in MEASURES if "length" not in label]
    figure, axes = plt.subplots(1, len(labels), figsize=(4 * len(labels), 3.2), layout="constrained")
    for axis, label in zip(axes, labels, strict=True):
        for colour, (method, seeds) in zip(("tab:grey", "tab:blue"), runs.items(), strict=True):
            curves = [curve[label] for curve in seeds if curve[label]]
            for curve in curves:
                axis.plot(*zip(*curve, strict=True), color=colour, alpha=0.3, linewidth=1)
            if curves:
                steps = [step for step, _ in curves[0]]
                means = [mean(dict(curve)[step] for curve in curves) for step in steps]
                axis.plot(steps, means, color=colour, linewidth=2, label=method)
        axis.set_title(label, fontsize=10)
        axis.set_xlabel("step")
        axis.set_ylim(0, 1)
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=120)


def table(runs: dict[str, list[dict[str, list[tuple[int, float]]]]]) -> str:
    """Markdown: before (the same for all), then after, mean over seeds with each seed in brackets."""
    lines = ["| held-out problems | before | " + " | ".join(f"after, {method}" for method in runs) + " |"]
    lines.append("|---|" + "---:|" * (len(runs) + 1))
    for label in MEASURES:
        digits = 1 if "length" in label else 2
        first = [curve[label][0][1] for seeds in runs.values() for curve in seeds if curve[label]]
        cells = [f"{mean(first):.{digits}f}" if first else "-"]
        for seeds in runs.values():
            last = [curve[label][-1][1] for curve in seeds if curve[label]]
            shown = ", ".join(f"{value:.{digits}f}" for value in last)
            cells.append(f"{mean(last):.{digits}f} ({shown})" if last else "-")
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="seeds of the training runs")
    parser.add_argument("--steps", type=int, default=80, help="training steps of each run")
    parser.add_argument("--output_dir", type=Path, default=ROOT / "outputs" / "learning", help="where the runs lie")
    parser.add_argument("--plot", type=Path, help="where the curves go; default: learning.png beside the runs")
    parser.add_argument("overrides", nargs="*", help="Hydra overrides for every run")
    arguments = parser.parse_args()

    runs: dict[str, list[dict[str, Any]]] = {"baseline": [], "with classmates": []}
    for seed in arguments.seeds:
        for method in runs:
            folder = arguments.output_dir.resolve() / f"{method.replace(' ', '_')}_seed{seed}"
            print(f"{method}, seed {seed}", file=sys.stderr)
            train(
                folder,
                seed=seed,
                baseline=method == "baseline",
                steps=arguments.steps,
                overrides=arguments.overrides,
            )
            runs[method].append(validations(folder))
    path = arguments.plot or arguments.output_dir / "learning.png"
    plot(runs, path)
    print(table(runs))
    print(f"curves: {path}")
    print(json.dumps({"seeds": arguments.seeds, "steps": arguments.steps, "runs": runs}))


if __name__ == "__main__":
    main()
