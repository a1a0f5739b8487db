"""Every combination of the method's options: refused with its reason, or trained on in one process with the advantages
that `recompute` derives from the dump.

The options are read from the typed config, so that a new value is covered by itself.
"""

import itertools
import json
import os
import random
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pandas as pd
import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from tests.e2e.world import World
from tests.e2e.world import settings as world_settings
from tests.trainer.ppo.recompute import Options, advantages
from verl.classmate.algorithm_config import algorithm_from_mapping, check_training
from verl.classmate.config import Clamp, ClassmateCotRewardConfig, TokenMode, from_mapping
from verl.classmate.errors import ConfigError
from verl.classmate.estimators import ESTIMATORS, OUR_ESTIMATORS
from verl.classmate.reward_types import REWARD_TYPES
from verl.trainer.run.command_line import CONFIG_FOLDER, prepare_overrides

STEPS = 2
HANDFUL = 6
"""Combinations that train in the normal suite; the others are for the long one."""

_HINTS = get_type_hints(ClassmateCotRewardConfig)
FACTORS: dict[str, tuple[Any, ...]] = {
    "classmate_reward_type": tuple(REWARD_TYPES),
    "classmate_continue_mode": get_args(_HINTS["classmate_continue_mode"]),
    "use_classmate_main_cond": get_args(_HINTS["use_classmate_main_cond"]),
    "token_level_classmate_reward_mode": get_args(TokenMode),
    # Those with rewards of steps need a model that gives them, and see the fused reward as grpo does.
    "adv_estimator": tuple(name for name, one in ESTIMATORS.items() if not one.takes_process),
    "M": (1, 2),
    "S": (1, 2),
}
FURTHER: dict[str, tuple[Any, ...]] = {
    "reward_fusion": get_args(_HINTS["reward_fusion"]),
    "classmate_aggregation": get_args(_HINTS["classmate_aggregation"]),
    "classmate_advantage_clamp": get_args(Clamp),
    "add_consistency_reward": (False, True),
}
"""Options that take turns from one trained combination to the next, where they are not refused."""

_REWARD = '''"""Eighths, so that sums are exact; they differ from answer to answer, and from truth to truth."""

import re


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    numbers = [int(x) for x in re.findall(r"\\d+", solution_str)]
    truth = [int(x) for x in re.findall(r"\\d+", ground_truth or "")]
    return sum(numbers[-1:], 3 * sum(truth[-1:])) % 9 / 8 if numbers else 0.0
'''

Combination = dict[str, Any]


def composed(arguments: Sequence[str]) -> DictConfig:
    import hydra

    with hydra.initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        return hydra.compose("classmate_cot_ppo_trainer", overrides=prepare_overrides(list(arguments)))


def with_options(base: dict[str, Any], combination: Combination, classmates: Sequence[str]) -> dict[str, Any]:
    """The plain config `base` with a combination's options; only the nodes that change are copied."""
    values = dict(combination)
    estimator, m, s = (values.pop(name) for name in ("adv_estimator", "M", "S"))
    node = base["reward_model"]
    rewards = {
        **node["classmate_cot_reward_configs"],
        **values,
        "classmate_model_name_or_path_list": list(classmates[:m]),
        # Log-probs have no lowest score.
        "empty_cot_score": "exclude" if values["classmate_reward_type"] == "likelihood" else "lowest",
    }
    generation = {**node["classmate_generation_configs"], "num_return_sequences": s}
    return {
        **base,
        "algorithm": {**base["algorithm"], "adv_estimator": estimator},
        "reward_model": {
            **node,
            "classmate_cot_reward_configs": rewards,
            "classmate_generation_configs": generation,
        },
    }


def refusal(base: dict[str, Any], combination: Combination) -> str | None:
    """Why a combination is refused, None if it is not."""
    config = with_options(base, combination, ("a", "b"))
    try:
        check_training(config, from_mapping(config["reward_model"]), algorithm_from_mapping(config["algorithm"]))
    except ConfigError as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    """The primary config as a plain mapping."""
    return OmegaConf.to_container(composed(["hardware=cpu"]), resolve=True)


def every_combination() -> Iterator[Combination]:
    for values in itertools.product(*FACTORS.values()):
        yield dict(zip(FACTORS, values, strict=True))


@pytest.fixture(scope="module")
def reasons(plain: dict[str, Any]) -> list[tuple[Combination, str | None]]:
    """Every combination, and why it is refused."""
    return [(one, refusal(plain, one)) for one in every_combination()]


