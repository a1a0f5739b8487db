"""A student is trained on traces, with or without the teacher's probabilities, in one stage or several.

One decision: a folder is whole when `learnt.json` is in it, which is written last; before that the same call goes on at
its last checkpoint.

    >>> learnt = learn(config, traces, Path("out/student"), stages=3, hooks=hooks, teacher=teacher)
    >>> learnt["tokens"], learnt["stages"]
"""

import dataclasses
import gc
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from verl.classmate.errors import ConfigError
from verl.reasoning.distill.config import DistillationConfig
from verl.reasoning.distill.course import Course
from verl.reasoning.distill.learner import Learner, LearnSettings
from verl.reasoning.distill.losses import Loss, check_vocabularies, distillation_loss
from verl.reasoning.distill.teacher_cache import TeacherCache, teacher_tokens
from verl.reasoning.distill.training import Hooks, Plan, follow
from verl.reasoning.sft.chat import Row, chat_tokenizer, encode
from verl.reasoning.sft.fine_tune import weights_of
from verl.reasoning.sft.settings import device_of
from verl.trainer.run.state import write_atomically

MARK, CHECKPOINT = "learnt.json", "checkpoint.pt"


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A text that is learnt from."""

    problem_id: str
    """Of its problem."""
    problem: str
    """What the user asks."""
    text: str
    """What is to be written."""


HooksOf = Callable[[Any, Sequence[Trace]], Hooks]
"""Hooks for a student with this tokenizer, which learns these traces."""


def learn(
    config: DistillationConfig,
    traces: Sequence[Trace],
    folder: Path,
    *,
    stages: int,
    hooks: HooksOf,
    revision: str,
    title: str = "distillation",
) -> dict[str, Any]:
    """Trains the student; `folder` becomes a model's folder with its tokenizer.

    Args:
        config: how; its mode decides the loss.
        traces: all that there is to learn.
        folder: of the student.
        stages: of the course.
        hooks: difficulty and looks at held-out problems.
        revision: which teacher wrote; part of what the folder is made from.
        title: of the progress bar.

    Returns:
        `model`, `rows`, `left_out` (too long), `tokens`, `budget`, `steps`, `stages`, `history`.

    Raises:
        ConfigError: the folder holds something else, or `mode="logit"` with another vocabulary.
    """
    made_from = _made_from(config, traces, stages, revision)
    if (known := _whole(folder / MARK, made_from)) is not None:
        (folder / CHECKPOINT).unlink(missing_ok=True)  # a kill behind the mark left it in the model's folder
        return known
    _claim(folder, made_from)
    tokenizer = chat_tokenizer(config.student)
    kept, rows = _encoded(tokenizer, traces, config.max_length)
    course = Course(
        problems_of_rows=[one.problem_id for one in kept],
        stages=stages,
        budget=config.num_epochs * sum(row.learnt for row in rows),
        replay_ratio=config.replay_ratio,
        seed=config.seed,
    )
    model = _student(config.student)
    loss = _loss(config, tokenizer, rows, int(model.get_output_embeddings().weight.shape[0]), folder, revision)
    learner = Learner(model, pad_id=tokenizer.pad_token_id, settings=_settings(config, course.budget), loss=loss)
    progress = follow(learner, course, rows, hooks(tokenizer, kept), _plan(config, title), folder / CHECKPOINT)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    told = {
        "model": str(folder),
        "rows": len(rows),
        "left_out": len(traces) - len(rows),
        "tokens": learner.tokens,
        "budget": course.budget,
        "steps": learner.steps,
        "stages": progress.stages,
        "history": progress.history,
    }
    write_atomically(folder / MARK, json.dumps({**told, "made_from": made_from}))
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return told


class TeacherLoss:
    """The loss of `mode="logit"`: traces by what is kept of the teacher, own texts of the student by asking it."""

    def __init__(self, config: DistillationConfig, rows: Sequence[Row], cache: TeacherCache | None, live: Any) -> None:
        """
        Args:
            config: its weights.
            rows: of the traces.
            cache: of these rows; None: the teacher is asked each time.
            live: a function of rows, what the teacher expects of their learnt tokens.
        """
        self._config, self._cache, self._live = config, cache, live
        self._places = {row: place for place, row in enumerate(rows)}

    def __call__(self, logits_BTV: torch.Tensor, labels_BT: torch.Tensor, rows: Sequence[Row], tokens: int) -> Loss:
        """As `learner.StepLoss`."""
        config = self._config
        own = any(row not in self._places for row in rows)
        teacher = None
        if config.alpha != 0:
            if self._cache is None or own:
                teacher = self._live(rows)
            else:
                teacher = self._cache.of([self._places[row] for row in rows])
            teacher = teacher.to(logits_BTV.device)
        return distillation_loss(
            logits_BTV,
            labels_BT,
            teacher,
            temperature=config.temperature,
            alpha=config.alpha,
            # No text of its own is a model of anything.
            beta=0.0 if own else config.beta,
            jsd_beta=config.jsd_beta,
            num_tokens=tokens,
        )


def _loss(
    config: DistillationConfig, tokenizer: Any, rows: Sequence[Row], width: int, folder: Path, revision: str
) -> Any:
    if config.mode != "logit":
        supervised: dict[str, Any] = {"temperature": 1.0, "alpha": 0.0, "beta": 1.0}
        return lambda logits, labels, some, tokens: distillation_loss(
            logits, labels, None, num_tokens=tokens, **supervised
        )
    check_vocabularies(chat_tokenizer(config.teacher), tokenizer, names=(config.teacher, config.student))
    teacher = _Teacher(config, pad_id=tokenizer.pad_token_id, width=width)
    if config.alpha == 0 or not config.topk_logits:
        return TeacherLoss(config, rows, None, teacher.tokens)
    key = {"teacher": revision, "student": tokenizer.name_or_path}
    cache = TeacherCache(
        folder.parent / "teacher_probabilities",
        key=key,
        temperature=config.temperature,
        topk=config.topk_logits,
        width=width,
    )
    cache.fill(teacher.model, rows, pad_id=tokenizer.pad_token_id, batch_size=config.batch_size)
    if config.gkd_lambda == 0:
        teacher.forget()
    return TeacherLoss(config, rows, cache, teacher.tokens)


class _Teacher:
    """The teacher's model, loaded at its first use."""

    def __init__(self, config: DistillationConfig, *, pad_id: int, width: int) -> None:
        self._config, self._loaded = config, None
        how = {"temperature": config.temperature, "topk": config.topk_logits, "width": width}
        self._how: dict[str, Any] = {"pad_id": pad_id, **how}

    def model(self) -> Any:
        if self._loaded is None:
            from transformers import AutoModelForCausalLM

            device = device_of(self._config.device)
            dtype = "bfloat16" if device == "cuda" else "float32"
            model: Any = AutoModelForCausalLM.from_pretrained(self._config.teacher, dtype=dtype)
            self._loaded = model.to(device).eval()
        return self._loaded

    def tokens(self, rows: Sequence[Row]) -> Any:
        from verl.reasoning.distill.losses import TeacherTokens

        return TeacherTokens.joined(teacher_tokens(self.model(), rows, **self._how))

    def forget(self) -> None:
        self._loaded = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _student(name: str) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    return AutoModelForCausalLM.from_pretrained(name, dtype="float32")


