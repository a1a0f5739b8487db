"""A problem and the steps of a solution as tokens, with the places at which a model is asked about each step.

One decision: each step is tokenized by itself, without the blanks around it, and a tag token follows; the places of the
tags are known from the making, never searched for, so a text that spells the tag misleads nobody.

    >>> encoded = Encoder(tokenizer).encode("3 + 4?", ["3 + 4 = 7.", "So 7."])
    >>> [encoded.input_ids[at] for at in encoded.places] == [tag, tag]
    True
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verl.classmate.errors import ConfigError

NEW_TAG = "<|step_end|>"
"""Added to tokenizers that have no unused token."""
UNUSED = ("<extra_0>", "<|extra_0|>", "<|fim_pad|>", "<|reserved_special_token_0|>", "<unused0>", "[unused0]")
"""Tokens that tokenizers of well-known families have and texts do not use; the first is Qwen2.5-Math's for this."""


@dataclass(frozen=True)
class Encoded:
    """A solution, or one step of it, as a model reads it."""

    input_ids: list[int]
    """Problem and steps."""
    places: list[int]
    """Of the tag behind each step that fits; for an encoder, of its last token."""
    starts: list[int]
    """Where each of these steps begins."""
    n_steps: int
    """Of the solution, whether they fit or not."""

    @property
    def truncated(self) -> bool:
        """Whether steps were left out, since they did not fit."""
        return len(self.places) < self.n_steps


def choose_tag(tokenizer: Any, wanted: str | None) -> str:
    """The text of the tag: what is wanted, or the first unused token that the tokenizer has, or a new one."""
    if wanted is not None:
        return wanted
    vocabulary = tokenizer.get_vocab()
    return next((tag for tag in UNUSED if tag in vocabulary), NEW_TAG)


def add_tag(tokenizer: Any, tag: str) -> int:
    """The tag's token; one that the tokenizer does not have as one token is added to it.

    For texts that it has only as several tokens ("\\n\\n" of some) it is added as well.
    """
    ids = tokenizer.encode(tag, add_special_tokens=False)
    if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
        tokenizer.add_tokens([tag], special_tokens=True)
    (tag_id,) = tokenizer.encode(tag, add_special_tokens=False)
    return int(tag_id)


class Encoder:
    """Makes tokens of solutions, in one format."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        tag: str | None = None,
        template: str = "auto",
        max_length: int = 4096,
        strip: bool = True,
    ) -> None:
        """Adds the tag to the tokenizer where it has none.

        Args:
            tokenizer: of the model.
            tag: as `PRMConfig.step_tag`.
            template: as `PRMConfig.template`.
            max_length: most tokens.
            strip: leave out the blanks around steps; False: keep them, as TRL does.

        Raises:
            ConfigError: the chat template is wanted and the tokenizer has none.
        """
        if template == "chat" and not tokenizer.chat_template:
            raise ConfigError("PRMConfig.template='chat': the tokenizer has no chat template; write 'plain'")
        self.tokenizer = tokenizer
        self.tag = choose_tag(tokenizer, tag)
        self.tag_id = add_tag(tokenizer, self.tag)
        self.template = "chat" if template != "plain" and tokenizer.chat_template else "plain"
        self.max_length = max_length
        self._strip = strip

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """The problem and as many whole steps as fit, each with the tag behind it.

        The problem is never cut: where it alone is too long, no step fits.
        """
        ids, places, starts = self.problem_ids(problem), [], []
        for step in steps:
            piece = [*self.step_ids(step), self.tag_id]
            if len(ids) + len(piece) > self.max_length:
                break
            starts.append(len(ids))
            ids = [*ids, *piece]
            places.append(len(ids) - 1)
        return Encoded(ids if places else ids[: self.max_length], places, starts, len(steps))

    def encode_each(self, problem: str, steps: Sequence[str], window: int | None) -> list[Encoded | None]:
        """For an encoder: each step with the problem and the steps before it, of which the last `window` are seen.

        A step that does not fit with the problem is None; where only its context does not fit, the oldest steps go.
        """
        found: list[Encoded | None] = []
        begin, end = self.problem_ids(problem), self._closing()
        # A blank step has one token too, so that there is something to take the mean of.
        pieces = [self.step_ids(step) or [self.tag_id] for step in steps]
        for place, piece in enumerate(pieces):
            room = self.max_length - len(begin) - len(piece) - len(end) - 1
            if room < 0:
                found.append(None)
                continue
            context: list[int] = []
            first = 0 if window is None else max(0, place - window)
            for earlier in reversed(pieces[first:place]):
                if len(context) + len(earlier) + 1 > room:
                    break
                context = [*earlier, self.tag_id, *context]
            ids = [*begin, *context, *piece]
            found.append(Encoded([*ids, *end], [len(ids) - 1], [len(ids) - len(piece)], 1))
        return found

    def problem_ids(self, problem: str) -> list[int]:
        """The problem, up to where the solution begins."""
        if self.template == "chat":
            text = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": problem}], tokenize=False, add_generation_prompt=True
            )
            return self._ids(text)
        first = self.tokenizer.bos_token_id
        first = self.tokenizer.cls_token_id if first is None else first
        return [*([] if first is None else [first]), *self._ids(problem if not self._strip else problem.strip() + "\n")]

    def step_ids(self, step: str) -> list[int]:
        """A step without its tag."""
        return self._ids(step.strip() if self._strip else step)

    def _ids(self, text: str) -> list[int]:
        # Told not to pad: a fast tokenizer goes on padding after a call that asked it to.
        return list(self.tokenizer(text, add_special_tokens=False, padding=False)["input_ids"])

    def _closing(self) -> list[int]:
        last = self.tokenizer.sep_token_id
        return [] if last is None else [last]
