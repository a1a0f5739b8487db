"""The model that judges steps: a backbone of transformers, and what is read at the tag behind each step.

One decision: a folder of it is one of Hugging Face. `AutoModelForTokenClassification` loads one with a linear head, and
such a folder of another library's loads here; a generative one is an ordinary causal language model.

    >>> model, tokenizer = ProcessRewardModel.from_base(PRMConfig(base_model_name="models/policy"))
    >>> model.save(Path("models/prm"), tokenizer)
    >>> model, tokenizer = ProcessRewardModel.load(Path("models/prm"))
"""

import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn

from verl.workers.prm.encoding import Encoder, add_tag
from verl.workers.prm.spec import ModelOptions, PRMSpec
from verl.workers.prm.weights import load_backbone, quiet, read_head, save_folder

REFERENCE = "reference"
"""Folder in the model's, of the base model of an implicit one."""
SIGNS = ("-", "+")
"""What a generative model says of a wrong and of a right step."""


class ProcessRewardModel(nn.Module):
    """Gives two logits, wrong and right, for each step. Shape suffixes: B solutions, T tokens, S steps, D width."""

    def __init__(self, backbone: Any, spec: PRMSpec, *, signs: tuple[int, int] | None = None) -> None:
        """Takes the backbone as it is; `from_base` and `load` make one.

        Args:
            backbone: a base model, or a causal language model where the architecture is generative or implicit.
            spec: what it is.
            signs: tokens of `-` and `+`, of a generative one.
        """
        super().__init__()
        self.backbone = backbone
        self.spec = spec
        self.signs = signs
        self.dropout = nn.Dropout(spec.dropout_rate)
        self.reference: Any = None
        self.score: nn.Module | None = None
        if not self.speaks:
            self.score = _head(backbone.config.get_text_config().hidden_size, spec)

    @property
    def speaks(self) -> bool:
        """Whether the backbone has a language model's head, so that there is no other."""
        return self.spec.architecture == "generative" or self.spec.implicit

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.parameters()).device

    @classmethod
    def from_base(
        cls, config: ModelOptions, tokenizer: Any = None, base: Any = None
    ) -> "tuple[ProcessRewardModel, Any]":
        """A new one with an untrained head, and its tokenizer, to which a tag may have been added.

        Args:
            config: says which base model, and what is made of it.
            tokenizer: its tokenizer; None: the one of `config.base_model_name`.
            base: a model of transformers in place of `config.base_model_name`; it is copied.

        Raises:
            ConfigError: the tokenizer has no chat template, and one is wanted.
        """
        if tokenizer is None:
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(config.base_model_name)
        encoder = Encoder(tokenizer, tag=config.step_tag, template=config.template, max_length=config.max_length)
        spec = PRMSpec.of(config, step_tag=encoder.tag, template=encoder.template)
        torch.manual_seed(config.seed)
        speaks = spec.architecture == "generative" or spec.implicit
        if base is None:
            backbone = load_backbone(config.base_model_name, speaks=speaks)
        else:
            backbone = copy.deepcopy(base if speaks else getattr(base, "base_model", base))
        if len(tokenizer) > backbone.get_input_embeddings().num_embeddings:
            with quiet():
                backbone.resize_token_embeddings(len(tokenizer))
        model = cls(backbone, spec, signs=_signs(tokenizer) if spec.architecture == "generative" else None)
        if spec.implicit:
            model.reference = _frozen(copy.deepcopy(backbone))
        return model, tokenizer

    @classmethod
    def load(
        cls, folder: Path | str, *, device: str = "cpu", dtype: str = "float32"
    ) -> "tuple[ProcessRewardModel, Any]":
        """The model and the tokenizer of a folder, ready to score.

        Raises:
            ValueError: the folder holds no process reward model.
        """
        from transformers import AutoTokenizer

        folder = Path(folder)
        spec = PRMSpec.read(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        add_tag(tokenizer, spec.step_tag)
        speaks = spec.architecture == "generative" or spec.implicit
        backbone = load_backbone(str(folder), speaks=speaks, dtype=dtype)
        model = cls(backbone, spec, signs=_signs(tokenizer) if spec.architecture == "generative" else None)
        if model.score is not None:
            model.score.load_state_dict(read_head(folder))
            model.score.to(getattr(torch, dtype))
        if spec.implicit:
            model.reference = _frozen(load_backbone(str(folder / REFERENCE), speaks=True, dtype=dtype))
        return model.to(device).eval(), tokenizer

    def save(self, folder: Path | str, tokenizer: Any) -> Path:
        """Writes weights, tokenizer and `prm.json`; returns the folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        save_folder(folder, self.backbone, self.score)
        if self.reference is not None:
            save_folder(folder / REFERENCE, self.reference, None)
        tokenizer.save_pretrained(folder)
        self.spec.write(folder)
        return folder

    def encoder(self, tokenizer: Any) -> Encoder:
        """Makes the tokens that this model reads."""
        return Encoder(
            tokenizer,
            tag=self.spec.step_tag,
            template=self.spec.template,
            max_length=self.spec.max_length,
            strip=self.spec.strip,
        )

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any] | None = None) -> None:
        """As of transformers' models; the trainer calls it."""
        kwargs = gradient_checkpointing_kwargs or {"use_reentrant": False}
        self.backbone.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kwargs)

    def freeze_backbone(self, frozen: bool) -> None:
        """Lets only the head learn, or everything again. A model without a head of its own cannot be frozen so."""
        for parameter in self.backbone.parameters():
            parameter.requires_grad_(not frozen)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        places: torch.Tensor,
        starts: torch.Tensor,
    ) -> torch.Tensor:
        """Logits (B, S, 2) of wrong and right; what is padding among the steps is to be ignored.

        Args:
            input_ids: (B, T) int64, padded on the right.
            attention_mask: (B, T), 0 on padding.
            places: (B, S) int64, of the tag behind each step; 0 on padding.
            starts: (B, S) int64, where each step begins.
        """
        if self.spec.implicit:
            return self._implicit(input_ids, attention_mask, places, starts)
        body = self.backbone.base_model if self.speaks else self.backbone
        # Behind padding on the right causal attention never looks: without a mask it takes its fast path.
        mask = attention_mask if self.spec.architecture == "encoder" else None
        given = {} if self.spec.architecture == "encoder" else {"use_cache": False}
        hidden_BTD = body(input_ids=input_ids, attention_mask=mask, **given).last_hidden_state
        if self.spec.architecture == "encoder":
            hidden_BSD = _mean_BSD(hidden_BTD, starts, places)
        else:
            hidden_BSD = hidden_BTD.gather(1, places[..., None].expand(-1, -1, hidden_BTD.shape[-1]))
        if self.score is not None:
            return self.score(self.dropout(hidden_BSD)).float()
        assert self.signs is not None
        head = self.backbone.get_output_embeddings()
        return nn.functional.linear(self.dropout(hidden_BSD), head.weight[list(self.signs)]).float()

    def _implicit(
        self, input_ids: torch.Tensor, mask: torch.Tensor, places: torch.Tensor, starts: torch.Tensor
    ) -> torch.Tensor:
        """0 and beta * the log-ratio of all steps so far: its sigmoid at the last step is learnt from the outcome."""
        ours_BT = _log_probs(self.backbone, input_ids)
        with torch.no_grad():
            base_BT = _log_probs(self.reference, input_ids)
        sums_BT = ((ours_BT - base_BT) * mask).cumsum(1)
        # Tokens of a step: from its first one up to the one before the tag.
        steps_BS = _at(sums_BT, places - 1) - _at(sums_BT, starts - 1)
        total_BS = self.spec.implicit_beta * steps_BS.cumsum(1)
        return torch.stack([torch.zeros_like(total_BS), total_BS], dim=-1)


