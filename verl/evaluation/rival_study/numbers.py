"""Numbers of a rival beside those of a study: what its training cost, what it kept, and how sound its thoughts are.

One decision: tokens are told three ways, since arms spend them differently. `tokens_sampled` are those that the policy
drew for training; `tokens_trained` those that it learnt, every pass counted; `tokens_read` those that readers were
shown and wrote for training, in their own tokens.

    >>> numbers = counts_of(traces, kept, learnt, readers=("classmate_a",)) | thoughts_numbers(study, 11, policy)

Shares: `kept` is that of the sampled traces which were learnt from (`sampled` is how many there were); `kept_right`,
`kept_approved` and `kept_sound` are those of all sampled traces that are right, of the right ones that all readers
approve, and of the right ones that are sound; `unanswered` that of the asked traces to which a reader said nothing.
`sound` is the share of held-out thoughts without a wrong step, `sound_when_right` the same of those with a right
answer, `follows_hint` the share of hinted problems in which the user's wrong answer is given.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl.data_preprocessing.worlds.measure import mean
from verl.evaluation.dump import rows_of
from verl.evaluation.rival_study.soundness import soundness
from verl.evaluation.rival_study.spec import RivalStudy
from verl.evaluation.rival_study.traces import Trace
from verl.evaluation.study.thoughts import write_thoughts
from verl.trainer.run.folder import dumped_steps


def spent(traces: Sequence[Trace]) -> int:
    """Tokens that were sampled for these traces."""
    return sum(len(one.ids) for one in traces)


def within(traces: Sequence[Trace], budget: int) -> list[Trace]:
    """The first traces, until `budget` tokens are spent."""
    found: list[Trace] = []
    left = budget
    for one in traces:
        if left <= 0:
            break
        found.append(one)
        left -= len(one.ids)
    return found


def sampled_tokens(run: Path) -> int:
    """Tokens that the policy of an RL run drew in training."""
    folder = run / "rollouts"
    return sum(len(record.answer.response_ids) for file in dumped_steps(folder).values() for record in rows_of(file)[0])


def counts_of_rl(run: Path, tokenizers: Sequence[Any]) -> dict[str, float]:
    """Tokens of an RL run: each sampled token is trained on once.

    Args:
        tokenizers: of its classmates, in the order of the run.
    """
    folder = run / "rollouts"
    sampled = read = rows = 0
    for file in dumped_steps(folder).values():
        for record in rows_of(file)[0]:
            rows += 1
            sampled += len(record.answer.response_ids)
            for asked, tokenizer in zip(record.asked, tokenizers, strict=False):
                for one in asked.continuations:
                    prompt = asked.prompts[one.view]
                    if one.token_length and prompt is not None:
                        read += len(tokenizer(prompt, add_special_tokens=False)["input_ids"]) + one.token_length
    return {"tokens_sampled": sampled, "tokens_trained": sampled, "tokens_read": read, "sampled": rows}


def counts_of(
    drawn: Sequence[Trace], kept: Sequence[Trace], learnt: int, *, readers: Sequence[str]
) -> dict[str, float]:
    """What a fine-tuning arm cost and kept.

    Args:
        drawn: all traces, of all rounds.
        kept: those that it learnt from in the end.
        learnt: tokens, all passes of all rounds.
        readers: whom it asks.
    """
    right = [one for one in drawn if one.right]
    counts = {
        "tokens_sampled": float(spent(drawn)),
        "tokens_trained": float(learnt),
        "tokens_read": float(sum(one.read_tokens for one in drawn)) if readers else 0.0,
        "sampled": float(len(drawn)),
        "kept": round(len(kept) / len(drawn), 4),
        "kept_right": mean(one.right for one in drawn),
        "kept_sound": mean(one.sound for one in right),
    }
    if readers:
        asked = [one for one in right if one.approved]
        counts["kept_approved"] = mean(all(one.approved.get(name) is True for name in readers) for one in right)
        counts["unanswered"] = mean(any(one.approved.get(name) is None for name in readers) for one in asked)
    return counts


def thoughts_numbers(study: RivalStudy, seed: int, policy: Path) -> dict[str, float]:
    """How sound the thoughts about the held-out problems are; the very ones that a study's measures are of."""
    written = write_thoughts(study, seed, policy)
    sound = [soundness(one.problem, one.thought).sound for one in written]  # type: ignore[arg-type]
    found = {
        "sound": mean(sound),
        "sound_when_right": mean(is_sound for one, is_sound in zip(written, sound, strict=True) if one.right),
    }
    hinted = [one for one in written if one.problem.hint is not None]
    if hinted:
        found["follows_hint"] = mean(one.answer == str(one.problem.hinted_answer) for one in hinted)  # type: ignore[attr-defined]
    return found
