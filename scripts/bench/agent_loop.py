"""What a row costs the process that makes it, from 32 to 4,096 rows a step: prompt, request, verifier, queue.

One decision: only the engine is played, by a process that answers at once with a text of the embedded task. Ray, the
queue, the agent loop, the judge and the trainer's way of taking rows out are those of a training run. Processor time of
that one process counts, so that a busy machine gives nearly the same answer.

    python scripts/bench/agent_loop.py --rows 32 256 4096

Prints a card and ends with one line of JSON. Exit code 1 when a row takes more than LIMIT_MS at any size.
"""

import argparse
import json
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

LIMIT_MS = 4.0
"""Most that a row may cost."""

ROLLOUTS = 8
"""Rows of a prompt."""


class Engine:
    """The policy's engine as the agent loop's client sees it."""

    def __init__(self, token_ids: Sequence[int]) -> None:
        self._token_ids = list(token_ids)

    async def generate(self, **_: Any) -> Any:
        """The same answer to every prompt, at once."""
        from verl.workers.rollout.replica import TokenOutput

        return TokenOutput(
            token_ids=self._token_ids,
            log_probs=[-0.5] * len(self._token_ids),
            stop_reason="completed",
            extra_fields={"global_steps": 0, "finish_reason": "stop"},
        )


def make_policy(folder: Path) -> list[int]:
    """Writes a tokenizer of the embedded task and a model's config for it; returns the tokens of an answer."""
    from transformers import Qwen3Config

    from verl.data_preprocessing.arithmetic_problems import iter_problems, right_cot
    from verl.data_preprocessing.embedded_tokenizers import THINK_END, THINK_START, train_tokenizer

    problems = list(iter_problems(seed=0, split="train", count=500))
    thoughts = [right_cot(problem) for problem in problems]
    tokenizer = train_tokenizer(
        "bpe", [f"{p.question}\n{t}" for p, t in zip(problems, thoughts, strict=True)], vocab_size=448
    )
    tokenizer.save_pretrained(folder)
    Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, architectures=["Qwen3ForCausalLM"]
    ).save_pretrained(folder)
    answer = f"{THINK_START}\n{thoughts[0]}{THINK_END}\n\nThe answer is 7."
    return tokenizer.encode(answer, add_special_tokens=False)


def compose(policy: Path) -> Any:
    """A baseline run's config on the CPU."""
    from hydra import compose as composed
    from hydra import initialize_config_dir

    from verl.trainer.run.command_line import CONFIG_FOLDER, prepare_overrides
    from verl.trainer.run.unset import fill_in

    given = [
        "hardware=cpu",
        f"actor_rollout_ref.model.path={policy}",
        "data.max_prompt_length=256",
        "data.max_response_length=128",
        f"actor_rollout_ref.rollout.n={ROLLOUTS}",
    ]
    with initialize_config_dir(str(CONFIG_FOLDER), version_base=None):
        config = composed("qwen_ppo_trainer", overrides=prepare_overrides(given))
    fill_in(config)
    return config


def prompts_of(step: int, count: int) -> Any:
    """A batch of `count` prompts as the trainer fetches it."""
    import numpy as np

    from verl.data_preprocessing.arithmetic_problems import iter_problems
    from verl.utils import tensordict_utils as tu

    problems = list(iter_problems(seed=0, split="train", count=count, start=step * count))
    columns = {
        "raw_prompt": [[{"role": "user", "content": problem.question}] for problem in problems],
        "data_source": ["hinted_arithmetic"] * count,
        "reward_model": [{"style": "rule", "ground_truth": str(problem.answer)} for problem in problems],
        "extra_info": [{"index": i, "split": "train", "hint_answer": None} for i in range(count)],
        "index": list(range(count)),
        "uid": [f"{i}-{step}-bench" for i in range(count)],
    }
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        arrays[name] = np.empty(count, dtype=object)
        arrays[name][:] = values
    batch = tu.get_tensordict(arrays)
    tu.assign_non_tensor_data(batch, "global_steps", step)
    return batch


