"""Batches in which a row's numbers do not depend on what else is there; for `deterministic=True`.

Decision: every forward has a fixed number of rows, and prompts are padded to multiples of `BUCKET`, on one thread. CPU
matrix kernels then treat each row alike wherever it stands. That is checked on the model itself, at the engine's start;
where it does not hold, one row runs at a time.
"""

import logging

import torch
from transformers import PreTrainedModel

from verl.workers.rollout.hf_rollout_server.cache import growing_cache

logger = logging.getLogger(__name__)

BUCKET = 128
"""Prompts are padded to a multiple of this, with one pad at least, so that every forward is masked."""
_MOST_ROWS = 32
"""Rows of every forward. A multiple of 16 fills the kernels' tiles; 32 rows cost little."""


def padded_length(prompt_length: int) -> int:
    """Columns that a prompt takes, with its padding."""
    return (prompt_length // BUCKET + 1) * BUCKET


@torch.inference_mode()
def fixed_rows(model: PreTrainedModel, vocab_size: int) -> int:
    """Rows of every forward: `_MOST_ROWS`, or 1 where a row's logits depend on its neighbours."""
    vocabulary = torch.arange(vocab_size)
    prompt_L = vocabulary.repeat(-(-BUCKET // vocab_size))[:BUCKET]

    def logits_of_row(place: int, neighbour_shift: int) -> torch.Tensor:
        ids_BL = prompt_L.roll(neighbour_shift).repeat(_MOST_ROWS, 1)
        ids_BL[place] = prompt_L
        mask_BL = torch.ones_like(ids_BL)
        mask_BL[:, 0] = 0
        cache = growing_cache(model.config)
        prefill = model(input_ids=ids_BL, attention_mask=mask_BL, past_key_values=cache, logits_to_keep=1).logits
        mask_BL = torch.nn.functional.pad(mask_BL, (0, 1), value=1)
        decode = model(input_ids=ids_BL[:, -1:], attention_mask=mask_BL, past_key_values=cache).logits
        return torch.cat([prefill, decode], dim=1)[place]

    reference = logits_of_row(0, 1)
    if all(torch.equal(reference, logits_of_row(place, place + 1)) for place in (1, 7, 17, _MOST_ROWS - 1)):
        return _MOST_ROWS
    logger.warning("engine hf: deterministic=True runs one request at a time, since kernels here mix rows")
    return 1
