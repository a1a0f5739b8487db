"""A tiny teacher that keeps its tags, and random students: rows of every kind in seconds.

>>> overrides = make_teacher_world(tmp_path)
>>> finished([*TEACH, *overrides], log=tmp_path / "run.txt")
"""

import random
from pathlib import Path
from typing import Any

from tests.evaluation.teaching.scripted import TEMPLATES, row
from tests.evaluation.teaching.test_real_models import make_world
from verl.teaching.templates import Templates

TEACH = ("-m", "verl.trainer.rcl_main_ppo")
SAID = (
    "<thinking>Hm.</thinking><teaching>Carry.</teaching>",
    "<teaching>Guess, then look.</teaching>",
    "<teaching></teaching>",
    "Carry.",
)
"""What the teacher learns to write, each as often: advice, advice, none, and a broken contract."""
LONGEST = 56
"""Its tokens, one for each character."""


def make_teacher_world(folder: Path) -> list[str]:
    """Models and files in a folder; the overrides that name them, all but the run's folder."""
    named = [one for one in make_world(folder) if not one.startswith("trainer.default_local_dir")]
    _teach(folder / "policy")
    return [
        *named,
        f"data.max_response_length={LONGEST}",
        "actor_rollout_ref.rollout.n=4",
        "rcl.protocol.probe.temperature=1",
        "trainer.console=plain",
        "trainer.test_freq=-1",
        "trainer.val_before_train=false",
        "trainer.save_freq=-1",
    ]


def _teach(folder: Path) -> None:
    """Some hundred steps on what it is to say behind the end of any prompt."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    rng, templates = random.Random(0), Templates.from_mapping(TEMPLATES)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(150):
        ids, labels = [], []
        for _ in range(16):
            plan = "".join(rng.choice("abcdefghij <>/") for _ in range(6))
            question = row(rng.randrange(4), "carry", split="train")["prompt"][0]["content"]
            chat = templates.adaptive(question, plan, teaching_limit=24)
            text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
            front = tokenizer.encode(text, add_special_tokens=False)
            said = [*tokenizer.encode(rng.choice(SAID), add_special_tokens=False), tokenizer.eos_token_id]
            ids.append(torch.tensor(front + said))
            labels.append(torch.tensor([-100] * len(front) + said))
        padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=tokenizer.pad_token_id)
        wanted = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100)
        loss = model(input_ids=padded, labels=wanted).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
