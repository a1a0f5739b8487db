"""Whether the prompts of the data fit `data.max_prompt_length`.

Decision: lengths are counted only until a batch of prompts fits (one prompt for validation). Prompts that do not fit
are left out later, and counted.

    >>> check_prompt_lengths(config["data"], tokenizer)           # raises ConfigError
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError
from verl.trainer.preflight.data import KEYS, count_rows, data_files
from verl.trainer.preflight.tables import column_values, open_table


def count_fitting(data: Mapping[str, Any], tokenizer: Callable[[], Any], *, most: int) -> int | None:
    """Number of training prompts of `count_rows` that are not left out as too long; counted up to `most`.

    The number is too small where it is not certain: without the policy's tokenizer, or if the rows are a sample.

    Args:
        data: the node `data`.
        tokenizer: gives the policy's; called where lengths count.
        most: more are not looked for.
    """
    rows = count_rows(data, "train_files")
    if rows is None or not data["filter_overlong_prompts"]:
        return None if rows is None else min(rows, most)
    names = data_files(data, "train_files")
    is_sample = rows < sum(open_table("train_files", name)[0] for name in names)
    seen = fitting = 0
    try:
        for length in token_lengths(data, names, tokenizer()):
            seen += 1
            fitting += length <= data["max_prompt_length"]
            if fitting == most:
                break
    except ConfigError:
        return min((rows + 1) // 2, most)
    if is_sample:
        fitting = (rows * fitting // max(seen, 1) + 1) // 2
    # Where none fits, a check says so.
    return min(fitting, most) or min(rows, most)


def check_prompt_lengths(data: Mapping[str, Any], tokenizer: Any) -> None:
    """A batch of prompts fits, for validation one prompt; with `data.filter_overlong_prompts=false` all prompts do.

    Args:
        data: the node `data`.
        tokenizer: the policy's.

    Raises:
        ConfigError: naming the key and the lengths.
    """
    if data["custom_cls"]["path"] is not None:
        return
    for key in KEYS:
        names = data_files(data, key)
        local = [name for name in names if "://" not in name]
        needed = data["train_batch_size"] if key == "train_files" and local == names else 1
        _check_lengths(data, key, token_lengths(data, local, tokenizer), needed)


def _check_lengths(data: Mapping[str, Any], key: str, lengths: Iterator[int], needed: int) -> None:
    limit, leave_out = data["max_prompt_length"], data["filter_overlong_prompts"]
    fitting, too_long = 0, []
    for length in lengths:
        if length > limit:
            too_long.append(length)
            continue
        fitting += 1
        if leave_out and fitting == needed:
            return
    if too_long and leave_out and not fitting:
        raise ConfigError(
            f"data.{key}: all {len(too_long)} prompts are longer than data.max_prompt_length={limit} (the shortest has "
            f"{min(too_long)} tokens); raise it"
        )
    if too_long and leave_out:
        raise ConfigError(
            f"data.{key}: {fitting} of {fitting + len(too_long)} prompts fit data.max_prompt_length={limit}, fewer "
            f"than data.train_batch_size={needed}; raise the length, or write a smaller batch"
        )
    if too_long:
        raise ConfigError(
            f"data.{key}: {len(too_long)} prompts are longer than data.max_prompt_length={limit} (the longest has "
            f"{max(too_long)} tokens); raise it, or write data.filter_overlong_prompts=true to leave them out"
        )


def token_lengths(data: Mapping[str, Any], names: list[str], tokenizer: Any) -> Iterator[int]:
    """Length of each prompt in tokens, as upstream counts it; prompts that the chat template refuses are skipped.

    Raises:
        ConfigError: the template refuses all of them.
    """
    arguments = dict(data["apply_chat_template_kwargs"] or {})
    seen, refusal = 0, None
    for name in names:
        for messages in column_values(Path(name), data["prompt_key"]):
            try:
                text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **arguments)
            except Exception as error:
                refusal = error
                continue
            seen += 1
            yield len(tokenizer(text, add_special_tokens=False)["input_ids"])
    if refusal is not None and seen == 0:
        reason = " ".join(str(refusal).split())[:200]
        raise ConfigError(
            f"data: the policy's chat template refuses every prompt of {', '.join(names)} ({reason}); change the roles "
            "in the data, or the model"
        )
