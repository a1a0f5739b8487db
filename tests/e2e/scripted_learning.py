"""A teacher that starts with the wrong advice, and a student whose answers follow from a rule: learning in seconds.

Questions are of three kinds. The student knows by itself how to `count`, and fails at it iff it is told another word
(strong questions); it solves `carry` and `borrow` iff it is told that word (weak questions). The teacher can say one of
the two words or nothing; at first it sees the kind, and most often says the wrong word.

>>> run = watched([*make_scripted_world(tmp_path), f"trainer.default_local_dir={tmp_path / 'run'}"], client=Student)
"""

import random
import re
from pathlib import Path
from typing import Any

import torch
import yaml

from tests.e2e.taught_models import Shown, teach
from tests.evaluation.teaching.scripted import CHAT, advice_in, write_rows
from verl.classmate.outcome import Outcome
from verl.classmate.reply import Reply
from verl.teaching.templates import Templates
from verl.workers.inprocess import InProcessClient

WORDS = ("carry", "borrow")
"""What can be told, and the kinds of weak questions."""
KINDS = (*WORDS, "count")
PLAN = "Hm."
LIMIT = 8
"""`max_teaching_tokens`."""
FIRST = {"carry": (2, 5, 3), "borrow": (5, 2, 3), "count": (4, 4, 2)}
"""How often the teacher at first says `carry`, `borrow` and nothing, by the question's kind."""

TEMPLATES: dict[str, Any] = {
    "answer_format": "<solution></solution>",
    "student_baseline_template": "{question} {answer_format}",
    "student_diagnostic_template": "{question} Plan {probe_limit}",
    "teacher_adaptive_template": {
        "system": "<thinking></thinking><teaching></teaching>{teaching_limit}",
        "user": "{approach} {question}",
    },
    "student_with_teaching_template": "{question} <advice>{teaching}</advice> {answer_format}",
}
"""Short, so that a small model soon finds the kind."""

_PIECES = re.compile(r"<[^<>\s]*>|[A-Za-z]+|\d|\s|[^\w\s]")


def question(number: int) -> str:
    """Its kind is that of the number's place in `KINDS`."""
    return f"Question {number:02d} of the kind {KINDS[number % len(KINDS)]}:"


def said(kind: str, word: str) -> str:
    """How the teacher says a word about a question whose kind it knows; "" is to say nothing."""
    return f"<thinking>{kind}</thinking><teaching>{word}</teaching>"


def chat(number: int) -> list[dict[str, str]]:
    """What the teacher is asked."""
    return Templates.from_mapping(TEMPLATES).adaptive(question(number), PLAN, teaching_limit=LIMIT)


class Student(InProcessClient):
    """Answers by the rule, in the place of the student's engine."""

    async def complete(self, model: str, prompt_ids: list[int], params: dict[str, Any]) -> Reply:
        """A plan, or the answer, which is the question's number."""
        prompt = self._servers[model].engine.tokenizer.decode(prompt_ids)
        number, kind = re.search(r"Question (\d\d) of the kind (\w+):", prompt).groups()  # type: ignore[union-attr]
        told = [word for word in WORDS if word in (advice_in(prompt) or "")]
        solves = kind in told if kind in WORDS else not told
        text = PLAN if "Plan" in prompt else f"<solution>{number if solves else 'none'}</solution>"
        ids = self._servers[model].engine.tokenizer.encode(text, add_special_tokens=False)
        return Reply(outcome=Outcome.ok, token_ids=tuple(ids[: params["max_tokens"]]), finish_reason="stop")


def make_scripted_world(folder: Path) -> list[str]:
    """Teacher, student and rows in a folder; the overrides that name them, all but the run's folder."""
    for name in ("teacher", "student"):
        _save_model(folder / name)
    teach(folder / "teacher", _habit, steps=250)
    write_rows(
        folder / "train.parquet",
        [
            {
                "data_source": "scripted",
                "prompt": [{"role": "user", "content": question(number)}],
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": f"{number:02d}"},
                "extra_info": {"index": number, "split": "train"},
            }
            for number in range(12)
        ],
    )
    (folder / "templates.yaml").write_text(yaml.safe_dump(TEMPLATES))
    return [
        f"actor_rollout_ref.model.path={folder / 'teacher'}",
        f"rcl.students=[{{model: {folder / 'student'}}}]",
        f"rcl.templates_file={folder / 'templates.yaml'}",
        f"data.train_files={folder / 'train.parquet'}",
        f"data.val_files={folder / 'train.parquet'}",
        "data.train_batch_size=12",
        "data.max_prompt_length=160",
        "data.max_response_length=12",
        "actor_rollout_ref.rollout.n=16",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        "actor_rollout_ref.actor.ppo_mini_batch_size=3",
        "reward_model.classmate_generation_configs.max_new_tokens=16",
        "rcl.protocol.baseline_samples=1",
        f"rcl.protocol.max_teaching_tokens={LIMIT}",
        "algorithm.norm_adv_by_std_in_grpo=false",
        "trainer.test_freq=-1",
        "trainer.val_before_train=false",
        "trainer.save_freq=-1",
        "trainer.deterministic=true",
    ]


def _save_model(folder: Path) -> None:
    """A random Qwen3 whose tokens are words, digits, tags and signs."""
    from tokenizers import Regex, Tokenizer
    from tokenizers.decoders import Fuse
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

    from tests.tiny_qwen3 import tiny_qwen3

    special = ["<pad>", "<eos>", "<unk>"]
    texts = [
        *map(str, TEMPLATES.values()),
        *map(question, range(len(KINDS))),
        PLAN,
        said("count", "carry"),
        "none \n[]",
    ]
    texts += [turn["content"] for turn in chat(0)] + ["system user assistant Plan 0123456789"]
    pieces = sorted({piece for text in texts for piece in _PIECES.findall(text)})
    tokenizer = Tokenizer(WordLevel({token: i for i, token in enumerate([*special, *pieces])}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Split(Regex(_PIECES.pattern), "isolated")
    tokenizer.decoder = Fuse()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        chat_template=CHAT,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = tiny_qwen3(
        len(special) + len(pieces),
        width=64,
        max_position_embeddings=256,
        # With the usual 0.02 it takes long until what is asked matters.
        initializer_range=0.2,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)


def _habit(rng: random.Random) -> Shown:
    """The teacher's first one: to see the kind, and what `FIRST` says."""
    kinds = [(n, KINDS[n % len(KINDS)]) for n in range(12)]
    return [(chat(n), said(kind, rng.choices([*WORDS, ""], FIRST[kind])[0])) for n, kind in kinds]
