"""Rows of a collection, made without any model.

>>> row(question="What is 2 + 5?", variation=1, reward=1.5)
CollectedTeaching(...)
"""

from typing import Any

from verl.teaching.collected import SCHEMA, CollectedTeaching, Sampled, row_id
from verl.teaching.student_sets import question_hash
from verl.teaching.templates import Templates

TEMPLATES = Templates()


def said(text: str, *, right: bool = True, finish_reason: str = "stop", outcome: str = "ok") -> Sampled:
    score = 1.0 if right and outcome == "ok" else 0.0
    return Sampled(text=text, outcome=outcome, score=score, finish_reason=finish_reason, tokens=len(text.split()))


def row(**changed: Any) -> CollectedTeaching:
    told: dict[str, Any] = {
        "schema": SCHEMA,
        "run": "r",
        "step": 0,
        "variation": 0,
        "teacher": "r@0",
        "student": "weak",
        "student_model": "models/weak",
        "uid": "q",
        "data_source": "sums",
        "question": "What is 2 + 5?",
        "ground_truth": "7",
        "solution": "Two and five are seven.",
        "probe": "I add.",
        "teacher_text": "<teaching>Mind the carry.</teaching>",
        "teaching": "Mind the carry.",
        "state": "ok",
        "outcome": "ok",
        "b": 0.0,
        "w": 1.0,
        "D": 1.0,
        "reward": 1.5,
        "terms": {"improvement": 1.0, "efficiency": 0.5},
        "leak": {"told": False, "extracted": False},
        "length": 3,
        "tokens": {"teacher": 9, "probe": 2, "base": 4.0, "guided": 4.0},
        "finish_reasons": {"base": ["stop"], "guided": ["stop"]},
        "baseline": (said("It is <solution>3</solution>", right=False),),
        "guided": (said("It is <solution>7</solution>"),),
        "seed": 1,
        "temperature": 1.0,
        "template_hash": TEMPLATES.hash,
        **changed,
    }
    told.setdefault("question_hash", question_hash(told["question"]))
    key = {"run": told["run"], "step": told["step"], "key": told["question_hash"][:16]}
    told.setdefault("id", row_id(**key, variation=told["variation"], student=told["student"]))
    return CollectedTeaching(**told)
