"""What deterministic runs come to, kept: a change of structure must leave all of it as it was, to the last digit.

    python -m tests.e2e.recorded record outputs/recorded/before      # about half an hour on 2 cores
    python -m tests.e2e.recorded record outputs/recorded/after --only 'reward_type_*'
    python -m tests.e2e.recorded compare outputs/recorded/before outputs/recorded/after

One decision: a record is the run folders themselves, dumps, metrics and checkpoints; times alone are not compared. A
case that was recorded is not run again, so that `record` goes on where it was stopped.
"""

import argparse
import fnmatch
import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from transformers import AutoTokenizer

from tests.e2e.agents import data_with_agents
from tests.e2e.tiny import save_reward_model
from tests.e2e.world import BASELINE, MAIN, ROOT, World, build_world, finished, graded_reward, settings
from verl.classmate.estimators import ESTIMATORS
from verl.classmate.reward_types import REWARD_TYPES

STEPS = 2
TIMES = ("timing_s/", "timing_per_token_ms/", "perf/", "actor/perf/", "critic/perf/")
"""Prefixes of metrics that tell how fast and how large, not what."""


def is_timed(metric: str) -> bool:
    """Whether a metric tells how fast, not what; those of a teacher's students have a prefix for each student."""
    return metric.startswith(TIMES) or metric.endswith("/student_seconds")


_REWARD = "reward_model.classmate_cot_reward_configs"
_GENERATION = "reward_model.classmate_generation_configs"
_ALWAYS = f"{_REWARD}.use_classmate_main_cond=always"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run, in one process (`debug=true`) and on Ray."""

    name: str
    """Of its folders."""
    overrides: tuple[str, ...] = ()
    """What it sets beside the main job's settings."""
    program: Sequence[str] = MAIN
    """Its entry point."""
    ways: tuple[str, ...] = ("debug", "ray")
    """How it is run."""


def cases(world: World, folder: Path) -> list[Case]:
    """All that is recorded; data and models that single cases need are made in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        Case(name="main"),
        Case(name="baseline", program=BASELINE),
        *_of_the_config(),
        *_of_settings(),
        *_of_data_and_models(world, folder),
    ]


def _of_the_config() -> Iterator[Case]:
    """Estimators and reward types are those of the config, so that a new one is recorded by itself."""
    for name in (*ESTIMATORS, "drgrpo"):
        yield Case(name=f"estimator_{name}", overrides=(f"algorithm.adv_estimator={name}", _ALWAYS))
    for name, reward_type in REWARD_TYPES.items():
        # Rows that name their partners are not in the embedded world.
        if reward_type.partner != "row":
            yield Case(name=f"reward_type_{name}", overrides=(f"{_REWARD}.classmate_reward_type={name}", _ALWAYS))


def _of_settings() -> Iterator[Case]:
    """Settings that take ways of their own through the code."""
    segments = f"{_REWARD}.classmate_reward_type=random_truncate_step_wise_utility"
    yield Case(name="batched", overrides=("reward_model.classmate_schedule=batched",), ways=("ray",))
    yield Case(name="segments_fused", overrides=(segments, _ALWAYS, "algorithm.adv_estimator=grpo_w_classmate"))
    yield Case(
        name="negated_immediate",
        overrides=(
            f"{_REWARD}.use_classmate_main_cond=neg_classmate_when_main_incorrect",
            f"{_REWARD}.classmate_continue_mode=immediate_answer",
            f"{_REWARD}.add_consistency_reward=true",
            f"{_GENERATION}.num_return_sequences=2",
        ),
    )
    yield Case(
        name="sycophancy_manager",
        overrides=("reward_model.reward_manager=sycophancy_classmate_cot", f"{_REWARD}.main_cot_keep_rate=0.5"),
    )
    yield Case(
        name="length_cost_without_hint",
        overrides=("reward_model.length_cost=0.1", f"{_REWARD}.classmate_question=hint_removed", _ALWAYS),
    )
    for mode in ("cot_only", "output_only"):
        yield Case(
            name=f"loss_on_{mode}",
            overrides=(f"reward_model.token_level_main_reward_mode={mode}", "algorithm.adv_estimator=drgrpo"),
        )
    yield Case(
        name="two_updates_with_kl",
        overrides=(
            "actor_rollout_ref.actor.ppo_mini_batch_size=4",
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16",
            "actor_rollout_ref.actor.use_kl_loss=true",
            "reward_model.rollout_is_threshold=4.0",
        ),
    )


def _of_data_and_models(world: World, folder: Path) -> Iterator[Case]:
    """Other rows than the world's, and other models that read or judge them."""
    similar = (f"{_REWARD}.classmate_reward_type=help_other_similar_questions", _ALWAYS)
    yield Case(name="similar_questions", overrides=(*similar, *_with_partners(world, folder / "similar")))
    for mode in ("frozen", "live"):
        yield Case(
            name=f"self_play_{mode}",
            overrides=(
                f"{_REWARD}.self_play={mode}",
                f"reward_model.classmate_model_name_or_path_list=[{world.classmates[0]}]",
                _ALWAYS,
            ),
        )
    yield Case(name="tool_agent", overrides=tuple(data_with_agents(world, folder / "agents", ["tool_agent", None])))
    yield Case(name="judge_in_run", overrides=_judged_in_run(world, folder / "judged"))


