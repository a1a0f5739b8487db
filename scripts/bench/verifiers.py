"""What scoring answers to mathematical problems costs: 10,000 of them, through the verifiers of GSM8K and MATH.

One decision: all answers differ, and are asked for from several threads as the reward manager does; each truth is held
against four answers, as with four responses to a prompt. Workers of math-verify start within the measured time.

    python scripts/bench/verifiers.py
    python scripts/bench/verifiers.py --rows 1000 --threads 2
"""

import argparse
import json
import os
import random
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor

LIMIT_S = 20.0
"""Most that 10,000 answers to GSM8K may take on two cores; those of MATH are formulas, each a few milliseconds."""

GSM8K = (
    "#### {a}",
    "\\boxed{{{a}}}",
    "The answer is {a}.",
    "So she pays \\boxed{{\\${a:,}}}.",
    "#### {a:,}",
    "\\boxed{{{a} \\text{{ apples}}}}",
    "The answer is {a}.00.",
    "\\boxed{{x = {a}}}",
    "\\boxed{{{b}}}",
    "\\boxed{{\\frac{{{d}}}{{{b}}}}}",
    "\\boxed{{{b} + {c}}}",
    "\\boxed{{{a}\\%}}",
)
"""Answers of which the truth is the number a = b + c, or not."""

MATH = {
    "{a}": ("{a}", "{b}", "x = {a}", "{b} + {c}", "{a}^\\circ", "\\frac{{{d}}}{{{b}}}"),
    "\\frac{{{b}}}{{{a}}}": ("\\frac{{{b}}}{{{a}}}", "{b}/{a}", "\\dfrac{{{c}}}{{{a}}}", "1 - \\frac{{{c}}}{{{a}}}"),
    "{b}\\sqrt{{{c}}}": ("{b}\\sqrt{{{c}}}", "\\sqrt{{{c}}} \\cdot {b}", "{c}\\sqrt{{{b}}}"),
    "{b}x + {c}": ("{c} + {b}x", "{b}x + {c}", "{c}x + {b}"),
    "({b}, {a}]": ("({b}, {a}]", "[{b}, {a}]", "{b} < x \\le {a}"),
    "\\{{{b}, {a}\\}}": ("\\{{{a}, {b}\\}}", "{b}, {a}", "{a}"),
}
"""Answers by the truth that they are held against."""


def answers(source: str, count: int, seed: int) -> list[tuple[str, str, str]]:
    """Data source, answer and truth of each."""
    random_numbers = random.Random(seed)
    made: list[tuple[str, str, str]] = []
    while len(made) < count:
        b, c = random_numbers.randrange(2, 5000), random_numbers.randrange(2, 5000)
        numbers = {"a": b + c, "b": b, "c": c, "d": (b + c) * b}
        if source == "openai/gsm8k":
            truth, forms = "{a}", list(GSM8K)
        else:
            # Most truths of MATH are integers.
            kinds = list(MATH)
            truth = random_numbers.choices(kinds, weights=[10, *([2] * (len(kinds) - 1))])[0]
            forms = [f"so \\boxed{{{{{form}}}}}" for form in MATH[truth]]
        for form in random_numbers.sample(forms, k=min(4, len(forms))):
            made.append((source, form.format(**numbers), truth.format(**numbers)))
    return made[:count]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000, help="answers to each data set's problems (default: 10000)")
    parser.add_argument("--threads", type=int, default=6, help="threads that ask (default: 6, asyncio's on two cores)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the numbers in the answers")
    options = parser.parse_args()
    from verl.utils.reward_score.cot_monitor import get_verifier
    from verl.utils.reward_score.cot_monitor._math_pool import pool

    load = os.getloadavg()[0]
    result = {"benchmark": "verifiers", "rows": options.rows, "cpus": os.cpu_count(), "load_before": round(load, 2)}
    print(f"{options.rows} answers each, {options.threads} threads, {os.cpu_count()} CPUs, load {load:.1f} before")
    for source in ("openai/gsm8k", "hendrycks_math"):
        verifier = get_verifier(source)
        rows = answers(source, options.rows, options.seed)
        before, spent = time.perf_counter(), time.process_time()
        with ThreadPoolExecutor(options.threads) as threads:
            scores = list(threads.map(lambda row: verifier.compute_score(row[1], row[2]), rows))  # noqa: B023
        wall, cpu = time.perf_counter() - before, time.process_time() - spent
        workers = pool().pids
        pool().close()
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        counts = {name: scores.count(score) for name, score in (("right", 1.0), ("wrong", 0.0), ("unknown", None))}
        print(
            f"{source:16} {wall:6.1f} s, processor: {cpu:.1f} s here, {children.ru_utime + children.ru_stime:.1f} s in "
            f"{len(workers)} workers so far; {counts}"
        )
        result[source] = {"seconds": round(wall, 2), "processor_seconds": round(cpu, 2), **counts}
    print(f"at most {LIMIT_S:g} s for 10,000 answers to GSM8K on two cores")
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
