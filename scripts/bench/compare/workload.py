"""What every peer works on: models that never end by themselves, prompts, and how long each answer gets.

One decision: nothing that a peer could do differently is left to it. Prompts are taken in the file's order, so that
step s has the same ones everywhere, and an answer's length is looked up by its prompt and its number.

    >>> workload = make_workload(Path("outputs/compare/workload"), steps=15)
    >>> lengths(steps=15)[0]                 # tokens of the four answers to the first prompt
    [49, 105, 53, 223]
"""

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl.data_preprocessing.embedded_models import ModelSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from verl.data_preprocessing.embedded_models import CausalLM

PROMPTS, ANSWERS = 8, 4
"""Prompts of a step, and answers to each."""

MICRO_ROWS = 8
"""Rows of a forward and backward pass, four of which make a step: a core's cache holds the activations of so many, and
not those of all 32, which took a tenth longer here and in TRL."""

PROMPT_TOKENS, HELPER_TOKENS = 128, 24
"""Most tokens of a prompt, and those of every helper's answer: as in the main job."""

STUB_PLACES, STUB_REQUEST_S = 4, 0.25
"""Requests that a stub, which waits instead of computing, serves at a time, and seconds that each takes: 2 s for 32."""

STUB_ANSWER = "The answer is 7, since 3 and 4 are 7."
"""What it says, repeated up to the tokens that were asked for."""

LIMITS = {"equal": 64, "real": 256}
"""Most tokens of an answer, by the set of lengths. equal: every answer has so many, as the main job's limit is; real:
drawn for each."""

LENGTHS = tuple(LIMITS)

MEDIAN, SIGMA = 96, 0.6
"""Of the log-normal distribution of the lengths called `real`: many answers of middling length and a long tail, as
policies write that reason. A thought is several times as long as what a reader answers, and one in twenty is cut."""

_SEED = 20


def _shape(name: str, *, width: int, layers: int, heads: int = 4) -> ModelSpec:
    return ModelSpec(name=name, tokenizer="bpe", vocab_size=448, hidden_size=width, layers=layers, heads=heads, steps=0)


MODELS = {
    "4M": (
        _shape("policy", width=256, layers=4, heads=8),
        _shape("helper_a", width=256, layers=3, heads=8),
        _shape("helper_b", width=256, layers=5, heads=8),
    ),
    "0.25M": (
        _shape("policy", width=64, layers=3),
        _shape("helper_a", width=64, layers=2),
        _shape("helper_b", width=96, layers=2),
    ),
}
"""Shapes of the policy and of two helpers, by the parameters of the policy. 0.25M: as in the main job, where a step is
mostly what surrounds the models; 4M: the models take most of it. One tokenizer for all: text of random tokens would be
three times as long in another one, which text that was written is not.
"""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Where its parts lie."""

    policy: Path
    """The model that is trained, with its tokenizer."""
    helpers: tuple[Path, ...]
    """Frozen models with tokenizers of their own."""
    train_file: Path
    """Parquet, in the order in which prompts are taken."""
    lengths_file: Path
    """JSON: for each prompt the lengths of its answers when they are `real`."""


def lengths(steps: int) -> list[list[int]]:
    """Tokens of each answer (steps x PROMPTS, ANSWERS); the first steps are the same for any number of them."""
    draw = random.Random(_SEED)

    def one() -> int:
        return max(1, min(LIMITS["real"], round(draw.lognormvariate(math.log(MEDIAN), SIGMA))))

    return [[one() for _ in range(ANSWERS)] for _ in range(steps * PROMPTS)]


def stub_answer(ids: Sequence[int], tokens: int) -> list[int]:
    """So many tokens of an answer that begins with `ids`, over and over."""
    return (list(ids) * (1 + tokens // len(ids)))[:tokens]


def make_workload(folder: Path, steps: int, models: str = "4M") -> Workload:
    """Writes the parts below `folder`, or takes those that are there.

    Args:
        folder: holds nothing else.
        steps: of the longest run.
        models: key of `MODELS`.
    """
    workload = Workload(
        policy=folder / "policy",
        helpers=(folder / "helper_a", folder / "helper_b"),
        train_file=folder / f"train_{steps}.parquet",
        lengths_file=folder / f"lengths_{steps}.json",
    )
    if not workload.lengths_file.exists():
        _write(workload, steps, MODELS[models])
        # Last: it says that the others are whole.
        workload.lengths_file.write_text(json.dumps(lengths(steps)))
    return workload


def _write(workload: Workload, steps: int, models: Sequence[ModelSpec]) -> None:
    from transformers.utils.logging import disable_progress_bar

    from verl.data_preprocessing import arithmetic_problems, common, embedded_models, embedded_tokenizers
    from verl.data_preprocessing.worlds.presets import HINTED_ARITHMETIC

    disable_progress_bar()
    problems = [
        arithmetic_problems.make_problem(seed=_SEED, split="train", index=i, hint_share=HINTED_ARITHMETIC.hint_share)
        for i in range(max(2000, steps * PROMPTS))
    ]
    texts = [text for one in problems[:2000] for text in (one.prompt, arithmetic_problems.right_cot(one))]
    for path, model in zip((workload.policy, *workload.helpers), models, strict=True):
        tokenizer = embedded_tokenizers.train_tokenizer(model.tokenizer, texts, model.vocab_size)
        made = embedded_models.new_model(model, tokenizer, _SEED)
        never_end(made, tokenizer)
        made.save_pretrained(path)
        tokenizer.save_pretrained(path)
    rows: list[dict[str, Any]] = []
    for index, problem in enumerate(problems[: steps * PROMPTS]):
        row = arithmetic_problems.make_dataset_row(problem, split="train", index=index)
        rows.append(row | {"extra_info": {"index": index, "split": "train", "question": problem.prompt}})
    common.write_parquet(rows, workload.train_file)


def never_end(model: "CausalLM", tokenizer: "PreTrainedTokenizerFast") -> None:
    """Puts the special tokens of a tied Qwen3 out of reach, the end of the turn among them.

    The first number of the residual stream becomes a constant that no block changes; in the head the same column is far
    below zero for those tokens, behind any other one. So no engine has to be told to ignore an end, which would cost
    each of them another time.
    """
    import torch

    with torch.no_grad():
        weights_VD: Any = model.get_input_embeddings().weight
        weights_VD[:, 0] = 1.0
        weights_VD[tokenizer.all_special_ids, 0] = -32.0
        blocks: Any = model.model.layers
        for layer in blocks:
            layer.self_attn.o_proj.weight[0] = 0.0
            layer.mlp.down_proj.weight[0] = 0.0
