"""A backend that says again what was recorded: for tests, fixtures, and examples without a model.

One decision: a record is of a whole answer or of what follows a prefix; whole answers are cut to what follows whatever
prefix they begin with, so that a search by steps can be replayed from whole answers alone.

    >>> backend = ReplayBackend({"What is 3 + 4?": ["3 + 4 = 7.\\n\\nThe answer is 7.", "It is 8."]})
    >>> backend.continue_from(["What is 3 + 4?"], ["3 + 4"])[0][0].text
    ' = 7.\\n\\nThe answer is 7.'
"""

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

from verl.reasoning.backends import Completion, SamplingParams
from verl.reasoning.records import lines_of
from verl.reasoning.token_backend import completion_seed, cut_at_stop

Recorded = Mapping[str | tuple[str, str], Sequence[str]]
"""By prompt, or by prompt and prefix, the texts in the order of their indices."""

_PIECES = re.compile(r"\s*\S+|\s+\Z")


class ReplayBackend:
    """A `GenBackend`. Its tokens are words with the blanks in front of them."""

    def __init__(self, recorded: Recorded | Path, *, model: str = "replay", cycle: bool = False) -> None:
        """Reads the records.

        Args:
            recorded: a mapping, or a file with a JSON object a line: `prompt`, `text`, and `prefix` where there is one.
            model: its name.
            cycle: begin again where more completions are asked for than there are.

        Raises:
            ValueError: a line of the file is no record.
        """
        given = _read(recorded) if isinstance(recorded, Path) else recorded
        self._recorded = {(key, "") if isinstance(key, str) else key: list(texts) for key, texts in given.items()}
        self._model, self._cycle = model, cycle
        self.calls = 0
        """How often it was asked."""

    @property
    def model(self) -> str:
        """Its name."""
        return self._model

    @property
    def revision(self) -> str:
        """A hash of all records."""
        content = json.dumps(sorted([*key, *texts] for key, texts in self._recorded.items()))
        return f"replay:{blake2b(content.encode(), digest_size=16).hexdigest()}"

    def generate(
        self, prompts: Sequence[str], *, n: int = 1, sampling: SamplingParams | None = None
    ) -> list[list[Completion]]:
        """As `GenBackend.generate`."""
        return self.continue_from(prompts, [""] * len(prompts), n=n, sampling=sampling)

    def continue_from(
        self, prompts: Sequence[str], prefixes: Sequence[str], *, n: int = 1, sampling: SamplingParams | None = None
    ) -> list[list[Completion]]:
        """As `GenBackend.continue_from`; what was not recorded is a failure."""
        self.calls += 1
        how = sampling or SamplingParams()
        return [
            [self._one(prompt, prefix, how.first_index + k, how) for k in range(n)]
            for prompt, prefix in zip(prompts, prefixes, strict=True)
        ]

    def log_probs(self, prompts: Sequence[str], texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        """As `GenBackend.log_probs`; every token has a probability of 1."""
        return [[(piece, 0.0) for piece in _PIECES.findall(text)] for text in texts]

    def count_tokens(self, text: str) -> int:
        """Words."""
        return len(_PIECES.findall(text))

    def close(self) -> None:
        """There is nothing to end."""

    def _one(self, prompt: str, prefix: str, index: int, how: SamplingParams) -> Completion:
        seed = completion_seed(how.seed, prompt, prefix, index)
        texts = self._recorded.get((prompt, prefix)) or [
            text[len(prefix) :] for text in self._recorded.get((prompt, ""), ()) if text.startswith(prefix)
        ]
        if not texts or (index >= len(texts) and not self._cycle):
            said = f"{len(texts)} texts are recorded behind {(prompt + prefix)[-60:]!r}, and number {index} is wanted"
            return Completion(text="", seed=seed, error=said)
        whole = texts[index % len(texts)]
        pieces = _PIECES.findall(cut_at_stop(whole, how.stop))
        text = "".join(pieces[: how.max_tokens])
        return Completion(
            text=text,
            token_ids=tuple(range(len(pieces[: how.max_tokens]))),
            finish_reason="stop" if len(pieces) <= how.max_tokens else "length",
            seed=seed,
        )


def _read(path: Path) -> dict[str | tuple[str, str], list[str]]:
    recorded: dict[str | tuple[str, str], list[str]] = {}
    for number, line in enumerate(lines_of(path.read_text()), 1):
        try:
            values = json.loads(line)
            recorded.setdefault((values["prompt"], values.get("prefix", "")), []).append(values["text"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ValueError(f"{path}, line {number}: no record; write {{'prompt': ..., 'text': ...}}") from None
    return recorded
