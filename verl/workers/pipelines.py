"""The row pipeline of a run: a teacher's where the config has the node `rcl`, else the classmates'.

>>> pipeline = pipeline_of(config, tokenizer, client)
"""

from typing import Any

from omegaconf import DictConfig

from verl.teaching.config import this_teaching
from verl.workers.row_pipeline import RowPipeline
from verl.workers.rows.asking import AsksStudents
from verl.workers.teaching_pipeline import TeachingPipeline


def pipeline_of(config: DictConfig, tokenizer: Any, client: AsksStudents) -> RowPipeline:
    """Loads the readers' tokenizers and what scores rows from the whole config.

    Raises:
        ConfigError: a reader that cannot be asked.
    """
    teaching = this_teaching(config)
    if teaching is None:
        return RowPipeline.build(config, tokenizer, client)
    return TeachingPipeline.of_teacher(config, tokenizer, client, teaching)
