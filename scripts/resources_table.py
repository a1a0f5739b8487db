"""The table of docs/resources.md: the README's command on other GPUs, with other policies and one or two classmates.

One decision: the command's own config is composed and given to the planner of a start, with the GPUs as an argument and
the models as `config.json` without weights. So the page says what a start on such a machine would do.

    python scripts/resources_table.py            # prints the table
    python scripts/resources_table.py --write    # renews it in docs/resources.md
"""

import argparse
import copy
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from verl.trainer.run.choices import HELPER_SHARE, MICRO, OPTIMIZER, PARAM, SCHEDULE, SHARE, Choices, Machine
from verl.trainer.run.command_line import CONFIG_FOLDER, prepare_overrides
from verl.trainer.run.unset import fill_in

PAGE = Path(__file__).parents[1] / "docs" / "resources.md"
BEGIN, END = "<!-- scripts/resources_table.py -->\n", "<!-- end -->\n"

GPU_GIB = {"24 GB": 23.5, "40 GB": 39.4, "80 GB": 79.2}
"""What a GPU is sold as, and the GiB that CUDA reports of it."""

GPUS = (1, 4, 8)
CLASSMATES = (1, 2)

_QWEN3 = {"model_type": "qwen3", "vocab_size": 151_936, "head_dim": 128, "num_key_value_heads": 8}
_QWEN3 |= {"max_position_embeddings": 40_960, "architectures": ["Qwen3ForCausalLM"], "dtype": "bfloat16"}


def qwen3(hidden: int, inside: int, layers: int, heads: int, *, tied: bool = True) -> dict[str, Any]:
    """`config.json` of a Qwen3."""
    sizes = {"hidden_size": hidden, "intermediate_size": inside, "num_hidden_layers": layers}
    return _QWEN3 | sizes | {"num_attention_heads": heads, "tie_word_embeddings": tied}


POLICIES = {
    "Qwen3-0.6B": qwen3(1024, 3072, 28, 16),
    "Qwen3-1.7B": qwen3(2048, 6144, 28, 16),
    "Qwen3-4B": qwen3(2560, 9728, 36, 32),
    "Qwen3-8B": qwen3(4096, 12_288, 36, 32, tied=False),
}
LLAMA_1B = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "dtype": "bfloat16",
    "vocab_size": 128_256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "tie_word_embeddings": True,
    "max_position_embeddings": 131_072,
}


def save(folder: Path, name: str, config: dict[str, Any]) -> Path:
    """A folder with a model's config alone."""
    path = folder / name
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return path


def readme_config(policy: Path, classmates: list[Path]) -> DictConfig:
    """The config of the README's command, as far as a plan depends on it."""
    names = ",".join(map(str, classmates))
    overrides = [
        "hardware=gpu",
        f"actor_rollout_ref.model.path={policy}",
        f"reward_model.classmate_model_name_or_path_list=[{names}]",
        # On a machine without a GPU `auto` would be the embedded engine.
        "reward_model.classmate_backend=vllm",
    ]
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        return compose("classmate_cot_ppo_trainer", overrides=prepare_overrides(overrides))


def planned(composed: DictConfig, machine: Machine) -> str:
    """A cell: the settings of a run that fits, or what to write."""
    config = copy.deepcopy(composed)
    filled = fill_in(config, machine)
    if filled.refusal is not None:
        ways = re.split("; (?:write|take) ", filled.refusal)[-1].split(", or ")
        return "refused: " + " or ".join(f"`{short(way)}`" if "=" in way else way for way in ways)
    chosen = Choices(config)
    held = [float(re.search(r"\s([\d.]+) of", line)[1]) for line in filled.lines if " of " in line]  # type: ignore[index]
    offload = ", offload" if chosen.get(PARAM) or chosen.get(OPTIMIZER) else ""
    settings = f"{chosen.get(SHARE):.2f} + {chosen.get(HELPER_SHARE):.2f}; {chosen.get(MICRO)}"
    return f"{chosen.get(SCHEDULE)}{offload}; {settings}; {held[0]:.1f} and {held[1]:.1f} GiB"


def short(way: str) -> str:
    """Keys to write, without their nodes and what they do."""
    return " ".join(one.rpartition(".")[2] for one in way.partition(" (")[0].split(" "))


def lines() -> Iterator[str]:
    """The table, a line at a time."""
    yield "| policy | classmates | GPUs | " + " | ".join(GPU_GIB) + " |"
    yield "|---|---:|---:|" + "---|" * len(GPU_GIB)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mates = [save(folder, f"Llama-3.2-1B-{number}", LLAMA_1B) for number in range(max(CLASSMATES))]
        for model, config in POLICIES.items():
            policy = save(folder, model, config)
            for count in CLASSMATES:
                composed = readme_config(policy, mates[:count])
                for gpus in GPUS:
                    cells = [planned(composed, Machine(gpus=gpus, gpu_gib=gib)) for gib in GPU_GIB.values()]
                    yield f"| {model} | {count} | {gpus} | {' | '.join(cells)} |"


def main(arguments: list[str]) -> None:
    """Prints the table, or renews the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew the table in docs/resources.md")
    given = parser.parse_args(arguments)
    table = "".join(f"{line}\n" for line in lines())
    if given.write:
        before, begin, rest = PAGE.read_text().partition(BEGIN)
        _, end, after = rest.partition(END)
        if not begin or not end:
            sys.exit(f"{PAGE} has no lines {BEGIN.strip()} and {END.strip()} for the table to stand between")
        PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")
    else:
        print(table, end="")


if __name__ == "__main__":
    main(sys.argv[1:])
