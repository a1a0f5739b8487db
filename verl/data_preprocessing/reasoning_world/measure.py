"""How well the models of a reasoning world do, on held-out problems.

measure_policy(spec, folder)["pass@1"]
measure_reader(folder, measured=256)["whole"]
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from verl.data_preprocessing import embedded_models
from verl.data_preprocessing.embedded_tokenizers import THINK_END
from verl.data_preprocessing.reasoning_world.checking import StepReport, check_solution
from verl.data_preprocessing.reasoning_world.lessons import READERS_SEED, prompt_text
from verl.data_preprocessing.reasoning_world.planting import solution_text, solve
from verl.data_preprocessing.reasoning_world.problems import ChainProblem, Split, make_problem
from verl.data_preprocessing.reasoning_world.spec import ReasoningWorldSpec

MAX_TOKENS = 128
"""Longest response of a policy; the longest of the lessons has some 110 tokens."""
READER_TOKENS = 12


def sample(
    model: Any, tokenizer: Any, problems: Sequence[ChainProblem], *, n: int, seed: int, temperature: float = 1.0
) -> list[list[str]]:
    """`n` responses to each problem."""
    prompts = [prompt_text(problem) for problem in problems for _ in range(n)]
    texts = embedded_models.generate(
        model, tokenizer, prompts, max_new_tokens=MAX_TOKENS, temperature=temperature, seed=seed
    )
    return [texts[start : start + n] for start in range(0, len(texts), n)]


def numbers_of(reports: Sequence[Sequence[StepReport]]) -> dict[str, float]:
    """What the samples of each problem come to.

    pass@1 is the share of right samples, pass@n that of problems with a right one, and the majority's that of problems
    whose most frequent answer is right, the first of equally frequent ones. `unsound` is the share of right samples
    that are not sound.
    """
    n = len(reports[0])
    right = [[one.answer_right for one in group] for group in reports]
    answers = [[one.answer for one in group if one.answer is not None] for group in reports]
    voted = [Counter(group).most_common(1)[0][0] if group else None for group in answers]
    truths = [next((one.answer for one in group if one.answer_right), None) for group in reports]
    all_right = [one for group in reports for one in group if one.answer_right]
    kinds = Counter(one.first_kind for group in reports for one in group)
    total = sum(kinds.values())
    return {
        "pass@1": fmean(fmean(group) for group in right),
        f"majority@{n}": fmean(a is not None and a == b for a, b in zip(voted, truths, strict=True)),
        f"pass@{n}": fmean(any(group) for group in right),
        "unsound": fmean(not one.sound for one in all_right) if all_right else 0.0,
        **{f"first error {kind}": count / total for kind, count in sorted(kinds.items()) if kind},
    }


def measure_policy(spec: ReasoningWorldSpec, folder: Path, split: Split = "val") -> dict[str, float]:
    """Numbers of `spec.samples` solutions of each of `spec.measured` problems, sampled at temperature 1."""
    model, tokenizer = embedded_models.load_model(folder)
    problems = [make_problem(seed=spec.seed, split=split, index=index) for index in range(spec.measured)]
    texts = sample(model, tokenizer, problems, n=spec.samples, seed=spec.seed)
    numbers = numbers_of(
        [[check_solution(problem, text) for text in group] for problem, group in zip(problems, texts, strict=True)]
    )
    tokens = fmean(len(tokenizer(text, padding=False)["input_ids"]) for group in texts for text in group)
    return {name: round(value, 4) for name, value in {**numbers, "tokens": tokens}.items()}


def measure_reader(folder: Path, *, measured: int) -> dict[str, float]:
    """Greedy: right answers from the whole right thought, from one without its last line, from none (thinking itself),
    and the share of thoughts with another last result whose result is given."""
    model, tokenizer = embedded_models.load_model(folder)
    problems = [make_problem(seed=READERS_SEED, split="val", index=index) for index in range(measured)]
    thoughts = [list(solve(problem).lines) for problem in problems]
    wrong = [(problem.answer + 10) % 100 for problem in problems]
    other = [
        [*lines[:-1], f"{lines[-1].rpartition(' ')[0]} {number}"] for lines, number in zip(thoughts, wrong, strict=True)
    ]
    answers = [problem.answer for problem in problems]

    def share(shown: Sequence[Sequence[str]], wanted: Sequence[int]) -> float:
        prompts = [
            prompt_text(problem) + solution_text(list(lines), 0).partition(THINK_END)[0] + THINK_END
            for problem, lines in zip(problems, shown, strict=True)
        ]
        replies = embedded_models.generate(
            model, tokenizer, prompts, max_new_tokens=READER_TOKENS, temperature=0.0, seed=0
        )
        reports = [check_solution(one, THINK_END + reply) for one, reply in zip(problems, replies, strict=True)]
        return round(fmean(report.answer == number for report, number in zip(reports, wanted, strict=True)), 4)

    alone = sample(model, tokenizer, problems, n=1, seed=0, temperature=0.0)
    return {
        "whole": share(thoughts, answers),
        "without last line": share([lines[:-1] for lines in thoughts], answers),
        "wrong result repeated": share(other, wrong),
        "alone": round(
            fmean(check_solution(one, texts[0]).answer_right for one, texts in zip(problems, alone, strict=True)), 4
        ),
    }
