"""A model that writes in this process, on the project's embedded engine: no Ray, any device.

One decision: nothing is loaded before the first text is asked for, so that a stage whose samples are all in the cache
needs no model. A model object that somebody else holds is frozen only until `close`.

    >>> with HFBackend("models/policy") as backend:
    ...     backend.generate(["What is 3 + 4?"], n=4, sampling=SamplingParams(max_tokens=64))
"""

import copy
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self, Unpack
from uuid import uuid4

import torch

from verl.classmate.frozen import FrozenModel
from verl.classmate.outcome import Outcome
from verl.classmate.reply import Reply
from verl.reasoning.token_backend import HowAsked, TokenBackend
from verl.workers.model_revision import folder_revision, revision_of
from verl.workers.rollout.hf_rollout_server.engine import EngineConfig, HFEngine
from verl.workers.rollout.hf_rollout_server.sampling import SamplingParams

_SAMPLE = 64
"""Numbers of each tensor that tell which weights a model in memory has."""


class HFBackend(TokenBackend):
    """Generates with transformers, in batches; a `GenBackend`."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        device: str = "auto",
        dtype: str = "auto",
        batch_size: int = 128,
        batch_tokens: int = 65536,
        deterministic: bool = False,
        trust_remote_code: bool = False,
        max_model_len: int | None = None,
        **asked: Unpack[HowAsked],
    ) -> None:
        """Loads nothing.

        Args:
            model: path, hub name, or a model of transformers, which must not be trained while this is open.
            tokenizer: its tokenizer; None: the one beside a model that is named.
            device: `cpu`, `cuda`, `cuda:0`; auto: a GPU if there is one. A model object stays where it is.
            dtype: of the weights; auto: bfloat16 on a GPU, float32 on CPU.
            batch_size: most texts that are written together.
            batch_tokens: most tokens in the cache of a batch.
            deterministic: on a CPU, each text's numbers are bit for bit the same in any company, at some cost. Without
                it rounding changes a token only where a draw falls on a boundary.
            trust_remote_code: run the Python code that comes with the model.
            max_model_len: as in `TokenBackend`.
            asked: `HowAsked`: system, template_kwargs, chat_template.

        Raises:
            ValueError: a model object without a tokenizer.
        """
        named = isinstance(model, (str, Path))
        if not named and tokenizer is None:
            raise ValueError("a model object has no tokenizer with it; write HFBackend(model, tokenizer)")
        called = str(model) if named else str(getattr(model, "name_or_path", "") or type(model).__name__)
        super().__init__(called, max_model_len=max_model_len, **asked)
        self._given: Any = None if named else model
        self._given_tokenizer = tokenizer
        self._remote_code = trust_remote_code
        where = device if device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
        if not named:
            where = str(model.device)
        self._config = EngineConfig(
            model_path=self.model,
            dtype=dtype if dtype != "auto" else ("bfloat16" if where.startswith("cuda") else "float32"),
            device=where,
            max_model_len=max_model_len,
            max_batch_size=batch_size,
            max_batch_tokens=batch_tokens,
            deterministic=deterministic,
            trust_remote_code=trust_remote_code,
        )
        self._engine: HFEngine | None = None
        self._before: tuple[bool, list[bool]] | None = None

    def max_model_len(self) -> int:
        """As `TokenBackend.max_model_len`; loads the model."""
        self._start()
        assert self._engine is not None
        return self._engine.max_model_len

    def close(self) -> None:
        """Ends the engine, and gives a model object back as it was."""
        if self._engine is not None:
            self._engine.close()
        self._engine = None
        if self._before is not None:
            training, wanted = self._before
            for parameter, grad in zip(self._given.parameters(), wanted, strict=True):
                parameter.requires_grad_(grad)
            self._given.train(training)
            self._before = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        if self._engine is not None:
            return
        if self._given is None:
            # Its own tokenizer decides where a text stops; ours may have another chat template.
            self._engine = HFEngine.from_config(self._config)
            return
        self._before = (self._given.training, [one.requires_grad for one in self._given.parameters()])
        self._engine = HFEngine(self._given, copy.deepcopy(self._given_tokenizer), self._config)

    def _weights(self) -> str:
        if self._given is not None:
            return _in_memory(self._given)
        folder = Path(self.model).expanduser()
        if folder.is_dir():
            return folder_revision(folder.resolve())
        named = FrozenModel(
            name="policy", label="policy", keys="", model=self.model, engine="hf", max_new_tokens=1, request_timeout=0.0
        )
        return revision_of(named)

    def _load_tokenizer(self) -> Any:
        if self._given_tokenizer is not None:
            return copy.deepcopy(self._given_tokenizer)
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.model, trust_remote_code=self._remote_code)

    async def _complete(self, ids: list[int], params: dict[str, Any]) -> Reply:
        assert self._engine is not None
        how = SamplingParams.from_dict(params, max_tokens=1)
        try:
            output = await self._engine.generate(ids, how, uuid4().hex)
        except (ValueError, RuntimeError) as error:
            return Reply(outcome=Outcome.engine_error, error=str(error))
        return Reply(
            outcome=Outcome.ok,
            token_ids=tuple(output.token_ids),
            log_probs=tuple(output.log_probs),
            finish_reason=output.finish_reason,
        )

    async def _told(self, ids: list[int], text_ids: list[int]) -> Reply:
        assert self._engine is not None
        how = SamplingParams(max_tokens=1, seed=0, prompt_logprobs=0, logprob_start_len=len(ids))
        try:
            output = await self._engine.generate([*ids, *text_ids], how, uuid4().hex)
        except (ValueError, RuntimeError) as error:
            return Reply(outcome=Outcome.engine_error, error=str(error))
        return Reply(outcome=Outcome.ok, log_probs=tuple(output.prompt_log_probs))


def _in_memory(model: Any) -> str:
    """Of the weights that a model has now, by the beginning and the sum of each tensor."""
    digest = blake2b(digest_size=16)
    with torch.no_grad():
        for name, tensor in sorted(model.state_dict().items()):
            numbers = tensor.detach().float().flatten()
            digest.update(f"{name}|{tuple(tensor.shape)}|{float(numbers.double().sum())!r}|".encode())
            digest.update(numbers[:_SAMPLE].cpu().numpy().tobytes())
    return f"memory:{digest.hexdigest()}"
