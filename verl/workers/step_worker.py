"""The engine of a process reward model: it judges each step of a solution.

One decision: it loads the folder that `ProcessRewardModel.save` writes, and scores with the scorer of the pipeline, so
that a step is worth in training what it was worth when the model was evaluated.

    worker = StepScoringWorker(EngineConfig(model_path="reasoning_output/prm/model"))
    await worker.score_steps("What is 3 + 4?", ["3 + 4 = 7.", "So it is 8."])     # [StepScore(0.98, 0.98), ...]
"""

from collections.abc import Sequence

import torch

from verl.stepwise.step import StepScore
from verl.workers.batching_engine import BatchingEngine
from verl.workers.prm.head_scorer import HeadScorer
from verl.workers.prm.model import ProcessRewardModel
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig

Solution = tuple[str, list[str]]
"""A problem and the steps of a solution."""

_CHARACTERS_A_TOKEN = 3
"""Fewer than texts have, so that a batch is rather too small."""


class StepScoringWorker(BatchingEngine[Solution, list[StepScore | None]]):
    """One process reward model, in a Ray actor or in the process that asks."""

    def __init__(self, config: EngineConfig, *, frees_memory: bool = False, patience_s: float | None = None) -> None:
        """Loads the model.

        Args:
            config: the engine; with `deterministic` each solution runs alone.
            frees_memory: whether `sleep` moves the weights to the host's memory.
            patience_s: longest time of a request; None: no limit.

        Raises:
            ValueError: the folder holds no process reward model.
        """
        if config.memory_fraction is not None and config.device.startswith("cuda"):
            torch.cuda.set_per_process_memory_fraction(config.memory_fraction)
        model, tokenizer = ProcessRewardModel.load(config.model_path, device=config.device, dtype=config.dtype)
        model.requires_grad_(False)
        super().__init__(config, model, frees_memory=frees_memory, patience_s=patience_s)
        self._scorer = HeadScorer(model, tokenizer, progress=False)

    async def score_steps(self, problem: str, steps: Sequence[str]) -> list[StepScore | None]:
        """What each step is worth; None where it does not fit into the model's length.

        Raises:
            TimeoutError: its time is over.
        """
        return await self._ask((problem, list(steps)))

    def _length(self, item: Solution) -> int:
        return (len(item[0]) + sum(map(len, item[1]))) // _CHARACTERS_A_TOKEN

    def _run(self, items: list[Solution]) -> list[list[StepScore | None]]:
        return self._scorer.judged([problem for problem, _ in items], [steps for _, steps in items])
