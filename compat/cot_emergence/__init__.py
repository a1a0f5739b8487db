"""The original document's module of this name; the code is in `verl.reasoning.rl` and `verl.reasoning.cot_analysis`."""

from verl.reasoning.cot_analysis import ChainOfThoughtAnalyzer
from verl.reasoning.rl.cot import ChainOfThoughtTrainer, CoTConfig

__all__ = ["ChainOfThoughtAnalyzer", "ChainOfThoughtTrainer", "CoTConfig"]