class Bench:
    """Ray, the queue, and what makes rows and takes them out."""

    def __init__(self, folder: Path) -> None:
        import psutil
        import ray
        import transfer_queue as tq

        from verl.experimental.agent_loop.classmate_agent_loop import ClassmateAgentLoopManager
        from verl.trainer.ppo.queue_rows import AccountedRows
        from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
        from verl.workers.rollout.one_server import OneServerClient

        answer = make_policy(folder)
        config = compose(folder)
        ray.init(num_cpus=16, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        self._tq = tq
        tq.init(config.transfer_queue)
        client = OneServerClient(config=config)
        engine: Any = ray.remote(Engine)
        client._server = ("engine", engine.options(max_concurrency=10_000).remote(answer))
        self._manager = ClassmateAgentLoopManager.create(
            config=config, llm_client=client, teacher_client=None, reward_loop_worker_handles=None
        )
        (worker,) = self._manager.agent_loop_workers
        self._process = psutil.Process(ray.get(worker.__ray_call__.remote(lambda _: __import__("os").getpid())))
        self._rows = AccountedRows(
            ReplayBuffer(
                trainer_mode="sync",
                trainer_config=config.trainer,
                max_off_policy_threshold=None,
                max_off_policy_strategy="drop",
                sampler_kwargs=config.trainer.v1.sampler,
            )
        )
        self._rows.wait_for_rows = self._manager.wait_for_rows
        self._steps = 0

    def step(self, rows: int) -> tuple[float, float]:
        """Makes and takes out so many rows; milliseconds a row of processor time, and of the clock."""
        self._steps += 1
        batch = prompts_of(self._steps, rows // ROLLOUTS)
        tags = [{"is_prompt": True, "status": "pending", "global_steps": self._steps}] * len(batch)
        before, began = sum(self._process.cpu_times()[:2]), time.perf_counter()
        self._tq.kv_batch_put(keys=list(batch["uid"]), partition_id="train", tags=tags)
        self._manager.generate_sequences(batch)
        made, _ = self._rows.buffer.sample(self._steps, "train", len(batch))
        took = time.perf_counter() - began
        used = sum(self._process.cpu_times()[:2]) - before
        lost, _ = self._rows.take_lost()
        if lost or len(made.keys) != rows:
            raise SystemExit(f"error: {len(made.keys)} of {rows} rows were made ({lost[:1]})")
        self._tq.kv_clear(keys=made.keys, partition_id="train")
        return 1e3 * used / rows, 1e3 * took / rows


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[32, 256, 1024, 4096], help="rows of a step")
    parser.add_argument("--repeats", type=int, default=3, help="at least so many steps of each size, after a first one")
    parser.add_argument("--limit", type=float, default=LIMIT_MS, help="limit, milliseconds a row; exit code 1 above it")
    arguments = parser.parse_args()
    import ray

    found: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        bench.step(32)
        print("rows a step   processor, ms a row   clock, ms a row")
        for rows in arguments.rows:
            if rows % ROLLOUTS:
                parser.error(f"--rows {rows} is not a multiple of {ROLLOUTS}")
            bench.step(rows)
            # The system counts processor time in hundredths of a second: small steps need many.
            steps = [bench.step(rows) for _ in range(max(arguments.repeats, 2048 // rows))]
            cpu, clock = (statistics.mean(column) for column in zip(*steps, strict=True))
            found[rows] = {"cpu_ms": cpu, "clock_ms": clock}
            print(f"{rows:11,}   {cpu:19.2f}   {clock:15.2f}", flush=True)
        ray.shutdown()
    print(json.dumps(found))
    return 1 if max(size["cpu_ms"] for size in found.values()) > arguments.limit else 0


if __name__ == "__main__":
    sys.exit(main())
