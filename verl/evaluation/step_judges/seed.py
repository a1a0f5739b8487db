"""One seed of the measurement: builds the world's parts that it needs, trains all judges, and measures them.

One decision: each part stands in a folder of its own and is not made again, so that a run that was ended goes on.

    >>> run_seed(JudgeStudy(seed=11), Path("outputs/step_judges/11"))["judges"]["both"]["f1"]["all"]
    0.91
"""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl.data_preprocessing.reasoning_world import models
from verl.data_preprocessing.reasoning_world.measure import MAX_TOKENS
from verl.data_preprocessing.reasoning_world.rows import (
    LABELLED,
    LABELLED_VAL,
    PROBLEMS,
    PROBLEMS_VAL,
    write_labelled,
    write_rows,
)
from verl.evaluation.step_judges.choosing import choose
from verl.evaluation.step_judges.labelled import Labelled, read_labelled, spread
from verl.evaluation.step_judges.numbers import judge_numbers
from verl.evaluation.step_judges.spec import MAX_LENGTH, JudgeStudy
from verl.evaluation.step_judges.words import lessons, words_scorer
from verl.reasoning.backend_hf import HFBackend
from verl.reasoning.backends import SamplingParams
from verl.reasoning.evaluation import draw
from verl.reasoning.prm.both import SmallerOfBoth
from verl.reasoning.prm.generator import PRMDataGenerator
from verl.reasoning.prm.likelihood import LikelihoodScorer
from verl.reasoning.prm.rows import LabelledSolution, split_by_problem
from verl.reasoning.prm.step_trainer import training_items
from verl.reasoning.prm.trainer import PRMTrainer
from verl.reasoning.records import Problem, read_jsonl
from verl.reasoning.scoring import math_reward
from verl.reasoning.sft.chat import chat_tokenizer, encode_all
from verl.reasoning.sft.fine_tune import fine_tune
from verl.reasoning.step_scorer import StepScorer
from verl.workers.prm.head_scorer import HeadScorer

OPENING = "<think>\n"
"""What a policy of this world writes before its first step."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What all judges of a seed are made of."""

    study: JudgeStudy
    """Sizes and settings."""
    folder: Path
    """Of the seed."""
    train: list[LabelledSolution]
    """Rows with exact labels to learn from."""
    dev: list[LabelledSolution]
    """Rows of other problems to fit scales on; no kind is in them that `train` lacks."""
    test: list[Labelled]
    """Held-out rows, of all kinds."""
    problems: list[Problem]
    """Held-out problems, to choose solutions of."""

    @property
    def base(self) -> Path:
        """The policy."""
        return self.folder / "base"


def run_seed(study: JudgeStudy, folder: Path, *, base: Path | None = None) -> dict[str, Any]:
    """All numbers of a seed, plain JSON (docs/step_judges.md says what they are).

    Args:
        study: sizes and settings.
        folder: of the seed; models and rows stay in it.
        base: the base policy of a world of this seed, where there is one; None: it is taught.
    """
    clock = _Clock()
    parts = clock.timed("world", lambda: _world(study, folder, base))
    reader = clock.timed("reader", lambda: _reader(parts))
    head, head_tokens = clock.timed("head", lambda: _head(parts, parts.train, parts.dev, "head", exact=True))
    mc_train, mc_dev = clock.timed("labels", lambda: _completed(parts, reader))
    head_mc, mc_tokens = clock.timed("head_mc", lambda: _head(parts, mc_train, mc_dev, "head_mc", exact=False))
    words, words_tokens = clock.timed("words", lambda: _words(parts, head_tokens))

    def likelihood() -> LikelihoodScorer:
        return LikelihoodScorer(HFBackend(reader), opening=OPENING)

    made: list[tuple[str, list[StepScorer], list[LabelledSolution], int]] = [
        ("head", [HeadScorer.load(head, progress=False)], parts.dev, head_tokens),
        ("likelihood", [likelihood()], parts.dev, 0),
        ("both", [HeadScorer.load(head, progress=False), likelihood()], parts.dev, head_tokens),
        ("generative", [words_scorer(HFBackend(words))], parts.dev, words_tokens),
        ("head_mc", [HeadScorer.load(head_mc, progress=False)], mc_dev, mc_tokens),
        ("both_mc", [HeadScorer.load(head_mc, progress=False), likelihood()], mc_dev, mc_tokens),
    ]
    judges, numbers = {}, {}
    for name, scorers, dev, tokens in made:
        judge = SmallerOfBoth(scorers)
        known = [row for row in dev if row.first_error_known]
        judge.calibrate(
            [row.prompt for row in known], [row.completions for row in known], [row.first_error for row in known]
        )
        judges[name] = judge
        told = clock.timed(f"judge {name}", lambda judge=judge: judge_numbers(judge, parts.test))  # type: ignore[misc]
        numbers[name] = {**told, "tokens_trained": tokens}
    chosen = clock.timed("search", lambda: choose(parts.base, parts.problems, judges, study))
    counts = {"train": len(parts.train), "dev": len(parts.dev), "test": len(parts.test), "mc_train": len(mc_train)}
    return {"seed": study.seed, "rows": counts, "judges": numbers, "search": chosen, "seconds": clock.seconds}


