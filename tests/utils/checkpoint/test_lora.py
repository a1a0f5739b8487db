"""Model folders of LoRA runs hold a model: held against peft's own merge, in both forms that upstream writes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from verl.utils.checkpoint.lora import merge_beside, merge_saved

META = {"r": 4, "lora_alpha": 12, "task_type": "CAUSAL_LM"}


@pytest.fixture(scope="module")
def parts() -> dict[str, Any]:
    """A small model, its adapters with numbers in them, and what peft makes of both."""
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "head_dim": 8,
    }
    config = Qwen3Config(
        vocab_size=50,
        num_attention_heads=2,
        num_key_value_heads=1,
        attention_bias=True,
        tie_word_embeddings=False,
        **sizes,
    )
    base = Qwen3ForCausalLM(config)
    start = {name: weight.clone() for name, weight in base.state_dict().items()}
    model = get_peft_model(base, LoraConfig(r=4, lora_alpha=12, target_modules="all-linear", task_type="CAUSAL_LM"))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    saved = {name: weight.clone() for name, weight in model.state_dict().items()}
    merged = {name: weight.clone() for name, weight in model.merge_and_unload().state_dict().items()}
    return {"config": config, "start": start, "saved": saved, "merged": merged}


def assert_merged(folder: Path, parts: dict[str, Any]) -> None:
    found = load_file(folder / "model.safetensors")
    assert found.keys() == parts["merged"].keys()
    for name, weight in parts["merged"].items():
        assert torch.allclose(found[name], weight, atol=1e-5), name
    moved = [name for name in found if not torch.equal(found[name], parts["start"][name])]
    assert len(moved) == 14, "seven weights of each of two layers"
    _, loading = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert {path.name for path in folder.iterdir()} == {"model.safetensors", "config.json"}


def saved_run(folder: Path, parts: dict[str, Any]) -> Path:
    """What a run saves, in two files."""
    model = folder / "huggingface"
    model.mkdir()
    parts["config"].save_pretrained(model)
    names = sorted(parts["saved"])
    save_file({name: parts["saved"][name] for name in names[::2]}, model / "model-00001-of-00002.safetensors")
    save_file({name: parts["saved"][name] for name in names[1::2]}, model / "model-00002-of-00002.safetensors")
    (model / "model.safetensors.index.json").write_text("{}")
    (folder / "lora_train_meta.json").write_text(json.dumps(META))
    return folder


def test_what_a_run_saved_becomes_a_model_once(parts: dict[str, Any], tmp_path: Path) -> None:
    actor = saved_run(tmp_path, parts)
    assert merge_saved(actor)
    assert_merged(actor / "huggingface", parts)
    assert not merge_saved(actor)
    assert_merged(actor / "huggingface", parts)


def test_what_the_merger_of_shards_wrote_becomes_a_model_once(parts: dict[str, Any], tmp_path: Path) -> None:
    parts["config"].save_pretrained(tmp_path)
    save_file(parts["start"], tmp_path / "model.safetensors")
    adapter = tmp_path / "lora_adapter"
    adapter.mkdir()
    adapters = {name.replace(".default", ""): weight for name, weight in parts["saved"].items() if ".lora_" in name}
    save_file(adapters, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text(json.dumps(META))
    assert merge_beside(tmp_path)
    assert_merged(tmp_path, parts)
    assert not merge_beside(tmp_path)


def test_a_run_without_adapters_is_left_alone(parts: dict[str, Any], tmp_path: Path) -> None:
    model = tmp_path / "huggingface"
    model.mkdir()
    save_file(parts["start"], model / "model.safetensors")
    before = (model / "model.safetensors").read_bytes()
    assert not merge_saved(tmp_path)
    (tmp_path / "lora_train_meta.json").write_text(json.dumps(META))
    assert not merge_saved(tmp_path)
    assert (model / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("lost", ["q_proj.lora_B.default.weight", "q_proj.base_layer.weight"])
def test_half_an_adapter_is_an_error_and_changes_nothing(parts: dict[str, Any], tmp_path: Path, lost: str) -> None:
    actor = saved_run(tmp_path, parts)
    for file in (actor / "huggingface").glob("*.safetensors"):
        kept = {name: weight for name, weight in load_file(file).items() if not name.endswith(f"0.self_attn.{lost}")}
        save_file(kept, file)
    copy = shutil.copytree(actor, tmp_path / "copy", ignore=shutil.ignore_patterns("copy"))
    with pytest.raises(ValueError, match=r"cannot be merged, because of model\.layers\.0\.self_attn\.q_proj"):
        merge_saved(actor)
    for path in (copy / "huggingface").iterdir():
        assert (actor / "huggingface" / path.name).read_bytes() == path.read_bytes()
