"""One GPU for all: a policy of 0.6 B parameters and two such classmates on vLLM, which sleep while it is trained.

The models have random weights in the shape of Qwen3-0.6B and tokenizers of their own, so that nothing is downloaded.
With `-s` the test prints what it saw: times of a step, and the memory of the GPU over the run.
"""

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.e2e.world import MAIN, PROMPTS, ROLLOUTS, finished, rows, steps
from verl.trainer.resources.gpu_memory import margin_gib

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
STEPS = 3
WORDS = 151_000
"""Entries of a vocabulary: most of what random weights write."""
CHAT_TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }} \n {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SPECIAL = ("<pad>", "<eos>", "<unk>", "<user>", "<assistant>", "\n", "<think>", "</think>")
REWARD = '''"""Share of even numbers: random, and different in all rows of a group."""

import re


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    numbers = re.findall(r"\\d+", solution_str)
    return sum(int(number) % 2 == 0 for number in numbers) / max(1, len(numbers))
'''


def save_model(folder: Path, seed: int) -> Path:
    """Writes a random model in the shape of Qwen3-0.6B, and a tokenizer whose words `seed` has shuffled."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(WORDS, generator=generator).tolist()
    vocabulary = {word: i for i, word in enumerate((*SPECIAL, "+", "=", "?", *(str(number) for number in order)))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Split(" ", "removed")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=len(vocabulary),
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        dtype="bfloat16",
    )
    with torch.device("cuda"):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    del model
    torch.cuda.empty_cache()
    return folder


def save_data(path: Path) -> Path:
    """Writes prompts of numbers."""
    import pandas as pd

    rows = [
        {
            "data_source": "openai/gsm8k",
            "prompt": [{"role": "user", "content": f"{n} + {3 * n} = ?"}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(4 * n)},
            "extra_info": {"index": n, "split": "train"},
        }
        for n in range(STEPS * PROMPTS)
    ]
    pd.DataFrame(rows).to_parquet(path)
    return path


@contextlib.contextmanager
def memory_samples(file: Path) -> Iterator[list[int]]:
    """MiB in use on the GPU, ten times a second while the block runs; the list is filled when it ends."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-lms", "100"]
    found: list[int] = []
    with file.open("w") as sink, subprocess.Popen(query, stdout=sink) as sampler:
        try:
            yield found
        finally:
            sampler.terminate()
    found.extend(int(line) for line in file.read_text().split("\n")[:-1])


def freed_by_sleep(run_folder: Path) -> list[float]:
    """GiB that each sleep of an engine gave back, as vLLM's log says it."""
    logs = "\n".join(path.read_text(errors="replace") for path in (run_folder / "logs").rglob("*") if path.is_file())
    return [float(size) for size in re.findall(r"Sleep mode freed ([\d.]+) GiB", logs)]


def _job(
    policy: Path, classmates: list[Path], data: Path, reward: Path, folder: Path, schedule: str, share: float | None
) -> list[str]:
    """Overrides of a run; with `share` None the plan chooses, and there are two saves and validation too."""
    overrides = [
        f"actor_rollout_ref.model.path={policy}",
        f"reward_model.classmate_model_name_or_path_list=[{','.join(map(str, classmates))}]",
        f"reward_model.classmate_schedule={schedule}",
        "reward_model.classmate_generation_configs.max_new_tokens=64",
        "reward_model.cot_format=plain",
        "reward_model.classmate_cot_reward_configs.classmate_continue_mode=immediate_answer",
        "actor_rollout_ref.rollout.enforce_eager=true",
        f"reward.custom_reward_function.path={reward}",
        f"actor_rollout_ref.rollout.n={ROLLOUTS}",
        "actor_rollout_ref.actor.optim.lr=1e-5",
        f"data.train_files={data}",
        f"data.val_files={data}",
        f"data.train_batch_size={PROMPTS}",
        "data.max_prompt_length=32",
        "data.max_response_length=128",
        f"trainer.total_training_steps={STEPS}",
        "trainer.n_gpus_per_node=1",
        f"trainer.default_local_dir={folder}",
    ]
    if share is None:
        overrides += ["trainer.test_freq=2", "trainer.save_freq=2"]
    else:
        overrides += [
            f"actor_rollout_ref.rollout.gpu_memory_utilization={share}",
            f"reward_model.classmate_vllm_configs.gpu_memory_utilization={share}",
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16",
            "trainer.val_before_train=false",
            "trainer.test_freq=-1",
            f"trainer.save_freq={STEPS}",
        ]
    return overrides


@pytest.mark.parametrize(("schedule", "share"), [("streamed", 0.2), ("batched", 0.5), ("auto", None)])
def test_three_steps_with_two_classmates_on_the_policys_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: str, share: float | None
) -> None:
    """With shares and schedule as typed, and with those that the plan chooses; then two saves and validation too."""
    pytest.importorskip("vllm")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "INFO")
    policy, first, second = (save_model(tmp_path / name, seed) for seed, name in enumerate(("policy", "a", "b")))
    data, reward, folder = save_data(tmp_path / "train.parquet"), tmp_path / "reward.py", tmp_path / "run"
    reward.write_text(REWARD)
    total = torch.cuda.get_device_properties(0).total_memory / 2**20
    torch.cuda.empty_cache()
    overrides = _job(policy, [first, second], data, reward, folder, schedule, share)
    with memory_samples(tmp_path / "memory.txt") as used:
        terminal = finished([*MAIN, *overrides], log=tmp_path / "terminal.txt")
    freed = freed_by_sleep(folder)
    print(f"\n{terminal}\nmemory of the GPU: peak {max(used)} of {total:.0f} MiB; freed by sleeps {freed} GiB")

    found = steps(folder)
    assert sorted(found) == [1, 2, 3]
    for step, line in found.items():
        print(step, {key: round(value, 4) for key, value in line.items() if key.startswith(("timing_s", "perf/max"))})
        # bf16 in trainer and engine, which sum in different orders.
        assert line["training/rollout_actor_probs_pearson_corr"] > 0.9, "the engine has the trainer's weights"
        assert line["classmate/outcome/engine_error"] == 0
        assert line["classmate/outcome/timeout"] == 0
        assert line["actor/grad_norm"] > 0
        assert len(rows(folder, step)) == PROMPTS * ROLLOUTS
        assert all(len(row["classmates"]) == 2 for row in rows(folder, step))
    # Of the policy and of both classmates, in each of the three steps.
    assert len(freed) >= 3 * STEPS
    assert min(freed) > 1, "weights of 1.1 GiB and a cache"
    assert max(used) < total
    planned = {line[1]: float(line[2]) for line in re.finditer(r"^(rows made|training) +([\d.]+) of", terminal, re.M)}
    assert max(used) / 1024 < max(planned.values()) + margin_gib(total / 1024), "the plan's numbers, and its margin"
    assert (folder / "global_step_3" / "actor").is_dir()