def _head(width: int, spec: PRMSpec) -> nn.Module:
    if spec.head == "linear":
        return nn.Linear(width, 2)
    middle = spec.head_width or width
    # The layers of vLLM's models for process rewards.
    return nn.Sequential(nn.Linear(width, middle), nn.ReLU(), nn.Linear(middle, 2))


def _mean_BSD(hidden_BTD: torch.Tensor, starts_BS: torch.Tensor, places_BS: torch.Tensor) -> torch.Tensor:
    """The mean over each step's own tokens: neither padding nor other steps are in it."""
    at_T = torch.arange(hidden_BTD.shape[1], device=hidden_BTD.device)
    inside_BST = (at_T >= starts_BS[..., None]) & (at_T <= places_BS[..., None])
    weights_BST = inside_BST.to(hidden_BTD.dtype)
    return weights_BST @ hidden_BTD / weights_BST.sum(-1, keepdim=True).clamp(min=1)


def _log_probs(model: Any, input_ids: torch.Tensor) -> torch.Tensor:
    """(B, T): the log-probability of each token behind the ones before it; 0 of the first."""
    logits_BTV = model(input_ids=input_ids, use_cache=False).logits[:, :-1].float()
    told_BT = logits_BTV.log_softmax(-1).gather(-1, input_ids[:, 1:, None]).squeeze(-1)
    return nn.functional.pad(told_BT, (1, 0))


def _at(sums_BT: torch.Tensor, places_BS: torch.Tensor) -> torch.Tensor:
    found = sums_BT.gather(1, places_BS.clamp(min=0))
    return torch.where(places_BS < 0, torch.zeros_like(found), found)


def _frozen(model: Any) -> Any:
    return model.eval().requires_grad_(False)


def _signs(tokenizer: Any) -> tuple[int, int]:
    ids = [tokenizer.encode(sign, add_special_tokens=False)[-1] for sign in SIGNS]
    return ids[0], ids[1]
