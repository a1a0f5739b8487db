"""What chat templates of reasoning models do to a prompt: they open the thought, or take no system role.

One decision: a text is the same wherever it is stored, `<think>` and all; what a prompt has written of it already is
left out when the two are put together, so that no model reads or learns `<think>` twice.

    >>> behind_prompt(tokenizer, tokenizer("<assistant><think>")["input_ids"], "<think>I add.</think>7")
    'I add.</think>7'
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from verl.classmate.templates import for_run
from verl.reasoning.answers import THINK


@lru_cache(maxsize=16)
def taking_system(tokenizer: Any, template: str) -> Any:
    """The tokenizer with a template that takes system turns; `template` is its own, which it may be given anew."""
    return for_run(tokenizer, date=None, system_as_user=True)


def behind_prompt(tokenizer: Any, prompt: Sequence[int], text: str) -> str:
    """A text as it goes on behind a prompt: without the `<think>` that the prompt ends with already."""
    begun = text.lstrip()
    if not begun.startswith(THINK.start):
        return text
    # More than a marker and a line break have, in any tokenizer.
    end = tokenizer.decode(list(prompt[-16:]), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    if not end.rstrip().endswith(THINK.start):
        return text
    return begun.removeprefix(THINK.start).removeprefix(end[len(end.rstrip()) :])
