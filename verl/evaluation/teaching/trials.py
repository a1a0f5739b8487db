"""What was said and answered in an evaluation, as values: an outline, what a teacher wrote, what a student made of it.

One decision: each has a plain form, which is what journal and document hold, and is made again from it.

    >>> Told.of_plain(told.plain()) == told
    True
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verl.classmate.outcome import POLICY_FAILURES, Outcome
from verl.classmate.row import Continuation
from verl.teaching.evaluation_metrics import Response
from verl.teaching.lesson import Probe, plain, rebuilt, teaching_of
from verl.teaching.row import StudentAnswer
from verl.teaching.tags import Teaching, TeachingState
from verl.workers.student_answers import student_answer


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a question is put: greedy or sampled, and with which seed."""

    decoding: str
    """`sampled` or `greedy`."""
    seed: int
    """Of all requests."""

    @property
    def key(self) -> str:
        """For journal and document."""
        return f"{self.decoding}|{self.seed}"


NOTHING = Teaching(text="", state=TeachingState.missing, tokens=0, written_tokens=0)
"""What is found where nothing was written."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a teacher tells a student."""

    outcome: Outcome = Outcome.ok
    """ok, or why nothing was written."""
    error: str | None = None
    """What an engine said."""
    raw: str = ""
    """The teacher's whole text; empty for fixed advice."""
    raw_tokens: int = 0
    """Of it, in the student's tokens."""
    teaching: Teaching
    """What is shown to the student."""
    leak: bool = False
    """Whether it gives the answer away."""

    @classmethod
    def failed(cls, outcome: Outcome, error: str | None = None) -> "Told":
        """Nothing was written."""
        return cls(outcome=outcome, error=error, teaching=NOTHING)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "outcome": self.outcome.value,
            "error": self.error,
            "raw": self.raw,
            "raw_tokens": self.raw_tokens,
            "teaching": {**vars(self.teaching), "state": self.teaching.state.value},
            "leak": self.leak,
        }

    @classmethod
    def of_plain(cls, content: dict[str, Any]) -> "Told":
        """The inverse of `plain`."""
        teaching = content["teaching"]
        return cls(
            **{
                **content,
                "outcome": Outcome(content["outcome"]),
                "teaching": Teaching(**{**teaching, "state": TeachingState(teaching["state"])}),
            }
        )


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a teacher asks a student that writes its own question for the probe."""

    outcome: Outcome = Outcome.ok
    """ok, or why nothing was written."""
    error: str | None = None
    """What an engine said."""
    raw: str = ""
    """The teacher's whole first turn."""
    prompt_ids: tuple[int, ...] = ()
    """What it was asked, in its tokens."""
    turn_ids: tuple[int, ...] = ()
    """The turn, which the second one follows."""
    question: Teaching = NOTHING
    """What is put to the student."""

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        content: dict[str, Any] = plain(self)
        return content

    @classmethod
    def of_plain(cls, content: dict[str, Any]) -> "Asked":
        """The inverse of `plain`."""
        ids = {name: tuple(content[name]) for name in ("prompt_ids", "turn_ids")}
        question = teaching_of(content["question"])
        return cls(**{**content, **ids, "outcome": Outcome(content["outcome"]), "question": question})


@dataclass(frozen=True, kw_only=True)
class Answers:
    """A student's answers to one prompt."""

    responses: tuple[Response, ...]
    """Those that could be had."""
    failed: int
    """Requests that came to nothing; they are in no number."""
    outcome: Outcome = Outcome.ok
    """Of the failed ones; ok if there is none."""
    error: str | None = None
    """What was said of the first of them."""
    first: str | None = None
    """Text of the first response; None where it is not known, as of stored ones."""

    def plain(self) -> dict[str, Any]:
        """For JSON: of each response score, parsed, stopped, tokens."""
        return {
            "responses": [[one.score, one.parsed, one.stopped, one.tokens] for one in self.responses],
            "failed": self.failed,
            "outcome": self.outcome.value,
            "error": self.error,
            "first": self.first,
        }

    @classmethod
    def of_plain(cls, content: dict[str, Any]) -> "Answers":
        """The inverse of `plain`."""
        responses = tuple(
            Response(score=score, parsed=parsed, stopped=stopped, tokens=tokens)
            for score, parsed, stopped, tokens in content["responses"]
        )
        return cls(**{**content, "responses": responses, "outcome": Outcome(content["outcome"])})

    @classmethod
    def of_students(
        cls, answers: Sequence[StudentAnswer], *, errors: Sequence[str | None] = (), first: str | None = None
    ) -> "Answers":
        """What can be counted of a student's answers; who wrote no answer was wrong, who could not be asked is not."""
        responses, bad = [], []
        for place, one in enumerate(answers):
            response = response_of(one)
            if response is None:
                bad.append((one.outcome, errors[place] if errors else None))
            else:
                responses.append(response)
        outcome, error = bad[0] if bad else (Outcome.ok, None)
        # An answer that was written and has no score is the checker's failure.
        outcome = Outcome.judge_error if bad and outcome is Outcome.ok else outcome
        return cls(responses=tuple(responses), failed=len(bad), outcome=outcome, error=error, first=first)

    @classmethod
    def of(cls, continuations: Sequence[Continuation]) -> "Answers":
        """The same of what a student was asked just now."""
        texts = [one.text for one in continuations if one.text]
        return cls.of_students(
            [student_answer(one) for one in continuations],
            errors=[one.error for one in continuations],
            first=texts[0] if texts else None,
        )


def response_of(answer: StudentAnswer) -> Response | None:
    """An answer as the numbers count it; None where the request or its check failed."""
    if answer.outcome not in POLICY_FAILURES | {Outcome.ok}:
        return None
    parsed = answer.parsed and answer.outcome is Outcome.ok
    if parsed and (answer.score is None or not 0 <= answer.score <= 1):
        return None
    score = float(answer.score or 0.0) if parsed else 0.0
    return Response(score=score, parsed=parsed, stopped=answer.finished, tokens=answer.tokens)


def plain_probe(probe: Probe) -> dict[str, Any]:
    """An outline for JSON."""
    content: dict[str, Any] = plain(probe)
    return content


def probe_of(content: dict[str, Any]) -> Probe:
    """The inverse of `plain_probe`."""
    return rebuilt(Probe, content)
