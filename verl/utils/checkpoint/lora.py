"""Model folders of LoRA runs: upstream leaves adapters apart from the weights that they belong to.

Decision: what lies in a model folder is the whole model with the adapters added in, as without LoRA, so that uploads,
vLLM and the next run take it. The shards of the training, from which a run resumes, keep them apart.

    python -m verl.utils.checkpoint.lora FOLDER     # after upstream's merger of shards
    >>> merge_saved(Path("run/global_step_20/actor"))       # True; the second time False
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

INDEX = "model.safetensors.index.json"


def merge_saved(actor: Path) -> bool:
    """Merges what a run has just saved in `actor/huggingface`, under names that only peft knows; whether it had to.

    Raises:
        ValueError: an adapter that is not low-rank, or without its weight.
    """
    folder, meta = actor / "huggingface", actor / "lora_train_meta.json"
    if not meta.is_file():
        return False
    return _merge(folder, _weights(folder), json.loads(meta.read_text()))


def merge_beside(folder: Path) -> bool:
    """Merges `folder/lora_adapter`, which upstream's merger of shards leaves, into the weights; whether there is one.

    Raises:
        ValueError: an adapter that is not low-rank, or without its weight.
    """
    from safetensors.torch import load_file

    adapter = folder / "lora_adapter"
    if not adapter.is_dir():
        return False
    meta = json.loads((adapter / "adapter_config.json").read_text())
    merged = _merge(folder, _weights(folder) | load_file(adapter / "adapter_model.safetensors"), meta)
    shutil.rmtree(adapter)
    return merged


def _weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    weights: dict[str, Any] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        weights |= load_file(file)
    return weights


def _merge(folder: Path, weights: Mapping[str, Any], meta: Mapping[str, Any]) -> bool:
    """Writes W + (alpha / r) B A; new files are whole before they take the place of the old."""
    from huggingface_hub import save_torch_state_dict

    named = {_own_name(name): weight for name, weight in weights.items()}
    adapters = {name.removesuffix(".lora_A.weight") for name in named if name.endswith(".lora_A.weight")}
    if not adapters:
        return False
    parts = {f"{stem}.lora_{part}.weight" for stem in adapters for part in "AB"}
    merged = {name: weight.contiguous() for name, weight in named.items() if name not in parts}
    unknown = [name for name in merged if ".lora_" in name] + sorted(parts - named.keys())
    unknown += sorted({f"{stem}.weight" for stem in adapters} - merged.keys())
    if unknown:
        raise ValueError(f"{folder}: the adapters cannot be merged, because of {unknown[0]}")
    for stem in adapters:
        weight, low, high = (named[f"{stem}.{part}weight"].double() for part in ("", "lora_A.", "lora_B."))
        merged[f"{stem}.weight"] = (weight + meta["lora_alpha"] / meta["r"] * high @ low).to(
            merged[f"{stem}.weight"].dtype
        )
    old = [*folder.glob("model*.safetensors"), *folder.glob(INDEX)]
    with tempfile.TemporaryDirectory(dir=folder, prefix="merging-") as scratch:
        save_torch_state_dict(merged, scratch)
        new = sorted(path.name for path in Path(scratch).iterdir())
        for name in new:
            (Path(scratch) / name).replace(folder / name)
    for path in old:
        if path.name not in new:
            path.unlink()
    return True


def _own_name(name: str) -> str:
    """Of a weight in its model, without what peft adds to it."""
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".").replace(".default.weight", ".weight")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Merges the LoRA adapter in a model folder into its weights.")
    parser.add_argument("folder", type=Path, help="what upstream's merger wrote: weights, and perhaps lora_adapter")
    merge_beside(parser.parse_args().folder)
