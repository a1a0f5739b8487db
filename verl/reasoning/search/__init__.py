"""Search for a solution with a model that writes and one that judges, at a counted price in tokens.

>>> WeightedBestOfN(n=8).run(problem, Tools(backend=backend, scorer=prm)).solution
>>> print(compare(problems, [Majority(n=None), StepBeam()], tools, budget=2048).as_text())
"""

from verl.reasoning.search.beam import DVTS, StepBeam
from verl.reasoning.search.compare import Line, Named, Table, compare
from verl.reasoning.search.driver import Search, run_all
from verl.reasoning.search.particles import ParticleFilter
from verl.reasoning.search.refining import Refine
from verl.reasoning.search.requests import Budget, Found, Spending
from verl.reasoning.search.sampling import BestOfN, Ensemble, Majority, MMRSelection, WeightedBestOfN
from verl.reasoning.search.tools import Tools

__all__ = [
    "DVTS",
    "BestOfN",
    "Budget",
    "Ensemble",
    "Found",
    "Line",
    "MMRSelection",
    "Majority",
    "Named",
    "ParticleFilter",
    "Refine",
    "Search",
    "Spending",
    "StepBeam",
    "Table",
    "Tools",
    "WeightedBestOfN",
    "compare",
    "run_all",
]
