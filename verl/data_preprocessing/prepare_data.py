"""All data sets by one command: from the hub, from a folder of files, or small made-up ones.

Decision: a set that fails does not stop the others; each says in one line what is there or why not, and the exit code
tells whether all that was asked for is there. One process for all, since importing takes longer than most sets.

    bash my_scripts/prepare_data.sh                                   # all sets, from the hub, into data/
    bash my_scripts/prepare_data.sh gsm8k mmlu_sycophancy             # these two
    bash my_scripts/prepare_data.sh --local_dir DIR                   # the files of DIR, by the names in FILES
    bash my_scripts/prepare_data.sh --smoke                           # made-up rows into data/smoke, in seconds
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl.data_preprocessing.anthropic_hh_rlhf import AnthropicHhRlhf
from verl.data_preprocessing.code_tasks import CodeTasks
from verl.data_preprocessing.common import run_command
from verl.data_preprocessing.gsm8k import Gsm8k
from verl.data_preprocessing.helpful_instructions import HelpfulInstructions
from verl.data_preprocessing.hendrycks_math import CATEGORIES, HendrycksMath
from verl.data_preprocessing.mmlu_sycophancy import MmluSycophancy
from verl.data_preprocessing.recipe import Recipe, run_recipe


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One data set of the command."""

    recipe: Recipe
    """What makes it."""
    files: tuple[str, ...]
    """What its files are called in a local folder; those that are there are used."""
    val_files: tuple[str, ...] = ()
    """The same for the test part, where the set has one of its own."""
    options: tuple[str, ...] = ()
    """Further arguments of its command line."""


