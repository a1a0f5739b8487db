"""How classmates sample: the node `reward_model.classmate_generation_configs`.

>>> ClassmateGenerationConfig(temperature=0.3).sampling(validate=False).temperature
0.3
"""

from dataclasses import dataclass, field

from verl.classmate.typed import COUNT, require

GENERATION_NODE = "reward_model.classmate_generation_configs"


@dataclass(frozen=True, kw_only=True)
class ValGenerationConfig:
    """How classmates sample in validation."""

    do_sample: bool = False
    """Sample with the temperature above, or take the most probable token."""
    n: int = field(default=1, metadata=COUNT)
    """Answers of each classmate per row."""


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """What a classmate is asked for: the training or the validation view of `ClassmateGenerationConfig`."""

    temperature: float
    """0 means greedy."""
    top_p: float
    """Nucleus mass."""
    top_k: int
    """Number of most probable tokens; -1 means all."""
    max_new_tokens: int
    """Most tokens of one answer."""
    n: int
    """Answers (S) of each classmate per row."""


@dataclass(frozen=True, kw_only=True)
class ClassmateGenerationConfig:
    """How classmates sample."""

    max_new_tokens: int = field(default=256, metadata=COUNT)
    """Most tokens of one classmate answer."""
    do_sample: bool = True
    """Sample, or take the most probable token."""
    temperature: float = field(default=0.7, metadata={"at_least": 0, "write": "0 (greedy) or more"})
    """Softmax temperature."""
    top_p: float = field(default=0.9, metadata={"above": 0, "at_most": 1, "write": "1 to switch it off"})
    """Nucleus mass."""
    top_k: int = -1
    """Number of most probable tokens to sample from; -1 means all."""
    num_return_sequences: int = field(default=1, metadata=COUNT)
    """Answers (S) of each classmate per row; all are used."""
    max_model_len: int | None = None
    """Context of a classmate in its own tokens; null: max_prompt_length + max_response_length + max_new_tokens."""
    val_kwargs: ValGenerationConfig = field(default_factory=ValGenerationConfig)
    """What differs in validation."""

    def __post_init__(self) -> None:
        require(
            self.top_k == -1 or self.top_k >= 1,
            f"{GENERATION_NODE}.top_k: {self.top_k} is not possible; write -1 for all",
        )
        require(
            self.max_model_len is None or self.max_model_len > self.max_new_tokens,
            f"{GENERATION_NODE}.max_model_len: {self.max_model_len} leaves no room for a prompt beside "
            f"max_new_tokens={self.max_new_tokens}; write a larger number or null",
        )

    def sampling(self, *, validate: bool) -> SamplingSettings:
        """The sampling parameters of training or of validation."""
        sample = self.val_kwargs.do_sample if validate else self.do_sample
        return SamplingSettings(
            temperature=self.temperature if sample else 0.0,
            top_p=self.top_p if sample else 1.0,
            top_k=self.top_k if sample else -1,
            max_new_tokens=self.max_new_tokens,
            n=self.val_kwargs.n if validate else self.num_return_sequences,
        )

    def context_length(self, *, max_prompt_length: int, max_response_length: int) -> int:
        """`max_model_len`, or what null stands for, in tokens."""
        return self.max_model_len or max_prompt_length + max_response_length + self.max_new_tokens
