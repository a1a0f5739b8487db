"""Proof that the frozen copy of the policy in self-play stays what it was: a hash of its weight files.

Decision: files, not parameters in memory. They are the same for every engine, an engine that is restarted reads them
again, and a run that is resumed compares with its first start. No engine of a classmate is ever sent weights. A file
is read again only where its size or time has changed, so that a check costs nothing with a large model.

    >>> guard = FrozenWeights("models/policy", record=run_folder / "self_play_weights.json")
    >>> guard.check()                         # raises ClassmateEngineError when the weights have changed
"""

import hashlib
import json
from pathlib import Path

from verl.classmate.errors import ClassmateEngineError

_PATTERNS = ("*.safetensors", "*.bin")


def weight_folder(model: str) -> Path | None:
    """The folder that holds a model's weights on this machine, for a hub name that of the local cache, else None."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    if "://" in model:
        return None
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(model, "config.json")
    return Path(config).parent if isinstance(config, str) else None


def _files(folder: Path) -> list[Path]:
    return sorted(file for pattern in _PATTERNS for file in folder.glob(pattern))


def _signature(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


class FrozenWeights:
    """The weights of one model as they were at the start of the run."""

    def __init__(self, model: str, *, record: Path) -> None:
        """Hashes the files, and compares with `record` where an earlier start of the run has written it.

        Args:
            model: path or hub name.
            record: JSON file of the run folder.

        Raises:
            ClassmateEngineError: the weights are not those with which the run began.
        """
        self.model = model
        self.folder = weight_folder(model)
        self._hashes: dict[str, tuple[tuple[int, int], str]] = {}
        current = self._digests()
        self.known = bool(current)
        """Whether the files are on this machine; elsewhere nothing is checked."""
        if not self.known:
            return
        if record.exists():
            self._expected = dict(json.loads(record.read_text()))
            self.check()
        else:
            self._expected = current
            record.write_text(json.dumps(current, indent=1) + "\n")

    def check(self) -> None:
        """Compares the files with what they were.

        Raises:
            ClassmateEngineError: one line that names the first file that differs.
        """
        if not self.known:
            return
        current = self._digests()
        for name in sorted(current.keys() | self._expected.keys()):
            if current.get(name) != self._expected.get(name):
                raise ClassmateEngineError(
                    f"self_play=frozen: the weights of {self.model} have changed since the run began ({name}); put the "
                    "start checkpoint back, then start again to resume"
                )

    def _digests(self) -> dict[str, str]:
        """sha256 of each weight file by its name."""
        digests = {}
        for file in _files(self.folder) if self.folder is not None else ():
            signature = _signature(file)
            known = self._hashes.get(file.name)
            if known is None or known[0] != signature:
                with file.open("rb") as content:
                    known = (signature, hashlib.file_digest(content, "sha256").hexdigest())
                self._hashes[file.name] = known
            digests[file.name] = known[1]
        return digests
