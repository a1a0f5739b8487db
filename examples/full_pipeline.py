"""All five stages from a plain script: base model, problems with answers, a reward, a report.

    python examples/full_pipeline.py                                    # the embedded world: no download, no GPU
    python examples/full_pipeline.py --base Qwen/Qwen2.5-0.5B --train train.jsonl --test test.jsonl

Each line of a file is {"problem": ..., "answer": ...}. The same command after a kill goes on where it was.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from verl.data_preprocessing.common import run_command
from verl.reasoning.pipeline import ReasoningModelPipeline
from verl.reasoning.pipeline_config import read_config
from verl.reasoning.records import Problem, Solution
from verl.reasoning.rewards import RewardContext, RewardResult
from verl.reasoning.scoring import math_reward
from verl.reasoning.world_config import embedded


async def right_and_short(problem: Problem, solution: Solution, context: RewardContext) -> RewardResult:
    """A reward of your own: whether the answer is right, a little more for a short solution."""
    found = await math_reward()(problem, solution, context)
    if not found.valid or found.score is None:
        return found
    bonus = max(0.0, 1 - (solution.n_tokens or len(solution.text.split())) / 512)
    return RewardResult(score=found.score * (0.9 + 0.1 * bonus), correct=found.correct, final_answer=found.final_answer)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="path or hub name of the base model; without it the embedded world is used")
    parser.add_argument("--student", help="what is distilled into; the base model without it")
    parser.add_argument("--train", type=Path, help="JSONL file of problems to learn from")
    parser.add_argument("--test", type=Path, help="JSONL file of held-out problems")
    parser.add_argument("--output_dir", type=Path, default=Path("outputs/reasoning"), help="what stages leave")
    parser.add_argument("--short", action="store_true", help="the embedded world in small, to see all of it run")
    args = parser.parse_args()
    problems: tuple[list[Any], list[Any]]
    if args.base is None:
        values, problems = embedded(args.output_dir, {"world_size": "short" if args.short else "full"})
    elif args.train is None or args.test is None:
        sys.exit("--base needs problems: write --train FILE.jsonl --test FILE.jsonl")
    else:
        values = {"base_model_name": args.base, "student_model_name": args.student, "output_dir": str(args.output_dir)}
        train, test = ([json.loads(line) for line in file.open() if line.strip()] for file in (args.train, args.test))
        problems = (train, test)
    results = ReasoningModelPipeline(read_config(values), right_and_short).run_pipeline(*problems)
    print(Path(results["report_path"]).read_text())
    question = problems[1][0].problem if isinstance(problems[1][0], Problem) else problems[1][0]["problem"]
    print(f"{question}\n{results['best_model_path'].generate(question, temperature=0.0, max_tokens=256)}")


if __name__ == "__main__":
    run_command(main)
