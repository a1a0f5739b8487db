"""Asks a trained teacher to help a student with one question: outline, advice, and the student's answers.

    python examples/ask_teacher.py TEACHER STUDENT "What is 58 + 27?"

TEACHER is a model, or the folder of a training run: its last checkpoint then advises, with the run's own prompts.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer

from verl.classmate.errors import ConfigError
from verl.teaching.config import NODE, TeachingConfig
from verl.teaching.tags import Teaching, extract_teaching, outline_of
from verl.teaching.templates import Messages, Templates
from verl.trainer.run.checkpoints import latest_step
from verl.trainer.run.recorded_config import read_config


class Model:
    """A chat model that writes one answer."""

    def __init__(self, path: str) -> None:
        """Loads it."""
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(path)
            self.model = AutoModelForCausalLM.from_pretrained(path)
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ConfigError(f"{path} cannot be loaded ({reason}); name a model, or a teacher's run") from error

    def answer(self, messages: Messages, tokens: int) -> str:
        """What it writes greedily, in at most so many tokens."""
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = self.tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        written = self.model.generate(ids, max_new_tokens=tokens, do_sample=False)[0, ids.shape[1] :]
        return str(self.tokenizer.decode(written, skip_special_tokens=True))


def main(arguments: list[str]) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("teacher", help="a model, or the folder of a training run")
    parser.add_argument("student", help="a model")
    parser.add_argument("question")
    parser.add_argument("--max_new_tokens", type=int, default=512, help="of each answer; default: 512")
    options = parser.parse_args(arguments)
    if not options.question.strip():
        raise ConfigError("the question is blank; write one")
    path, config, run = options.teacher, TeachingConfig(), Path(options.teacher)
    if (run / "rollouts").is_dir():
        content = read_config(run)
        if NODE not in content or not latest_step(run):
            raise ConfigError(f"{run} is no teacher's run with a checkpoint; name another, or a model")
        config = TeachingConfig.read(content[NODE])
        path = str(run / f"global_step_{latest_step(run)}" / "actor" / "huggingface")
    teacher, student = Model(path), Model(options.student)
    prompts: Templates = config.templates
    limit, budget = config.protocol.max_probe_tokens, options.max_new_tokens
    most = config.protocol.max_teaching_tokens
    plan: Messages = prompts.diagnostic(options.question, probe_limit=limit) if limit else []
    chat: Messages = []

    def visible(said: str, tokens: int) -> Teaching:
        return extract_teaching(
            said,
            prompts.tags,
            count_tokens=lambda text: len(student.tokenizer(text)["input_ids"]),
            max_tokens=tokens,
            overflow=config.protocol.teaching_overflow,
        )

    if config.protocol.teacher_asks:
        # Its question and its advice are two turns of one conversation.
        tokens = config.protocol.probe.max_question_tokens
        chat = prompts.asks_teacher(options.question, question_limit=tokens)
        chat.append({"role": "assistant", "content": teacher.answer(chat, tokens)})
        question = visible(chat[-1]["content"], budget).text
        plan = prompts.probing(options.question, question, probe_limit=limit) if question else []
        print(f"the teacher asks:    {question or 'nothing'}")
    outline = outline_of(student.answer(plan, limit), prompts.tags) if plan else ""
    asked = prompts.adaptive(options.question, outline, teaching_limit=most)
    if chat:
        asked = [*chat, {"role": "user", "content": "\n\n".join(turn["content"] for turn in asked)}]
    teaching = visible(teacher.answer(asked, budget), most)
    print(f"the student {'replies' if chat else 'plans'}:".ljust(20), outline)
    print(f"the teacher advises: {teaching.text or f'nothing ({teaching.state})'}")
    print(f"without advice:      {student.answer(prompts.baseline(options.question), budget)}")
    if teaching.text:
        print(f"with it:             {student.answer(prompts.with_teaching(options.question, teaching.text), budget)}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ConfigError as error:
        sys.exit(f"error: {error}")