def _with_partners(world: World, folder: Path) -> tuple[str, ...]:
    """Overrides: the world's data, each row naming the row before it as its similar question."""
    folder.mkdir()
    overrides = []
    for name in ("train", "val"):
        table = pq.read_table(world.folder / f"{name}.parquet")
        rows = table.to_pylist()
        for row, other in zip(rows, [rows[-1], *rows[:-1]], strict=True):
            row["reward_model"]["paired_similar_q"] = other["prompt"][-1]["content"]
            row["reward_model"]["paired_similar_q_gt"] = other["reward_model"]["ground_truth"]
        pq.write_table(type(table).from_pylist(rows), folder / f"{name}.parquet")
        overrides.append(f"data.{name}_files={folder / name}.parquet")
    return tuple(overrides)


def _judged_in_run(world: World, folder: Path) -> tuple[str, ...]:
    """Overrides: a reward model among the run's engines scores the answers and the classmates'."""
    folder.mkdir()
    overrides = []
    for name in ("train", "val"):
        table = pq.read_table(world.folder / f"{name}.parquet")
        place = table.schema.get_field_index("data_source")
        source = [["general_reward"] * len(table)]
        pq.write_table(table.set_column(place, "data_source", source), folder / f"{name}.parquet")
        overrides.append(f"data.{name}_files={folder / name}.parquet")
    tokenizer = AutoTokenizer.from_pretrained(world.policy)
    return (
        *overrides,
        "reward_model.llm_judge_backend_type=hf_scoring",
        f"reward_model.llm_judge_model_name={save_reward_model(folder / 'model', tokenizer, max_length=512)}",
        "reward_model.llm_judge_max_context=512",
        "reward.custom_reward_function.path=null",
        f"{_REWARD}.unfinished_main_score=exclude",
        f"{_REWARD}.empty_cot_score=exclude",
        _ALWAYS,
    )


def record(target: Path, world: World, *, only: str = "*") -> None:
    """Runs the cases whose name fits `only`, and keeps their folders in `target`."""
    target.mkdir(parents=True, exist_ok=True)
    scratch = target / "made"
    shutil.rmtree(scratch, ignore_errors=True)
    todo = [
        (case, way, target / f"{case.name}@{way}")
        for case in cases(world, scratch)
        for way in case.ways
        if fnmatch.fnmatch(f"{case.name}@{way}", f"{only}*" if "@" not in only else only)
    ]
    for number, (case, way, folder) in enumerate(todo, 1):
        if folder.exists():
            continue
        began, run = time.perf_counter(), target / f".{folder.name}"
        shutil.rmtree(run, ignore_errors=True)
        arguments = settings(
            world,
            run,
            "hardware=cpu",
            "trainer.deterministic=true",
            f"trainer.total_training_steps={STEPS}",
            f"trainer.save_freq={STEPS}",
            f"trainer.test_freq={STEPS}",
            "trainer.val_before_train=false",
            "actor_rollout_ref.actor.optim.lr=1e-3",
            graded_reward(target),
            *case.overrides,
            *(["debug=true"] if way == "debug" else []),
        )
        finished([*case.program, *arguments], log=target / f"{folder.name}.txt")
        run.rename(folder)
        print(f"[{number}/{len(todo)}] {folder.name}  {time.perf_counter() - began:.0f} s", flush=True)


