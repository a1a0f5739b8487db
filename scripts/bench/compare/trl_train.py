"""Trains with TRL's GRPOTrainer in the environment that `trl_peer.py` made; nothing of this project is imported.

One decision: a helper is a reward function, as TRL's users write one. It reads what the policy wrote, and its own
answers are scored like the policy's.

    python trl_train.py spec.json
"""

import argparse
import functools
import json
import runpy
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

Answer = Callable[[list[str]], list[str]]
"""Prompts of one helper -> what it writes."""


def make_end_at(lengths: Sequence[Sequence[int]], rows: int, eos: int) -> Any:
    """A logits processor that ends each row of a batch at its length; it computes only where one ends."""
    import torch
    from transformers import LogitsProcessor

    class EndAt(LogitsProcessor):
        """Row i of the k-th batch has `lengths` in the order of the file."""

        def __init__(self) -> None:
            self.flat = [length for answers in lengths for length in answers]
            self.batch, self.prompt = -1, 0
            self.ends: dict[int, list[int]] = {}

        def begin(self, prompt_tokens: int) -> None:
            """Is told of the next batch."""
            self.batch, self.prompt, self.ends = self.batch + 1, prompt_tokens, {}
            for row, length in enumerate(self.flat[self.batch * rows : (self.batch + 1) * rows]):
                self.ends.setdefault(length, []).append(row)

        def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
            ending = self.ends.get(input_ids.shape[1] - self.prompt + 1)
            if ending is not None:
                scores[ending] = -torch.inf
                scores[ending, eos] = 0.0
            return scores

    return EndAt()


def computing(folder: str, tokens: int, sampling: dict[str, Any], *, one_by_one: bool) -> tuple[Any, Answer]:
    """Tokenizer of a helper that is a model of this process, and how it answers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    config = GenerationConfig(
        max_new_tokens=tokens,
        do_sample=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        top_k=0,
        **sampling,
    )

    def together(prompts: list[str]) -> list[str]:
        inputs = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False)
        with torch.inference_mode():
            written = model.generate(**inputs, generation_config=config)
        return tokenizer.batch_decode(written[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)

    if one_by_one:
        return tokenizer, lambda prompts: [together([prompt])[0] for prompt in prompts]
    return tokenizer, together


def served(folder: str, url: str, tokens: int, sampling: dict[str, Any]) -> tuple[Any, Answer]:
    """Tokenizer of a helper that is a server, and how it answers: all requests at once."""
    from transformers import AutoTokenizer

    pool = ThreadPoolExecutor(64)

    def one(prompt: str) -> str:
        body = json.dumps({"model": folder, "prompt": prompt, "max_tokens": tokens, **sampling}).encode()
        with urlopen(Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})) as reply:
            return json.load(reply)["choices"][0]["text"]

    return AutoTokenizer.from_pretrained(folder), lambda prompts: list(pool.map(one, prompts))


def helper_reward(name: str, tokenizer: Any, answer: Answer, score: Callable[..., float], keep: float) -> Any:
    """A reward function: the helper goes on from the first part of what the policy wrote."""

    def reward(prompts: list[Any], completions: list[Any], **_: Any) -> list[float]:
        texts = []
        for prompt, completion in zip(prompts, completions, strict=True):
            thought = completion[0]["content"]
            begin = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
            texts.append(f"{begin}<think>{thought[: int(len(thought) * keep)]}</think>")
        return [score("", text, "") for text in answer(texts)]

    reward.__name__ = name
    return reward


def helper_rewards(spec: dict[str, Any], score: Callable[..., float]) -> list[Any]:
    """The reward functions of all helpers, loaded or reached."""
    rewards = []
    for number, helper in enumerate(spec["helpers"]):
        if helper["url"]:
            tokenizer, answer = served(helper["folder"], helper["url"], spec["helper_tokens"], spec["sampling"])
        else:
            tokenizer, answer = computing(
                helper["folder"], spec["helper_tokens"], spec["sampling"], one_by_one=spec["one_by_one"]
            )
        rewards.append(helper_reward(f"helper_{number}", tokenizer, answer, score, spec["keep"]))
    return rewards


def end_rows(model: Any, end_at: Any) -> None:
    """Makes the policy end its rows where `end_at`, of `make_end_at`, says."""
    generate = model.generate

    @functools.wraps(generate)
    def limited(**inputs: Any) -> Any:
        end_at.begin(inputs["input_ids"].shape[1])
        return generate(**inputs, logits_processor=[end_at])

    model.generate = limited


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("spec", type=Path, help="JSON that trl_peer.py wrote")
    spec = json.loads(parser.parse_args().spec.read_text())

    import pandas as pd
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    score = runpy.run_path(spec["reward_file"])["compute_score"]

    class NoteSteps(TrainerCallback):
        """Notes when the metrics of a step are logged."""

        def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step <= spec["steps"] and state.log_history[-1].get("loss") is not None:
                with open(spec["steps_file"], "a") as file:
                    file.write(json.dumps({"step": state.global_step, "s": time.monotonic()}) + "\n")

    def policy_reward(completions: list[Any], **_: Any) -> list[float]:
        return [score("", completion[0]["content"], "") for completion in completions]

    tokenizer = AutoTokenizer.from_pretrained(spec["policy"])
    model: Any = AutoModelForCausalLM.from_pretrained(spec["policy"], dtype=torch.float32, attn_implementation="sdpa")
    rows = spec["prompts"] * spec["answers"]
    if spec["lengths_file"]:
        end_rows(model, make_end_at(json.loads(Path(spec["lengths_file"]).read_text()), rows, tokenizer.eos_token_id))
    data = pd.read_parquet(spec["train_file"])
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=[policy_reward, *helper_rewards(spec, score)],
        train_dataset=Dataset.from_list([{"prompt": list(prompt)} for prompt in data["prompt"]]),
        callbacks=[NoteSteps()],
        args=GRPOConfig(
            output_dir=spec["output"],
            max_steps=spec["steps"],
            per_device_train_batch_size=spec["micro_rows"],
            gradient_accumulation_steps=rows // spec["micro_rows"],
            num_generations=spec["answers"],
            max_completion_length=spec["limit"],
            temperature=1.0,
            learning_rate=spec["lr"],
            lr_scheduler_type="constant",
            shuffle_dataset=False,
            # What saves memory and costs time.
            gradient_checkpointing=False,
            use_cpu=True,
            bf16=False,
            dataloader_pin_memory=False,
            report_to="none",
            logging_steps=1,
            save_strategy="no",
            disable_tqdm=True,
        ),
    )
    trainer.train()


if __name__ == "__main__":
    main()
