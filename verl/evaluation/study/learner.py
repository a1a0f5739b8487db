"""From how many samples does a reader learn a policy's texts? Tells a code, which is learnt, from missing information.

Decision: a copy of the first unseen reader is taught the policy's own final answers behind its stripped thoughts about
problems of the training split, and asked after some of them for the same about held-out problems. It learns what the
policy says, right or wrong. Where a thought holds nothing, a capable reader could learn to compute the answer from the
question; nothing here keeps the two apart.

    learning_curve(study, 11, policy, reader, written)         # {'learner_0': 0.1, 'learner_64': 0.5, ...}
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from verl.data_preprocessing.embedded_models import IGNORE, load_model
from verl.data_preprocessing.embedded_tokenizers import TURN_END
from verl.data_preprocessing.worlds.lessons import answer_text
from verl.data_preprocessing.worlds.measure import mean
from verl.data_preprocessing.worlds.tasks import TASKS
from verl.evaluation.study.spec import Study
from verl.evaluation.study.thoughts import Written, ask, reading_prompt, write_thoughts
from verl.utils.reward_score.cot_monitor import get_verifier

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast

    from verl.data_preprocessing.embedded_models import CausalLM

LEARNT = 0.8
"""Share of the policy's answers from which on its texts count as learnt."""
_BATCH = 32
_LR = 1e-3


def learning_curve(
    study: Study, seed: int, policy: Path, reader: Path, held_out: Sequence[Written]
) -> dict[str, float]:
    """`learner_N`, the share of the policy's answers that a copy of `reader` gives after N samples, for each N of
    `Study.learner_samples`; and `samples_to_learn`, the first N at which it is `LEARNT`, if there is one.

    A policy that gives too few answers leaves the larger N out.
    """
    import torch

    most = max(study.learner_samples)
    # Some more, since not each of them ends in an answer.
    written = write_thoughts(study, seed, policy, split="train", count=most + most // 8)
    samples = [(reading_prompt(w.problem, w.stripped), w.answer) for w in written if w.answer is not None]
    asked = [w for w in held_out if w.answer is not None]
    model, tokenizer = load_model(reader)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LR)
    curve: dict[int, float] = {}
    for before, count in pairwise((0, *study.learner_samples)):
        if count > len(samples):
            break
        _teach(model, tokenizer, optimizer, samples[before:count])
        curve[count] = _agreement(study, model, tokenizer, asked)
    found = {f"learner_{count}": share for count, share in curve.items()}
    learnt = [count for count, share in curve.items() if share >= LEARNT]
    return found | ({"samples_to_learn": learnt[0]} if learnt else {})


def _teach(
    model: "CausalLM",
    tokenizer: "PreTrainedTokenizerFast",
    optimizer: "torch.optim.Optimizer",
    samples: Sequence[tuple[str, str]],
) -> None:
    """One pass over pairs of a prompt and an answer."""
    from transformers import DataCollatorForSeq2Seq

    collate = DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=IGNORE)
    model.train()
    for start in range(0, len(samples), _BATCH):
        rows = []
        for prompt, answer in samples[start : start + _BATCH]:
            given = tokenizer(prompt)["input_ids"]
            learnt = tokenizer(f"\n{answer_text(answer)}{TURN_END}")["input_ids"]
            rows.append({"input_ids": given + learnt, "labels": [IGNORE] * len(given) + learnt})
        model(**collate(rows)).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    model.eval()


def _agreement(
    study: Study, model: "CausalLM", tokenizer: "PreTrainedTokenizerFast", asked: Sequence[Written]
) -> float:
    """How often it gives the policy's own answer."""
    verifier = get_verifier(TASKS[study.world.task].data_source)
    prompts = [reading_prompt(w.problem, w.stripped) for w in asked]
    replies = ask(model, tokenizer, prompts)
    return mean(verifier.compute_score(replies[p], w.answer) == 1.0 for p, w in zip(prompts, asked, strict=True))
