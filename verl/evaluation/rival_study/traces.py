"""What a policy writes about problems of the training split, and what tests say of it: right, sound, approved.

One decision: a reader is asked as in RL with classmates, by the same functions and settings: about right answers only,
with the thought closed behind the question, at the classmates' temperature. It approves if it then answers right.

    traces = draw_traces(study, 11, policy, budget=100_000)
    traces = asked_readers(study, 11, traces, {"classmate_a": folder})
    lessons = lessons_of(study, 11, policy, accepted(traces, ("readers",), ["classmate_a"]))
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl.classmate import prompts
from verl.classmate.config import ClassmateCotRewardConfig, ClassmateGenerationConfig
from verl.classmate.cot import CotMarkers, locate
from verl.classmate.outcome import Outcome
from verl.data_preprocessing.embedded_models import load_model
from verl.data_preprocessing.embedded_tokenizers import THINK_END, THINK_START
from verl.data_preprocessing.worlds.measure import POLICY_MAX_TOKENS
from verl.data_preprocessing.worlds.tasks import TASKS
from verl.evaluation.rival_study.soundness import soundness
from verl.evaluation.rival_study.spec import RivalStudy, Test
from verl.utils.reward_score.cot_monitor import get_verifier

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from verl.data_preprocessing.embedded_models import CausalLM

_MARKERS = CotMarkers(start=THINK_START, end=THINK_END)
_BATCH = 256
_READER_CONTEXT = 256
_READER_TOKENS = 24
"""As the studies' settings have it."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One response of the policy, judged."""

    index: int
    """Of the problem in the training split."""
    ids: tuple[int, ...]
    """Sampled tokens of the policy, with the end of its turn if it came to it."""
    text: str
    """The same as text."""
    thought: str | None
    """What stands between the markers; None if the thought was not closed, or is blank."""
    right: bool
    """Whether its answer is the true one."""
    sound: bool
    """See `soundness`."""
    worked: bool
    """See `soundness`."""
    approved: Mapping[str, bool | None] = field(default_factory=dict)
    """Reader -> whether it answers right from the thought; None if it gave no answer, missing if it was not asked."""
    read_tokens: int = 0
    """Tokens that readers were shown and wrote about it, in their own."""


