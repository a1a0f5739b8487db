"""A model that a stage has made: a path that can load itself and write.

One decision: it is a text, so that it goes wherever a model's path goes, into JSON too.

    >>> results["models"]["pure_rl"].generate("What is 3 + 4?")
    '3 + 4 = 7.'
    >>> model, tokenizer = results["models"]["pure_rl"].load()
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

from verl.reasoning.backend_hf import HFBackend
from verl.reasoning.backends import SamplingParams
from verl.workers.prm.model import ProcessRewardModel
from verl.workers.prm.spec import FILE


def revision_of_model(model: str) -> str:
    """Which weights a model has: a hash of a folder's files, or the hub's revision."""
    with HFBackend(model) as backend:
        return backend.revision


class ModelFolder(str):
    """Path of a folder that transformers can load."""

    __slots__ = ()

    def load(self) -> tuple[Any, Any]:
        """The model and its tokenizer; of a process reward model, the model that judges steps."""
        from transformers import AutoModelForCausalLM, AutoTokenizer

        if (Path(self) / FILE).is_file():
            return ProcessRewardModel.load(self)
        tokenizer: Any = AutoTokenizer.from_pretrained(self)
        return AutoModelForCausalLM.from_pretrained(self).eval(), tokenizer

    @overload
    def generate(self, problem: str, **sampling: Any) -> str: ...

    @overload
    def generate(self, problem: Sequence[str], **sampling: Any) -> list[str]: ...

    def generate(self, problem: str | Sequence[str], **sampling: Any) -> str | list[str]:
        """What the model answers to a problem, or to each of several.

        Args:
            problem: what the user says.
            sampling: fields of `SamplingParams`.

        Raises:
            RuntimeError: it wrote nothing; says why.
        """
        problems = [problem] if isinstance(problem, str) else list(problem)
        with HFBackend(str(self)) as backend:
            written = [found[0] for found in backend.generate(problems, sampling=SamplingParams(**sampling))]
        lost = [one.error for one in written if not one.ok]
        if lost:
            raise RuntimeError(f"{self} wrote nothing: {lost[0]}")
        texts = [one.text for one in written]
        return texts[0] if isinstance(problem, str) else texts
