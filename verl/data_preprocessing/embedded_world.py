"""The embedded world: hinted arithmetic, a policy that errs, and two classmates that read its thoughts.

Decision: the flaws that RL shall remove are put in by the lessons, not by short training alone. The policy has learnt
that a carry is sometimes forgotten and that a user's hint is sometimes taken over; the classmates have learnt to write
down the answer that a thought leads to, right or wrong, so a better thought is what makes them better.

    manifest = make_world(Path("data/embedded_world"), WorldSpec(seed=0))
    manifest["start"]["policy_accuracy"]
"""

import dataclasses
import hashlib
import os
import random
import re
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from verl.data_preprocessing import arithmetic_problems, common, embedded_models, embedded_tokenizers
from verl.data_preprocessing.arithmetic_problems import Problem
from verl.data_preprocessing.embedded_models import Lesson, ModelSpec
from verl.data_preprocessing.embedded_tokenizers import THINK_END, THINK_START, TURN_END, TURN_START

BUILDER = "verl.data_preprocessing.hinted_arithmetic"
_SOURCES = (common, embedded_models, embedded_tokenizers, arithmetic_problems)
POLICY_MAX_TOKENS = 64
CLASSMATE_MAX_TOKENS = 24

_POLICY = ModelSpec(name="policy", tokenizer="bpe", vocab_size=448, hidden_size=64, layers=3, steps=700)
_CLASSMATES = (
    ModelSpec(name="classmate_a", tokenizer="unigram", vocab_size=300, hidden_size=64, layers=2, steps=450),
    ModelSpec(name="classmate_b", tokenizer="bpe", vocab_size=340, hidden_size=96, layers=2, steps=400),
)


@dataclass(frozen=True, kw_only=True)
class WorldSpec:
    """Everything that determines a world."""

    seed: int = 0
    """Seed of problems, tokenizers and models."""
    train_rows: int = 4096
    """Problems to train on."""
    val_rows: int = 256
    """Held-out problems; no set of operands is in both."""
    hint_share: float = 1 / 3
    """Share of problems in which the user names a wrong answer."""
    slip_share: float = 0.4
    """Share of the thoughts in the lessons that forget a carry."""
    follow_share: float = 0.5
    """Share of the thoughts on hinted problems that take over the hint."""
    policy: ModelSpec = _POLICY
    """The model that RL trains."""
    classmates: tuple[ModelSpec, ...] = _CLASSMATES
    """The frozen models that answer from the policy's thought."""

    def fingerprint(self) -> str:
        """Hash of these values and of the code that builds from them."""
        digest = hashlib.sha256(repr(self).encode())
        for path in sorted([__file__, *(str(module.__file__) for module in _SOURCES)]):
            digest.update(Path(path).read_bytes())
        return digest.hexdigest()


def make_world(folder: Path, spec: WorldSpec, *, force: bool = False) -> dict[str, Any]:
    """Builds the world in `folder` unless a whole one of the same spec is there; returns its manifest.

    Raises:
        ValueError: `folder` holds something that is not a world, which is then left alone.
    """
    folder = folder.expanduser().resolve()
    manifest = common.read_manifest(folder)
    if manifest and manifest["fingerprint"] == spec.fingerprint() and not force:
        return {**manifest, "reused": True}
    if folder.exists() and any(folder.iterdir()) and not (folder / common.MANIFEST_NAME).exists():
        raise ValueError(f"{folder} holds other files: choose an empty or new folder as --output_dir")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        fresh = Path(scratch) / "world"
        _build(fresh, spec)
        if folder.exists():
            os.replace(folder, Path(scratch) / "old")
        os.replace(fresh, folder)
    manifest = common.read_manifest(folder)
    assert manifest is not None
    return {**manifest, "reused": False}


def _build(folder: Path, spec: WorldSpec) -> None:
    began = time.monotonic()
    counts: tuple[tuple[arithmetic_problems.Split, int], ...] = (("train", spec.train_rows), ("val", spec.val_rows))
    for split, count in counts:
        problems = [_problem(spec, split, i) for i in range(count)]
        rows = [arithmetic_problems.make_dataset_row(p, split=split, index=i) for i, p in enumerate(problems)]
        common.write_parquet(rows, folder / f"{split}.parquet")
    # A process and a single thread for each model: threads that wait for each other are slow when others compute too.
    models = (spec.policy, *spec.classmates)
    with ProcessPoolExecutor(len(models), mp_context=get_context("spawn")) as pool:
        list(pool.map(_teach, repeat(folder), range(len(models)), repeat(spec)))
        start = pool.submit(measure, folder, spec).result()
    common.write_manifest(
        folder,
        {
            "builder": BUILDER,
            "fingerprint": spec.fingerprint(),
            "spec": dataclasses.asdict(spec),
            "versions": {name: version(name) for name in ("torch", "transformers", "tokenizers")},
            "start": start,
            "seconds": round(time.monotonic() - began, 1),
        },
    )


def _teach(folder: Path, position: int, spec: WorldSpec) -> None:
    """Trains tokenizer and model number `position` and saves them; runs in a process of its own."""
    import torch

    torch.set_num_threads(1)
    model = (spec.policy, *spec.classmates)[position]
    sample = [_problem(spec, "train", i) for i in range(2000)]
    thoughts = [_noisy_thought(spec, random.Random(p.prompt), p)[0] for p in sample]
    texts = [text for p, t in zip(sample, thoughts, strict=True) for text in (p.prompt, t, _answer(p.answer))]
    tokenizer = embedded_tokenizers.train_tokenizer(model.tokenizer, texts, model.vocab_size)
    lesson = _classmate_lesson if position else _policy_lesson
    trained = embedded_models.train_model(model, tokenizer, partial(lesson, spec), spec.seed, bar_position=position)
    trained.save_pretrained(folder / "models" / model.name)
    tokenizer.save_pretrained(folder / "models" / model.name)


