"""Weights of process reward models on disk, in the layout of transformers' token classifiers.

One decision: the head's tensors are named `score.*` beside the backbone's, in the same safetensors files.
"""

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

HEAD = "score."
_LOADED_AS = {True: "ForTokenClassification", False: "ForProcessRewardModel"}
"""What loads a linear head elsewhere, and an MLP: transformers, and vLLM where it has the family."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' report on tensors of a head that the backbone has not, and without its progress bar."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def load_backbone(name: str, *, speaks: bool, dtype: str = "float32") -> Any:
    """The base model, or with `speaks` the causal language model, of a folder or hub name."""
    from transformers import AutoModel, AutoModelForCausalLM

    kind = AutoModelForCausalLM if speaks else AutoModel
    with quiet():
        return kind.from_pretrained(name, dtype=getattr(torch, dtype))


def save_folder(folder: Path, backbone: Any, head: torch.nn.Module | None) -> None:
    """Writes config and weights; a large model's in several files."""
    if head is None:
        with quiet():
            backbone.save_pretrained(folder)
        return
    from huggingface_hub import save_torch_state_dict

    prefix = backbone.base_model_prefix
    state = {f"{prefix}.{name}": tensor for name, tensor in backbone.state_dict().items()}
    state |= {HEAD + name: tensor for name, tensor in head.state_dict().items()}
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("model*.safetensors*"):
        old.unlink()
    save_torch_state_dict(state, folder)
    config = copy.deepcopy(backbone.config)
    family = type(backbone).__name__.removesuffix("Model")
    config.architectures = [family + _LOADED_AS[isinstance(head, torch.nn.Linear)]]
    config.num_labels = 2
    config.id2label, config.label2id = {0: "wrong", 1: "right"}, {"wrong": 0, "right": 1}
    # The dropout that a token classifier of transformers would have by default; it is none of ours.
    config.classifier_dropout = 0.0
    config.save_pretrained(folder)


def read_head(folder: Path) -> dict[str, torch.Tensor]:
    """The head's tensors, of one file or of several.

    Raises:
        ValueError: there are none.
    """
    from safetensors import safe_open

    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                if name.startswith(HEAD):
                    found[name.removeprefix(HEAD)] = tensors.get_tensor(name).float()
    if not found:
        raise ValueError(f"{folder} has no head ({HEAD}* in its safetensors files); train the model again")
    return found
