"""When a start has to make up for a validation. What a validation counts is in `verl.classmate.metrics`."""

from omegaconf import DictConfig

from verl.trainer.run.folder import RunFolder


def make_up_for_validation(config: DictConfig, folder: RunFolder, *, total_steps: int) -> None:
    """Lets a run validate before its first step where it resumes one that ended between a save and its validation."""
    step, every = folder.resumed_from or 0, config.trainer.test_freq
    due = step > 0 and every > 0 and (step % every == 0 or step >= total_steps)
    if due and not any(key.startswith("val-core/") for key in folder.metrics_of(step)):
        config.trainer.val_before_train = True
