"""The loop of an inference: asks for what is missing, in lots that are scored and written one after the other.

One decision: a lot is on disk before the next is asked for, so that a kill costs one lot at most.

    >>> answer_missing(items, folder, backend, scorer, how)
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from verl.classmate import cot, prompts
from verl.classmate.cot import CotKind, CotMarkers
from verl.classmate.errors import ClassmateEngineError
from verl.classmate.outcome import Outcome
from verl.evaluation.inference.rows import Item, Line, read_done
from verl.evaluation.inference.scoring import Scorer
from verl.reasoning.backends import Completion, SamplingParams
from verl.reasoning.token_backend import TokenBackend
from verl.teaching.shards import ShardWriter

_NO_LIMIT = 1 << 30
"""The engine refuses what is too long."""
_PATIENCE = 2
"""Lots in a row without one answer, before it ends."""


@dataclass(frozen=True, kw_only=True)
class How:
    """How a model is asked, and its answers are read."""

    sampling: SamplingParams
    """Of every answer."""
    markers: CotMarkers | None
    """Around its thoughts; None: there are none."""
    template_kwargs: Mapping[str, Any]
    """For its chat template."""
    tokenizer: Any
    """With the template that is used."""
    lot: int
    """Answers that are written together."""


def answer_missing(
    items: Sequence[Item], folder: Path, backend: TokenBackend, scorer: Scorer, how: How
) -> dict[str, Line]:
    """Asks for what is not there; all that is then.

    Raises:
        ClassmateEngineError: the model answers nothing any more.
    """
    from tqdm import tqdm

    done = read_done(folder)
    missing = [item for item in items if item.key not in done or done[item.key].failed]
    bar = tqdm(total=len(items), initial=len(items) - len(missing), desc="answers", unit="row", file=sys.stderr)
    in_vain = 0
    with bar, ShardWriter(folder) as writer, asyncio.Runner() as runner:
        for start in range(0, len(missing), how.lot):
            lot = missing[start : start + how.lot]
            asked = [
                line for _, some in groupby(lot, lambda item: item.sample) for line in _asked(list(some), backend, how)
            ]
            lines = runner.run(_scored(asked, scorer))
            writer.add(lines)
            bar.update(len(lot))
            in_vain = in_vain + 1 if all(line.content["outcome"] == Outcome.engine_error for line in lines) else 0
            if in_vain == _PATIENCE:
                raise ClassmateEngineError(
                    f"the model answers nothing ({lines[0].content['error']}); the same command goes on from here"
                )
        runner.run(scorer.close())
    return read_done(folder)


def _asked(items: Sequence[Item], backend: TokenBackend, how: How) -> list[tuple[Item, dict[str, Any]]]:
    """What the model answers to items of one sample's number, as far as it is known without verifiers."""
    built = [
        prompts.build(
            item.messages,
            None,
            how.tokenizer,
            markers=how.markers or CotMarkers(start="", end=""),
            classmate_markers=None,
            close=False,
            max_len=_NO_LIMIT,
            template_kwargs=how.template_kwargs,
        )
        for item in items
    ]
    known = [(item, prompt.ids) for item, prompt in zip(items, built, strict=True) if prompt.ids is not None]
    completions = backend.complete_ids(
        [ids for _, ids in known],
        keys=[(item.key.rpartition("-")[0], "") for item, _ in known],
        sampling=replace(how.sampling, first_index=items[0].sample),
    )
    said = {item.key: (ids, one) for (item, ids), (one,) in zip(known, completions, strict=True)}
    found = []
    for item, prompt in zip(items, built, strict=True):
        if item.key in said:
            content = _read(*said[item.key], how)
        else:
            content = {"outcome": prompt.outcome.value, "error": prompt.error}
        found.append((item, content))
    return found


def _read(prompt_ids: Sequence[int], completion: Completion, how: How) -> dict[str, Any]:
    """What a completion says, thought and answer apart."""
    if completion.error is not None:
        too_long = completion.error.startswith(Outcome.too_long)
        outcome = Outcome.too_long if too_long else Outcome.engine_error
        return {"outcome": outcome.value, "error": completion.error}
    opened = cot.opens_thought(prompt_ids, how.tokenizer, how.markers)
    span = cot.locate(completion.token_ids, how.tokenizer, how.markers, preopened=opened)
    # Without any mark of a thought all is answer.
    output = span.text if span.kind is CotKind.no_marker else span.output
    return {
        "outcome": (Outcome.unfinished_cot if output is None else Outcome.ok).value,
        "response": span.text,
        "cot": span.cot,
        "output": output,
        "tokens": len(completion.token_ids),
        "finish_reason": completion.finish_reason,
        "seed": completion.seed,
    }


async def _scored(asked: Sequence[tuple[Item, dict[str, Any]]], scorer: Scorer) -> list[Line]:
    """The lines of a lot."""

    async def scores(item: Item, content: Mapping[str, Any]) -> dict[str, Any]:
        answered = content["outcome"] in (Outcome.ok, Outcome.unfinished_cot)
        return await scorer.scores(item.task, content["output"]) if answered else {}

    found = await asyncio.gather(*(scores(item, content) for item, content in asked))
    return [
        Line(
            content={
                "key": item.key,
                "data_source": item.task.data_source,
                "index": item.task.extra_info.get("index"),
                "sample": item.sample,
                "messages": list(item.messages),
                "ground_truth": item.task.ground_truth,
                **content,
                "scores": its_scores,
            }
        )
        for (item, content), its_scores in zip(asked, found, strict=True)
    ]
