"""A tiny teacher that keeps its tags, and random students: rows of every kind in seconds.

>>> overrides = make_teacher_world(tmp_path)
>>> finished([*TEACH, *overrides], log=tmp_path / "run.txt")
"""

import random
from pathlib import Path

from tests.e2e.taught_models import Shown, teach
from tests.evaluation.teaching.scripted import TEMPLATES, row
from tests.evaluation.teaching.test_real_models import make_world
from verl.teaching.templates import Templates

TEACH = ("-m", "verl.trainer.rcl_main_ppo")
SAID = (
    "<thinking>Hm.</thinking><teaching>Carry.</teaching>",
    "<teaching>Guess, then look.</teaching>",
    "<teaching></teaching>",
    "Carry.",
)
"""What the teacher learns to write, each as often: advice, advice, none, and a broken contract."""
LONGEST = 56
"""Its tokens, one for each character."""


def make_teacher_world(folder: Path) -> list[str]:
    """Models and files in a folder; the overrides that name them, all but the run's folder."""
    named = [one for one in make_world(folder) if not one.startswith("trainer.default_local_dir")]
    teach(folder / "policy", _shown, steps=150)
    return [
        *named,
        f"data.max_response_length={LONGEST}",
        "actor_rollout_ref.rollout.n=4",
        "rcl.protocol.probe.temperature=1",
        "trainer.console=plain",
        "trainer.test_freq=-1",
        "trainer.val_before_train=false",
        "trainer.save_freq=-1",
    ]


def _shown(rng: random.Random) -> Shown:
    """What it is to say behind the end of any prompt."""
    templates, shown = Templates.from_mapping(TEMPLATES), []
    for _ in range(16):
        plan = "".join(rng.choice("abcdefghij <>/") for _ in range(6))
        question = row(rng.randrange(4), "carry", split="train")["prompt"][0]["content"]
        shown.append((templates.adaptive(question, plan, teaching_limit=24), rng.choice(SAID)))
    return shown
