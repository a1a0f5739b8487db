"""Upstream's dataset, where a question may stand for several students: one row, and so one group, for each.

One decision: which student a row is for stands in the row (`extra_info.student`), so that sampler, checkpoints and dump
treat it as any other row.

    data.custom_cls.path=pkg://verl.data_preprocessing.taught_dataset data.custom_cls.name=TaughtDataset
"""

from collections.abc import Mapping
from typing import Any

from verl.utils.dataset.rl_dataset import RLHFDataset

MODULE = "pkg://verl.data_preprocessing.taught_dataset"
"""What `data.custom_cls.path` names in a teacher's run."""


class TaughtDataset(RLHFDataset):
    """Rows of `data.train_files` and `data.val_files`, as often as `data.students` says."""

    without_truth: int = 0
    """Questions that are left out, since nobody knows their answers."""
    too_long: int = 0
    """Questions that are left out, since they alone fill `data.max_prompt_length`."""

    def _read_files_and_tokenize(self) -> None:
        """Upstream's rows, without those whose question nobody knows the answer to."""
        super()._read_files_and_tokenize()
        if self.config.students.needs_truth:
            before = len(self.dataframe)
            self.dataframe = self.dataframe.filter(
                has_truth, num_proc=None, desc="Leaving out rows without a ground truth"
            )
            self.without_truth = before - len(self.dataframe)

    def maybe_filter_out_long_prompts(self, dataframe: Any = None) -> Any:
        """As upstream does; counts them."""
        kept = super().maybe_filter_out_long_prompts(dataframe)
        self.too_long = len(dataframe) - len(kept)
        return kept

    @property
    def copies(self) -> int:
        """Rows that are made of each."""
        students = self.config.students
        return int(students.val if _same(self.original_data_files, self.config.val_files) else students.train)

    def __len__(self) -> int:
        return len(self.dataframe) * self.copies

    def __getitem__(self, item: int) -> dict[str, Any]:
        place, student = divmod(int(item), self.copies)
        row: dict[str, Any] = super().__getitem__(place)
        if self.copies > 1:
            info = dict(row["extra_info"])
            # Copies are told apart wherever a row is named by its number.
            row["extra_info"] = {**info, "index": f"{info['index']}/{student}", "student": student}
        return row


def rows_of_a_question(assignment: str, *, students: int, readers: int) -> dict[str, int]:
    """How many rows are made of a question, in training and in validation: the node `data.students`.

    Args:
        assignment: `rcl.protocol.student_assignment`.
        students: that are trained with.
        readers: these and the unseen ones.
    """
    return {"train": students if assignment == "all" else 1, "val": 1 if assignment == "joint" else readers}


def has_truth(row: Mapping[str, Any]) -> bool:
    """Whether a row has a ground truth that an answer can be compared with."""
    truth = (row.get("reward_model") or {}).get("ground_truth")
    return truth is not None and str(truth).strip() != ""


def _same(files: Any, named: Any) -> bool:
    """Whether the files of a dataset are those that a key names, one or a list."""
    return list(files) == ([named] if isinstance(named, str) else list(named or ()))
