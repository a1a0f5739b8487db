"""The metrics of a teacher's step, from the records of its rows.

>>> metrics.update(teaching_metrics(records))
>>> metrics["rcl/apg"], metrics["rcl/student/weak/ndr"]
(0.21, 0.97)
"""

from collections.abc import Sequence

from verl.classmate.record import RowRecord
from verl.teaching.metrics import rlt_metrics, step_metrics
from verl.teaching.rlt import RltRow
from verl.teaching.taught import Taught


def teaching_metrics(records: Sequence[RowRecord]) -> dict[str, float]:
    """All metrics of a step; none in a run that trains no teacher.

    Args:
        records: of the step's real rows, or of a validation.
    """
    found = [Taught.from_record(record.teaching) for record in records if record.teaching is not None]
    pairs = [
        (row, reward) for one in found if one.rcl is not None for row, reward in zip(one.rows, one.rewards, strict=True)
    ]
    explained = [(RltRow(explanation=one.teaching.text, closed=one.closed), one.rlt) for one in found if one.rlt]
    return step_metrics([row for row, _ in pairs], [reward for _, reward in pairs]) | rlt_metrics(
        [row for row, _ in explained], [reward for _, reward in explained]
    )
