"""What a distiller takes where its caller gives nothing: a backend for a model, a reward, a look at a problem's text.

One decision: each is a function that is called when it is needed, so that whoever gives his own starts none.

    >>> backend = open_backend("models/teacher", device="auto")
    >>> reward = default_reward()
"""

from collections.abc import Callable
from typing import Any

from verl.reasoning.backend_hf import HFBackend
from verl.reasoning.backends import GenBackend
from verl.reasoning.difficulty import heuristic_difficulty
from verl.reasoning.records import Problem
from verl.reasoning.rewards import Reward
from verl.reasoning.scoring import math_reward
from verl.reasoning.sft.chat import chat_tokenizer

Opener = Callable[[Any, Any], GenBackend]
"""A backend of (path, hub name or model object; its tokenizer, None for the one beside it)."""

Heuristic = Callable[[Problem], float]
"""How hard a problem looks; a larger number is harder."""


def open_backend(model: Any, tokenizer: Any = None, *, device: str = "auto") -> GenBackend:
    """The embedded engine, on a device."""
    return HFBackend(model, tokenizer if tokenizer is not None else chat_tokenizer(model), device=device)


def default_reward() -> Reward:
    """Compares answers: math-verify, or the verifier that a problem's source names."""
    return math_reward()


def default_heuristic() -> Heuristic:
    """The pipeline's own look at a problem's text."""
    return heuristic_difficulty
