"""Texts of the student's own as rows to learn from (R. Agarwal et al., ICLR 2024: generalised knowledge distillation).

One decision: whether a step learns from them, and from which seed they are drawn, follows from the step's number alone,
so that a run that goes on draws the same.

    >>> write = own_rows(config, open_model, tokenizer, problems=["What is 3 + 4?"])
    >>> write(model, [0], 12)                # rows, or None for a step that learns from traces
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

from verl.reasoning.backends import SamplingParams
from verl.reasoning.distill.config import DistillationConfig
from verl.reasoning.distill.defaults import Opener
from verl.reasoning.sft.chat import Row, encode

OwnRows = Callable[[Any, Sequence[int], int], list[Row] | None]


def own_rows(config: DistillationConfig, open_model: Opener, tokenizer: Any, problems: Sequence[str]) -> OwnRows:
    """A function of the model, places among `problems` and a step's number: rows, or None to learn the drawn traces.

    A share `gkd_lambda` of the steps of `mode="logit"` gets rows; none if the model has written nothing.
    """
    if config.mode != "logit" or config.gkd_lambda == 0:
        return lambda model, places, step: None

    def write(model: Any, places: Sequence[int], step: int) -> list[Row] | None:
        number = int.from_bytes(blake2b(f"{config.seed}/own/{step}".encode(), digest_size=8).digest())
        if number / 2**64 >= config.gkd_lambda:
            return None
        asked = [problems[place] for place in places]
        sampling = SamplingParams(temperature=1.0, top_p=1.0, max_tokens=config.max_length, seed=number >> 33)
        backend = open_model(model, tokenizer)
        try:
            written = backend.generate(asked, n=1, sampling=sampling)
        finally:
            backend.close()
        texts = [(problem, one.text) for problem, (one,) in zip(asked, written, strict=True) if one.ok]
        rows = [encode(tokenizer, *text) for text in texts if text[1].strip()]
        return [row for row in rows if len(row.ids) <= config.max_length] or None

    return write
