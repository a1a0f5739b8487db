"""A completion as data sets of thoughts write it: a thought and a solution, each within its marks.

One decision: each of the four marks stands exactly once and in its order. A text in which one is missing or stands
twice cannot be told apart for certain, and is refused in one line.

    >>> form = CompletionFormat(think_tag="think", solution_tag="answer", tag_format="r1", padding="\\n")
    >>> form.split("<think>\\n1+1\\n</think>\\n\\n<answer>\\n2\\n</answer>")
    Completion(prefix='', think='1+1', delimiter='\\n\\n', solution='2')
"""

from dataclasses import dataclass
from typing import Literal

TagFormat = Literal["bespoke", "r1"]
"""`bespoke`: <|begin_of_X|> and <|end_of_X|>; `r1`: <X> and </X>."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """The four parts of a completion."""

    prefix: str
    """What stands in front of the thought."""
    think: str
    """The thought, without marks and blanks around it."""
    delimiter: str
    """What stands between thought and solution."""
    solution: str
    """The solution, likewise."""


def unix_lines(text: str) -> str:
    """A text with one kind of line break."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


@dataclass(frozen=True, kw_only=True)
class CompletionFormat:
    """Marks of thoughts and solutions."""

    think_tag: str
    """X of the thought's marks."""
    solution_tag: str
    """X of the solution's."""
    tag_format: TagFormat
    """How marks are made of X."""
    padding: str
    """Between a mark and what it encloses."""

    def _marks(self, name: str) -> tuple[str, str]:
        if self.tag_format == "r1":
            return f"<{name}>", f"</{name}>"
        return f"<|begin_of_{name}|>", f"<|end_of_{name}|>"

    @property
    def think_open(self) -> str:
        """Begins the thought."""
        return self._marks(self.think_tag)[0]

    @property
    def think_close(self) -> str:
        """Ends it."""
        return self._marks(self.think_tag)[1]

    @property
    def solution_open(self) -> str:
        """Begins the solution."""
        return self._marks(self.solution_tag)[0]

    @property
    def solution_close(self) -> str:
        """Ends it."""
        return self._marks(self.solution_tag)[1]

    @property
    def marks(self) -> tuple[str, str, str, str]:
        """In their order."""
        return self.think_open, self.think_close, self.solution_open, self.solution_close

    def split(self, completion: str) -> Completion:
        """The parts of a completion, with one kind of line break.

        Raises:
            ValueError: a mark is missing, stands twice or in the wrong place, or a part is blank.
        """
        rest = unix_lines(completion)
        for mark in self.marks:
            if (count := rest.count(mark)) != 1:
                raise ValueError(f"{mark} stands {count or 'no'} times in the completion, once is needed")
        parts: list[str] = []
        for mark in self.marks:
            before, found, rest = rest.partition(mark)
            if not found:
                raise ValueError(f"{mark} stands in the wrong place in the completion")
            parts.append(before)
        prefix, think, delimiter, solution = parts
        if rest.strip():
            raise ValueError(f"there is text behind {self.solution_close} in the completion")
        for name, part in (("thought", think), ("solution", solution)):
            if not part.strip():
                raise ValueError(f"the {name} of the completion is blank")
        return Completion(prefix=prefix, think=think.strip(), delimiter=delimiter, solution=solution.strip())

    def join(self, completion: Completion) -> str:
        """The text of the parts.

        Raises:
            ValueError: a part holds a mark, so that the text could not be split again.
        """
        self.check(completion.think, completion.solution)
        pad = self.padding
        think = f"{completion.prefix}{self.think_open}{pad}{completion.think}{pad}{self.think_close}"
        return f"{think}{completion.delimiter}{self.solution_open}{pad}{completion.solution}{pad}{self.solution_close}"

    def check(self, *texts: str) -> None:
        """Refuses texts that hold a mark.

        Raises:
            ValueError: naming it.
        """
        check_free(self.marks, *texts)


def check_free(marks: tuple[str, ...], *texts: str) -> None:
    """Refuses texts that hold one of the marks.

    Raises:
        ValueError: naming it.
    """
    for mark in marks:
        if any(mark in text for text in texts):
            raise ValueError(f"{mark} stands within a text that it would end or begin")
