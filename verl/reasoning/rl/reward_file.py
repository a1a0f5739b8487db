"""A user's reward on its way to the processes that score: a Python file beside the training's inputs.

One decision: functions are written by value (cloudpickle), so that one of a notebook or of `__main__` arrives as well,
and only by the process of the user itself. The file holds the hash of what it reads and refuses anything else.

    >>> path = write_reward(reward_fn, folder, timeout_s=60.0)        # reward.custom_reward_function.path
"""

import hashlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray import cloudpickle

from verl.reasoning.manifest import config_hash
from verl.trainer.run.state import write_atomically

NAME, PICKLE = "reward_fn.py", "reward_fn.pkl"
"""In the folder of inputs."""

_TEXT = '''"""The reward of this training, as workers load it. Written by the process that started the training."""

import hashlib
import pickle
import sys
from pathlib import Path

from verl.reasoning.scoring import to_verl_compute_score

for _entry in {paths!r}:
    if _entry not in sys.path:
        sys.path.append(_entry)
_bytes = (Path(__file__).parent / {pickle!r}).read_bytes()
if hashlib.sha256(_bytes).hexdigest() != {digest!r}:
    raise RuntimeError("the pickled reward is not the one that this file was written for; start the training again")
_compute = to_verl_compute_score(pickle.loads(_bytes), timeout_s={timeout!r})


async def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    return await _compute(data_source, solution_str, ground_truth, extra_info, **kwargs)
'''


def write_reward(reward: Callable[..., Any], folder: Path, *, timeout_s: float) -> Path:
    """Writes the file, and what it reads.

    Args:
        reward: as the user gave it.
        folder: of the training's inputs.
        timeout_s: longest time of one call, in seconds.

    Raises:
        ValueError: the function cannot be pickled, for instance since it holds a lock or a connection.
    """
    try:
        pickled = cloudpickle.dumps(reward)
    except Exception as error:
        raise ValueError(
            f"reward_fn cannot be handed to other processes ({type(error).__name__}: {error}); open connections and "
            "files within the function"
        ) from error
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{PICKLE}.partial"
    partial.touch(mode=0o600)
    partial.write_bytes(pickled)
    partial.replace(folder / PICKLE)
    paths = [str(Path(entry or ".").absolute()) for entry in sys.path]
    text = _TEXT.format(paths=paths, pickle=PICKLE, digest=hashlib.sha256(pickled).hexdigest(), timeout=timeout_s)
    write_atomically(folder / NAME, text)
    return folder / NAME


def identity(reward: Callable[..., Any]) -> list[str]:
    """Which reward it is: hashes of its code, and of what it has taken from where it was written (closure, defaults).

    What the functions that it calls do is not looked at.
    """
    function = inspect.unwrap(reward)
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    taken = [cells, getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None)]
    return [config_hash(reward), hashlib.sha256(cloudpickle.dumps(taken)).hexdigest()]
