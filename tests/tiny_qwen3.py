"""A small Qwen3, as a config."""

from transformers import Qwen3Config


def tiny_qwen3(vocab_size: int, *, width: int = 32, layers: int = 2, **more: object) -> Qwen3Config:
    """Two heads that share keys and values; `more` are other fields of the config."""
    return Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=width // 2,
        **more,
    )
