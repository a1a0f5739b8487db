"""The studies of rivals that there are, each a value.

study = STUDIES["transfer"]
"""

from dataclasses import replace

from verl.data_preprocessing.worlds.presets import HINTED_ARITHMETIC, WORLDS
from verl.data_preprocessing.worlds.spec import WorldSpec
from verl.evaluation.rival_study.spec import RivalArm, RivalStudy
from verl.evaluation.study.presets import STUDIES as CLAIM
from verl.evaluation.study.spec import Arm

SEEDS = tuple(range(11, 16))
"""None of the fine-tuning arms was looked at with them before the predictions were written down."""

_TRANSFER = CLAIM["cot_transfer"]
_TWO = _TRANSFER.arm("two")


def _rl(name: str, title: str, arm: Arm) -> RivalArm:
    return RivalArm(
        name=name, title=title, entry=arm.entry, classmates=arm.classmates, overrides=arm.overrides, method="rl"
    )


_START = RivalArm(name="start", title="start policy", entry="baseline", method="none")
_RL = _rl("rl", "RL", _TRANSFER.arm("baseline"))
_RL_CLASSMATES = _rl("rl_classmates", "RL with two classmates", _TWO)
_RFT = RivalArm(name="rft", title="RFT", entry="baseline", method="rft")
_RFT_READER = RivalArm(
    name="rft_reader",
    title="RFT, readers approve",
    entry="classmates",
    classmates=_TWO.classmates,
    method="rft",
    accepts=("readers",),
)
_RFT_SOUND = RivalArm(name="rft_sound", title="RFT, sound", entry="baseline", method="rft", accepts=("sound",))
_RFT_WORKED = RivalArm(
    name="rft_worked", title="RFT, sound and worked out", entry="baseline", method="rft", accepts=("worked",)
)


def _iterated(arm: RivalArm, rounds: int = 3) -> RivalArm:
    return replace(arm, name=f"{arm.name}_{rounds}", title=f"{arm.title}, {rounds} rounds", rounds=rounds)


_ARMS = (_START, _RL, _RL_CLASSMATES, _RFT, _iterated(_RFT), _RFT_READER, _RFT_SOUND)


def _with_readers(world: WorldSpec, like: WorldSpec) -> WorldSpec:
    """The same problems and policy, with readers that answer from stripped thoughts too, some of them never asked."""
    return replace(
        world,
        name=f"{world.name}_readers",
        readers_seed=like.readers_seed,
        stripped_share=like.stripped_share,
        readers=tuple(reader for reader in like.readers if reader.role != "insider"),
    )


_HINTED_STUDY = RivalStudy(
    name="hinted",
    world=_with_readers(HINTED_ARITHMETIC, WORLDS["thought_styles"]),
    arms=_ARMS,
    paced_by=_RL_CLASSMATES,
    seeds=SEEDS,
    steps=_TRANSFER.steps,
    settings=_TRANSFER.settings,
)

_TRANSFER_STUDY = RivalStudy(
    name="transfer",
    world=_TRANSFER.world,
    arms=(*_ARMS, _RFT_WORKED),
    paced_by=_RL_CLASSMATES,
    seeds=SEEDS,
    steps=_TRANSFER.steps,
    settings=_TRANSFER.settings,
)

STUDIES = {study.name: study for study in (_HINTED_STUDY, _TRANSFER_STUDY)}
"""The studies of `python -m verl.evaluation.rival_study`, by name."""
