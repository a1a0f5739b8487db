"""Judges the rows of a run again, from what it wrote down: how each thought was cut, what the classmates were asked and
answered, and how reward and advantage came about. Tells where the numbers differ from the dumped ones.

Decision: the steps are those of the run (`RowJudge`, `compute_advantage`, the typed config), with the dump in place of
engines. So a replay also answers what another reward option would have made of the same answers. Scores are taken from
the dump, since a judge may cost money; `--rescore` asks the verifier again.

    python -m verl.evaluation.replay RUN --step 3                 # a line for each row
    python -m verl.evaluation.replay RUN --step 3 --row 5         # one row, in full
    python -m verl.evaluation.replay RUN --step 3 reward_model.use_classmate_condition=always

Exit codes: 0; 1 when a recomputed number differs from the dumped one; 2 for a mistake, told in one line.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from omegaconf import DictConfig

from verl.classmate.algorithm_config import AdvantageConfig
from verl.classmate.config import this_run
from verl.classmate.errors import ConfigError
from verl.classmate.scoring import Continuation, Outcome
from verl.classmate.views import Partner
from verl.evaluation.dump import Dump, as_dumped
from verl.evaluation.reward_options import changes_verifier, with_overrides
from verl.trainer.ppo.advantage import compute_advantage, inputs_from_rows, row_fields
from verl.trainer.ppo.advantage.rows import recorded_advantages
from verl.utils import hf_tokenizer
from verl.utils.fs import copy_to_local
from verl.workers.reward_manager.classmate_cot import RowTask, Verdict
from verl.workers.row_judge import Answer, Asked, Asks, JudgedRow, ReadRow, RowJudge, advantage_fields

TOLERANCE = 1e-5
"""Relative and absolute; advantages are single precision."""

_SCORED = (Outcome.ok, Outcome.judge_error)
"""Outcomes of texts that a verifier saw."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A number or text that came out another way."""

    field: str
    """Where in the record, for instance `classmates[0].samples[1].score`."""
    dumped: Any
    """What the dump says."""
    now: Any
    """What came out."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ReplayedRow:
    """One row, judged again."""

    number: int
    """Its line in the dump, from 0."""
    read: ReadRow
    """How it was cut."""
    judged: JudgedRow
    """How it was scored."""
    record: dict[str, Any]
    """What would have been dumped."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Replay:
    """A step, judged again under one config."""

    judge: RowJudge
    """With the typed config."""
    advantage: AdvantageConfig
    """Options of the estimator."""
    rows: tuple[ReplayedRow, ...]
    """All rows of the step: advantages compare them."""
    note: str | None
    """Why there are no advantages, where there are none."""


def replay(dump: Dump, config: DictConfig, *, rescore: bool) -> Replay:
    """Judges all rows of a dump.

    Args:
        dump: the step.
        config: the run's, or one of `with_overrides`.
        rescore: ask the verifier again instead of taking the dumped scores.

    Raises:
        ConfigError: tokenizers or a reward function that are not there any more.
    """
    judge = _judge(config)
    advantage = this_run(config).advantage
    reads = [judge.read(_answer(record, dump)) for record in dump.records]

    if rescore:
        _check_judge(judge, dump)

    async def score_all() -> list[JudgedRow]:
        try:
            return list(
                await asyncio.gather(
                    *(_score(judge, read, record, rescore) for read, record in zip(reads, dump.records, strict=True))
                )
            )
        finally:
            await judge.manager.close()

    judged = asyncio.run(score_all())
    records = [as_dumped(row.record) for row in judged]
    note = None if not dump.validation else "validation rows have no advantage"
    note = note or _unknown_advantages(config, advantage)
    if note is None:
        for record, more in zip(records, _advantages(judged, dump, advantage, config), strict=True):
            record.update(more)
    rows = [
        ReplayedRow(number=number, read=read, judged=row, record=record)
        for number, (read, row, record) in enumerate(zip(reads, judged, records, strict=True))
    ]
    return Replay(judge=judge, advantage=advantage, rows=tuple(rows), note=note)