def test_every_combination_is_possible_or_refused_with_a_reason(
    reasons: list[tuple[Combination, str | None]],
) -> None:
    for combination, reason in reasons:
        estimator, mode = combination["adv_estimator"], combination["token_level_classmate_reward_mode"]
        step_wise = REWARD_TYPES[combination["classmate_reward_type"]].shown == "segments"
        means_nothing = (mode == "all" and step_wise) or (mode != "all" and estimator not in OUR_ESTIMATORS)
        # Where a row without a score, or with another sign, would be paid best.
        some_rows = combination["use_classmate_main_cond"] not in ("always", "no_classmate")
        paid_best = combination["classmate_reward_type"] == "likelihood" and (
            some_rows or estimator not in OUR_ESTIMATORS
        )
        assert (reason is not None) == (means_nothing or paid_best), (combination, reason)
        if reason is not None:
            keys = ["use_classmate_main_cond", "classmate_reward_type"] * paid_best
            keys += ["token_level_classmate_reward_mode"] * means_nothing
            assert any(f".{key}: " in reason for key in keys), "the reason names the key"
            assert "write" in reason, "and says what to write instead"
    assert sum(reason is None for _, reason in reasons) > 1000


def pairs_of(combination: Combination) -> set[tuple[Any, ...]]:
    return {(a, combination[a], b, combination[b]) for a, b in itertools.combinations(sorted(combination), 2)}


@pytest.fixture(scope="module")
def covering(reasons: list[tuple[Combination, str | None]]) -> list[Combination]:
    """Possible combinations in which every pair of values occurs that occurs in any; most new pairs first."""
    left = [(one, pairs_of(one)) for one, reason in reasons if reason is None]
    # Of several that are equally good the first is taken, which would else always have the first values.
    random.Random(0).shuffle(left)
    uncovered = set().union(*(pairs for _, pairs in left))
    chosen: list[Combination] = []
    while uncovered:
        best, covered = max(left, key=lambda item: len(item[1] & uncovered))
        chosen.append(best)
        uncovered -= covered
        left = [item for item in left if item[1] & uncovered]
    return chosen


def with_further(base: dict[str, Any], combination: Combination, turn: int) -> Combination:
    """The combination with the turn's further options, each left out where it is refused."""
    for name, values in FURTHER.items():
        candidate = {**combination, name: values[turn % len(values)]}
        turn //= len(values)
        if refusal(base, candidate) is None:
            combination = candidate
    return combination


class Workbench:
    """Models that are loaded once, and a folder for runs that train on them one after the other."""

    def __init__(self, world: World, folder: Path) -> None:
        self.folder = folder
        self.classmates = [str(path) for path in world.classmates]
        reward = folder / "eighths.py"
        reward.write_text(_REWARD)
        frame = pd.read_parquet(world.folder / "train.parquet")
        others = frame["prompt"].tolist()[1:] + frame["prompt"].tolist()[:1]
        truths = [row["ground_truth"] for row in frame["reward_model"]]
        frame["reward_model"] = [
            {**row, "paired_similar_q": other[-1]["content"], "paired_similar_q_gt": truth}
            for row, other, truth in zip(frame["reward_model"], others, truths[1:] + truths[:1], strict=True)
        ]
        frame.to_parquet(folder / "train.parquet")
        arguments = world_settings(
            world,
            folder / "unused",
            "hardware=cpu",
            "debug=true",
            f"data.train_files={folder / 'train.parquet'}",
            "data.train_batch_size=4",
            "data.filter_overlong_prompts=false",
            "actor_rollout_ref.actor.ppo_mini_batch_size=4",
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=12",
            "actor_rollout_ref.rollout.n=3",
            "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=12",
            # Small, so that the policy stays what it is from one combination to the next.
            "actor_rollout_ref.actor.optim.lr=1e-6",
            f"reward.custom_reward_function.path={reward}",
            f"trainer.total_training_steps={STEPS}",
            "trainer.val_before_train=false",
            "trainer.test_freq=-1",
            "trainer.save_freq=-1",
        )
        self.base: dict[str, Any] = OmegaConf.to_container(composed(arguments), resolve=True)
        self._loaded: Any = None

    def train(self, name: str, combination: Combination) -> list[list[dict[str, Any]]]:
        """Trains for `STEPS` steps; the dumped rows of each."""
        from verl.trainer.ppo.inprocess_trainer import InProcessTrainer
        from verl.workers.inprocess import critic_worker

        bench = self

        class OnTheBench(InProcessTrainer):
            def _load_models(self) -> None:
                if bench._loaded is None:
                    super()._load_models()
                    bench._loaded = self
                    return
                for part in ("actor_rollout_wg", "ref_policy_wg", "server", "classmate_servers"):
                    setattr(self, part, getattr(bench._loaded, part))
                self.critic_wg = critic_worker(self.config) if self.use_critic else None

        config = with_options(self.base, combination, self.classmates)
        if self._loaded is None:
            # The first one loads all classmates for those that follow.
            self.train_nothing(OnTheBench)
        config["trainer"] = {**config["trainer"], "default_local_dir": str(self.folder / name)}
        trainer = OnTheBench(OmegaConf.create(config), trains_with_classmates=True)
        trainer.init_workers()
        trainer.fit()
        return [
            [json.loads(line) for line in (self.folder / name / f"rollouts/step_{step}.jsonl").open()]
            for step in range(1, STEPS + 1)
        ]

    def train_nothing(self, trainer_cls: type) -> None:
        first = {name: values[0] for name, values in FACTORS.items()} | {"M": 2, "adv_estimator": "grpo"}
        config = with_options(self.base, {**first, "token_level_classmate_reward_mode": None}, self.classmates)
        config["trainer"] = {**config["trainer"], "default_local_dir": str(self.folder / "first")}
        trainer_cls(OmegaConf.create(config), trains_with_classmates=True).init_workers()


