"""What is kept of a teacher's evaluation: a few numbers for each tutor and student, each under one name.

Decision: a length is told twice. `tokens` are the student's, which is what its advice costs it; `length` is in the
teacher's tokens, the same for all students, so that students can be compared.

    >>> numbers_of(document, tokenizer)["teacher.weak.APG"]
    0.59

Names are `TUTOR.STUDENT.MEASURE`, the students those of the world and `trained`, `unseen`, `all`. Measures: `APG`,
`NDR`, `NDR_c`, `TES`, `b`, `w` as in docs/teaching_evaluation.md; `harm`, 1 - NDR_c; `leak`, `empty`, `broken`, shares
of advice; `clean`, the gain that comes of advice that does not give the answer away, over all questions; `tokens`,
`length`. `offtask.before` and `offtask.after` are what the teacher solves itself.
"""

from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean
from typing import Any

GROUPS = {"all trained with": "trained", "all unseen": "unseen", "all": "all"}
"""Names of groups here, by those of the evaluation."""
_ESTIMATES, _PLAIN, _ADVICE = ("APG", "NDR", "NDR_c", "TES"), ("b", "w"), ("empty", "broken", "tokens")
_EXAMPLES = 6


def numbers_of(document: Mapping[str, Any], tokenizer: Any) -> dict[str, float]:
    """The numbers of sampled answers.

    Args:
        document: an evaluation's file.
        tokenizer: of the teacher, for `length`.
    """
    found: dict[str, float] = {}
    for result in document["results"]:
        numbers, advice = result["numbers"], result["advice"]
        if result["decoding"] != "sampled" or numbers is None:
            continue
        name = f"{result['tutor']}.{GROUPS.get(result['student'], result['student'])}"
        values = {key: numbers[key]["value"] for key in _ESTIMATES} | {key: numbers[key] for key in _PLAIN}
        if values["NDR_c"] is not None:
            values["harm"] = 1 - values["NDR_c"]
        if advice is not None:
            clean = result["not_leaking"]
            gained = (clean["w"] - clean["b"]) * clean["trials"] if clean["trials"] else 0.0
            values |= {key: advice[key] for key in _ADVICE}
            values |= {"leak": advice["leak_rate"], "clean": gained / numbers["trials"]}
        found |= {f"{name}.{key}": float(value) for key, value in values.items() if value is not None}
    found |= _lengths(document, tokenizer)
    if document["offtask"] is not None:
        shares = {when: document["offtask"][when] for when in ("before", "after")}
        found |= {f"offtask.{when}": float(one["share"]) for when, one in shares.items() if one is not None}
    return found


def _lengths(document: Mapping[str, Any], tokenizer: Any) -> dict[str, float]:
    """Mean length of what is shown, in one tokenizer; 0 where nothing is."""
    texts: dict[str, list[str]] = defaultdict(list)
    for one in document["trials"]:
        told = one["told"]
        if one["decoding"] == "sampled" and told is not None and told["outcome"] == "ok":
            texts[f"{one['tutor']}.{one['student']}.length"].append(told["teaching"]["text"])
    counted = {
        text: len(tokenizer(text, add_special_tokens=False)["input_ids"]) for said in texts.values() for text in said
    }
    return {name: fmean(counted[text] for text in said) for name, said in texts.items()}


def examples_of(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """What the teacher says to each student about the first questions, beside the untrained one if it was asked."""
    said: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for one in document["trials"]:
        if one["tutor"] in ("teacher", "untrained") and one["decoding"] == "sampled" and one["told"] is not None:
            said[one["item"], one["student"]][one["tutor"]] = one["told"]["teaching"]["text"]
    students = list(dict.fromkeys(student for _, student in said))
    items = list(dict.fromkeys(item for item, _ in said))[: _EXAMPLES // max(1, len(students)) + 1]
    return [
        {
            "question": f"{student}: {document['items'][item]['question']}",
            "before": said[item, student].get("untrained", ""),
            "after": said[item, student].get("teacher", ""),
        }
        for item in items
        for student in students
    ]
