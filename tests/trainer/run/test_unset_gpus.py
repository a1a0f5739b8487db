"""GPUs that are not set: all that there are, if the rows can be divided among them; and their engines."""

from typing import Any

from omegaconf import DictConfig, OmegaConf

from tests.trainer.test_configs import composed
from verl.classmate.config import from_mapping
from verl.classmate.frozen import frozen_models
from verl.trainer import preflight
from verl.trainer.run.choices import Machine

ROLLOUT = "actor_rollout_ref.rollout"
LIST = "reward_model.classmate_cot_reward_configs.classmate_model_name_or_path_list=null"


def gpus(machine: int, *overrides: str) -> DictConfig:
    there = Machine(gpus=machine, gpu_gib=79.2)
    return composed("classmate_cot_ppo_trainer", "gpu", LIST, *overrides, machine=there)


def test_all_gpus_are_used_that_the_typed_rows_split_over() -> None:
    for there in (1, 3, 8):
        config = gpus(there)
        assert OmegaConf.select(config, "trainer.n_gpus_per_node") == there
        rows = OmegaConf.select(config, "data.train_batch_size") * OmegaConf.select(config, f"{ROLLOUT}.n")
        assert rows % there == 0
        assert rows > 7000
        preflight.check_batch_sizes(OmegaConf.to_container(config, resolve=True))
    assert OmegaConf.select(gpus(8, "data.train_batch_size=6", f"{ROLLOUT}.n=2"), "trainer.n_gpus_per_node") == 6
    assert OmegaConf.select(gpus(7, f"{ROLLOUT}.tensor_model_parallel_size=2"), "trainer.n_gpus_per_node") == 6
    assert OmegaConf.select(gpus(8, "trainer.n_gpus_per_node=3"), "trainer.n_gpus_per_node") == 3
    own = "{model: m, backend: vllm, placement: dedicated, replicas: 2, tensor_parallel_size: 2}"
    assert OmegaConf.select(gpus(8, f"reward_model.classmates=[{own}]"), "trainer.n_gpus_per_node") == 4


def test_a_colocated_classmate_has_an_engine_on_each_gpu() -> None:
    def replicas(config: DictConfig) -> list[int | None]:
        plain: Any = OmegaConf.to_container(config, resolve=True)
        return [spec.replicas for spec in frozen_models(from_mapping(plain["reward_model"]))]

    three = (
        "reward_model.classmates=[{model: a, backend: vllm}, {model: b, backend: vllm, tensor_parallel_size: 2}, "
        "{model: c, backend: vllm, placement: dedicated}, {model: d, backend: vllm, replicas: 3}]"
    )
    assert replicas(gpus(8, three, "trainer.n_gpus_per_node=4")) == [4, 2, 1, 3]
    assert replicas(gpus(8, three, "trainer.n_gpus_per_node=4", "trainer.nnodes=2"))[:2] == [8, 4]
    assert replicas(gpus(8, three, "trainer.n_gpus_per_node=4", "reward_model.classmate_replicas=1")) == [1, 1, 1, 3]
    # Ranks of the CPU are no GPUs.
    cpu = composed("classmate_cot_ppo_trainer", "cpu", LIST, three, "trainer.n_gpus_per_node=4")
    assert replicas(cpu) == [1, 1, 1, 3]


def test_a_judge_of_the_run_has_an_engine_on_each_gpu_too() -> None:
    judge = ["reward_model.llm_judge_backend_type=vllm", "reward_model.llm_judge_model_name=j"]
    plain: Any = OmegaConf.to_container(gpus(4, *judge), resolve=True)
    reward = from_mapping(plain["reward_model"], require_classmates=False)
    assert frozen_models(reward)[-1].replicas == 4
