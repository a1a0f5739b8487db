"""`fine_tune`: pairs of a problem and an answer, and a chat model that has learnt them.

One decision: the folder is whole when `fine_tuned.json` is in it, which is written last and says from what it was made.
The same call again returns it at once; a call that was killed goes on at its last checkpoint; another call is refused.

    >>> fine_tune("models/base", [("What is 3 + 4?", "3 + 4 = 7.")], Path("out/rft"), FineTuneSettings(epochs=2))
    PosixPath('out/rft')
"""

import dataclasses
import json
import shutil
from hashlib import blake2b
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError
from verl.reasoning.sft import with_transformers, with_verl
from verl.reasoning.sft.chat import Pairs, pairs_of
from verl.reasoning.sft.settings import FineTuneSettings
from verl.trainer.run.state import write_atomically
from verl.workers.model_revision import folder_revision

MARK = "fine_tuned.json"
STARTED = "started.json"


def fine_tune(model_path: str | Path, rows: Pairs, output_dir: str | Path, settings: FineTuneSettings) -> Path:
    """Trains a model on the answers of pairs, and returns its folder, which holds the tokenizer too.

    Args:
        model_path: folder or hub name of a causal language model.
        rows: problem -> answer, or pairs of them.
        output_dir: becomes a model's folder; `run/` in it is what the trainer leaves.
        settings: how.

    Raises:
        ConfigError: the folder holds a model that was made from something else, or a setting is not possible.
        ValueError: there are no rows, or all are too long.
        RuntimeError: training failed; the message names the log.
    """
    folder, pairs, trainer = Path(output_dir), pairs_of(rows), settings.trainer()
    made_from = _made_from(str(model_path), pairs, settings, trainer)
    if _reads(folder / MARK).get("made_from") == made_from:
        # A kill behind the mark left them there, and the folder is a model's.
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        return folder
    started = _reads(folder / STARTED).get("made_from")
    if started is not None and started != made_from:
        changed = sorted(key for key in made_from if made_from[key] != started.get(key))
        raise ConfigError(
            f"{folder} holds a fine-tuning with other {', '.join(changed)}; name another folder, or remove this one"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / STARTED, json.dumps({"made_from": made_from}))
    work = with_verl.train if trainer == "verl" else with_transformers.train
    numbers = work(str(model_path), pairs, folder, settings)
    write_atomically(folder / MARK, json.dumps({"made_from": made_from, **numbers}, indent=2))
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return folder


def told_of(folder: str | Path) -> dict[str, Any]:
    """What is known of a fine-tuned model: `rows`, `left_out`, `steps`, `tokens`, `losses`; empty if not whole."""
    return _reads(Path(folder) / MARK)


def weights_of(model: str | Path) -> str:
    """Which weights a folder holds now; a hub name as it is."""
    folder = Path(model).expanduser()
    return folder_revision(folder.resolve()) if folder.is_dir() else str(model)


def _made_from(model: str, pairs: list[tuple[str, str]], settings: FineTuneSettings, trainer: str) -> dict[str, Any]:
    said = dataclasses.asdict(settings)
    del said["backend"], said["device"]
    return {
        "model": weights_of(model),
        "rows": blake2b(json.dumps(pairs).encode(), digest_size=16).hexdigest(),
        **said,
        "trainer": trainer,
    }


def _reads(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
