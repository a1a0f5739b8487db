"""The studies of teachers that there are, each a value.

study = STUDIES["adaptive_teaching"]
"""

from verl.data_preprocessing.teaching_world.spec import Mix, TeachingWorldSpec
from verl.data_preprocessing.teaching_world.students import TRAINED_WITH
from verl.evaluation.teaching_study.spec import Arm, TeachingStudy

SEEDS = tuple(range(11, 16))
"""None of them was looked at before the predictions were written down."""
STEPS = 60

_REWARD = "rcl.reward"
_SETTINGS = (
    "hardware=cpu",
    "data.train_batch_size=8",
    "data.max_prompt_length=256",
    "data.max_response_length=96",
    "actor_rollout_ref.rollout.n=8",
    "actor_rollout_ref.actor.optim.lr=4e-4",
    "reward_model.classmate_generation_configs.max_new_tokens=32",
    "rcl.protocol.max_teaching_tokens=64",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.console=plain",
)


def _penalty(penalty: float, *controls: str) -> Arm:
    return Arm(
        name=f"penalty_{penalty:g}",
        title=f"degradation_penalty={penalty:g}",
        overrides=(f"{_REWARD}.degradation_penalty={penalty:g}",),
        controls=("null", *controls),
    )


def _leak(name: str, title: str, mode: str, penalty: float | None = None, *more: str) -> Arm:
    taken_off = () if penalty is None else (f"{_REWARD}.leak_penalty={penalty:g}",)
    return Arm(name=name, title=title, overrides=(f"{_REWARD}.leak.mode={mode}", *taken_off, *more))


def _milder(harm: float) -> Arm:
    """Tells cost 0.2 and gain nothing; harm costs less than by default."""
    return _leak(
        f"zero_gain_harm_{harm:g}".replace(".", ""),
        f"zero_gain, leak_penalty=0.2, degradation_penalty={harm:g}",
        "zero_gain",
        0.2,
        f"{_REWARD}.degradation_penalty={harm:g}",
    )


_ADAPTIVE = TeachingStudy(
    name="adaptive_teaching",
    world=TeachingWorldSpec(),
    students=TRAINED_WITH,
    arms=(_penalty(2, "untrained", "reveal", "fixed"), _penalty(0)),
    seeds=SEEDS,
    steps=STEPS,
    items=256,
    settings=_SETTINGS,
)

_LEAKS = TeachingStudy(
    name="leaks",
    # A teacher who mostly tells the answer, adds well enough that it is right, and seldom gives advice that fits.
    world=TeachingWorldSpec(
        mix=Mix(fitting=0.04, nothing=0.16, anything=0.2, tells=0.6, right_share=1.0), warm_steps=1500
    ),
    students=TRAINED_WITH,
    arms=(
        Arm(
            name="reported",
            title="leaks are only counted",
            overrides=(f"{_REWARD}.leak.mode=report",),
            controls=("null", "untrained"),
        ),
        _leak("penalty_03", "leak_penalty=0.3", "penalize", 0.3),
        _leak("penalty_1", "leak_penalty=1", "penalize", 1),
        _leak("zero_gain", "zero_gain", "zero_gain"),
        _leak("zero_gain_02", "zero_gain, leak_penalty=0.2", "zero_gain", 0.2),
        _milder(1),
        _milder(0.5),
    ),
    seeds=SEEDS[:3],
    steps=STEPS,
    items=128,
    settings=_SETTINGS,
)

STUDIES = {study.name: study for study in (_ADAPTIVE, _LEAKS)}
"""The studies of `python -m verl.evaluation.teaching_study`, by name."""
