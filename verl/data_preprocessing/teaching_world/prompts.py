"""The prompts of the teaching world, and the chats that its models know.

Decision: there is one source of a prompt, `verl.teaching.templates`. Lessons are made of the messages that a run would
send, through the chat template in the model's own folder, so that a model is asked in a run for what it was taught.

    templates().baseline("What is 47 + 38?")
    write(folder / "templates.yaml")                  # for `Templates.from_mapping`
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from verl.teaching.templates import Messages, Templates

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PROBE_LIMIT = 50
"""`max_probe_tokens` that the models are used to; other numbers are in their lessons too."""
TEACHING_LIMIT = 64
"""`max_teaching_tokens` that the teacher is used to, likewise."""

_OTHER_LIMIT_SHARE = 0.3

TEMPLATES: Mapping[str, Any] = {
    "answer_format": "Answer in <solution></solution>.",
    "student_baseline_template": "{question}\n{answer_format}",
    "student_diagnostic_template": "{question}\nOnly a plan of at most {probe_limit} tokens, no answer.",
    "student_with_teaching_template": "{question}\n<advice>{teaching}</advice>\n{answer_format}",
    "teacher_adaptive_template": {
        "system": (
            "Think in <thinking></thinking>, then advise in <teaching></teaching>, in at most {teaching_limit} tokens. "
            "Write no advice if no help is needed."
        ),
        "user": "{question}\nPlan: {approach}",
    },
}
"""What `templates.yaml` holds: short, since small models on a CPU read them."""

Side = Literal["student", "teacher"]
_KEYS: Mapping[Side, tuple[str, ...]] = {
    "student": ("student_baseline_template", "student_diagnostic_template", "student_with_teaching_template"),
    "teacher": ("teacher_adaptive_template", "student_baseline_template"),
}
_PLACEHOLDER = re.compile(r"\{[a-z_]+\}")

QWEN3_CHAT = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
"""Without a switch for thinking: the models of this world never think before they answer."""
LLAMA_TURN_END = "<|eot_id|>"
LLAMA_SPECIAL = ("<|start_header_id|>", "<|end_header_id|>", LLAMA_TURN_END)
LLAMA_CHAT = (
    "{%- for message in messages %}"
    "{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content + '<|eot_id|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"
)
_HEADERS: Mapping[str, tuple[str, ...]] = {
    "qwen3": ("system\n", "user\n", "assistant\n"),
    "llama": ("system", "user", "assistant", "\n\n"),
}


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A chat and the answer to it."""

    messages: Messages
    """What is read."""
    answer: str
    """What the model shall write."""


@lru_cache
def templates() -> Templates:
    """The world's prompts, checked."""
    return Templates.from_mapping(TEMPLATES)


def write(path: Path) -> None:
    """Writes the prompts for `Templates.from_mapping`."""
    import yaml

    path.write_text(yaml.safe_dump(dict(TEMPLATES), sort_keys=False, allow_unicode=True, width=120))


def whole_tokens(side: Side, architecture: str) -> list[str]:
    """What a tokenizer holds as one token each, so that a prompt costs little more than what differs in it.

    The tags, the wording between the placeholders, and what the chat template says of a turn.
    """
    prompts, tags = templates(), templates().tags
    found = [tags.solution_open, tags.solution_close]
    if side == "teacher":
        found += [tags.private_open, tags.private_close, tags.visible_open, tags.visible_close]
    for key in _KEYS[side]:
        template = getattr(prompts, key)
        for turn in filter(None, (template.system, template.user)):
            found += _PLACEHOLDER.split(turn.replace("{answer_format}", prompts.answer_format))
    found += _HEADERS[architecture]
    return [text for text in dict.fromkeys(found) if len(text) > 1]


def prepare(tokenizer: "PreTrainedTokenizerFast", side: Side, architecture: str) -> None:
    """Gives a tokenizer its whole tokens and its chat template."""
    from tokenizers import AddedToken

    if architecture == "llama":
        tokenizer.add_tokens(
            [AddedToken(t, special=True, normalized=False) for t in LLAMA_SPECIAL], special_tokens=True
        )
        tokenizer.eos_token = LLAMA_TURN_END
    # Not `whole_words` of `train_tokenizer`: those stand alone, while a tag has the digits of an answer beside it.
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in whole_tokens(side, architecture)])
    tokenizer.chat_template = LLAMA_CHAT if architecture == "llama" else QWEN3_CHAT


def chat(tokenizer: "PreTrainedTokenizerFast", messages: Messages) -> str:
    """The text that a model reads before it answers."""
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert isinstance(text, str)
    return text


def any_limit(usual: int, rng: random.Random) -> int:
    """A budget for a prompt in a lesson: mostly the usual one."""
    return rng.randint(10, 512) if rng.random() < _OTHER_LIMIT_SHARE else usual


def teacher_answer(diagnosis: str, teaching: str) -> str:
    """What a teacher writes: the private part, then the visible one."""
    tags = templates().tags
    return f"{tags.private_open}{diagnosis}{tags.private_close}{tags.visible_open}{teaching}{tags.visible_close}"


def student_answer(columns: str, number: int) -> str:
    """What a student writes: the working, if any, then the answer in its tag."""
    tags = templates().tags
    return f"{columns}{tags.solution_open}{number}{tags.solution_close}"


def fixed_messages(side: Side) -> Sequence[Messages]:
    """The messages of each prompt around values that never change; a hash of them says what a model was taught."""
    prompts = templates()
    baseline = prompts.baseline("q")
    if side == "teacher":
        return [prompts.adaptive("q", "a", teaching_limit=TEACHING_LIMIT), baseline]
    return [baseline, prompts.diagnostic("q", probe_limit=PROBE_LIMIT), prompts.with_teaching("q", "z")]