def _problem(spec: WorldSpec, split: arithmetic_problems.Split, index: int) -> Problem:
    return arithmetic_problems.make_problem(seed=spec.seed, split=split, index=index, hint_share=spec.hint_share)


def _noisy_thought(spec: WorldSpec, rng: random.Random, problem: Problem) -> tuple[str, str]:
    """A thought with the flaws that the spec asks for, and the number it ends with."""
    if problem.hint is not None and rng.random() < spec.follow_share:
        thought = arithmetic_problems.following_cot(problem)
    elif rng.random() < spec.slip_share:
        thought = arithmetic_problems.slipped_cot(problem)
    else:
        thought = arithmetic_problems.right_cot(problem)
    return thought, re.findall(r"\d+", thought)[-1]


def _answer(number: int | str) -> str:
    return f"The answer is {number}."


def prompt_text(problem: Problem) -> str:
    """The chat template applied to a problem; all models of the world share the template."""
    return f"{TURN_START}user\n{problem.prompt}{TURN_END}\n{TURN_START}assistant\n"


def _policy_lesson(spec: WorldSpec, rng: random.Random, index: int) -> Lesson:
    problem = _problem(spec, "train", 1_000_000 + index)
    thought, number = _noisy_thought(spec, rng, problem)
    learnt = f"{THINK_START}\n{thought}\n{THINK_END}\n{_answer(number)}{TURN_END}"
    return Lesson(given=prompt_text(problem), learnt=learnt)


def _classmate_lesson(spec: WorldSpec, rng: random.Random, index: int) -> Lesson:
    """Answer from a thought: whole, cut short and closed, cut short and to be continued, or absent."""
    problem = _problem(spec, "train", 2_000_000 + index)
    thought, number = _noisy_thought(spec, rng, problem)
    if rng.random() < 0.3:
        # A number that follows from nothing else teaches to read the thought rather than to compute.
        wrong = str(rng.randint(1, 299))
        thought, number = thought.removesuffix(f"{number}.") + f"{wrong}.", wrong
    thought = f"\n{thought}\n"
    ending = f"\n{_answer(number)}{TURN_END}"
    given, view = prompt_text(problem) + THINK_START, rng.random()
    cut = rng.randrange(len(thought))
    if view < 0.7:
        return Lesson(given=f"{given}{thought}{THINK_END}", learnt=ending)
    if view < 0.8:
        return Lesson(given=f"{given}{thought[:cut]}{THINK_END}", learnt=ending)
    if view < 0.9:
        return Lesson(given=given + thought[:cut], learnt=f"{thought[cut:]}{THINK_END}{ending}")
    return Lesson(given=prompt_text(problem), learnt=f"{THINK_START}{thought}{THINK_END}{ending}")


def measure(folder: Path, spec: WorldSpec, temperature: float = 1.0) -> dict[str, float]:
    """Shares on the held-out problems, sampled at `temperature`: accuracy of policy and classmates, hints followed."""
    world = {
        model.name: embedded_models.load_model(folder / "models" / model.name)
        for model in (spec.policy, *spec.classmates)
    }
    problems = [_problem(spec, "val", i) for i in range(spec.val_rows)]
    prompts = [prompt_text(p) for p in problems]
    written = embedded_models.generate(
        *world[spec.policy.name], prompts, max_new_tokens=POLICY_MAX_TOKENS, temperature=temperature, seed=spec.seed
    )
    thoughts, answers = zip(*(text.partition(THINK_END)[::2] for text in written), strict=True)
    hinted = [i for i, p in enumerate(problems) if p.hint is not None]
    numbers = [_last_number(text) for text in answers]
    result = {
        "policy_accuracy": _mean(n == p.answer for n, p in zip(numbers, problems, strict=True)),
        "policy_follows_hint": _mean(numbers[i] == problems[i].hinted_answer for i in hinted),
    }
    for classmate in spec.classmates:
        read = [f"{prompt}{thought}{THINK_END}" for prompt, thought in zip(prompts, thoughts, strict=True)]
        replies = embedded_models.generate(
            *world[classmate.name], read, max_new_tokens=CLASSMATE_MAX_TOKENS, temperature=temperature, seed=spec.seed
        )
        numbers_c = [_last_number(text) for text in replies]
        result[f"{classmate.name}_accuracy"] = _mean(n == p.answer for n, p in zip(numbers_c, problems, strict=True))
        result[f"{classmate.name}_agrees"] = _mean(a == b for a, b in zip(numbers, numbers_c, strict=True))
    return result


def _last_number(text: str) -> int | None:
    found = re.findall(r"\d+", text)
    return int(found[-1]) if found else None


def _mean(values: Any) -> float:
    values = [float(v) for v in values]
    return round(sum(values) / len(values), 4) if values else 0.0


def summary(folder: Path, manifest: dict[str, Any]) -> str:
    """What a world holds, in a few lines."""
    start, spec = manifest["start"], manifest["spec"]
    origin = "found" if manifest["reused"] else f"built in {manifest['seconds']:.0f} s"
    lines = [
        f"embedded world {origin}: {folder} (seed {spec['seed']})",
        f"  {spec['train_rows']} problems to train on, {spec['val_rows']} held out; "
        f"{spec['hint_share']:.0%} with a wrong hint",
    ]
    lines += [f"  {name:<24} {value:.2f}" for name, value in start.items()]
    return "\n".join(lines)
