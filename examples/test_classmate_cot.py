"""Can these models be classmates? Shows each one a question with a CoT, and prints what it answers.

    python examples/test_classmate_cot.py allenai/OLMo-2-0425-1B-SFT meta-llama/Llama-3.2-1B-Instruct
    python examples/test_classmate_cot.py MODEL --question "What is 6 times 7?" --thought "6 times 7 is 42." --answer 42

Each model is loaded as in a run (here with the embedded engine), so a path that is wrong, a login that is missing, a
chat template that is missing or a memory that is too small shows here, in one line, and not after minutes.
"""

import argparse
import asyncio
import sys

from verl.classmate import prompts
from verl.classmate.config import DEFAULT_MARKERS
from verl.classmate.errors import ConfigError
from verl.utils import hf_tokenizer
from verl.utils.reward_score.cot_monitor import get_verifier
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig, HFEngine
from verl.workers.rollout.hf_rollout_server.sampling import SamplingParams


def ask(model: str, question: str, thought: str, answer: str, *, max_new_tokens: int) -> None:
    """Prints prompt, answer and score of one model.

    Raises:
        ConfigError: the model has no chat template.
    """
    tokenizer = hf_tokenizer(model)
    prompts.check_tokenizer(tokenizer, model)
    prompt = prompts.build(
        [{"role": "user", "content": question}],
        thought,
        tokenizer,
        markers=DEFAULT_MARKERS,
        classmate_markers=None,
        close=True,
        max_len=sys.maxsize,
    )
    if prompt.ids is None:
        raise ConfigError(prompt.error or "there is no prompt")
    engine = HFEngine.from_config(EngineConfig(model_path=model))
    try:
        request = (prompt.ids, SamplingParams(max_tokens=max_new_tokens, temperature=0.0))
        (reply,) = asyncio.run(engine.generate_batch([request]))
    finally:
        engine.close()
    text, outcome = prompts.answer(list(reply.token_ids), closed=True, markers=DEFAULT_MARKERS, tokenizer=tokenizer)
    score = None if text is None else get_verifier("hinted_arithmetic").compute_score(text, answer)
    print(f"{model}\n  asked     {prompt.text!r}\n  answered  {text!r} ({outcome})\n  score     {score}")


def main() -> int:
    """Asks every model; the exit code is 1 if one of them cannot be a classmate."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+", metavar="MODEL", help="path or hub name")
    parser.add_argument("--question", default="Tom has 3 apples and gets 4 more. How many apples does Tom have?")
    parser.add_argument("--thought", default="\nTom has 3 and gets 4, so 3+4=7.\n", help="the CoT that it is shown")
    parser.add_argument("--answer", default="7", help="the right number")
    parser.add_argument("--max_new_tokens", type=int, default=64)
    arguments = parser.parse_args()
    failed = False
    for model in arguments.models:
        try:
            ask(
                model,
                arguments.question,
                arguments.thought,
                arguments.answer,
                max_new_tokens=arguments.max_new_tokens,
            )
        except (ConfigError, OSError, ValueError) as error:
            failed = True
            print(f"{model}\n  cannot be a classmate: {str(error).splitlines()[0]}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
