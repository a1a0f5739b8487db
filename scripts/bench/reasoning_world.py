"""What is there to gain in a reasoning world? Pilots of rejection fine-tuning, distillation, RL.

    python scripts/bench/reasoning_world.py data/reasoning_world rft distill     # minutes
    python scripts/bench/reasoning_world.py data/reasoning_world rl              # the trainer, without classmates

The world is built where it is not there. Prints a line for each model: pass@1, majority, pass@8 on held-out problems.
Ends with one line of JSON.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.bench.learning import validations  # noqa: E402
from verl.data_preprocessing import embedded_models  # noqa: E402
from verl.data_preprocessing.embedded_tokenizers import TURN_END  # noqa: E402
from verl.data_preprocessing.reasoning_world import measure, rl_settings  # noqa: E402
from verl.data_preprocessing.reasoning_world.build import ReasoningWorld, make_world  # noqa: E402
from verl.data_preprocessing.reasoning_world.checking import check_solution  # noqa: E402
from verl.data_preprocessing.reasoning_world.lessons import prompt_text  # noqa: E402
from verl.data_preprocessing.reasoning_world.planting import solve  # noqa: E402
from verl.data_preprocessing.reasoning_world.problems import ChainProblem, make_problem  # noqa: E402
from verl.data_preprocessing.reasoning_world.spec import ReasoningWorldSpec  # noqa: E402

Pair = tuple[ChainProblem, str]
PILOTS = ("rft", "distill", "rl")


def fine_tuned(start: Path, pairs: Sequence[Pair], folder: Path, *, steps: int, lr: float, seed: int) -> Path:
    """Supervised training of a model on solutions, 16 a step, in epochs of a new order each; saved in `folder`."""
    import torch
    from tqdm import tqdm

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model, tokenizer = embedded_models.load_model(start)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    rng, queue = random.Random(seed), list[Pair]()
    for step in tqdm(range(steps), desc=f"tune {folder.name:<12}", unit="step"):
        batch = list[Pair]()
        while len(batch) < 16:
            queue = queue or rng.sample(list(pairs), len(pairs))
            batch.append(queue.pop())
        lessons = [embedded_models.Lesson(given=prompt_text(p), learnt=text + TURN_END) for p, text in batch]
        ids_BT, labels_BT = embedded_models._collate(tokenizer, lessons)
        for group in optimizer.param_groups:
            group["lr"] = lr * (1 - step / steps)
        logits_BTV = model(input_ids=ids_BT[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits_BTV.flatten(0, 1), labels_BT[:, 1:].flatten(), ignore_index=-100
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def sampled(world: ReasoningWorld, name: str, problems: Sequence[ChainProblem], *, n: int) -> list[Pair]:
    """Solutions of a model of the world to training problems."""
    groups = measure.sample(*embedded_models.load_model(world.model(name)), problems, n=n, seed=17)
    return [(problem, text) for problem, group in zip(problems, groups, strict=True) for text in group]


def right(pairs: Sequence[Pair]) -> list[Pair]:
    """Those whose answer is right."""
    return [(problem, text) for problem, text in pairs if check_solution(problem, text).answer_right]


def rl(world: ReasoningWorld, folder: Path, seed: int, extra: Sequence[str]) -> dict[str, Any]:
    """A run of the trainer without classmates: validation accuracy before and after, and how long it took."""
    command = [sys.executable, "-m", "verl.trainer.qwen_main_ppo", *rl_settings.overrides(world.folder)]
    command += [f"data.seed={seed}", f"trainer.default_local_dir={folder}", *extra]
    environment = {"OMP_NUM_THREADS": "1", "TQ_NUM_THREADS": "1"} | os.environ
    began = time.monotonic()
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    curve = validations(folder)["main accuracy"]
    return {"before": curve[0][1], "after": curve[-1][1], "seconds": round(time.monotonic() - began)}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", type=Path, help="folder of the world")
    parser.add_argument("pilots", nargs="+", choices=PILOTS, help="what to try")
    parser.add_argument("--seed", type=int, default=0, help="of the world and of the training")
    parser.add_argument("--problems", type=int, default=1024, help="training problems that are sampled from")
    parser.add_argument("--samples", type=int, default=4, help="solutions of each")
    parser.add_argument("--lr", type=float, default=1e-3, help="of the supervised pilots")
    parser.add_argument("--output_dir", type=Path, default=ROOT / "outputs" / "reasoning_world", help="models and runs")
    parser.add_argument("--set", nargs="*", default=[], help="Hydra overrides of the pilot rl")
    args = parser.parse_args()
    spec = ReasoningWorldSpec(seed=args.seed)
    world = make_world(args.world, spec)
    problems = [make_problem(seed=args.seed, split="train", index=index) for index in range(args.problems)]
    found: dict[str, Any] = {name: world.manifest["models"][name] for name in ("base", "student")}
    pools: dict[str, tuple[str, list[Pair]]] = {}
    if {"rft", "distill"} & set(args.pilots):
        accepted = right(sampled(world, "base", problems, n=args.samples))
        steps = 2 * len(accepted) // 16
        if "rft" in args.pilots:
            pools["rft"] = "base", accepted
        if "distill" in args.pilots:
            pools["student on verified traces"] = "student", accepted
            pools["student on its own"] = "student", sampled(world, "student", problems, n=args.samples)
            pools["student on gold"] = "student", [(problem, solve(problem).text) for problem in problems]
    for name, (start, pairs) in pools.items():
        began = time.monotonic()
        folder = args.output_dir.resolve() / name.replace(" ", "_")
        fine_tuned(world.model(start), pairs, folder, steps=steps, lr=args.lr, seed=args.seed)
        found[name] = measure.measure_policy(spec, folder)
        found[name] |= {"solutions": len(pairs), "steps": steps, "seconds": round(time.monotonic() - began)}
    if "rl" in args.pilots:
        found["rl"] = rl(world, args.output_dir.resolve() / "rl", args.seed, args.set)
    for name, numbers in found.items():
        print(f"{name:<28}" + "  ".join(f"{key} {value:g}" for key, value in numbers.items() if "error" not in key))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
