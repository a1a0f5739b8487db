"""The reward by log-probabilities (RLT), on real two-layer students with the teacher's vocabulary and with another."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3ForCausalLM

from tests.classmate.toy_tokenizers import TOKENIZERS
from tests.tiny_qwen3 import tiny_qwen3
from tests.workers.scripted_students import QUESTION, teaching_config
from verl.classmate.config import this_run
from verl.classmate.outcome import Outcome
from verl.classmate.record import RowRecord
from verl.classmate.row import Answer, ScoredRow, Task
from verl.evaluation.recompute import differences, score_again
from verl.teaching.config import this_teaching
from verl.teaching.lesson import Lesson, StudentLesson
from verl.teaching.row import SolveRate
from verl.teaching.taught import Taught
from verl.trainer.ppo.teaching_metrics import teaching_metrics
from verl.workers.explaining import places
from verl.workers.inprocess import InProcessClient, PolicyServer, classmate_servers
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig
from verl.workers.teaching_pipeline import TeachingPipeline

SOLUTION = "So 2 + 5 = 7."
EXPLANATION = "Tom has 2 apples and gets 5, so 2 + 5 = 7."
TOLD: dict[str, Any] = {
    "index": 3,
    "student": 0,
    "solution": SOLUTION,
    "student_system_prompt": "Think first.",
    "think_prefix": "",
    "think_open": "<think>\n",
    "think_close": "\n</think>",
    "think_solution_delimiter": "\n\n",
    "solution_open": "The answer: ",
    "solution_close": "",
    "teacher_system_prompt": "Explain it.",
    "teacher_opening": f"{SOLUTION}\n\n<explain>\n",
    "teacher_think_open": "<explain>",
    "teacher_think_close": "</explain>",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random models of two layers: students of two vocabularies, the first of which is not the teacher's."""
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("text_bpe", "byte_bpe")):
        tokenizer = TOKENIZERS[name]()
        tokenizer.save_pretrained(folder / name)
        torch.manual_seed(seed)
        config = tiny_qwen3(
            len(tokenizer), max_position_embeddings=2048, initializer_range=0.3, eos_token_id=tokenizer.eos_token_id
        )
        Qwen3ForCausalLM(config).save_pretrained(folder / name)
    return folder


def rlt_pipeline(folder: Path, *overrides: str) -> TeachingPipeline:
    students = ",".join(f"{{model: {folder / name}}}" for name in ("text_bpe", "byte_bpe"))
    config = teaching_config(folder, "rcl.reward.kind=rlt", f"rcl.students=[{students}]", *overrides)
    reward = this_run(config).reward
    policy = PolicyServer(EngineConfig(model_path=str(folder / "byte_bpe"), own_thread=False))
    client = InProcessClient(config, reward, classmate_servers(config, reward), policy)
    teaching = this_teaching(config)
    assert teaching is not None
    return TeachingPipeline.of_teacher(config, TOKENIZERS["byte_bpe"](), client, teaching)


def explained(
    pipeline: TeachingPipeline, text: str, *, student: int, told: dict[str, Any] | None = None, validate: bool = False
) -> ScoredRow:
    """A teacher's row with log-probs of its tokens that are easy to tell apart."""
    ids = TOKENIZERS["byte_bpe"]().encode(text, add_special_tokens=False)
    lesson = Lesson(
        students=(StudentLesson(reader=student, name="s", base=SolveRate()),),
        log_probs=tuple(-0.01 * (i + 1) for i in range(len(ids))),
    )
    answer = Answer(
        messages=[{"role": "user", "content": QUESTION}],
        prompt_ids=[5],
        response_ids=ids,
        task=Task(
            question=QUESTION,
            data_source="sums",
            reward_model={"ground_truth": "7"},
            extra_info={**TOLD, **(told or {}), "student": student},
        ),
        uid="q",
        step=1,
        rollout=0,
        validate=validate,
        lesson=lesson.to_json(),
    )
    return asyncio.run(pipeline.run(answer))


def taught(row: ScoredRow) -> Taught:
    assert row.method is not None
    return Taught.from_record(json.loads(json.dumps(row.method.record)))


