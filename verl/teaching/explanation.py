"""How a teacher explains a given solution (RLT): the chat up to the explanation, and what the teacher adds to it.

One decision: the teacher's turn begins with the solution and the mark that opens the explanation, and all of that is
prompt. Warm-up rows and RL prompts take this opening from here, so that both end at the same character.

    >>> form = ExplanationFormat()
    >>> form.prompt("What is 58 + 27?")[-1]
    {'role': 'user', 'content': 'What is 58 + 27?'}
    >>> (form.opening("85") + form.rest("Add the ones first."))[-46:]
    'Add the ones first.\\n\\n<|end_of_explanation|>'

Reinforcement learning teachers of test time scaling (arXiv 2506.08388), section 3.
"""

from dataclasses import dataclass

from verl.teaching.templates import Messages

EXPLAIN = (
    "You are given a problem and write two sections. The first is the solution, complete and correct, between "
    "<|begin_of_solution|> and <|end_of_solution|>. The second explains it, between <|begin_of_explanation|> and "
    "<|end_of_explanation|>: the whole way of thinking that leads from the problem to this solution, in the order in "
    "which one would find it. Say what the problem asks, try ideas, check each step, and go back where one fails. "
    "Somebody who reads the problem and the explanation alone should come to the same solution."
)
"""The system turn of the style `stratos`: answer first, then explain."""


@dataclass(frozen=True, kw_only=True)
class ExplanationFormat:
    """A teacher's way to write a solution and its explanation."""

    system: str = EXPLAIN
    """The teacher's system turn; it names the marks."""
    solution_open: str = "<|begin_of_solution|>"
    """Begins the solution, which is given."""
    solution_close: str = "<|end_of_solution|>"
    """Ends it."""
    explanation_open: str = "<|begin_of_explanation|>"
    """Begins the explanation."""
    explanation_close: str = "<|end_of_explanation|>"
    """Ends it; a teacher who never writes it has broken the format."""
    padding: str = "\n\n"
    """Between a mark and what it encloses."""

    @property
    def marks(self) -> tuple[str, ...]:
        """The four delimiters."""
        return (self.solution_open, self.solution_close, self.explanation_open, self.explanation_close)

    def prompt(self, question: str) -> Messages:
        """System and user."""
        return [{"role": "system", "content": self.system}, {"role": "user", "content": question}]

    def tagged(self, solution: str) -> str:
        """The solution within its marks."""
        return f"{self.solution_open}{self.padding}{solution}{self.padding}{self.solution_close}"

    def opening(self, solution: str) -> str:
        """How the teacher's turn begins: what the teacher is given, in RL and in the warm-up."""
        return f"{self.tagged(solution)}\n\n{self.explanation_open}{self.padding}"

    def rest(self, explanation: str) -> str:
        """How the turn goes on: what the teacher learns to write."""
        return f"{explanation}{self.padding}{self.explanation_close}"

    def explanation_of(self, written: str) -> tuple[str, bool]:
        """The explanation in what a teacher wrote behind the opening, and whether it was closed."""
        text, mark, _ = written.partition(self.explanation_close)
        return text.strip(), bool(mark)


STYLES = {"stratos": ExplanationFormat()}
"""Ways to explain, by `system_prompt_style`."""
