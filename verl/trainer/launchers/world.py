"""The embedded teaching world: what `N = 0` without a data set runs on.

One decision: sizes are YAML (`configs/world`), places are overrides, since only a launcher knows where the world lies.
What a user has typed stays.

    >>> World(Path("data/teaching_world")).student("weak")
    PosixPath('data/teaching_world/students/weak')
"""

import os
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError
from verl.trainer.launchers.datasets import Preparation, Rows, prepared
from verl.trainer.launchers.folders import weights_in
from verl.trainer.launchers.phases import Phase
from verl.trainer.launchers.steps import Step
from verl.trainer.launchers.values import hydra_value

BUILDER = "verl.data_preprocessing.teaching_world"
VARIABLE = "TEACHING_WORLD"
"""Environment variable that names another folder for the world."""

STUDENTS, UNSEEN = ("weak", "strong"), ("unseen_llama", "unseen_mixed")
WARMUP_FORMAT = "adaptive_teaching"
"""Format of its warm-up: question, outline, diagnosis, teaching."""

TEACHING_LIMIT = 64
"""Most tokens of a teaching that its teacher was taught to write; also in `configs/world/rl.yaml`."""


@dataclass(frozen=True)
class World:
    """A teaching world, built or not."""

    folder: Path

    @classmethod
    def of(cls, data: Path) -> "World":
        """The one that the environment names, else the one below `data`."""
        named = os.environ.get(VARIABLE)
        return cls(Path(named).expanduser().absolute() if named else data / "teaching_world")

    def student(self, name: str) -> Path:
        """A frozen student."""
        return self.folder / "students" / name

    def students(self) -> dict[str, list[dict[str, Any]]]:
        """Those that a teacher is trained with, and those that it meets in validation only, as a config has them."""
        return {
            "rcl.students": [{"model": str(self.student(name))} for name in STUDENTS],
            "rcl.unseen_students": [{"model": str(self.student(name))} for name in UNSEEN],
        }

    @property
    def templates(self) -> Path:
        """The prompts that its models know."""
        return self.folder / "templates.yaml"

    def build(self) -> Step | None:
        """What builds it; None where it stands, and the code that builds it is not newer."""
        manifest = self.folder / "manifest.json"
        if not manifest.exists() or self._code_is_newer(manifest):
            argv = (sys.executable, "-m", BUILDER, "--local_dir", str(self.folder))
            return Step(title="builds the embedded teaching world (minutes, once)", argv=argv)
        return None

    def _code_is_newer(self, manifest: Path) -> bool:
        # A world that somebody else names is taken as it is.
        if os.environ.get(VARIABLE):
            return False
        code = Path(__file__).resolve().parents[2] / "data_preprocessing"
        return any(file.stat().st_mtime > manifest.stat().st_mtime for file in code.rglob("*.py"))

    def touch(self) -> None:
        """Remembers that the builder has been asked: it leaves a manifest as it is when nothing changes."""
        manifest = self.folder / "manifest.json"
        if manifest.exists():
            manifest.touch()

    def warmup_rows(self) -> Rows:
        """The rows of the supervised warm-up, which are prepared in the world's own folder."""
        how = Preparation(
            rows="teacher_sft",
            data=self.folder,
            data_format=WARMUP_FORMAT,
            kind="rcl",
            templates=self.templates,
            max_teaching_tokens=TEACHING_LIMIT,
        )
        return prepared(str(self.folder / "warmup.jsonl"), how)

    def places(self, phase: Phase, *, typed: Collection[str], teacher: str) -> list[str]:
        """Overrides that say where its parts lie, but for students and the rows of a warm-up.

        Args:
            phase: what is run.
            typed: keys that the user has set.
            teacher: the folder of the teacher to start from.
        """
        if phase.family == "sft":
            values: dict[str, object] = {"model.path": teacher}
        else:
            values = {
                "actor_rollout_ref.model.path": teacher,
                "rcl.templates_file": str(self.templates),
                "data.train_files": str(self.folder / "train.parquet"),
                "data.val_files": str(self.folder / "test.parquet"),
            }
        return [f"{key}={hydra_value(value)}" for key, value in values.items() if key not in typed]


def warm_teacher(candidates: Collection[Path]) -> str:
    """The weights of the warmed-up teacher, in the first of the places where it may have been left.

    Raises:
        ConfigError: it is in none of them.
    """
    for folder in candidates:
        if folder.is_dir():
            found = weights_in(str(folder))
            if (Path(found) / "config.json").exists():
                return found
    places = " or ".join(map(str, dict.fromkeys(candidates)))
    raise ConfigError(
        f"there is no warmed-up teacher in {places}; run `./launch.sh 0 configs/run/teacher_sft.yaml` here first, or "
        f"write model_name_or_path=FOLDER"
    )