def brute(folder: Path, name: str, segments: list[list[int]], at: float = 1.0) -> list[list[float]]:
    """Log-probabilities of each segment's tokens but those of the first, token after token, in float64."""
    model = Qwen3ForCausalLM.from_pretrained(folder / name).double()
    ids, told = list(segments[0]), []
    for segment in segments[1:]:
        numbers = []
        for token in segment:
            with torch.no_grad():
                logits = model(torch.tensor([ids])).logits[0, -1]
            numbers.append(float(torch.log_softmax(logits / at, dim=-1)[token]))
            ids.append(token)
        told.append(numbers)
    return told


@pytest.mark.acceptance("T6")
@pytest.mark.parametrize(("student", "name"), [(0, "text_bpe"), (1, "byte_bpe")])
def test_scores_are_those_of_plain_forward_passes(folder: Path, student: int, name: str) -> None:
    pipeline = rlt_pipeline(folder)
    row = explained(pipeline, f"{EXPLANATION}\n</explain>", student=student)
    tokenizer = TOKENIZERS[name]()
    messages = [{"role": "system", "content": "Think first."}, {"role": "user", "content": QUESTION}]
    chat = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, enable_thinking=True)
    texts = [f"{chat}<think>\n", EXPLANATION, "\n</think>\n\nThe answer: ", SOLUTION]
    segments = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    explanation, _, solution = brute(folder, name, segments)
    found = taught(row).rlt
    assert found is not None
    assert found.outcome is Outcome.ok
    assert found.solution_log_prob == pytest.approx(sum(solution) / len(solution), abs=1e-4)
    assert found.student_log_prob == pytest.approx(sum(explanation) / len(explanation), abs=1e-4)
    assert found.terms is not None
    by_hand = sum(solution) / len(solution) + 0.01 * min(max(one, -50.0) for one in solution)
    assert found.terms.solution == pytest.approx(by_hand, abs=1e-4)
    assert row.scores.base_reward == pytest.approx(max(-20.0, min(5.0, found.terms.total)), abs=1e-6)
    if name == "byte_bpe":
        own = [-0.01 * (i + 1) for i in range(len(segments[1]))]
        d = [mine - theirs for mine, theirs in zip(own, explanation, strict=True)]
        assert found.terms.divergence == pytest.approx(-(3 * sum(d) / len(d) + 0.03 * max(d)), abs=1e-3)


@pytest.mark.parametrize(
    ("overrides", "training", "validation"),
    [
        (("temperature=0.8",), 0.7, 1.0),
        (("temperature=0.8", "val_kwargs.temperature=0.5", "unbias_student_log_probs_temp=1.5"), 1.5, 1.5),
        (("val_kwargs.temperature=0",), 1.0, 1.0),
    ],
)
def test_students_score_at_their_temperature(
    folder: Path, overrides: tuple[str, ...], training: float, validation: float
) -> None:
    nodes = {"unbias_student_log_probs_temp": "rcl.reward.rlt"}
    typed = [f"{nodes.get(one.split('=')[0], 'actor_rollout_ref.rollout')}.{one}" for one in overrides]
    pipeline = rlt_pipeline(folder, *typed)
    tokenizer = TOKENIZERS["byte_bpe"]()
    messages = [{"role": "system", "content": "Think first."}, {"role": "user", "content": QUESTION}]
    chat = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, enable_thinking=True)
    texts = [f"{chat}<think>\n", EXPLANATION, "\n</think>\n\nThe answer: ", SOLUTION]
    segments = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    for validate, at in ((False, training), (True, validation)):
        found = taught(explained(pipeline, f"{EXPLANATION}\n</explain>", student=1, validate=validate)).rlt
        explanation, _, solution = brute(folder, "byte_bpe", segments, at)
        assert found is not None
        assert found.solution_log_prob == pytest.approx(sum(solution) / len(solution), abs=1e-4)
        assert found.student_log_prob == pytest.approx(sum(explanation) / len(explanation), abs=1e-4)


