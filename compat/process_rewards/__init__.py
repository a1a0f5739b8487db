"""The original document's module of this name; the code is in `verl.reasoning.prm`."""

from verl.reasoning.prm.config import PRMConfig
from verl.reasoning.prm.evaluator import ProcessRewardEvaluator
from verl.reasoning.prm.generator import PRMDataGenerator
from verl.reasoning.prm.trainer import PRMTrainer
from verl.workers.prm.model import ProcessRewardModel

__all__ = ["PRMConfig", "PRMDataGenerator", "PRMTrainer", "ProcessRewardEvaluator", "ProcessRewardModel"]
