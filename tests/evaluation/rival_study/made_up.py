"""Made-up traces, results and a tiny study of rivals."""

from dataclasses import replace

from tests.evaluation.study.made_up import result as study_result
from verl.evaluation.rival_study.presets import STUDIES
from verl.evaluation.rival_study.spec import FineTuning, RivalStudy
from verl.evaluation.rival_study.traces import Trace
from verl.evaluation.study.results import RunResult

SEEDS = (11, 12, 13)
ARMS = ("start", "rl", "rl_classmates", "rft", "rft_reader")
STUDY = replace(STUDIES["transfer"].of_arms(ARMS), name="rivals", seeds=SEEDS)
GAINS = {"start": -0.2, "rl": 0.0, "rl_classmates": 0.4, "rft": -0.1, "rft_reader": 0.38}


def trace(index: int = 0, *ids: int, right: bool = True, sound: bool = True, **changed: object) -> Trace:
    """A trace of these tokens."""
    fields: dict[str, object] = {"text": "t", "thought": "Easy.", "worked": sound, **changed}
    return Trace(index=index, ids=ids or (5, 6), right=right, sound=sound, **fields)  # type: ignore[arg-type]


def result(arm: str = "rft", seed: int = 11, **changed: float | None) -> RunResult:
    """A run of the made-up study; a number that is None is left out."""
    one = study_result("baseline", seed, "rivals")
    gain = GAINS[arm] + (seed - 12) / 100
    costs = {"tokens_sampled": 140_000.0, "tokens_trained": 250_000.0, "tokens_read": 670_000.0}
    numbers = {**one.numbers, "unseen": 0.3 + gain, "sound": 0.9, "sound_when_right": 0.99, **costs, **changed}
    return replace(one, arm=arm, numbers={name: value for name, value in numbers.items() if value is not None})


def tiny_study(name: str = "tiny") -> RivalStudy:
    """Two arms and two seeds of two steps, in a world whose models have seen a few lessons."""
    short = STUDIES["transfer"].short()
    readers = tuple(replace(r, model=replace(r.model, steps=4)) for r in short.world.readers)
    policy = replace(short.world.policy, steps=12)
    world = replace(short.world, name=name, train_rows=32, val_rows=8, policy=policy, readers=readers)
    return replace(short, name=name, world=world, fine_tuning=FineTuning(samples=2, epochs=1))
