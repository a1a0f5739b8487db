"""What the classmates add to a step with each schedule, on the real row pipeline and with engines of a set speed.

One decision: only engines are played. The policy finishes its rows in batches of 8, as a batching engine does; a
classmate serves 4 requests at a time in 0.25 s each, 2 s for 32 rows. Between them stands the `RowJudge` of a training
run: it finds the thoughts, writes the prompts, asks, verifies and scores.

    python scripts/bench/schedules.py --rounds 5

Prints a card and ends with one line of JSON. Exit code 1 when `streamed` adds more than 30 % of what `batched` adds.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

ROWS, ENGINE_BATCH = 32, 8
"""Rows of a step, and rows that the policy's engine finishes together."""

SLOTS, REQUEST_S = 4, 0.25
"""Requests that a classmate serves at a time, and how long each takes."""

POLICY_BATCH_S = 0.75
"""Seconds in which the policy writes a batch."""

LIMIT = 0.3
"""Most that `streamed` may add, as a share of what `batched` adds."""

_ANSWER = "<think>\nTom has 3 apples and gets 4, so 3 + 4 = 7.</think>\n\nThe answer is 7."


class SlowClassmates:
    """A `ClassmateClient` whose engines have `SLOTS` places each and answer after `REQUEST_S`."""

    def __init__(self, count: int, token_ids: Sequence[int]) -> None:
        self._places = [asyncio.Semaphore(SLOTS) for _ in range(count)]
        self._token_ids = tuple(token_ids)

    async def sample(self, classmate: int, prompt_ids: list[int], *, seeds: Sequence[int], **_: Any) -> list[Any]:
        """One reply per seed."""
        from verl.classmate.scoring import Outcome
        from verl.workers.classmate_workers import Reply

        async def one() -> Reply:
            async with self._places[classmate]:
                await asyncio.sleep(REQUEST_S)
            return Reply(outcome=Outcome.ok, token_ids=self._token_ids, finish_reason="stop")

        return list(await asyncio.gather(*(one() for _ in seeds)))


async def policy_writes(answers: Sequence[Any], then: Any) -> None:
    """Hands each batch of answers, when it is finished, to `then`, and does not wait for what becomes of it."""
    tasks = []
    for first in range(0, len(answers), ENGINE_BATCH):
        await asyncio.sleep(POLICY_BATCH_S)
        tasks += [asyncio.create_task(then(answer)) for answer in answers[first : first + ENGINE_BATCH]]
    await asyncio.gather(*tasks)


async def streamed(judge: Any, answers: Sequence[Any]) -> None:
    """Each row is judged when it is written, as the agent loop does."""
    await policy_writes(answers, judge.judge)


async def batched(judge: Any, answers: Sequence[Any]) -> None:
    """All rows are written, then one classmate after the other is asked, as the trainer does."""

    async def nothing(_: Any) -> None:
        return None

    await policy_writes(answers, nothing)
    rows = [judge.read(answer) for answer in answers]
    asked: list[list[Any]] = [[] for _ in rows]
    for m in range(judge.classmates):
        for replies, reply in zip(asked, await asyncio.gather(*(judge.ask(row, m) for row in rows)), strict=True):
            replies.append(reply)
    await asyncio.gather(*(judge.score(row, one) for row, one in zip(rows, asked, strict=True)))


async def alone(judge: Any, answers: Sequence[Any]) -> None:
    """The policy without classmates."""
    await batched(judge, answers)