def differences(before: Path, after: Path, *, apart_from: Sequence[str] = ()) -> Iterator[str]:
    """What is not the same in two run folders: values of rows and of metrics, and files of checkpoints.

    Args:
        before: the run folder that is right.
        after: the one that is looked at.
        apart_from: keys of rows and of metrics that are not compared.
    """

    def numbers(line: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in line.items() if not is_timed(key)}

    for kind in ("rollouts", "val_preds"):
        for name in sorted({path.name for folder in (before, after) for path in (folder / kind).glob("*.jsonl")}):
            pair = [_lines(folder / kind / name) for folder in (before, after)]
            yield from _lines_differ(*pair, f"{kind}/{name} row", apart_from)
    pair = [[numbers(line) for line in _lines(folder / "metrics.jsonl")] for folder in (before, after)]
    yield from _lines_differ(*pair, "metrics.jsonl line", apart_from)
    found = [{path.relative_to(folder): path for path in _checkpoint_files(folder)} for folder in (before, after)]
    for name in sorted(found[0].keys() | found[1].keys()):
        if not (name in found[0] and name in found[1]):
            yield f"{name}: only in {'before' if name in found[0] else 'after'}"
        elif not _same_content(found[0][name], found[1][name]):
            yield f"{name}: other content"


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    # Not `splitlines`: a policy may write characters that it takes for ends of lines.
    with path.open() as lines:
        return [json.loads(line) for line in lines]


def _lines_differ(
    before: list[dict[str, Any]], after: list[dict[str, Any]], where: str, apart_from: Sequence[str]
) -> Iterator[str]:
    if len(before) != len(after):
        yield f"{where}s: {len(before)} before, {len(after)} after"
        return
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        for key in [*old, *(key for key in new if key not in old)]:
            if key not in apart_from and not _same(old.get(key, "absent"), new.get(key, "absent")):
                yield f"{where} {i} {key}: {old.get(key, 'absent')!r} before, {new.get(key, 'absent')!r} after"


def _same(old: Any, new: Any) -> bool:
    """Equal to the last digit; what is not a number equals itself."""
    return json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)


def _checkpoint_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.glob("global_step_*/**/*")):
        if path.suffix in (".safetensors", ".pt"):
            yield path


def _same_content(before: Path, after: Path) -> bool:
    if before.read_bytes() == after.read_bytes():
        return True
    if before.suffix != ".pt":
        return False
    # Our own files; what a checkpoint of FSDP holds is more than tensors.
    old, new = (torch.load(path, map_location="cpu", weights_only=False) for path in (before, after))
    if before.name.startswith("extra_state"):
        # Random generators of a process start from numbers of the machine; a deterministic run draws from none of them.
        old, new = ({key: value for key, value in state.items() if key != "rng"} for state in (old, new))
    return _equal(old, new)


def _equal(old: Any, new: Any) -> bool:
    if type(old) is not type(new):
        return False
    if isinstance(old, torch.Tensor):
        old, new = (value.to_local() if hasattr(value, "to_local") else value for value in (old, new))
        return torch.equal(old, new)
    if isinstance(old, Mapping):
        return old.keys() == new.keys() and all(_equal(old[key], new[key]) for key in old)
    if isinstance(old, list | tuple):
        return len(old) == len(new) and all(_equal(a, b) for a, b in zip(old, new, strict=True))
    return bool(old == new) if not hasattr(old, "tobytes") else old.tobytes() == new.tobytes()


def compare(before: Path, after: Path, *, apart_from: Sequence[str] = (), show: int = 5) -> int:
    """Prints what differs in each case that both have; returns the number of cases that differ, or are missing."""
    wrong = 0
    for folder in sorted(path for path in before.iterdir() if "@" in path.name and path.is_dir()):
        if folder.name.startswith("."):
            continue
        if not (after / folder.name).is_dir():
            print(f"missing  {folder.name}")
            wrong += 1
            continue
        found = list(differences(folder, after / folder.name, apart_from=apart_from))
        print(f"{'DIFFERS' if found else 'same':8} {folder.name}")
        for line in found[:show]:
            print(f"         {line[:300]}")
        if len(found) > show:
            print(f"         and {len(found) - show} more")
        wrong += bool(found)
    return wrong


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="run the cases and keep their run folders")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--only", default="*", help="names of cases, for instance 'main@debug' or 'reward_type_*'")
    recording.add_argument("--world", type=Path, default=ROOT / "outputs" / "recorded" / "world")
    comparing = commands.add_parser("compare", help="say what differs between two records")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--apart-from", nargs="*", default=(), help="keys of rows and metrics to leave out")
    given = parser.parse_args(arguments)
    if given.command == "record":
        # Built anew wherever the code that makes it has changed, it would be another one in each record.
        world = World(folder=given.world.resolve())
        record(given.folder.resolve(), world if world.policy.exists() else build_world(world.folder), only=given.only)
        return 0
    return 1 if compare(given.before, given.after, apart_from=given.apart_from) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