def test_open_explanations_cost_and_empty_ones_get_the_lowest(folder: Path) -> None:
    pipeline = rlt_pipeline(folder)
    closed, opened = (explained(pipeline, text, student=1) for text in (f"{EXPLANATION}</explain>", EXPLANATION))
    assert taught(closed).rlt.terms.not_matched == 0  # type: ignore[union-attr]
    assert taught(opened).rlt.terms.not_matched == -1  # type: ignore[union-attr]
    for nothing in ("</explain>", "\n \n</explain> more", "  "):
        row = explained(pipeline, nothing, student=1)
        assert row.scores.base_reward == -20
        assert row.asked[1].continuations == ()


@pytest.mark.guards("retry rebuilt from regex-escaped tags")
@pytest.mark.parametrize("closed", [True, False])
def test_marks_and_texts_are_no_patterns(folder: Path, closed: bool) -> None:
    """What a pattern would read otherwise is found, scored and kept as it was written."""
    marks = {"teacher_think_open": "<|explain.[a]*|>", "teacher_think_close": "<|end.[a]*|>"}
    text = "Say (a|b)* \\d+ [7]? $2 + 5 = 7$ <|endX[a]*|> \\<end\\>"
    pipeline = rlt_pipeline(folder)
    written = f"{text}\n{marks['teacher_think_close']} more" if closed else text
    for student in (0, 1):
        row = explained(pipeline, written, student=student, told=marks)
        (said,) = row.asked[student].continuations
        assert (said.outcome, said.text) == (Outcome.ok, text)
        assert said.token_length == len(pipeline.scorer._encoded(student, text)) + sum(  # type: ignore[union-attr]
            len(pipeline.scorer._encoded(student, part))  # type: ignore[union-attr]
            for part in ("\n</think>\n\nThe answer: ", SOLUTION)
        )
        assert taught(row).rlt.terms.not_matched == (0 if closed else -1)  # type: ignore[union-attr]


def test_a_failing_scorer_is_no_reward(folder: Path) -> None:
    pipeline = rlt_pipeline(folder, "reward_model.classmate_generation_configs.max_model_len=80")
    row = explained(pipeline, f"{EXPLANATION * 6}</explain>", student=0)
    assert not row.scores.main_valid
    assert row.main.outcome is Outcome.too_long
    told = teaching_metrics([RowRecord.of(row)])
    assert told["rlt/excluded_rows"] == 1
    assert "rlt/reward/mean" not in told


def test_an_explained_row_is_scored_again_from_its_line(folder: Path) -> None:
    pipeline = rlt_pipeline(folder)
    row = explained(pipeline, f"{EXPLANATION} 🙂 é\n</explain>", student=0)
    assert row.scores.main_valid
    line = RowRecord.of(row).to_json()
    again = asyncio.run(score_again(pipeline, RowRecord.from_json(line), rescore=False))
    assert list(differences(json.loads(line), json.loads(RowRecord.of(again).to_json()))) == []
    assert teaching_metrics([RowRecord.of(row)])["rlt/reward/mean"] == pytest.approx(row.scores.base_reward)


@pytest.mark.parametrize("name", sorted(TOKENIZERS))
def test_places_cover_the_text(name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    text = "Tom has 12 apples 🙂, é and 你好."
    ids = tokenizer.encode(text, add_special_tokens=False)
    decoded = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    found = places(ids, tokenizer)
    assert len(found) == len(ids)
    assert found[0][0] == 0
    assert found[-1][1] == len(decoded)
    assert all(start <= end for start, end in found)
    assert all(one[1] == other[0] for one, other in itertools.pairwise(found))


def test_the_teacher_goes_on_behind_the_solution(folder: Path) -> None:
    pipeline = rlt_pipeline(folder)
    lesson = Lesson(students=(StudentLesson(reader=0, name="s", base=SolveRate()),))
    messages = pipeline.teacher_messages(QUESTION, lesson, told=TOLD)
    assert [turn["role"] for turn in messages] == ["system", "user", "assistant"]
    assert messages[-1]["content"] == TOLD["teacher_opening"]
