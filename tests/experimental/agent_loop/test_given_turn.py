"""A turn that is given up to a point has the same tokens in the warm-up and in reinforcement learning."""

import asyncio
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.classmate.toy_tokenizers import CHATML, TOKENIZERS
from tests.workers.scripted_students import STUDENTS, ScriptedEngines, teaching_config
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.experimental.agent_loop.teacher_loop import TeacherAgentLoop
from verl.teaching.chat_ids import given_turn
from verl.teaching.config import this_teaching
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.teaching_pipeline import TeachingPipeline

CHAT = [{"role": "user", "content": "47 + 38?"}]
OPENING = "The answer is 85."
"""A tokenizer may merge its beginning with the line breaks at the end of the chat template."""


@pytest.mark.guards("SFT format unlike RL format")
@pytest.mark.parametrize("name", ["byte_bpe", "merging_bpe"])
def test_ids_are_the_same_where_tokens_cross_the_border(name: str, tmp_path: Path) -> None:
    tokenizer = deepcopy(TOKENIZERS[name]())
    tokenizer.chat_template = CHATML.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n\n")
    config = teaching_config(tmp_path)
    teaching = this_teaching(config)
    assert teaching is not None
    client: Any = ScriptedEngines([TOKENIZERS[one]() for one in STUDENTS])

    async def ids_sent() -> list[int]:
        manager: Any = None
        loop = TeacherAgentLoop(
            pipeline=TeachingPipeline.of_teacher(config, tokenizer, client, teaching),
            trainer_config=DictConfigWrap(config),
            server_manager=manager,
            tokenizer=tokenizer,
            processor=None,
            dataset_cls=RLHFDataset,
            data_config=DictConfigWrap(config.data),
        )
        return await loop.ct_build_initial_tokens([*CHAT, {"role": "assistant", "content": OPENING}])

    sent = asyncio.run(ids_sent())
    assert given_turn(tokenizer, CHAT, OPENING) == sent
    text = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, tokenize=False) + OPENING
    assert tokenizer.decode(sent) == text
    if name == "merging_bpe":
        assert tokenizer(text, add_special_tokens=False)["input_ids"] != sent, "the border lies in a token of the text"
