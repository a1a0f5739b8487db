"""The metrics of a teacher's step, from the records of its rows.

>>> metrics.update(teaching_metrics(records))
>>> metrics["rcl/apg"], metrics["rcl/student/weak/ndr"]
(0.21, 0.97)
"""

from collections.abc import Sequence

from verl.classmate.record import RowRecord
from verl.teaching.metrics import step_metrics
from verl.teaching.taught import Taught


def teaching_metrics(records: Sequence[RowRecord]) -> dict[str, float]:
    """All metrics of a step; none in a run that trains no teacher.

    Args:
        records: of the step's real rows, or of a validation.
    """
    found = [Taught.from_record(record.teaching) for record in records if record.teaching is not None]
    pairs = [(row, reward) for one in found for row, reward in zip(one.rows, one.rewards, strict=True)]
    return step_metrics([row for row, _ in pairs], [reward for _, reward in pairs])
