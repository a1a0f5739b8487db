"""From a teacher to the gain that stays, with real models, engines and trainings: nothing stands in for anything.

The student answers 3 alone and 7 with any advice; the teacher gives advice. What is right is 7, so that a student which
learns from its own guided answers needs no teacher any more.
"""

import json
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoTokenizer, Qwen3ForCausalLM

from tests.evaluation.teaching.scripted import TEMPLATES, save_tokenizer
from tests.tiny_qwen3 import tiny_qwen3
from verl.evaluation.learning_gain import main
from verl.teaching.templates import Messages, Templates

PROMPTS = Templates.from_mapping(TEMPLATES)
ADVICE = "<thinking></thinking><teaching>Add.</teaching>"
Lesson = tuple[Messages, str]


def question(number: int) -> str:
    return f"{number} or {7 * number} ?"


def student_lessons(number: int) -> list[Lesson]:
    asked = question(number)
    return [
        (PROMPTS.baseline(asked), "<solution>3</solution>"),
        (PROMPTS.with_teaching(asked, "Add."), "<solution>7</solution>"),
        (PROMPTS.with_teaching(asked, "It is 7."), "<solution>7</solution>"),
        (PROMPTS.diagnostic(asked, probe_limit=8), "I add."),
    ]


def teacher_lessons(number: int) -> list[Lesson]:
    return [(PROMPTS.adaptive(question(number), approach, teaching_limit=16), ADVICE) for approach in ("I add.", None)]


def save_taught(folder: Path, lessons: list[Lesson], *, steps: int, seed: int) -> str:
    """A small model that has learnt what to say."""
    save_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(seed)
    sizes = {"width": 64, "max_position_embeddings": 1024, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    model = Qwen3ForCausalLM(tiny_qwen3(len(tokenizer), **sizes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rows = []
    for chat, said in lessons:
        given = tokenizer.encode(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
        rows.append((given, [*tokenizer.encode(said), tokenizer.eos_token_id]))
    longest = max(len(given) + len(said) for given, said in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    labels = torch.full_like(ids, -100)
    for place, (given, said) in enumerate(rows):
        ids[place, : len(given) + len(said)] = torch.tensor([*given, *said])
        labels[place, len(given) : len(given) + len(said)] = torch.tensor(said)
    for _ in range(steps):
        loss = model(input_ids=ids, attention_mask=(ids != 0).long(), labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if loss.item() < 0.002:
            break
    model.save_pretrained(folder)
    return str(folder)


def write_questions(file: Path, numbers: range) -> str:
    rows = [{"question": question(n), "ground_truth": "7", "solution": "It is 7."} for n in numbers]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(file)


@pytest.mark.long
def test_what_is_learnt_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = range(1, 9)
    student = save_taught(tmp_path / "student", [one for n in numbers for one in student_lessons(n)], steps=500, seed=1)
    teacher = save_taught(tmp_path / "teacher", [one for n in numbers for one in teacher_lessons(n)], steps=500, seed=2)
    (tmp_path / "templates.yaml").write_text(yaml.safe_dump(TEMPLATES))
    code = main(
        [
            teacher,
            f"--student={student}",
            f"--train={write_questions(tmp_path / 'train.jsonl', range(1, 6))}",
            f"--held_out={write_questions(tmp_path / 'test.jsonl', range(6, 9))}",
            f"--output={tmp_path / 'gain'}",
            f"--templates={tmp_path / 'templates.yaml'}",
            "--engine=hf",
            "--max_length=400",
            "--variations=1",
            "actor_rollout_ref.rollout.temperature=0.1",
            "--baseline_samples=2",
            "--guided_samples=2",
            "hardware=cpu",
            "data.max_prompt_length=400",
            "data.max_response_length=64",
            "reward_model.classmate_generation_configs.max_new_tokens=32",
            "reward_model.classmate_generation_configs.temperature=0.1",
            "rcl.protocol.max_probe_tokens=8",
            "rcl.protocol.max_teaching_tokens=16",
            "sft.hardware=cpu",
            "sft.data.train_batch_size=5",
            "sft.trainer.total_epochs=15",
            "sft.optim.lr=3e-3",
            "sft.trainer.console=plain",
        ]
    )
    assert code == 0, capsys.readouterr().err
    table = json.loads((tmp_path / "gain" / "learning_gain.json").read_text())
    alone, taught = table["arms"]["alone"], table["arms"]["teachings"]
    assert (alone["without"]["value"], alone["with_teacher"]["value"]) == (0.0, 1.0)
    assert taught["without"]["value"] == 1.0
    assert taught["rows"] == table["arms"]["solutions"]["rows"] == 5
    assert table["arms"]["solutions"]["without"]["value"] == 1.0
