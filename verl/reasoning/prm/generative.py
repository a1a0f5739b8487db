"""Scores steps by asking a language model in words: a classmate that reads steps, and judges instead of answering.

One decision: a step's score is a share of verdicts, and a text without a verdict is none: it is left out and counted.

    >>> scorer = GenerativeStepScorer(backend, n=4)                     # thinks aloud, four times a step
    >>> scorer = GenerativeStepScorer(backend, words=False)             # no words: how likely "yes" is against "no"
    >>> scorer.score_steps(["What is 3 + 4?"], [["3 + 4 = 7.", "So it is 8."]])
    [[1.0, 0.25]]
"""

import math
import re
from collections.abc import Sequence

from tqdm import tqdm

from verl.reasoning.backends import Completion, GenBackend, SamplingParams

QUESTION = """\
Below are a problem, the steps of a solution so far, and one more step. Is that last step right? It is right if what it
says follows from the problem and the steps before it.

Problem:
{problem}

Steps so far:
{steps}

Last step:
{step}

{task}"""
WORDS = "Check it in a few words. Then write in the last line `Verdict: yes` or `Verdict: no`."
AT_ONCE = "Answer with `Verdict: yes` or `Verdict: no`."

_VERDICT = re.compile(r"verdict\W{0,6}(yes|no|right|wrong|correct|incorrect)\b", re.IGNORECASE)
_YES = {"yes", "right", "correct"}
SAID = ("Verdict: yes", "Verdict: no")
"""What a model says of a right and of a wrong step, if it says no more."""
_BAR_FROM = 256
"""Steps from which on a call shows its progress."""


class GenerativeStepScorer:
    """A `StepScorer`, of a frozen or a trained model."""

    def __init__(
        self,
        backend: GenBackend,
        *,
        n: int = 1,
        words: bool = True,
        stop_below: float | None = None,
        sampling: SamplingParams | None = None,
        question: str = QUESTION,
        progress: bool = True,
    ) -> None:
        """Asks nothing yet.

        Args:
            backend: the model.
            n: verdicts on each step, in words.
            words: let it think before its verdict; False: compare the likelihood of the two verdicts, which costs a
                reading of each and is the same every time.
            stop_below: ask of no step behind one that has a lower score: such steps have none. Saves tokens where only
                the first error is wanted, and costs one request after the other.
            sampling: how verdicts are drawn; None: greedy for one, temperature 0.7 for more; 512 tokens.
            question: with the slots `{problem}`, `{steps}`, `{step}` and `{task}`.
            progress: show a bar where there is much to do.

        Raises:
            ValueError: fewer than one verdict.
        """
        if n < 1:
            raise ValueError(f"n={n}: write 1 or more verdicts a step")
        self._backend, self._n, self._words, self._question = backend, n, words, question
        self._stop_below, self._progress = stop_below, progress
        self._sampling = sampling or SamplingParams(temperature=0.0 if n == 1 else 0.7, max_tokens=512)
        self.tokens = 0
        """Generated so far, or read where there are no words."""
        self.read = 0
        """Tokens of questions, each counted as often as it is read: twice where two verdicts are compared."""
        self.unreadable = 0
        """Texts without a verdict, or that failed."""

    def score_steps(self, problems: Sequence[str], steps: Sequence[Sequence[str]]) -> list[list[float | None]]:
        """As `StepScorer.score_steps`."""
        found: list[list[float | None]] = [[None] * len(one) for one in steps]
        pairs = [(row, place) for row, one in enumerate(steps) for place in range(len(one))]
        with tqdm(total=len(pairs), desc="judge steps", disable=not self._progress or len(pairs) < _BAR_FROM) as bar:
            for wave in self._waves(found):
                prompts = [self.prompt(problems[row], steps[row], place) for row, place in wave]
                scores = self._in_words(prompts) if self._words else self._at_once(prompts)
                for (row, place), score in zip(wave, scores, strict=True):
                    found[row][place] = score
                bar.update(len(wave))
        return found

    def _waves(self, found: list[list[float | None]]):  # type: ignore[no-untyped-def]
        """All steps together, or where an error ends a solution the first steps, then the second, and so on."""
        if self._stop_below is None:
            yield [(row, place) for row, one in enumerate(found) for place in range(len(one))]
            return
        open_rows = list(range(len(found)))
        for place in range(max(map(len, found), default=0)):
            open_rows = [row for row in open_rows if place < len(found[row])]
            yield [(row, place) for row in open_rows]
            low = self._stop_below
            open_rows = [row for row in open_rows if (score := found[row][place]) is None or score >= low]

    def prompt(self, problem: str, steps: Sequence[str], place: int) -> str:
        """What the model is asked about the step at a place; rows to fine-tune it on are asked the same."""
        before = "\n".join(step.strip() for step in steps[:place]) or "(none)"
        task = WORDS if self._words else AT_ONCE
        given = {"problem": problem.strip(), "steps": before, "step": steps[place].strip(), "task": task}
        # In one pass: what is put in may itself hold braces.
        return re.sub(r"\{(problem|steps|step|task)\}", lambda slot: given[slot[1]], self._question)

    def _in_words(self, prompts: Sequence[str]) -> list[float | None]:
        self.read += self._length(prompts)
        drawn = self._backend.generate(prompts, n=self._n, sampling=self._sampling)
        self.tokens += sum(len(one.token_ids) for completions in drawn for one in completions)
        return [self._share(completions) for completions in drawn]

    def _length(self, prompts: Sequence[str]) -> int:
        return sum(self._backend.count_tokens(prompt) for prompt in prompts)

    def _share(self, completions: Sequence[Completion]) -> float | None:
        said = [verdict_of(one.text) for one in completions if one.ok]
        known = [verdict for verdict in said if verdict is not None]
        self.unreadable += len(completions) - len(known)
        return sum(known) / len(known) if known else None

    def _at_once(self, prompts: Sequence[str]) -> list[float | None]:
        self.read += self._length(prompts) * len(SAID)
        told = [self._backend.log_probs(prompts, [said] * len(prompts)) for said in SAID]
        self.tokens += sum(len(tokens) for both in told for tokens in both)
        scores: list[float | None] = []
        for yes, no in zip(*told, strict=True):
            if not yes or not no:
                self.unreadable += 1
                scores.append(None)
                continue
            odds = sum(log_prob for _, log_prob in yes) - sum(log_prob for _, log_prob in no)
            scores.append(1 / (1 + math.exp(min(700.0, -odds))))
        return scores


def verdict_of(text: str) -> bool | None:
    """The last verdict in a text; None without one."""
    found = _VERDICT.findall(text)
    return found[-1].lower() in _YES if found else None
