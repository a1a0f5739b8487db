"""Sizes of models that nobody has loaded: exact where transformers knows the kind, else what files say."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from scripts import resources_table
from tests.e2e.tiny import make_tiny_world
from verl.trainer.resources.model_sizes import model_size, size_of_config


@pytest.mark.parametrize(
    ("name", "parameters", "cache"),
    [
        ("Qwen3-0.6B", 596_049_920, 112),
        ("Qwen3-1.7B", 1_720_574_976, 112),
        ("Qwen3-4B", 4_022_468_096, 144),
        ("Qwen3-8B", 8_190_735_360, 144),
    ],
)
def test_parameters_are_those_of_the_hubs_pages(name: str, parameters: int, cache: int) -> None:
    size = size_of_config(resources_table.POLICIES[name])
    assert size is not None
    assert (size.parameters, size.cache_bytes) == (parameters, cache * 1024)


def test_the_readmes_classmate() -> None:
    size = size_of_config(resources_table.LLAMA_1B)
    assert size is not None
    assert (size.parameters, size.cache_bytes, size.name) == (1_235_814_400, 32 * 1024, "1.2 B")


def test_a_folder_is_counted_as_its_files_say(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    folder = make_tiny_world(tmp_path).model
    model = AutoModelForCausalLM.from_pretrained(folder)
    size = model_size(str(folder))
    assert size is not None
    assert size.parameters == sum(weight.numel() for weight in model.parameters())
    assert size.vocabulary == model.config.vocab_size
    assert size.positions == model.config.max_position_embeddings


def strange(folder: Path, **changes: Any) -> Path:
    folder.mkdir()
    config = {"model_type": "of_my_own", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 100} | changes))
    return folder


def test_a_kind_unknown_to_transformers_is_counted_by_its_files(tmp_path: Path) -> None:
    folder = strange(tmp_path / "strange")
    assert model_size(str(folder)) is None, "no files yet"
    model_size.cache_clear()
    save_file({"a": torch.zeros(30, 5), "b": torch.zeros(7, dtype=torch.bfloat16)}, folder / "one.safetensors")
    save_file({"c": torch.zeros(11, dtype=torch.int8)}, folder / "two.safetensors")
    size = model_size(str(folder))
    assert size is not None
    assert (size.parameters, size.intermediate, size.cache_bytes) == (168, 256, 2 * 2 * 4 * 16 * 2)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"model_type": "qwen3"}', '"text"', "null"])
def test_what_says_too_little_is_unknown_and_no_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    assert model_size(str(tmp_path)) is None


@pytest.mark.parametrize("path", [None, "", "hdfs://x/y", "/nowhere/model", "a/b/c", "two words", "nobody/nothing"])
def test_what_is_not_there_is_unknown(path: str | None) -> None:
    assert model_size(path) is None