def _settings(config: DistillationConfig, budget: int) -> LearnSettings:
    return LearnSettings(
        budget=budget,
        learning_rate=config.learning_rate,
        warmup_ratio=config.warmup_ratio,
        warmup_steps=config.warmup_steps,
        micro_batch_size=config.batch_size,
        max_grad_norm=config.max_grad_norm,
        precision=config.precision,
        gradient_checkpointing=config.gradient_checkpointing,
        device=config.device,
        seed=config.seed,
    )


def _plan(config: DistillationConfig, title: str) -> Plan:
    return Plan(
        rows_per_step=config.batch_size * config.gradient_accumulation_steps,
        looks_per_stage=config.looks_per_stage,
        min_gain=config.min_gain,
        patience=config.patience,
        save_every=config.save_every,
        title=title,
    )


def _encoded(tokenizer: Any, traces: Sequence[Trace], max_length: int) -> tuple[list[Trace], list[Row]]:
    """The traces that are short enough, and their tokens.

    Raises:
        ValueError: none is.
    """
    rows = [encode(tokenizer, one.problem, one.text) for one in traces]
    kept = [(one, row) for one, row in zip(traces, rows, strict=True) if len(row.ids) <= max_length]
    if not kept:
        raise ValueError(f"max_length={max_length}: all {len(rows)} traces are longer; raise it")
    return [one for one, _ in kept], [row for _, row in kept]


def _made_from(config: DistillationConfig, traces: Sequence[Trace], stages: int, revision: str) -> dict[str, Any]:
    said = {key: value for key, value in dataclasses.asdict(config).items() if key not in ("output_dir", "device")}
    texts = [dataclasses.astuple(one) for one in traces]
    about = {"teacher": revision, "student": weights_of(config.student), "traces": _digest(texts)}
    return {"config": said, "stages": stages, **about}


def _whole(mark: Path, made_from: dict[str, Any]) -> dict[str, Any] | None:
    """What is known of a student that was made from the same; None if there is none."""
    if not mark.exists():
        return None
    known: dict[str, Any] = json.loads(mark.read_text())
    return known if known.pop("made_from") == made_from else None


def _claim(folder: Path, made_from: dict[str, Any]) -> None:
    """The folder is for this and nothing else.

    Raises:
        ConfigError: it was begun for something else.
    """
    file = folder / "started.json"
    text = json.dumps(made_from, sort_keys=True)
    if file.exists() and file.read_text() != text:
        before = json.loads(file.read_text())
        changed = [key for key in made_from if made_from[key] != before.get(key)]
        raise ConfigError(
            f"{folder} holds a distillation with other {', '.join(changed)}; name another output_dir, or remove it"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(file, text)


def _digest(value: Any) -> str:
    return blake2b(json.dumps(value).encode(), digest_size=16).hexdigest()
