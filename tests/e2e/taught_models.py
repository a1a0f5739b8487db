"""Tiny models that are shown, in seconds, what they are to write behind a chat.

>>> teach(folder / "teacher", lambda rng: [(chat, "<teaching>Carry.</teaching>")], steps=150)
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

Shown = list[tuple[list[dict[str, str]], str]]
"""Chats, and what is written behind each."""


def teach(folder: Path, lesson: Callable[[random.Random], Shown], *, steps: int) -> None:
    """Trains the model of a folder, in its own chat template; only what it is to write is learnt.

    Args:
        folder: with a model and its tokenizer; gets the trained model.
        lesson: what a step shows.
        steps: of training.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    rng = random.Random(0)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        # Shares of what is written come out right only in small steps.
        optimizer.param_groups[0]["lr"] = 3e-3 * (1 - step / steps)
        ids, labels = [], []
        for chat, text in lesson(rng):
            prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
            front = tokenizer.encode(prompt, add_special_tokens=False)
            said = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
            ids.append(torch.tensor(front + said))
            labels.append(torch.tensor([-100] * len(front) + said))
        padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=tokenizer.pad_token_id)
        wanted = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100)
        loss = model(input_ids=padded, labels=wanted).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
