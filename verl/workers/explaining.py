"""How likely a student finds a solution behind a teacher's explanation, and that explanation itself (RLT).

One decision: texts are tokenized in segments whose ids are put together, so that the spans of explanation and solution
are known and nothing is searched for. A student with the teacher's vocabulary is given the teacher's own tokens.

    student:  chat | thought opens | explanation | thought closes, solution opens | solution
                                     `-- r_KL --'                                   `- r_SS -'

    >>> explained = explained_in(response_ids, log_probs, 0, 40, tokenizer, closed=True)
    >>> asked = await scorer.ask(answer, explained, 0)
    >>> scorer.row(answer, explained, asked, 0).solution_log_probs

RLT (arXiv 2506.08388), section 3; the rules of 3.3 of the specification.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl.classmate.outcome import Outcome
from verl.classmate.row import Answer, Continuation
from verl.teaching.alignment import ScoredTokens, Span
from verl.teaching.reward_config import Alignment, RltConfig
from verl.teaching.rlt import RltRow
from verl.teaching.tags import is_blank
from verl.workers.rows.asking import Asks

_WINDOW = 8
"""Tokens before one that tell how its characters are read."""


@dataclass(frozen=True, kw_only=True)
class Explained:
    """An explanation in what a teacher wrote."""

    text: str
    """Without blanks at its ends, as far as tokens allow."""
    closed: bool
    """Whether its end is marked."""
    ids: tuple[int, ...]
    """(T,) its tokens."""
    log_probs: tuple[float, ...]
    """(T,) by the teacher, as its engine told them."""


def explained_in(
    response_ids: Sequence[int], log_probs: Sequence[float], first: int, end: int, tokenizer: Any, *, closed: bool
) -> Explained:
    """The explanation that stands in tokens `first` to `end` of a response.

    Args:
        response_ids: (R,) what the teacher wrote.
        log_probs: (R,) of each token.
        first: its first token.
        end: one past its last.
        tokenizer: the teacher's.
        closed: whether its end is marked.
    """
    # Blanks at the ends belong to the layout. A token that is all blanks goes; a part of a token cannot.
    while first < end and is_blank(_decoded(tokenizer, response_ids[first : first + 1])):
        first += 1
    while end > first and is_blank(_decoded(tokenizer, response_ids[end - 1 : end])):
        end -= 1
    ids = tuple(int(token) for token in response_ids[first:end])
    return Explained(
        text=_decoded(tokenizer, ids),
        closed=closed,
        ids=ids,
        log_probs=tuple(float(one) for one in log_probs[first:end]),
    )


class ExplanationScorer:
    """Has students score explanations."""

    def __init__(
        self,
        tokenizer: Any,
        tokenizers: Sequence[Any],
        client: Asks,
        config: RltConfig,
        *,
        max_model_len: int,
        template_kwargs: Mapping[str, Any],
        temperatures: Mapping[bool, float] | None = None,
    ) -> None:
        """Keeps its parts.

        Args:
            tokenizer: the teacher's.
            tokenizers: one per reader.
            client: asks the readers.
            config: the node `rcl.reward.rlt`.
            max_model_len: context of the readers, in their own tokens.
            template_kwargs: chat-template arguments.
            temperatures: at which students score rows of training (False) and of validation (True); None: 1.

        Raises:
            ConfigError: `kl_alignment=token` for a student of another vocabulary.
        """
        self._tokenizer = tokenizer
        self._tokenizers = tokenizers
        self._client = client
        self._max_model_len = max_model_len
        self._template_kwargs = dict(template_kwargs)
        self._temperatures = {False: 1.0, True: 1.0} if temperatures is None else dict(temperatures)
        own = tokenizer.get_vocab()
        self._same = tuple(one.get_vocab() == own for one in tokenizers)
        self._alignments = tuple(config.alignment(same_vocabulary=same) for same in self._same)

    def alignment(self, m: int) -> Alignment:
        """Where teacher and student m are compared."""
        return self._alignments[m]

    def prompt(self, answer: Answer, m: int) -> str:
        """What stands in front of the explanation, as text."""
        return self._in_front(answer, m)

    async def ask(
        self, answer: Answer, explained: Explained, m: int, *, excluded: frozenset[int] = frozenset()
    ) -> Continuation:
        """Student m's log-probabilities of explanation, middle and solution, in one request in which nothing is drawn.

        Args:
            answer: the row, whose `extra_info` holds the solution and the student's marks.
            explained: what the teacher wrote.
            m: the student's number.
            excluded: students that are out of the run.
        """
        front, segments = self._encoded(m, self._in_front(answer, m)), self._segments(answer, explained, m)
        ids = [token for segment in segments for token in segment]
        if len(front) + len(ids) >= self._max_model_len:
            return Continuation(sample=0, outcome=Outcome.too_long)
        heat = self._temperatures[answer.validate]
        reply = await self._client.log_probs(m, front, ids, temperature=heat, excluded=excluded)
        return Continuation(
            sample=0,
            outcome=reply.outcome,
            text=explained.text if reply.outcome is Outcome.ok else None,
            error=reply.error,
            token_length=len(ids),
            log_probs=reply.log_probs if reply.outcome is Outcome.ok else None,
        )

    def row(self, answer: Answer, explained: Explained, said: Continuation | None, m: int) -> RltRow:
        """An explanation as teacher and student score it.

        Args:
            answer: the row.
            explained: what the teacher wrote.
            said: what `ask` gave; None where nothing was asked.
            m: the student's number.
        """
        if said is None or said.log_probs is None:
            outcome = Outcome.engine_error if said is None or said.outcome is Outcome.ok else said.outcome
            return RltRow(explanation=explained.text, closed=explained.closed, outcome=outcome)
        t, middle, _ = (len(segment) for segment in self._segments(answer, explained, m))
        how = self._alignments[m]
        theirs = self._explanation_ids(explained, m)
        return RltRow(
            explanation=explained.text,
            closed=explained.closed,
            solution_log_probs=said.log_probs[t + middle :],
            teacher=ScoredTokens(
                log_probs=explained.log_probs,
                spans=places(explained.ids, self._tokenizer) if how == "span" else None,
            ),
            student=ScoredTokens(
                log_probs=said.log_probs[:t],
                spans=places(theirs, self._tokenizers[m]) if how == "span" else None,
            ),
            alignment=how,
        )

    def _in_front(self, answer: Answer, m: int) -> str:
        told = answer.task.extra_info
        system = told.get("student_system_prompt")
        messages = [{"role": "user", "content": str(answer.task.question)}]
        if system:
            messages = [{"role": "system", "content": system}, *messages]
        chat = self._tokenizers[m].apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **self._template_kwargs
        )
        return f"{chat}{told.get('think_prefix') or ''}{told['think_open']}"

    def _segments(self, answer: Answer, explained: Explained, m: int) -> tuple[list[int], list[int], list[int]]:
        """Explanation, middle and solution in student m's tokens."""
        told = answer.task.extra_info
        middle = f"{told['think_close']}{told['think_solution_delimiter']}{told['solution_open']}"
        return (
            self._explanation_ids(explained, m),
            self._encoded(m, middle),
            self._encoded(m, str(told["solution"])),
        )

    def _explanation_ids(self, explained: Explained, m: int) -> list[int]:
        return list(explained.ids) if self._same[m] else self._encoded(m, explained.text)

    def _encoded(self, m: int, text: str) -> list[int]:
        return list(self._tokenizers[m].encode(text, add_special_tokens=False))


