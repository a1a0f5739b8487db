"""Students and teachers who do what a script says, behind a real server of OpenAI's completions protocol.

A question names its kind, `carry` or `borrow`. The weak student solves it iff it is told that word; the strong one
solves it unless it is told the other word. Both take an answer that they are told, and their plans say who they are.

>>> with world(tmp_path) as scripted:
...     main([*scripted.arguments])
"""

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from tests.workers.servers import serving
from verl.utils.model_servers.mapping import Server, changing

KINDS = ("carry", "borrow")
STUDENTS, UNSEEN = ("weak", "strong"), ("other",)
TEACHERS = ("teacher", "untrained")

TEMPLATES: dict[str, Any] = {
    "answer_format": "Answer in <solution></solution>.",
    "student_baseline_template": "{question} {answer_format}",
    "student_diagnostic_template": "{question} Plan, at most {probe_limit} tokens.",
    "teacher_adaptive_template": {
        "system": "Think in <thinking></thinking>, advise in <teaching></teaching>, at most {teaching_limit} tokens. "
        "Write no advice if none is needed.",
        "user": "{question} Plan: {approach}",
    },
    "student_with_teaching_template": "{question} <advice>{teaching}</advice> {answer_format}",
}
CHAT = (
    "{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)

Script = Callable[[str], str]


def save_tokenizer(folder: Path, *, chat_template: str | None = CHAT) -> None:
    """One token for each printable character."""
    from tokenizers import Regex, Tokenizer
    from tokenizers.decoders import Fuse
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split
    from transformers import PreTrainedTokenizerFast

    letters = ["\n", *(chr(code) for code in range(32, 127))]
    vocabulary = {token: i for i, token in enumerate(["<pad>", "<eos>", "<unk>", *letters])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        chat_template=chat_template,
        clean_up_tokenization_spaces=False,
    )
    fast.save_pretrained(folder)


def row(number: int, kind: str, *, truth: str | None = None, split: str = "test") -> dict[str, Any]:
    """What is asked: `q3 kind carry`; the answer is 1003, and 2003 in training."""
    answer = str((1000 if split == "test" else 2000) + number) if truth is None else truth
    return {
        "data_source": "scripted",
        "prompt": [{"role": "user", "content": f"{split} q{number} kind {kind}: how many?"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": {"index": number, "split": split},
    }


def truth_of(prompt: str) -> str:
    split, number = re.search(r"(test|train) q(\d+) kind", prompt).groups()  # type: ignore[union-attr]
    return str((1000 if split == "test" else 2000) + int(number))


def advice_in(prompt: str) -> str | None:
    found = re.search(r"<advice>(.*?)</advice>", prompt, re.DOTALL)
    return None if found is None else found[1]


def student(solves: Callable[[str, str | None], bool], plan: str) -> Script:
    """A student who solves a question of a kind, with or without advice, as `solves` says."""

    def answer(prompt: str) -> str:
        if "Plan, at most" in prompt or "your teacher asks you" in prompt:
            return plan
        kind = re.search(r"kind (\w+):", prompt)[1]  # type: ignore[index]
        advice = advice_in(prompt)
        revealed = re.search(r"answer is (\d+)", advice or "")
        if revealed:
            return f"<solution>{revealed[1]}</solution>"
        return f"<solution>{truth_of(prompt) if solves(kind, advice) else '7'}</solution>"

    return answer


def told_right(kind: str, advice: str | None) -> bool:
    return kind in (advice or "")


def not_told_wrong(kind: str, advice: str | None) -> bool:
    return not any(other in (advice or "") for other in KINDS if other != kind)


def adapts(prompt: str) -> str:
    """Tells the lost the right word, and those who know nothing."""
    kind = re.search(r"kind (\w+):", prompt)[1]  # type: ignore[index]
    advice = f"Mind the {kind}." if "lost" in prompt else ""
    return f"<thinking>who is it</thinking><teaching>{advice}</teaching>"


def always_carry(prompt: str) -> str:
    return "<thinking></thinking><teaching>Mind the carry.</teaching>"


def asks_first(prompt: str) -> str:
    """The same by a teacher that asks its own question in a first turn, and none about q2."""
    if "Plan:" in prompt:
        return adapts(prompt)
    return f"<thinking>who is it</thinking><teaching>{'' if ' q2 ' in prompt else 'Who are you?'}</teaching>"


@dataclass(kw_only=True)
class Scripted:
    """A running world, whose scripts a test may change."""

    folder: Path
    scripts: dict[str, Script]
    asked: Counter[str] = field(default_factory=Counter)
    fails: Callable[[str, str], bool] = lambda model, prompt: False

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def arguments(self, *more: str) -> list[str]:
        """Of the command, without a run."""
        named = {
            "teacher": self.path("teacher"),
            "untrained": self.path("untrained"),
            "students": ",".join(map(self.path, STUDENTS)),
            "unseen": ",".join(map(self.path, UNSEEN)),
            "data": self.path("test.parquet"),
            "train_data": self.path("train.parquet"),
            "templates": self.path("templates.yaml"),
            "servers": self.path("servers.json"),
            "engine": "openai",
            "output": self.path("out.json"),
            "baseline_samples": "2",
            "guided_samples": "2",
        }
        return [part for name, value in named.items() for part in (f"--{name}", value)] + list(more)


def app_of(scripted: Scripted) -> FastAPI:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(scripted.folder / "teacher")
    app = FastAPI()

    @app.post("/v1/completions")
    async def completions(request: Request) -> Any:
        body = await request.json()
        name = Path(body["model"]).name
        prompt = tokenizer.decode(body["prompt"])
        scripted.asked[name] += 1
        if scripted.fails(name, prompt):
            return JSONResponse({"error": {"message": "no"}}, status_code=500)
        said = scripted.scripts[name](prompt)
        ids = tokenizer.encode(said, add_special_tokens=False)
        cut = len(ids) > body["max_tokens"]
        choice = {"token_ids": ids[: body["max_tokens"]], "finish_reason": "length" if cut else "stop"}
        return JSONResponse({"choices": [choice]})

    @app.get("/v1/models")
    async def models() -> Any:
        return {"data": [{"id": scripted.path(name), "max_model_len": 4096} for name in scripted.scripts]}

    @app.get("/health")
    async def health() -> Any:
        return Response(status_code=200)

    return app


def write_rows(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    pd.DataFrame(rows).to_parquet(file)


@contextlib.contextmanager
def world(folder: Path) -> Iterator[Scripted]:
    """Four questions to evaluate on, three of them `carry`; four others of the training, likewise."""
    for name in (*STUDENTS, *UNSEEN, *TEACHERS):
        save_tokenizer(folder / name)
    kinds = ("carry", "borrow", "carry", "carry")
    write_rows(folder / "test.parquet", [row(i, kind) for i, kind in enumerate(kinds)])
    write_rows(folder / "train.parquet", [row(i, kind, split="train") for i, kind in enumerate(kinds)])
    (folder / "templates.yaml").write_text(yaml.safe_dump(TEMPLATES))
    scripted = Scripted(
        folder=folder,
        scripts={
            "weak": student(told_right, "i am lost"),
            "strong": student(not_told_wrong, "i know it"),
            "other": student(told_right, "i am lost"),
            "teacher": adapts,
            "untrained": always_carry,
        },
    )
    with serving(app_of(scripted), name="scripted") as server:
        with changing(folder / "servers.json") as servers:
            for name in scripted.scripts:
                path = scripted.path(name)
                servers[path] = Server(name=path, outward_host="127.0.0.1", port=server.port)
        yield scripted