def draw_traces(
    study: RivalStudy, seed: int, policy: Path, *, budget: int, first: int = 0, salt: int = 0
) -> list[Trace]:
    """Samples some traces of each problem, one problem after the other, until `budget` tokens are spent.

    Args:
        budget: sampled tokens; the last trace may reach over it.
        first: index of the first problem. Behind the last one the first one comes again.
        salt: tells rounds of one seed apart.
    """
    world = study.world
    model, tokenizer = load_model(policy)
    traces: list[Trace] = []
    spent, place = 0, first
    while True:
        each = study.fine_tuning.samples
        indices = [(place + i) % world.train_rows for i in range(max(1, _BATCH // each)) for _ in range(each)]
        place += max(1, _BATCH // each)
        problems = {index: problem_of(study, seed, index) for index in dict.fromkeys(indices)}
        asked = [_chat_ids(tokenizer, problems[i].prompt) for i in indices]
        drawn = draw(
            model,
            tokenizer,
            asked,
            max_new_tokens=POLICY_MAX_TOKENS,
            temperature=1.0,
            seed=(seed * 1009 + salt) * 100_003 + place,
        )
        for index, ids in zip(indices, drawn, strict=True):
            if spent >= budget:
                return traces
            spent += len(ids)
            traces.append(_judged(study, index, problems[index], ids, tokenizer))


def asked_readers(study: RivalStudy, seed: int, traces: Sequence[Trace], readers: Mapping[str, Path]) -> list[Trace]:
    """The same traces, with what each reader makes of those whose answer is right.

    Args:
        readers: name -> folder.
    """
    verifier = get_verifier(TASKS[study.world.task].data_source)
    sampling = ClassmateGenerationConfig(max_new_tokens=_READER_TOKENS).sampling(validate=False)
    found = list(traces)
    for name, folder in readers.items():
        model, tokenizer = load_model(folder)
        places = [i for i, one in enumerate(traces) if one.right and one.thought is not None]
        problems = [problem_of(study, seed, traces[i].index) for i in places]
        shown = [
            _reading_ids(tokenizer, problem.prompt, str(traces[i].thought))
            for i, problem in zip(places, problems, strict=True)
        ]
        drawn = draw(
            model,
            tokenizer,
            shown,
            max_new_tokens=sampling.max_new_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=seed,
        )
        for i, problem, given, ids in zip(places, problems, shown, drawn, strict=True):
            text, outcome = prompts.answer(ids, closed=True, markers=_MARKERS, tokenizer=tokenizer)
            says = verifier.compute_score(text, str(problem.answer)) == 1.0 if outcome is Outcome.ok and text else None
            one = found[i]
            read = one.read_tokens + len(given) + len(ids)
            found[i] = replace(one, approved={**one.approved, name: says}, read_tokens=read)
    return found


def accepted(traces: Sequence[Trace], tests: Sequence[Test], readers: Sequence[str]) -> list[Trace]:
    """Right and finished traces that pass the tests, each text once a problem.

    Args:
        readers: all of them must approve, with the test `readers`.
    """
    kept: dict[tuple[int, tuple[int, ...]], Trace] = {}
    for one in traces:
        passes = {
            "readers": bool(readers) and all(one.approved.get(name) is True for name in readers),
            "sound": one.sound,
            "worked": one.worked,
        }
        if one.right and all(passes[test] for test in tests):
            kept.setdefault((one.index, one.ids), one)
    return list(kept.values())


def lessons_of(
    study: RivalStudy, seed: int, policy: Path, traces: Sequence[Trace]
) -> list[tuple[list[int], tuple[int, ...]]]:
    """For each trace what the policy is given, in its own tokens, and what it shall learn: the sampled tokens."""
    tokenizer = load_model(policy)[1]
    return [(_chat_ids(tokenizer, problem_of(study, seed, one.index).prompt), one.ids) for one in traces]


def problem_of(study: RivalStudy, seed: int, index: int) -> Any:
    """A problem of the training split."""
    return TASKS[study.world.task].problem(seed=seed, split="train", index=index, hint_share=study.world.hint_share)


def draw(
    model: "CausalLM",
    tokenizer: "PreTrainedTokenizerFast",
    asked: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    temperature: float,
    top_p: float = 1.0,
    seed: int,
) -> list[tuple[int, ...]]:
    """Sampled tokens behind each prompt, up to and with the end of the turn; prompts of about a length go together."""
    import torch

    torch.manual_seed(seed % 2**63)
    order = sorted(range(len(asked)), key=lambda i: len(asked[i]))
    drawn: dict[int, tuple[int, ...]] = {}
    decoder: Any = model
    with torch.inference_mode():
        for start in range(0, len(order), _BATCH):
            places = order[start : start + _BATCH]
            width = max(len(asked[i]) for i in places)
            padded = [[tokenizer.pad_token_id] * (width - len(asked[i])) + list(asked[i]) for i in places]
            mask = [[0] * (width - len(asked[i])) + [1] * len(asked[i]) for i in places]
            ids_BT = decoder.generate(
                input_ids=torch.tensor(padded),
                attention_mask=torch.tensor(mask),
                max_new_tokens=max_new_tokens,
                do_sample=True,
                temperature=temperature,
                top_p=top_p,
                top_k=0,
            )
            for i, row in zip(places, ids_BT[:, width:].tolist(), strict=True):
                end = row.index(tokenizer.eos_token_id) + 1 if tokenizer.eos_token_id in row else len(row)
                drawn[i] = tuple(row[:end])
    return [drawn[i] for i in range(len(asked))]


def _chat_ids(tokenizer: "PreTrainedTokenizerFast", prompt: str) -> list[int]:
    chat: Any = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, tokenize=False
    )
    return list(tokenizer.encode(chat, add_special_tokens=False))


def _reading_ids(tokenizer: "PreTrainedTokenizerFast", prompt: str, thought: str) -> list[int]:
    """What a classmate is shown in training."""
    built = prompts.build(
        [{"role": "user", "content": prompt}],
        thought,
        tokenizer,
        markers=_MARKERS,
        classmate_markers=_MARKERS,
        close=True,
        max_len=_READER_CONTEXT,
        classmate_template=ClassmateCotRewardConfig.classmate_template,
    )
    if built.ids is None:
        raise ValueError(f"a reader cannot be shown a thought: {built.outcome.value}")
    return built.ids


def _judged(
    study: RivalStudy, index: int, problem: Any, ids: tuple[int, ...], tokenizer: "PreTrainedTokenizerFast"
) -> Trace:
    span = locate(ids, tokenizer, _MARKERS)
    finished = bool(ids) and ids[-1] == tokenizer.eos_token_id
    thought = span.cot if span.closed and span.cot and span.cot.strip() else None
    verifier = get_verifier(TASKS[study.world.task].data_source)
    right = finished and span.closed and verifier.compute_score(str(span.output), str(problem.answer)) == 1.0
    checked = soundness(problem, (thought or "").strip())
    return Trace(
        index=index,
        ids=ids,
        text=span.text,
        thought=thought,
        right=right,
        sound=checked.sound,
        worked=checked.worked,
    )