SETS: Mapping[str, Entry] = {
    "helpful_instructions": Entry(
        recipe=HelpfulInstructions(),
        files=("self_instruct_seed_tasks.jsonl", "self_instruct_user_oriented.jsonl", "t0_prompts.jsonl"),
    ),
    "anthropic_hh_rlhf": Entry(recipe=AnthropicHhRlhf(), files=("hh_rlhf_harmless_base_test.jsonl",)),
    "mmlu_sycophancy": Entry(
        recipe=MmluSycophancy(), files=("mmlu_dev.jsonl", "mmlu_val.jsonl", "mmlu_test_sample.jsonl")
    ),
    "gsm8k": Entry(recipe=Gsm8k(), files=("gsm8k_train.jsonl",), val_files=("gsm8k_test.jsonl",)),
    "hendrycks_math": Entry(
        recipe=HendrycksMath(), files=("hendrycks_math_train.jsonl",), val_files=("hendrycks_math_test.jsonl",)
    ),
    "humaneval": Entry(recipe=CodeTasks(), files=("humaneval.jsonl",), options=("--dataset", "humaneval")),
    "mbpp": Entry(recipe=CodeTasks(), files=("mbpp_sanitized.jsonl",), options=("--dataset", "mbpp")),
}
"""By name of the set, which is also its folder."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line; `arguments` replaces what the shell gave.

    Raises:
        ValueError: nothing can be built with these arguments.
        SystemExit: a set that was asked for is not there; the others are.
    """
    parser = argparse.ArgumentParser(prog="prepare_data", description="Makes data sets as parquet files.")
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"default: all of {', '.join(SETS)}")
    parser.add_argument("--output_dir", type=Path, default=Path("data"), help="each set becomes a folder in it")
    parser.add_argument("--local_dir", type=Path, help="take the files of this folder, not the hub")
    parser.add_argument("--smoke", action="store_true", help="made-up rows into OUTPUT_DIR/smoke, no network, seconds")
    parser.add_argument("--seed", type=int, help="seed of everything that is drawn at random; default: 0")
    parser.add_argument("--force", action="store_true", help="build again what is there already")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.sets if name not in SETS]:
        raise ValueError(f"no data set {unknown[0]!r}: use {', '.join(SETS)}")
    if options.seed is not None and not any(SETS[name].recipe.seeded for name in options.sets or SETS):
        raise ValueError(f"--seed: nothing in {', '.join(options.sets)} is drawn at random: leave it out")
    options.seed = options.seed or 0
    if options.smoke and options.local_dir:
        raise ValueError("--smoke makes its own files: leave --local_dir out")
    if options.local_dir and not options.local_dir.is_dir():
        raise ValueError(f"{options.local_dir} is not a folder: --local_dir names the one that holds the files")
    if not options.smoke:
        _prepare(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        write_smoke_files(Path(folder))
        # Made-up rows are nobody's work: what an older version of the code made of them may go.
        options.local_dir, options.output_dir, options.force = Path(folder), options.output_dir / "smoke", True
        _prepare(options)


def _prepare(options: argparse.Namespace) -> None:
    failed = 0
    for name in options.sets or SETS:
        try:
            files = _files(SETS[name], options.local_dir) if options.local_dir else []
        except FileNotFoundError as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed += bool(options.sets)
            continue
        entry = SETS[name]
        shared = [*(["--seed", str(options.seed)] if entry.recipe.seeded else []), *(["--force"] * options.force)]
        try:
            run_recipe(entry.recipe, ["--output_dir", str(options.output_dir / name), *files, *entry.options, *shared])
        except (ValueError, OSError) as error:
            print(f"error: {name}: {' '.join(str(error).split())}", file=sys.stderr)
            failed += 1
    if failed:
        sys.exit(f"error: {failed} of {len(options.sets or SETS)} data sets could not be made; the lines above say why")


def _files(entry: Entry, folder: Path) -> list[str]:
    """The arguments that name a set's files. Raises FileNotFoundError when there are none."""
    found, found_val = (
        [str(folder / n) for n in names if (folder / n).is_file()] for names in (entry.files, entry.val_files)
    )
    if not found:
        raise FileNotFoundError(f"no file in {folder}; it would be {' or '.join(entry.files)}")
    return ["--local_file", *found, *(["--val_file", *found_val] if found_val else [])]


def write_smoke_files(folder: Path) -> None:
    """A few made-up records of every set, in the shape of the real ones, under the names of a local folder."""
    requests = [f"Write {n} lines about the number {n}." for n in range(1, 9)]
    files: dict[str, list[dict[str, Any]]] = {
        "self_instruct_seed_tasks.jsonl": [
            {"instruction": text, "instances": [{"input": f"Note {i}.", "output": "Yes."}]}
            for i, text in enumerate(requests)
        ],
        "t0_prompts.jsonl": [{"prompt": f"{text}\n", "completion": "One."} for text in requests],
        "hh_rlhf_harmless_base_test.jsonl": [
            {
                reply: f"\n\nHuman: {text}\n\nAssistant: {said}"
                for reply, said in (("chosen", "Sure."), ("rejected", "No."))
            }
            for text in requests
        ],
        "mmlu_dev.jsonl": [
            {
                "question": f"What is {n} + {n}?",
                "subject": "elementary_mathematics" if n % 2 else "abstract_algebra",
                "choices": [str(2 * n + step) for step in range(4)],
                "answer": 0,
            }
            for n in range(1, 21)
        ],
        "gsm8k_train.jsonl": [_gsm8k(n) for n in range(1, 9)],
        "gsm8k_test.jsonl": [_gsm8k(n) for n in range(11, 15)],
        "hendrycks_math_train.jsonl": [_math(category, n) for category in CATEGORIES for n in range(1, 8)],
        "hendrycks_math_test.jsonl": [_math(category, n) for category in CATEGORIES for n in range(11, 13)],
        "humaneval.jsonl": [_humaneval(n) for n in range(1, 5)],
        "mbpp_sanitized.jsonl": [_mbpp(number) for number in (2, 11, 12, 601, 602)],
    }
    for name, records in files.items():
        (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))


def _gsm8k(n: int) -> dict[str, Any]:
    return {"question": f"Ann has {n} pens and buys {n} more. How many?", "answer": f"{n}+{n}={2 * n}\n#### {2 * n}"}


def _math(category: str, n: int) -> dict[str, Any]:
    problem = f"In {category.replace('_', ' ')}: what is half of ${n}$?"
    return {
        "problem": problem,
        "level": f"Level {1 + n % 2}",
        "type": category.replace("_", " ").title(),
        "solution": f"Halving gives $\\boxed{{\\frac{{{n}}}{{2}}}}$.",
    }


def _humaneval(n: int) -> dict[str, Any]:
    return {
        "task_id": f"Smoke/{n}",
        "prompt": f'def add_{n}(x: int) -> int:\n    """ Add {n}. """\n',
        "entry_point": f"add_{n}",
        "canonical_solution": f"    return x + {n}\n",
        "test": f"def check(candidate):\n    assert candidate(1) == {1 + n}\n",
    }


def _mbpp(number: int) -> dict[str, Any]:
    return {
        "task_id": number,
        "prompt": f"Write a function that multiplies by {number}.",
        "code": f"def times_{number}(x):\n    return {number} * x",
        "test_imports": [],
        "test_list": [f"assert times_{number}({x}) == {number * x}" for x in (1, 2)],
    }


if __name__ == "__main__":
    run_command(main)
