"""What the advantage needs of a scored row, as tensors."""

import torch

from verl.classmate.outcome import Outcome
from verl.classmate.row import ScoredRow


def advantage_fields(row: ScoredRow) -> dict[str, torch.Tensor]:
    """Scalars, `classmate_mask` and `classmate_segments` (R,), `classmate_scores` (M, S), `segment_rewards` (K,);
    `step_ends` and `process_rewards` (R,) where steps have rewards; `actor_mask` (R,) where the loss does not count all
    tokens."""
    scores = row.scores
    fields = {"classmate_mask": torch.tensor(row.mask, dtype=torch.int64)}
    for name in ("base_reward", "classmate_reward", "final_reward", "consistency_reward"):
        fields[name] = torch.tensor(getattr(scores, name), dtype=torch.float32)
    for name in ("main_valid", "main_correct", "classmate_valid", "consistency_valid"):
        fields[name] = torch.tensor(getattr(scores, name))
    fields["classmate_asked"] = torch.tensor(scores.counts)
    fields["gamma"] = torch.tensor(scores.gamma, dtype=torch.float32)
    fields["rollout"] = torch.tensor(row.read.answer.rollout)
    if row.method is not None:
        fields |= {name: torch.tensor(value, dtype=torch.float32) for name, value in row.method.fields.items()}
    if row.read.actor_mask is not None:
        fields["actor_mask"] = torch.tensor(row.read.actor_mask, dtype=torch.int64)
    if row.steps is not None:
        ends_R = torch.zeros(len(row.read.answer.response_ids), dtype=torch.int64)
        rewards_R = torch.zeros(ends_R.shape, dtype=torch.float32)
        ends = list(row.steps.ends)
        ends_R[ends], rewards_R[ends] = 1, torch.tensor(row.steps.rewards, dtype=torch.float32)
        fields |= {"step_ends": ends_R, "process_rewards": rewards_R}
        fields["process_valid"] = torch.tensor(row.steps.outcome is Outcome.ok)
    if scores.scores_MS.size:
        fields["classmate_scores"] = torch.tensor(scores.scores_MS, dtype=torch.float32)
    if scores.segment_rewards_K.size:
        fields["classmate_segments"] = torch.tensor(row.segments, dtype=torch.int64)
        fields["segment_rewards"] = torch.tensor(scores.segment_rewards_K, dtype=torch.float32)
    return fields
