"""Studies for tests: the presets' own, so small that nothing is learnt."""

from dataclasses import replace

from verl.evaluation.study.presets import STUDIES
from verl.evaluation.study.spec import Study


def tiny_study(name: str = "tiny") -> Study:
    """Two arms and two seeds of two steps, in a world whose models have seen a few lessons."""
    short = STUDIES["cot_transfer"].short()
    readers = tuple(replace(r, model=replace(r.model, steps=4)) for r in short.world.readers)
    policy = replace(short.world.policy, steps=12)
    world = replace(short.world, name=name, train_rows=32, val_rows=8, policy=policy, readers=readers)
    return replace(short, name=name, world=world, steps=2, learner_samples=(0, 2, 4))
