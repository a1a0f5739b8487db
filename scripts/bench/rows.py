"""What a row costs before a model is asked: find the CoT, cut it, put it into a classmate's template, mark tokens.

One decision: processor time of one core counts, not the clock, on distinct rows made from the embedded task's own
sentences with a tokenizer trained on them, so that nothing is downloaded and a busy machine gives the same answer.

    python scripts/bench/rows.py --rows 10000 --repeats 5
    python scripts/bench/rows.py --profile
"""

import argparse
import cProfile
import json
import os
import pstats
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LIMIT_S = 5.0
"""Most that the rows of the embedded world's size may take, of each reward type, for 10,000 of them."""

LENGTHS = {"embedded": 60, "medium": 250, "long": 1000}
"""Name of a size and the tokens of its responses, about."""

KINDS = ("vanilla_reward", "random_truncate", "remove_wo_cot", "random_truncate_step_wise_utility")
ROLLOUTS = 4
"""Responses to a prompt, which share its templated question."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What is measured on."""

    policy: Any
    """Tokenizer of the policy."""
    classmate: Any
    """Another one, of the classmate."""
    messages: Sequence[Sequence[dict[str, str]]]
    """A chat per row."""
    responses: Sequence[Sequence[int]]
    """Token ids per row."""


def make_rows(count: int, length: int) -> Rows:
    """`count` rows with responses of about `length` tokens: CoTs about several problems, one after the other."""
    from verl.data_preprocessing.arithmetic_problems import iter_problems, right_cot
    from verl.data_preprocessing.embedded_tokenizers import THINK_END, THINK_START, train_tokenizer

    problems = list(iter_problems(seed=0, split="train", count=2000))
    thoughts = [right_cot(problem) for problem in problems]
    texts = [f"{problem.question}\n{thought}" for problem, thought in zip(problems, thoughts, strict=True)]
    policy = train_tokenizer("bpe", texts, vocab_size=448)
    classmate = train_tokenizer("unigram", texts, vocab_size=300)
    tokens = [len(policy.encode(thought)) for thought in thoughts]
    messages, responses = [], []
    position = 0
    for row in range(count):
        kept: list[str] = []
        total = 0
        while not kept or total + tokens[position] < length - 12:
            kept.append(thoughts[position])
            total += tokens[position]
            position = (position + 1) % len(thoughts)
        text = f"{THINK_START}\n{' '.join(kept)}\n{THINK_END}\nThe answer is {row % 200}."
        responses.append([*policy.encode(text, add_special_tokens=False), policy.eos_token_id])
        messages.append(
            [{"role": "user", "content": f"{row // ROLLOUTS}. {problems[row // ROLLOUTS % 2000].question}"}]
        )
    return Rows(policy=policy, classmate=classmate, messages=messages, responses=responses)


def read_all(rows: Rows, kind: str) -> int:
    """All rows from token ids to the classmate's prompts, as `RowPipeline` does it; returns the tokens handed over."""
    from verl.classmate import cot, prompts
    from verl.classmate.config import DEFAULT_MARKERS, ClassmateCotRewardConfig
    from verl.classmate.row import Answer, Task
    from verl.classmate.views import read_row

    config, task = ClassmateCotRewardConfig(classmate_reward_type=kind), Task(data_source="", reward_model={})
    handed_over = 0
    for i, (messages, ids) in enumerate(zip(rows.messages, rows.responses, strict=True)):
        span = cot.locate(ids, rows.policy, DEFAULT_MARKERS)
        answer = Answer(
            messages=messages,
            prompt_ids=(),
            response_ids=ids,
            task=task,
            uid=None,
            step=0,
            rollout=0,
            validate=False,
        )
        row = read_row(answer, span, rows.policy, config, seed=i)
        for thought in row.thoughts:
            prompt = prompts.build(
                row.chat,
                thought,
                rows.classmate,
                markers=DEFAULT_MARKERS,
                classmate_markers=None,
                close=row.close,
                max_len=1 << 20,
                template_kwargs={"enable_thinking": True},
            )
            assert prompt.ids is not None
        handed_over += int(row.mask.sum())
    return handed_over


def seconds(rows: Rows, kind: str) -> float:
    """Processor seconds of one pass."""
    from verl.classmate import prompts

    prompts.forget()  # a run sees each question for the first time
    before = time.process_time()
    read_all(rows, kind)
    return time.process_time() - before


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000, help="rows of a pass (default: 10000)")
    parser.add_argument("--repeats", type=int, default=5, help="passes; their median counts (default: 5)")
    parser.add_argument("--sizes", nargs="*", choices=LENGTHS, default=list(LENGTHS), help="lengths of responses")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS), help="reward types")
    parser.add_argument("--profile", action="store_true", help="profile the first size and kind instead")
    options = parser.parse_args()
    # One core: the tokenizers library would use all of them.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if options.profile:
        rows = make_rows(options.rows, LENGTHS[options.sizes[0]])
        profile = cProfile.Profile()
        profile.runcall(read_all, rows, options.kinds[0])
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        return 0
    result: dict[str, Any] = {"benchmark": "rows", "rows": options.rows, "repeats": options.repeats}
    print(
        f"{options.rows} rows from token ids to the classmate's prompts, processor seconds, median of {options.repeats}"
    )
    print(f"{'':12} tokens " + " ".join(f"{kind:>36}" for kind in options.kinds))
    for size in options.sizes:
        rows = make_rows(options.rows, LENGTHS[size])
        tokens = statistics.fmean(map(len, rows.responses))
        times = {kind: statistics.median(seconds(rows, kind) for _ in range(options.repeats)) for kind in options.kinds}
        print(f"{size:12} {tokens:6.0f} " + " ".join(f"{one:36.2f}" for one in times.values()))
        result[size] = {"tokens": round(tokens, 1), **{kind: round(one, 3) for kind, one in times.items()}}
    print(f"at most {LIMIT_S:g} s for 10,000 embedded rows")
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
