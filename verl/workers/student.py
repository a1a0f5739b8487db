"""One of a run's readers as a teacher's student: its name, its tokens, its weights' revision.

>>> [one.name for one in students_of(reward, tokenizers, deterministic=False, policy_engine="hf")]
['Qwen3-4B', 'Llama-3.2-1B-Instruct']
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verl.classmate import prompts
from verl.classmate.config import ClassmateRewardModelConfig
from verl.classmate.frozen import POLICY, FrozenModel, frozen_readers
from verl.classmate.seeds import sends_seed
from verl.workers.classmates.placement import resolved_engine
from verl.workers.model_revision import revision_of


@dataclass(frozen=True, kw_only=True)
class Student:
    """One of the run's readers, as it is asked."""

    frozen: FrozenModel
    """Under which name its engines answer."""
    name: str
    """How it is called in metrics, and to the teacher."""
    tokenizer: Any
    """Its own, with the chat template that the run uses."""
    revision: str | None
    """Of its weights, for stored baselines; None: they change, and nothing is stored."""
    classmates: int
    """Number of students that are trained with, which its seeds depend on."""
    reader: int
    """Its number."""
    seeded: bool = True
    """Whether its requests carry seeds (`sends_seed`)."""

    def count(self, text: str) -> int:
        """Length of a text in its tokens."""
        return len(prompts.plain_ids(self.tokenizer, text))


def students_of(
    reward: ClassmateRewardModelConfig, tokenizers: Sequence[Any], *, deterministic: bool, policy_engine: str
) -> tuple[Student, ...]:
    """The readers of a run as students, each with a name of its own: the last part of its model's, and a number where
    two have the same.

    Args:
        reward: the typed `reward_model` node.
        tokenizers: one per reader.
        deterministic: whether every request carries its seed.
        policy_engine: of the policy, for live self-play.
    """

    def seeded(one: FrozenModel) -> bool:
        engine = resolved_engine(one)
        return sends_seed(policy_engine if engine == POLICY else engine, deterministic=deterministic)

    readers = frozen_readers(reward)
    short = [one.model.rstrip("/").rpartition("/")[2] or one.model for one in readers]
    names = [name if short.count(name) == 1 else f"{name}-{r}" for r, name in enumerate(short)]
    return tuple(
        Student(
            frozen=one,
            name=names[r],
            tokenizer=tokenizers[r],
            revision=None if one.weights == "policy_live" else revision_of(one),
            classmates=len(reward.classmates),
            reader=r,
            seeded=seeded(one),
        )
        for r, one in enumerate(readers)
    )