@pytest.fixture(scope="module")
def bench(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    if torch.cuda.is_available():
        pytest.skip("compares with numbers of the CPU")
    environment = dict(os.environ)
    yield Workbench(world, tmp_path_factory.mktemp("bench"))
    # What workers read from it would lead other tests' workers astray.
    os.environ.clear()
    os.environ.update(environment)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def check(rows: list[dict[str, Any]], combination: Combination) -> None:
    """The dumped advantages are those of the specification."""
    options = Options(
        reward_type=combination["classmate_reward_type"],
        condition=combination["use_classmate_main_cond"],
        estimator=combination["adv_estimator"],
        token_mode=combination["token_level_classmate_reward_mode"],
        aggregation=combination.get("classmate_aggregation", "mean"),
        fusion=combination.get("reward_fusion", "sum"),
        clamp=combination.get("classmate_advantage_clamp", "none"),
        consistency=combination.get("add_consistency_reward", False),
    )
    # `grpo` computes in float32; log-probs are no eighths, and are rounded to it on their way.
    tolerance = 1e-5 if options.estimator == "grpo" else 1e-6
    if REWARD_TYPES[options.reward_type].by_likelihood:
        tolerance = 1e-4
    near = partial(pytest.approx, abs=tolerance, rel=tolerance)
    expected = advantages(rows, options)
    if expected is None:
        read = [(row["advantage_on_cot"] or 0.0) * row["handed_over_tokens"] for row in rows]
        other = [(row["advantage"] or 0.0) * (row["response_tokens"] - row["handed_over_tokens"]) for row in rows]
        assert any(read) or any(other), "some row is better than the critic thought"
        assert sum(read) + sum(other) == pytest.approx(0, abs=1e-3), "verl whitens it over all tokens"
        return
    # The greedy response is not in the dump: what it got is what a prompt's rows of the same kind have in common, those
    # that are compared by r, and those by F.
    shift: dict[tuple[str, bool], float] = {}
    for row, one in zip(rows, expected, strict=True):
        kind = (row["uid"], one.off_cot == near(row["base_reward"] or 0.0))
        if options.estimator == "remax" and row["main_valid"]:
            dumped = row["advantage"] if row["advantage"] is not None else row["advantage_on_cot"]
            shift.setdefault(kind, dumped - one.off_cot)
        common = shift.get(kind, 0.0)
        segments = row.get("advantage_on_segments", ())
        if row["advantage"] is not None:
            assert row["advantage"] == near(one.off_cot + common), row
        if segments:
            assert [x for x in segments if x is not None] == [
                near(y + common) for x, y in zip(segments, one.segments, strict=True) if x is not None
            ], row
        elif row["advantage_on_cot"] is not None:
            assert row["advantage_on_cot"] == near(one.on_cot + common), row


def trained(bench: Workbench, plain: dict[str, Any], covering: list[Combination], numbers: Sequence[int]) -> None:
    kinds: set[str] = set()
    for turn in numbers:
        combination = with_further(plain, covering[turn], turn)
        for rows in bench.train(f"run_{turn}", combination):
            check(rows, combination)
            kinds |= {sample["outcome"] for row in rows for one in row["classmates"] for sample in one["samples"]}
    assert "ok" in kinds


@pytest.mark.slow
def test_some_combinations_train_with_the_recomputed_advantages(
    bench: Workbench, plain: dict[str, Any], covering: list[Combination]
) -> None:
    trained(bench, plain, covering, range(HANDFUL))


@pytest.mark.long
def test_every_pair_of_options_has_the_recomputed_advantages(
    bench: Workbench, plain: dict[str, Any], covering: list[Combination]
) -> None:
    trained(bench, plain, covering, range(HANDFUL, len(covering)))