def make_judge(tokenizer: Any, classmates: int) -> Any:
    """A `RowJudge` with played classmates."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    from verl.classmate.config import from_mapping
    from verl.trainer.command_line import CONFIG_FOLDER, prepare_overrides
    from verl.workers.reward_manager.classmate_cot import ClassmateCoTRewardManager
    from verl.workers.row_judge import RowJudge

    models = ",".join(f"classmate{m}" for m in range(classmates)) or "null"
    named = f"[{models}]" if classmates else "null"
    with initialize_config_dir(str(CONFIG_FOLDER), version_base=None):
        config = compose(
            "qwen_classmate_cot_ppo_trainer",
            prepare_overrides(
                [
                    "hardware=cpu",
                    f"reward_model.classmate_model_name_or_path_list={named}",
                    "reward_model.classmate_cot_reward_configs.use_classmate_main_cond=always",
                ]
            ),
        )
    container: Any = OmegaConf.to_container(config.reward_model, resolve=True)
    reward = from_mapping(container, require_classmates=False)
    return RowJudge(
        reward=reward,
        tokenizer=tokenizer,
        tokenizers=[tokenizer] * classmates,
        client=SlowClassmates(classmates, tokenizer.encode("The answer is 7.", add_special_tokens=False)),
        manager=ClassmateCoTRewardManager(config, tokenizer),
        max_model_len=1024,
        template_kwargs={},
        trains_with_classmates=True,
    )


def make_answers(tokenizer: Any) -> list[Any]:
    """What the policy writes in one step."""
    from verl.workers.reward_manager.classmate_cot import RowTask
    from verl.workers.row_judge import Answer

    messages = [{"role": "user", "content": "Tom has three apples and gets four."}]
    prompt_ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    response_ids = tokenizer.encode(_ANSWER, add_special_tokens=False)
    return [
        Answer(
            messages=messages,
            prompt_ids=prompt_ids,
            response_ids=response_ids,
            task=RowTask(
                data_source="hinted_arithmetic", reward_model={"ground_truth": "7"}, extra_info={"index": row}
            ),
            uid=f"{row}-1-key",
            step=1,
            rollout=0,
            validate=False,
        )
        for row in range(ROWS)
    ]


def seconds(run: Any, tokenizer: Any, classmates: int, answers: Sequence[Any]) -> float:
    """Wall time of one step."""

    async def step() -> float:
        judge = make_judge(tokenizer, classmates)
        began = time.perf_counter()
        await run(judge, answers)
        return time.perf_counter() - began

    return asyncio.run(step())


def measure(rounds: int) -> dict[str, float]:
    """Medians in seconds over rounds of all kinds of step, one after the other."""
    from verl.data_preprocessing.embedded_tokenizers import train_tokenizer

    tokenizer = train_tokenizer("bpe", [_ANSWER, "Tom has three apples and gets four."] * 10, vocab_size=320)
    answers = make_answers(tokenizer)
    kinds = {
        "policy": (alone, 0),
        "streamed": (streamed, 1),
        "batched": (batched, 1),
        "streamed, two classmates": (streamed, 2),
        "batched, two classmates": (batched, 2),
    }
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    seconds(streamed, tokenizer, 1, answers[:1])  # imports and caches
    for _ in range(rounds):
        for kind, (run, classmates) in kinds.items():
            times[kind].append(seconds(run, tokenizer, classmates, answers))
    return {kind: statistics.median(values) for kind, values in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="steps of each kind; their median counts (default: 5)")
    rounds = parser.parse_args().rounds
    times = measure(rounds)
    added = {kind: times[kind] - times["policy"] for kind in times if kind != "policy"}
    share = added["streamed"] / added["batched"]
    two = added["streamed, two classmates"] - added["streamed"]
    print(f"{ROWS} rows in batches of {ENGINE_BATCH}, {SLOTS} requests of {REQUEST_S} s at a time; median of {rounds}")
    print(f"  policy alone               {times['policy']:6.2f} s")
    for kind, value in added.items():
        print(f"  {kind:<26} {times[kind]:6.2f} s   adds {value:5.2f} s")
    print(f"  streamed adds {share:.0%} of what batched adds (at most {LIMIT:.0%})")
    print(f"  a second classmate costs {two:+.2f} s when streamed")
    result = {"benchmark": "schedules", "rounds": rounds, "share": round(share, 3), "second_classmate_s": round(two, 3)}
    print(json.dumps(result | {kind: round(value, 3) for kind, value in times.items()}))
    return 0 if share <= LIMIT else 1


if __name__ == "__main__":
    raise SystemExit(main())