class _Clock:
    """How long each part took; 0 where it was there."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, work: Callable[[], Any]) -> Any:
        began = time.monotonic()
        found = work()
        self.seconds[name] = round(time.monotonic() - began, 1)
        print(f"{name}: {self.seconds[name]:.1f} s", flush=True)
        return found


def _world(study: JudgeStudy, folder: Path, base: Path | None) -> Parts:
    """Policy, problems and labelled solutions; students and readers of the world are not needed."""
    spec = study.world_spec
    if not (folder / "base").exists():

        def policy(to: Path) -> None:
            if base is not None:
                shutil.copytree(base, to, dirs_exist_ok=True)
            else:
                models.teach_policy(spec, spec.base, spec.base_flaws, to)

        _whole(folder / "base", policy)
    if not (folder / "rows").exists():

        def write(to: Path) -> None:
            write_rows(spec, to)
            write_labelled(spec, folder / "base", to)

        _whole(folder / "rows", write)
    rows = [one.row for one in read_labelled(folder / "rows" / LABELLED)]
    train, dev = split_by_problem(rows, study.dev_share, study.seed)
    return Parts(
        study=study,
        folder=folder,
        train=train,
        dev=dev,
        test=spread(read_labelled(folder / "rows" / LABELLED_VAL), study.test_rows),
        problems=read_jsonl(folder / "rows" / PROBLEMS_VAL, Problem),
    )


def _whole(folder: Path, make: Callable[[Path], None]) -> None:
    """Makes a folder that is there only when it is whole."""
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    make(partial)
    os.replace(partial, folder)


def _reader(parts: Parts) -> Path:
    """The policy, fine-tuned on its own solutions with a right answer; no problem of `dev` is among them."""
    study, folder = parts.study, parts.folder / "reader"
    held = {row.problem_id for row in parts.dev}
    asked = [one for one in read_jsonl(parts.folder / "rows" / PROBLEMS, Problem) if one.id not in held]
    asked = asked[: study.reader_problems]
    names = {one.id: one.problem for one in asked}
    sampling = SamplingParams(temperature=1.0, max_tokens=MAX_TOKENS, seed=study.seed)
    if (folder / "fine_tuned.json").exists():
        return folder
    with HFBackend(parts.base) as backend:
        solutions, _ = draw(backend, asked, math_reward(), n=study.reader_samples, sampling=sampling)
    right = [(names[one.problem_id], one.text) for one in solutions if one.correct]
    return fine_tune(parts.base, right, folder, study.tuning(study.reader_epochs))


def _head(
    parts: Parts, train: Sequence[LabelledSolution], dev: Sequence[LabelledSolution], name: str, *, exact: bool
) -> tuple[Path, int]:
    """The folder of a trained head, and how many tokens it read in training."""
    config = parts.study.head_config(parts.base, parts.folder / name, exact=exact)
    trainer = PRMTrainer(config)
    items = training_items(trainer.model, trainer.tokenizer, train, truncate_after_error=config.truncate_after_error)
    tokens = round(sum(len(encoded.input_ids) for encoded, _ in items) * config.num_epochs)
    return Path(trainer.train(train, dev)["model_path"]), tokens


def _completed(parts: Parts, reader: Path) -> tuple[list[LabelledSolution], list[LabelledSolution]]:
    """Some of the solutions in `train` and `dev`, labelled by completions of the reader and right answers alone."""
    config = parts.study.head_config(parts.base, parts.folder / "head_mc", exact=False)
    known = {one.id: one for one in read_jsonl(parts.folder / "rows" / PROBLEMS, Problem)}
    items = [
        {"problem": known[one.row.problem_id], "solution": one.text, "correct": one.row.correct}
        for one in spread(read_labelled(parts.folder / "rows" / LABELLED), parts.study.mc_rows)
    ]
    with HFBackend(reader) as backend:
        maker = PRMDataGenerator(math_reward(), config, generator=backend)
        made = maker.generate_prm_dataset(items, resume=parts.folder / "labels_mc.jsonl")
    held = {row.problem_id for row in parts.dev}
    rows = made.solutions
    return [row for row in rows if row.problem_id not in held], [row for row in rows if row.problem_id in held]


def _words(parts: Parts, budget: int) -> tuple[Path, int]:
    """The folder of the judge in words, and how many tokens it read in training: as near to `budget` as epochs go."""
    with HFBackend(parts.base) as backend:
        pairs = lessons(parts.train, backend)
    rows, _ = encode_all(chat_tokenizer(parts.base), pairs, max_length=MAX_LENGTH)
    each = sum(len(row.ids) for row in rows)
    epochs = max(1, round(budget / each))
    return fine_tune(parts.base, pairs, parts.folder / "words", parts.study.tuning(epochs)), each * epochs