def writing_temperature(rollout: Mapping[str, Any], *, validate: bool) -> float:
    """Temperature to which a teacher's own log-probs belong; engines tell them at 1 where nothing is drawn.

    Args:
        rollout: the config's node `actor_rollout_ref.rollout`.
        validate: of validation rows.
    """
    node = rollout["val_kwargs"] if validate else rollout
    return float(node["temperature"]) or 1.0


def student_temperatures(rlt: RltConfig, rollout: Mapping[str, Any]) -> dict[bool, float]:
    """Temperature at which students score, in training (False) and validation (True); preflight sees that they can."""
    return {
        validate: rlt.temperatures(writing_temperature(rollout, validate=validate), any_temperature=True)[1]
        for validate in (False, True)
    }


def places(ids: Sequence[int], tokenizer: Any) -> list[Span]:
    """Where each token stands in the text that all of them make, as characters.

    A token that is a part of a character has the place of all of it. Linear in the number of tokens.
    """
    found: list[Span] = []
    end = 0
    for i in range(len(ids)):
        before = ids[max(0, i - _WINDOW) : i]
        added = (
            len(_decoded(tokenizer, [*before, ids[i]])) - len(_decoded(tokenizer, before))
            if before
            else len(_decoded(tokenizer, ids[i : i + 1]))
        )
        start, end = end, max(end, end + added)
        found.append((start, end))
    return found


def _decoded(tokenizer: Any, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))
