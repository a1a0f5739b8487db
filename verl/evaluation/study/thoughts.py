"""What a policy writes about a world's problems, as readers are shown it, and what they answer.

Decision: policy and readers are asked directly, in batches. What is theirs in training is theirs here: the chat
template, the markers, sampling at temperature 1, the world's verifier on the policy's answers and on the readers'. That
verifier takes the last number that an answer gives; on the texts of these worlds, which neither reject a number nor
quote one, that is the last number in it (`worlds.measure.last_number`).

A thought is stripped of its answer by the task's own rule (`Task.without_answer`, which knows each style's closing
sentence), then by that of the training option `strip_answer` (`verl.classmate.strip.answer_start`), which finds the
answer wherever it is called one. The second is left out where a whole thought is one clause (`Study.strips_by_clause`).
Cuts count the policy's tokens of what is left. An unfinished thought is shown as far as it goes.

    written = write_thoughts(study, 11, folder)                 # the held-out problems
    written[0].thought, written[0].stripped, written[0].answer
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from verl.classmate import strip
from verl.classmate.cot import CotMarkers, find_thought
from verl.data_preprocessing.arithmetic_problems import Split
from verl.data_preprocessing.embedded_models import generate, load_model
from verl.data_preprocessing.embedded_tokenizers import THINK_END, THINK_START
from verl.data_preprocessing.worlds.lessons import prompt_text
from verl.data_preprocessing.worlds.measure import POLICY_MAX_TOKENS, READER_MAX_TOKENS, mean
from verl.data_preprocessing.worlds.tasks import TASKS, Problem
from verl.evaluation.study.results import SHARES
from verl.evaluation.study.spec import Study
from verl.utils.reward_score.cot_monitor import get_verifier

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from verl.data_preprocessing.embedded_models import CausalLM

_MARKERS = CotMarkers(start=THINK_START, end=THINK_END)
_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class Written:
    """What the policy wrote about a problem."""

    problem: Problem
    tokens: int
    """Of the whole response, in the policy's own; without the end of the turn."""
    thought: str
    """The whole thought, without blanks around it."""
    stripped: str
    """The thought without its answer."""
    cuts: tuple[str, ...]
    """The first part of `stripped`, for each of `SHARES` between 0 and 1."""
    answer: str | None
    """The policy's own final answer; None if it gave none."""
    right: bool
    """Whether that is the true one."""
    style: str
    """What the task says of the whole thought."""


def write_thoughts(
    study: Study, seed: int, policy: Path, *, split: Split = "val", count: int | None = None
) -> list[Written]:
    """What a policy writes about the first problems of a seed's split, sampled with that seed.

    Args:
        count: how many problems; None: all held-out ones.
    """
    task = TASKS[study.world.task]
    model, tokenizer = load_model(policy)
    problems = [
        task.problem(seed=seed, split=split, index=i, hint_share=study.world.hint_share)
        for i in range(study.world.val_rows if count is None else count)
    ]
    texts = generate(
        model,
        tokenizer,
        [prompt_text(problem) for problem in problems],
        max_new_tokens=POLICY_MAX_TOKENS,
        temperature=1.0,
        seed=seed,
        batch_size=_BATCH,
    )
    return [_read(study, problem, text, tokenizer) for problem, text in zip(problems, texts, strict=True)]


def _read(study: Study, problem: Problem, text: str, tokenizer: "PreTrainedTokenizerFast") -> Written:
    task = TASKS[study.world.task]
    verifier = get_verifier(task.data_source)
    open_at, begin, close_at = find_thought(text, _MARKERS, preopened=False)
    thought, output = "", ""
    if close_at >= 0:
        thought, output = text[begin:close_at].strip(), text[close_at + len(THINK_END) :]
    elif open_at >= 0:
        thought = text[begin:].strip()
    answer = verifier.reference_answer(output)
    stripped = task.without_answer(thought, problem.question)
    if study.strips_by_clause and answer is not None:
        stripped = stripped[: strip.answer_start(stripped, answer, problem.question)].rstrip()
    ids = tokenizer(stripped)["input_ids"]
    cuts = [str(tokenizer.decode(ids[: max(1, int(share * len(ids)))])) if ids else "" for share in SHARES[1:-1]]
    return Written(
        problem=problem,
        tokens=len(tokenizer(text)["input_ids"]),
        thought=thought,
        stripped=stripped,
        cuts=tuple(cuts),
        answer=answer,
        right=verifier.compute_score(output, str(problem.answer)) == 1.0,
        style=task.style_of(thought, problem.question),
    )


def reading_prompt(problem: Problem, thought: str) -> str:
    """What a reader is given: the question and a closed thought, as in its lessons."""
    return f"{prompt_text(problem)}{THINK_START}\n{thought}\n{THINK_END}"


def accuracies(
    study: Study,
    model: "CausalLM",
    tokenizer: "PreTrainedTokenizerFast",
    written: Sequence[Written],
    views: Mapping[str, Sequence[str]],
) -> dict[str, float]:
    """How often a reader answers right, greedily, for each view of the thoughts.

    Args:
        views: name -> one text for each of `written`.
    """
    prompts = {
        view: [reading_prompt(w.problem, text) for w, text in zip(written, texts, strict=True)]
        for view, texts in views.items()
    }
    replies = ask(model, tokenizer, (prompt for shown in prompts.values() for prompt in shown))
    return {
        view: mean(is_right(study, replies[prompt], w) for prompt, w in zip(shown, written, strict=True))
        for view, shown in prompts.items()
    }


def ask(
    model: "CausalLM",
    tokenizer: "PreTrainedTokenizerFast",
    prompts: Iterable[str],
    max_new_tokens: int = READER_MAX_TOKENS,
) -> dict[str, str]:
    """Prompt -> greedy reply. Each distinct prompt is asked once, beside others of about its length."""
    distinct = sorted(set(prompts), key=lambda prompt: (len(prompt), prompt))
    replies = generate(
        model, tokenizer, distinct, max_new_tokens=max_new_tokens, temperature=0.0, seed=0, batch_size=_BATCH
    )
    return dict(zip(distinct, replies, strict=True))


def is_right(study: Study, reply: str, written: Written) -> bool:
    verifier = get_verifier(TASKS[study.world.task].data_source)
    return verifier.compute_score(reply, str(written.problem.answer)) == 1.0
