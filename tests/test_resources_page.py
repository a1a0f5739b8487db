"""The numbers of docs/resources.md: computed from the models' shapes, and by the planner of a run."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
QWEN3 = {"Qwen3-0.6B": (1024, 3072, 28, 16), "Qwen3-1.7B": (2048, 6144, 28, 16), "Qwen3-4B": (2560, 9728, 36, 32)}
"""Hidden size, MLP size, layers, heads; all have 8 KV heads of 128, tied embeddings and a vocabulary of 151,936."""

GIB, GPU, RANKS, ROW, VOCABULARY = 2**30, 80 * 2**30, 4, 4096, 151_936


def gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"


@pytest.fixture(scope="module")
def parameters() -> dict[str, int]:
    """Of each preset's model, counted without allocating it."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    counts = {}
    for name, (hidden, mlp, layers, heads) in QWEN3.items():
        config = Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=hidden,
            intermediate_size=mlp,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=8,
            head_dim=128,
            tie_word_embeddings=True,
        )
        with torch.device("meta"):
            counts[name] = sum(weight.numel() for weight in Qwen3ForCausalLM(config).parameters())
    return counts


def test_the_numbers_of_the_resources_page(parameters: dict[str, int]) -> None:
    page = (ROOT / "docs" / "resources.md").read_text()
    columns = []
    for name, (_, _, layers, _) in QWEN3.items():
        count, cache = parameters[name], 2 * layers * 8 * 128 * 2
        rows = [int((share * GPU - 2 * count) / (cache * ROW)) for share in (0.9, 0.45)]
        sizes = [16 * count, 16 * count / RANKS, 4 * count, 2 * count]
        columns.append([f"{count:,}", *map(gib, sizes), f"{cache // 1024} KiB", *map(str, rows)])
    table = page.partition(f"| | {' | '.join(QWEN3)} |\n")[2].partition("\n\n")[0].splitlines()[1:]
    assert [[cell.strip() for cell in row.strip("|").split("|")[1:]] for row in table] == [
        list(row) for row in zip(*columns, strict=True)
    ]
    logits = 4 * ROW * VOCABULARY
    state, weights = 16 * parameters["Qwen3-4B"] / RANKS, [2 * parameters[name] for name in ("Qwen3-4B", "Qwen3-0.6B")]
    for said in (
        f"are {gib(logits)}: `ppo_micro_batch_size_per_gpu=16` of full rows is {gib(16 * logits)}",
        f"each GPU holds {gib(state)} of training state",
        f"{gib(state)} of state, and {gib(4 * logits)} for each GPU's micro-batch of 4 full rows",
        f"{gib(sum(weights))} of sleeping weights for each GPU, {gib(4 * parameters['Qwen3-4B'])} for a reference",
    ):
        assert said in page


def test_the_plan_of_a_run_agrees_with_the_resources_page(parameters: dict[str, int], tmp_path: Path) -> None:
    from tests.trainer.test_configs import composed
    from verl.classmate.config import from_mapping
    from verl.trainer.resources.plan import resource_plan
    from verl.workers.classmates.placement import gpu_memory_share, resolved_schedule

    model = tmp_path / "Qwen3-4B"
    model.mkdir()
    (model / "config.json").write_text('{"dtype": "bfloat16"}')
    with (model / "model.safetensors").open("wb") as file:
        file.truncate(2 * parameters["Qwen3-4B"])  # sparse: takes no disk
    overrides = [f"actor_rollout_ref.model.path={model}", "trainer.n_gpus_per_node=4"]
    overrides += ["algorithm.adv_estimator=gae", "actor_rollout_ref.actor.use_kl_loss=true"]

    def plan(policy_share: float, classmate_share: float) -> tuple[dict[str, str], str, float]:
        share = f"actor_rollout_ref.rollout.gpu_memory_utilization={policy_share}"
        config = composed("qwen_classmate_cot_ppo_trainer", "gpu", *overrides, share)
        one = {"model": str(model), "backend": "vllm", "gpu_memory_utilization": classmate_share}
        reward = from_mapping({"classmates": [one]})
        schedule = resolved_schedule(config, reward)
        cells = [re.split(r"\s{2,}", line) for line in resource_plan(config, reward, debug=False)]
        sizes = {cell[0]: cell[3] for cell in cells if len(cell) > 3}
        return sizes, schedule, gpu_memory_share(config, reward, schedule)

    sizes, schedule, share = plan(0.5, 0.25)
    table = dict(
        re.findall(r"^\| ([^|]+) \|.*\| ([\d.]+ GiB) \|$", (ROOT / "docs/resources.md").read_text(), re.MULTILINE)
    )
    assert sizes["policy, training"] == sizes["critic, training"] == table["policy, training, all ranks"]
    assert sizes["policy, rollout"] == sizes["classmate 0"] == table["an engine's weights"]
    assert sizes["reference"] == table["reference"]
    assert (schedule, share) == ("streamed", 0.75)
    assert plan(0.9, 0.5)[1:] == ("batched", 0.9)
