"""Texts of a model for problems, scored, and kept line by line, so that a kill loses at most the last few.

One decision: what was drawn and scored is in a file whose first line says of which model, problems and settings; the
same call reads it and draws only what is missing, and another call is told to use another file.

    >>> samples = sample(backend, problems, n=4, sampling=SamplingParams(), reward=as_reward(reward_fn))
    >>> samples[0][0].correct
"""

import asyncio
import dataclasses
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tqdm import tqdm

from verl.classmate.errors import ConfigError
from verl.reasoning.backends import Completion, GenBackend, SamplingParams
from verl.reasoning.records import Problem, Solution, lines_of
from verl.reasoning.rewards import Reward, RewardContext, RewardResult, score
from verl.trainer.run.state import write_atomically

AT_ONCE = 64
"""Problems between two writes to the file."""

ERROR = "error"
"""In `Solution.meta`: why there is no text."""


def sample(
    backend: GenBackend,
    problems: Sequence[Problem],
    *,
    n: int,
    sampling: SamplingParams,
    reward: Reward,
    stage: str = "distillation",
    journal: Path | None = None,
    at_once: int = AT_ONCE,
) -> list[list[Solution]]:
    """`n` solutions of each problem, in its order; one that failed has `meta["error"]`, and neither text nor score.

    Args:
        backend: who writes.
        problems: with different ids.
        n: of each.
        sampling: how.
        reward: scores them; a solution that it cannot score has the score None, and `meta["reward_note"]`.
        stage: for a person, and for the reward.
        journal: file that keeps what was drawn; None: nothing is kept.
        at_once: problems that are asked together.

    Raises:
        ConfigError: the file holds something else.
    """
    if journal is None:
        return [
            one
            for part in _parts(problems, at_once, stage)
            for one in _drawn(backend, part, n, sampling, reward, stage)
        ]
    head = {
        "revision": backend.revision,
        "n": n,
        "sampling": dataclasses.asdict(sampling),
        "problems": blake2b(json.dumps([[one.id, one.problem, one.answer] for one in problems]).encode()).hexdigest()[
            :32
        ],
    }
    head = json.loads(json.dumps(head))
    known = _read(journal, head)
    missing = [one for one in problems if one.id not in known]
    journal.parent.mkdir(parents=True, exist_ok=True)
    with journal.open("a") as file:
        if not known and file.tell() == 0:
            file.write(json.dumps(head) + "\n")
        for part in _parts(missing, at_once, stage):
            for problem, solutions in zip(part, _drawn(backend, part, n, sampling, reward, stage), strict=True):
                line = {"id": problem.id, "solutions": [dataclasses.asdict(one) for one in solutions]}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                known[problem.id] = solutions
            file.flush()
    return [known[one.id] for one in problems]


def accepted(solution: Solution, min_score: float) -> bool:
    """Whether it counts as right: as the reward says, or by its score where it only gives one."""
    if ERROR in solution.meta or solution.score is None:
        return False
    return solution.correct if solution.correct is not None else solution.score >= min_score


def pass_rate(solutions: Sequence[Solution], min_score: float) -> float | None:
    """Share of right ones among those that could be scored; None where none could."""
    scored = [accepted(one, min_score) for one in solutions if one.score is not None]
    return sum(scored) / len(scored) if scored else None


def _parts(problems: Sequence[Problem], at_once: int, stage: str) -> Any:
    parts = [problems[start : start + at_once] for start in range(0, len(problems), at_once)]
    return tqdm(parts, desc=stage, unit="part", disable=None if len(parts) > 1 else True)


def _drawn(
    backend: GenBackend, problems: Sequence[Problem], n: int, sampling: SamplingParams, reward: Reward, stage: str
) -> list[list[Solution]]:
    written = backend.generate([one.problem for one in problems], n=n, sampling=sampling)
    pairs = [
        (problem, _solution(problem, completion, backend, sampling))
        for problem, completions in zip(problems, written, strict=True)
        for completion in completions
    ]
    scored = iter(_scored(pairs, reward, stage))
    return [[next(scored) for _ in completions] for completions in written]


def _solution(problem: Problem, completion: Completion, backend: GenBackend, sampling: SamplingParams) -> Solution:
    log_probs = completion.log_probs
    return Solution(
        problem_id=problem.id,
        text=completion.text,
        n_tokens=len(completion.token_ids) or backend.count_tokens(completion.text),
        finish_reason=completion.finish_reason,
        log_prob=sum(log_probs) / len(log_probs) if log_probs else None,
        seed=completion.seed,
        model=f"{backend.model}@{backend.revision}",
        # As it comes back from a file.
        sampling={**dataclasses.asdict(sampling), "stop": list(sampling.stop)},
        meta={} if completion.ok else {ERROR: completion.error},
    )


def _scored(pairs: Sequence[tuple[Problem, Solution]], reward: Reward, stage: str) -> list[Solution]:
    context = RewardContext(stage=stage)

    async def every() -> list[RewardResult | None]:
        async def one(problem: Problem, solution: Solution) -> RewardResult | None:
            return None if ERROR in solution.meta else await score(reward, problem, solution, context)

        return list(await asyncio.gather(*(one(*pair) for pair in pairs)))

    # In a thread of its own, since the caller may be in a loop.
    with ThreadPoolExecutor(1) as pool:
        results = pool.submit(asyncio.run, every()).result()
    return [_with(solution, result) for (_, solution), result in zip(pairs, results, strict=True)]


def _with(solution: Solution, result: RewardResult | None) -> Solution:
    if result is None:
        return solution
    return dataclasses.replace(
        solution,
        score=result.score if result.valid else None,
        reward=dict(result.components),
        correct=result.correct if result.valid else None,
        final_answer=result.final_answer,
        meta={**solution.meta, **({"reward_note": result.note} if result.note else {})},
    )


def _read(journal: Path, head: dict[str, Any]) -> dict[str, list[Solution]]:
    if not journal.exists():
        return {}
    text = journal.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        # Killed within a line.
        write_atomically(journal, whole)
    lines = lines_of(whole)
    if not lines:
        return {}
    if json.loads(lines[0]) != head:
        raise ConfigError(
            f"{journal} holds texts of another model, other problems or settings; name another output_dir, or remove it"
        )
    found = {}
    for line in lines[1:]:
        values = json.loads(line)
        found[values["id"]] = [Solution(**{**one, "steps": ()}) for one in values["solutions"]]
    return found