def differences(dumped: Any, now: Any, field: str = "") -> Iterator[Difference]:
    """Where two records differ; keys that only one of them has are not compared."""
    if isinstance(dumped, dict) and isinstance(now, dict):
        for key in now:
            # What a judge said is not computed here; its score is, and stands beside it.
            if key in dumped and key != "judge":
                yield from differences(dumped[key], now[key], f"{field}.{key}" if field else key)
    elif isinstance(dumped, list) and isinstance(now, list) and len(dumped) == len(now):
        for i, (one, other) in enumerate(zip(dumped, now, strict=True)):
            yield from differences(one, other, f"{field}[{i}]")
    elif not _same(dumped, now):
        yield Difference(field=field, dumped=dumped, now=now)


def _same(dumped: Any, now: Any) -> bool:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (dumped, now))
    return math.isclose(dumped, now, rel_tol=TOLERANCE, abs_tol=TOLERANCE) if numbers else dumped == now


class _Nobody(Asks):
    """Stands for the classmates: they have answered already."""

    async def sample(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise AssertionError("a replay asks nobody")


def _judge(config: DictConfig) -> RowJudge:
    model = config.actor_rollout_ref.model
    try:
        tokenizer = hf_tokenizer(
            copy_to_local(model.get("tokenizer_path") or model.path),
            trust_remote_code=bool(model.get("trust_remote_code", False)),
        )
        if model.get("custom_chat_template") is not None:
            # In self-play the policy is asked as a classmate.
            tokenizer.chat_template = model.custom_chat_template
        return RowJudge.build(config, tokenizer, _Nobody())
    except ConfigError:
        raise
    except (OSError, ValueError, RuntimeError, AttributeError) as error:
        # A model or reward function that was moved since; their libraries explain over many lines.
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(f"a tokenizer or reward function of the run cannot be loaded: {reason}") from error


def _check_judge(judge: RowJudge, dump: Dump) -> None:
    """A judge that was an engine of the run is not there any more.

    Raises:
        ConfigError: with what to write instead.
    """
    spec = judge.reward.judge(validate=dump.validation)
    if spec is not None and spec.in_run and judge.manager.compute_score is None:
        raise ConfigError(
            f"the judge {spec.model} was an engine of the run, and texts cannot be judged again without it; leave out "
            "--rescore, or serve it and write reward_model.llm_judge_backend_type=openai "
            "reward_model.llm_judge_base_url=http://HOST:PORT/v1"
        )


def _answer(record: Mapping[str, Any], dump: Dump) -> Answer:
    partner = record["partner"]
    return Answer(
        messages=record["messages"],
        prompt_ids=record["prompt_end_ids"],
        response_ids=record["response_ids"],
        task=RowTask(
            data_source=record["data_source"], reward_model=record["reward_model"], extra_info=record["extra_info"]
        ),
        uid=record["uid"],
        step=record["step"],
        rollout=record["rollout"],
        validate=dump.validation,
        partner=None if partner is None else Partner(**partner),
        turns=tuple((first, end) for first, end in record.get("turns", [])),
    )


async def _score(judge: RowJudge, read: ReadRow, record: Mapping[str, Any], rescore: bool) -> JudgedRow:
    asked = [_asked(judge, read, m, record["classmates"], rescore) for m in judge.asks(read)]
    main = None
    if not rescore and record["main_outcome"] in _SCORED:
        main = Verdict(score=record["main_score"], error=record["main_error"], judge=record.get("judge"))
    return await judge.score(read, asked, main=main)


def _asked(judge: RowJudge, read: ReadRow, m: int, classmates: Sequence[Mapping[str, Any]], rescore: bool) -> Asked:
    """What classmate m is asked now, and what it answered then."""
    built = judge.prompts_of(read, m)
    fits = all(prompt.ids is not None for prompt in built)
    views = max(1, len(built))
    continuations = []
    counts = [0] * views
    for sample in classmates[m]["samples"] if m < len(classmates) else ():
        view, outcome = sample.get("view", 0), Outcome(sample["outcome"])
        if view >= views or counts[view] >= read.samples:
            continue
        again = rescore and outcome in _SCORED
        continuations.append(
            Continuation(
                view=view,
                classmate=m,
                sample=counts[view],
                outcome=Outcome.ok if again else outcome,
                text=sample["text"],
                token_length=sample["tokens"],
                finish_reason=sample["finish_reason"],
                score=None if again else sample["score"],
                consistency=None if again else sample.get("consistency"),
                error=None if again else sample.get("error"),
                judge=None if again else sample.get("judge"),
            )
        )
        counts[view] += 1
    texts = tuple(prompt.text if fits else None for prompt in built) or (None,)
    return Asked(prompts=texts, continuations=tuple(continuations))


def _unknown_advantages(config: DictConfig, advantage: AdvantageConfig) -> str | None:
    """Why the advantages cannot be recomputed from a dump; None if they can."""
    if advantage.adv_estimator == "gae":
        return "advantages of gae depend on the critic's values, which are not in the dump"
    if advantage.adv_estimator == "remax":
        return "advantages of remax depend on the greedy responses, which are not in the dump"
    correction = config.algorithm.get("rollout_correction") or {}
    if correction.get("rollout_rs") and not correction.get("bypass_mode"):
        return "rollout_correction.rollout_rs masks tokens by log-probs, which are not in the dump"
    return None


def _advantages(
    judged: Sequence[JudgedRow], dump: Dump, advantage: AdvantageConfig, config: DictConfig
) -> list[dict[str, Any]]:
    """What the dump says of each row's advantage."""
    fields = []
    for row, record in zip(judged, dump.records, strict=True):
        turns = record.get("turns") or [(0, len(record["response_ids"]))]
        response_mask_R = torch.zeros(len(record["response_ids"]), dtype=torch.int64)
        for first, end in turns:
            response_mask_R[first:end] = 1
        fields.append(advantage_fields(row) | {"response_mask": response_mask_R})
    columns = {}
    for name in row_fields(advantage):
        values = [row[name] for row in fields]
        pads = values[0].ndim == 1 and name != "segment_rewards"
        columns[name] = torch.nn.utils.rnn.pad_sequence(values, batch_first=True) if pads else torch.stack(values)
    uids = np.array([record["uid"] for record in dump.records], dtype=object)
    inputs = inputs_from_rows(columns, uids, torch.zeros(len(fields), dtype=torch.bool), advantage)
    advantages_BR = compute_advantage(inputs, advantage, config.algorithm).advantages_BR
    names = ["classmate_mask", *(["classmate_segments"] if advantage.per_segment else [])]
    return [
        recorded_advantages(
            advantages_R[: len(row["response_mask"])],
            *(row[name] for name in names),
            segments=len(record["segment_rewards"]),
            turns=record.get("turns", ()),
        )
        for advantages_R, row, record in zip(advantages_BR, fields, dump.records, strict=True)
    ]


def main(arguments: list[str]) -> int:
    """The command; returns the exit code."""
    parser = _Parser(prog="python -m verl.evaluation.replay", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("run", type=Path, help="the run folder")
    parser.add_argument("--step", type=int, required=True, help="global step")
    parser.add_argument("--row", type=int, help="line in the dump, from 0; all of it is shown")
    parser.add_argument("--validation", action="store_true", help="the rows of val_preds instead of rollouts")
    parser.add_argument("--rescore", action="store_true", help="ask the verifier again instead of using dumped scores")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="reward options, spelled as in training")
    try:
        options = parser.parse_intermixed_args(arguments)
        with _quiet():
            result = _run(options)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with contextlib.suppress(BrokenPipeError):
        print(result[0], flush=True)
    return result[1]


def _run(options: argparse.Namespace) -> tuple[str, int]:
    """What is printed, and the exit code."""
    from verl.evaluation import replay_view

    dump = Dump.open(options.run, step=options.step, validation=options.validation)
    if options.row is not None and not 0 <= options.row < len(dump.records):
        raise ConfigError(f"--row {options.row}: step {dump.step} has rows 0 to {len(dump.records) - 1}")
    changed, keys = with_overrides(dump.config, options.overrides)
    # Under its own options a run must come out as it was dumped, whatever other options make of it.
    own = replay(dump, dump.config, rescore=options.rescore and not keys)
    wrong = [list(differences(record, row.record)) for record, row in zip(dump.records, own.rows, strict=True)]
    shown, changes = own, None
    if keys:
        shown = replay(dump, changed, rescore=options.rescore or changes_verifier(keys))
        changes = [list(differences(row.record, new.record)) for row, new in zip(own.rows, shown.rows, strict=True)]
    numbers = range(len(dump.records)) if options.row is None else [options.row]
    view = replay_view.View(dump=dump, replay=shown, wrong=wrong, changes=changes, overrides=tuple(options.overrides))
    if options.json:
        text = json.dumps(view.as_json(numbers), ensure_ascii=False)
    else:
        text = view.table() if options.row is None else view.row(options.row)
    return text, int(any(wrong[number] for number in numbers))


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; --help shows how it is written")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps what libraries say while they load off standard output."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
