"""Small models of the embedded worlds: made, taught by supervised training, asked.

Decision: the models are plain Qwen3 or Llama checkpoints in fp32, so that verl, transformers and vLLM load them like
any other; what is small is only their size, and what they know they learnt from generated texts in minutes or less.

    model = train_model(spec, tokenizer, iter_batches, seed=0)
    texts = generate(model, tokenizer, prompts, max_new_tokens=64, temperature=1.0, seed=0)
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3ForCausalLM

    CausalLM = Qwen3ForCausalLM | LlamaForCausalLM

IGNORE = -100


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Tokenizer, shape and schooling of one model."""

    name: str
    """Folder that it is saved in."""
    tokenizer: Literal["bpe", "unigram"]
    """Algorithm of its tokenizer."""
    vocab_size: int
    """Upper bound of the tokenizer's vocabulary; the texts may not yield more tokens than fewer."""
    hidden_size: int
    """Width of the residual stream; a multiple of 16."""
    layers: int
    """Number of blocks."""
    architecture: Literal["qwen3", "llama"] = "qwen3"
    """Family of the checkpoint."""
    heads: int = 4
    """Query heads; half as many key-value heads."""
    head_dim: int = 32
    """Width of a head; 32 is the smallest that vLLM's CPU attention has."""
    steps: int
    """Supervised training steps."""
    batch_size: int = 24
    """Texts a step."""
    lr: float = 4e-3
    """Peak learning rate of AdamW."""
    whole_words: tuple[str, ...] = ()
    """Words that its tokenizer keeps as one token each, beyond what it learns."""


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """A text to learn from."""

    given: str
    """What is read; not learnt."""
    learnt: str
    """What the model shall write after `given`."""


def new_model(spec: ModelSpec, tokenizer: "PreTrainedTokenizerFast", seed: int) -> "CausalLM":
    """A model with random weights that follow from the seed."""
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": spec.hidden_size,
        "intermediate_size": 4 * spec.hidden_size,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.heads // 2,
        "head_dim": spec.head_dim,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
        "initializer_range": 0.05,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "dtype": "float32",
    }
    model: CausalLM
    if spec.architecture == "llama":
        model = LlamaForCausalLM(LlamaConfig(**shape))
    else:
        model = Qwen3ForCausalLM(Qwen3Config(**shape))
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True, temperature=1.0
    )
    return model


def train_model(
    spec: ModelSpec,
    tokenizer: "PreTrainedTokenizerFast",
    make_lesson: Callable[[random.Random, int], Lesson],
    seed: int,
    bar_position: int = 0,
) -> "CausalLM":
    """Teaches a new model `spec.steps` batches of fresh lessons, with a progress bar.

    Args:
        make_lesson: the lesson of (random numbers, running index).
        bar_position: line of the terminal for the progress bar, counted from the first.
    """
    import torch
    from tqdm import tqdm

    model = new_model(spec, tokenizer, seed).train()
    rng = random.Random(f"{seed}/{spec.name}")
    optimizer = torch.optim.AdamW(model.parameters(), lr=spec.lr, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _lr_factor(step, spec.steps))
    bar = tqdm(range(spec.steps), desc=f"teach {spec.name:<12}", unit="step", position=bar_position)
    for step in bar:
        lessons = [make_lesson(rng, step * spec.batch_size + i) for i in range(spec.batch_size)]
        ids_BT, labels_BT = _collate(tokenizer, lessons)
        # Padding is on the right, where causal attention never looks: without a mask it takes its fast path.
        hidden_BTD = model.model(input_ids=ids_BT[:, :-1], use_cache=False).last_hidden_state
        labels_BT = labels_BT[:, 1:]
        wanted_BT = labels_BT != IGNORE
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden_BTD[wanted_BT]), labels_BT[wanted_BT])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 20 == 0:
            bar.set_postfix(loss=f"{loss.item():.3f}")
    return model.eval()


def _lr_factor(step: int, steps: int, warmup: int = 20) -> float:
    return min((step + 1) / warmup, max(0.05, (steps - step) / max(1, steps - warmup)))


def _collate(tokenizer: "PreTrainedTokenizerFast", lessons: Sequence[Lesson]) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Token ids and labels, both (B, T) int64, right padded; labels are IGNORE on what is read only."""
    import torch

    # Told not to pad: a fast tokenizer goes on padding after a call that asked it to.
    given: Any = tokenizer([one.given for one in lessons], add_special_tokens=False, padding=False)["input_ids"]
    learnt: Any = tokenizer([one.learnt for one in lessons], add_special_tokens=False, padding=False)["input_ids"]
    length = max(len(g) + len(a) for g, a in zip(given, learnt, strict=True))
    ids_BT = torch.full((len(lessons), length), tokenizer.pad_token_id)
    labels_BT = torch.full((len(lessons), length), IGNORE)
    for row, (g, a) in enumerate(zip(given, learnt, strict=True)):
        ids_BT[row, : len(g) + len(a)] = torch.tensor(g + a)
        labels_BT[row, len(g) : len(g) + len(a)] = torch.tensor(a)
    return ids_BT, labels_BT


def load_model(folder: Path) -> tuple["CausalLM", "PreTrainedTokenizerFast"]:
    """A saved model and its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    return AutoModelForCausalLM.from_pretrained(folder).eval(), tokenizer


def generate(
    model: "CausalLM",
    tokenizer: "PreTrainedTokenizerFast",
    prompts: Sequence[str],
    *,
    max_new_tokens: int,
    temperature: float,
    seed: int,
    batch_size: int = 256,
) -> list[str]:
    """What the model writes after each prompt (a text with chat markers); temperature 0 means greedy."""
    import torch

    sampling: dict[str, Any] = {"do_sample": False, "temperature": None}
    if temperature > 0:
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    texts: list[str] = []
    # Its annotation of `self` is of a protocol that the models of this version do not meet.
    decoder: Any = model
    torch.manual_seed(seed)
    with torch.inference_mode():
        for start in range(0, len(prompts), batch_size):
            batch = tokenizer(
                list(prompts[start : start + batch_size]),
                return_tensors="pt",
                padding=True,
                add_special_tokens=False,
                return_token_type_ids=False,
            )
            ids = decoder.generate(**batch, max_new_tokens=max_new_tokens, **sampling)
            texts += tokenizer.batch_decode(ids[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return texts
