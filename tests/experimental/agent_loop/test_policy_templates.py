"""The policy's chat template: a system role that it refuses, the day that it asks for, and rows that it would drop."""

import asyncio
import copy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.classmate.template_families import FAMILIES
from tests.classmate.toy_tokenizers import TOKENIZERS
from tests.clock import Tomorrow
from tests.experimental.agent_loop.scripted_loop import CLASSMATES, Classmates, Policy, composed, prompt_columns
from tests.run_config import save_tokenizers
from tests.workers.scripted_rows import QUESTION, RESPONSE
from verl.classmate.config import this_run
from verl.experimental.agent_loop.row_worker import ClassmateAgentLoopWorker
from verl.trainer.ppo.start_up import run_tokenizer
from verl.utils.dataset.rl_dataset import RLHFDataset


def policy_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str, *overrides: str) -> str:
    """What the policy is asked by a worker's own loop, about a row with a system turn."""
    models = save_tokenizers(tmp_path, CLASSMATES)
    config = composed(models, "reward_model.chat_date=2026-01-02", *overrides)
    policy = Policy(RESPONSE)
    own = copy.copy(TOKENIZERS["byte_bpe"]())
    own.chat_template = template

    def upstream(self: Any) -> None:
        self.config, self.llm_client, self.tokenizer, self.processor = config, policy, own, None
        self.dataset_cls, self.hf_model_type = RLHFDataset, None

    monkeypatch.setattr(ClassmateAgentLoopWorker.__mro__[1], "__init__", upstream)
    worker = ClassmateAgentLoopWorker()
    loop = worker._agent_loop
    loop.pipeline.asker.client = Classmates({})
    chat = [{"role": "system", "content": "Be short."}, {"role": "user", "content": QUESTION}]
    columns = prompt_columns(raw_prompt=chat, uid="0-1-key", session_id=2)

    async def go() -> None:
        loop.loop = asyncio.get_running_loop()
        await loop.run({"temperature": 1.0}, **columns)

    asyncio.run(go())
    assert own.chat_template == template, "checkpoints keep the model's own"
    return own.decode(policy.requests[0]["prompt_ids"])


def test_a_policy_without_a_system_role_is_asked_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = policy_prompt(tmp_path, monkeypatch, FAMILIES["gemma2"].template)
    assert text.startswith(f"<s><start_of_turn>user\nBe short.\n\n{QUESTION}<end_of_turn>")


def test_the_policy_is_told_the_run_s_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    today = policy_prompt(tmp_path / "one", monkeypatch, FAMILIES["llama3_2"].template)
    monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", Tomorrow)
    assert policy_prompt(tmp_path / "two", monkeypatch, FAMILIES["llama3_2"].template) == today
    assert "Today Date: 02 Jan 2026" in today


@pytest.mark.parametrize("family", ["gemma2", "mistral_v0_1", "phi3_old"])
def test_no_row_is_dropped_where_a_template_refuses_system_text(tmp_path: Path, family: str) -> None:
    """Upstream counts a row that the template refuses as too long."""
    chat = [{"role": "system", "content": "Be short."}, {"role": "user", "content": QUESTION}]
    rows = [{"prompt": chat, "data_source": "hinted_arithmetic", "extra_info": {"index": i}} for i in range(4)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train.parquet")
    config = composed(save_tokenizers(tmp_path, CLASSMATES), "reward_model.chat_date=2026-01-02")
    own = copy.copy(TOKENIZERS["byte_bpe"]())
    own.chat_template = FAMILIES[family].template
    tokenizer = run_tokenizer(own, this_run(config).reward)
    assert len(RLHFDataset([str(tmp_path / "train.parquet")], tokenizer, config.data)) == 4
