"""Formats of data sets with thoughts, by the id that `data.format` names; register your own here.

    from custom_data.reasoning_datasets_info import DATA_CONFIGS, DataConfig, register_data_config

    register_data_config("mine", DataConfig(think_tag="think", solution_tag="answer", tag_format="r1"))

`python -m verl.data_preprocessing.teaching_rows`, started in this repository's folder, imports this file.
"""

from verl.data_preprocessing.reasoning_traces import (
    DATA_CONFIGS,
    Columns,
    DataConfig,
    data_config,
    register_data_config,
)

__all__ = ["DATA_CONFIGS", "Columns", "DataConfig", "data_config", "register_data_config"]
