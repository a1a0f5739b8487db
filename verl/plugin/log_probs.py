"""Log-probs of labels where no kernel computes them: many tokens at a time.

Decision: upstream (0.9.1) loops over tokens in Python, so that it needs no second copy of the logits. Parts of a set
size need little more memory and give the same numbers to the last bit, since a token's sum is its own.

    >>> log_probs_in_parts(torch.zeros(2, 4), torch.tensor([0, 3]))
    tensor([-1.3863, -1.3863])
"""

import torch

_PART_BYTES = 64 * 2**20
"""Of logits that are summed at a time."""


def log_probs_in_parts(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Log-probs (...) of labels (...) under logits (..., V); stands for upstream's `logprobs_from_logits_v2`."""
    if not labels.numel():
        return logits.new_zeros(labels.shape)
    tokens = max(1, _PART_BYTES // (logits.element_size() * logits.shape[-1]))
    # The gradients of `split` are put together once; slices would each make one of the whole.
    parts = logits.flatten(0, -2).split(tokens)
    if logits.dtype in (torch.float32, torch.float64):
        chosen = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        return chosen - torch.cat([torch.logsumexp(part, dim=-1) for part in parts]).view(labels.shape)
    # With fewer digits the difference of two such numbers would be too coarse.
    wanted = labels.flatten().unsqueeze(-1).split(tokens)
    pairs = zip(parts, wanted, strict=True)
    chosen_parts = [torch.log_softmax(part, dim=-1).gather(-1, label) for part, label in pairs]
    return torch.cat(chosen_parts).view(labels.shape)
