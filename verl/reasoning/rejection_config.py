"""Settings of the samplers, with the names of the original document.

One decision: what cannot be is refused here, in one line, before a model is loaded.

    >>> RejectionSamplingConfig(num_samples=16, min_score_threshold=0.7, diversity_bonus=0.1)
"""

from dataclasses import dataclass
from typing import Literal

from verl.classmate.errors import ConfigError
from verl.reasoning.choices import check_choices
from verl.reasoning.search.refining import TEMPLATE
from verl.reasoning.search.tools import AGGREGATES
from verl.reasoning.similarity import SimilarityName
from verl.reasoning.trace_filters import FILTERS

ROUND = 4
"""Samples of a round of adaptive sampling."""


@dataclass(frozen=True, kw_only=True)
class RejectionSamplingConfig:
    """How solutions are drawn, accepted and chosen."""

    num_samples: int = 16
    """Most samples of a problem."""
    temperature: float = 0.8
    """Of the samples."""
    temperature_mix: tuple[float, ...] = ()
    """Temperatures that take turns, for instance (0.6, 0.8, 1.0); empty: `temperature` alone."""
    top_p: float = 0.95
    """Nucleus sampling."""
    max_tokens: int = 1024
    """Most tokens of a solution."""
    min_score_threshold: float = 0.7
    """Solutions with this score or more are accepted, where the reward does not say whether they are correct; where it
    does, exactly the correct ones are."""
    diversity_bonus: float = 0.1
    """Above 0, solutions of one score are told apart by how unlike the others they are. It is added to no score."""
    length_penalty: float = 0.8
    """A solution outside of the bounds ranks as if its score were this share of it; whether it is accepted, and the
    score that is told, stay as they are."""
    min_length: int = 10
    """In tokens."""
    max_length: int = 500
    """In tokens."""
    max_refinement_iterations: int = 3
    """Rounds of refinement."""
    refinement_temperature: float = 0.5
    """Of the texts of a round."""
    refinement_candidates: int = 4
    """Texts of a round."""
    refinement_patience: int = 1
    """Rounds without an improvement after which it ends."""
    refinement_prompt_template: str = TEMPLATE
    """Has the slots {problem}, {solution} and {critique}, or some of them."""
    mmr_lambda: float = 0.3
    """0 takes the best solutions, 1 those that are most unlike."""
    dedup_threshold: float = 0.8
    """Of two solutions that are more alike the better one is kept."""
    oversample: int = 2
    """`sample_diverse_solutions` draws so many times `num_samples`."""
    similarity: SimilarityName = "tfidf"
    """How alike two solutions are."""
    max_per_problem: int = 4
    """Accepted solutions of a problem that are kept; with `adaptive` enough of them end the sampling."""
    use_prm: bool = False
    """Rank accepted solutions by the scorer of steps."""
    prm_agg: str = "prod"
    """Makes one number of a solution's step scores."""
    adaptive: bool = True
    """Draw in rounds of 4 until enough different solutions are accepted."""
    hopeless_rate: float = 0.02
    """Adaptive sampling gives a problem up when it is hardly probable (5 %) that its pass rate is this high, by the
    beta posterior of what was drawn; with none accepted after 148 samples."""
    vote: Literal["majority", "weighted"] = "majority"
    """How an ensemble votes."""
    filters: tuple[str, ...] = FILTERS
    """What is kept out of the set for fine-tuning: `language` (mixed), `paragraphs` (over-long), `code` (blocks)."""
    most_of_one_difficulty: float = 0.5
    """Largest share of the set for fine-tuning that solutions of one difficulty may have; 1: any. The best solution of
    a problem always stays."""
    seed: int = 0
    """Of all draws."""

    def __post_init__(self) -> None:
        check_choices(self)
        checks = {
            "num_samples: write 1 or more": self.num_samples >= 1,
            "oversample: write 1 or more": self.oversample >= 1,
            "max_tokens: write 1 or more": self.max_tokens >= 1,
            "max_per_problem: write 1 or more": self.max_per_problem >= 1,
            "mmr_lambda: write a number between 0 and 1": 0 <= self.mmr_lambda <= 1,
            "dedup_threshold: write a number between 0 and 1": 0 <= self.dedup_threshold <= 1,
            "hopeless_rate: write a rate between 0 and 1": 0 <= self.hopeless_rate < 1,
            "most_of_one_difficulty: write a share above 0": 0 < self.most_of_one_difficulty <= 1,
            f"prm_agg: write one of {', '.join(AGGREGATES)}": self.prm_agg in AGGREGATES,
            f"filters: write some of {', '.join(FILTERS)}": set(self.filters) <= set(FILTERS),
            "refinement_prompt_template: write {problem}, {solution} and {critique} as its slots": _fits(
                self.refinement_prompt_template
            ),
        }
        for message, valid in checks.items():
            if not valid:
                raise ConfigError(message)


def _fits(template: str) -> bool:
    try:
        template.format(problem="", solution="", critique="")
    except (KeyError, IndexError, ValueError):
        return False
    return True
