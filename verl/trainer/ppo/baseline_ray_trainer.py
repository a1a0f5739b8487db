"""The baseline: the classmate trainer without classmates.

>>> trainer = BaselineRayPPOTrainer(config)
>>> trainer.init_workers()
>>> trainer.fit()
"""

from verl.trainer.ppo.classmate_cot_ray_trainer import ClassmateCoTRayPPOTrainer
from verl.trainer.ppo.v1.trainer_base import register_trainer


@register_trainer("baseline")
class BaselineRayPPOTrainer(ClassmateCoTRayPPOTrainer):
    """Trains on the verifier's reward; classmates, when configured, read the validation rows only."""

    trains_with_classmates = False
