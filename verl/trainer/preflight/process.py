"""Whether rewards of steps can be had: the folder holds a process reward model, of the kind that the estimator reads.

>>> check_process(config, run)                                       # raises ConfigError
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl.classmate.config import RunConfig
from verl.classmate.errors import ConfigError
from verl.classmate.process_config import NODE
from verl.workers.prm.spec import PRMSpec


def check_process(config: Mapping[str, Any], run: RunConfig) -> None:
    """The model of `reward_model.process` can be loaded, and gives what the estimator reads.

    Raises:
        ConfigError: it cannot, or does not.
    """
    model = run.reward.process.model
    if model is None:
        return
    if "rcl" in config:
        raise ConfigError(f"{NODE}.model: a teacher's teaching has no steps that are judged; write null")
    try:
        spec = PRMSpec.read(Path(model))
    except ValueError as error:
        raise ConfigError(f"{NODE}.model: {error}") from error
    if run.algorithm.adv_estimator == "prime" and not spec.implicit:
        raise ConfigError(
            f"algorithm.adv_estimator=prime reads log-ratios, and {NODE}.model={model} is no implicit model; write "
            "algorithm.adv_estimator=process_grpo, or train it with PRMConfig(implicit=True)"
        )
